// One format for saved sessions and for the cache on disk: token ids, a note, and the state after
// the first tokens. docs/design/checkpoints.md has its bytes.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/mapped_file.hpp"
#include "io/partial_file.hpp"

namespace mtlqwen {

using Fingerprint = std::array<uint8_t, 16>;  // of a model

[[nodiscard]] std::string to_hex(const Fingerprint& fingerprint);

// Where states come from. One that agrees in all but arithmetic can be read by the engine, but need
// not have the bits that its own kernels would give.
struct StateOrigin {
  Fingerprint model{};
  uint64_t arithmetic = 0;   // of the kernels that wrote it
  uint32_t n_planes = 0;     // K and V of each attention layer
  uint64_t token_bytes = 0;  // of one token in one plane
  uint64_t bank_bytes = 0;   // GDN states of all layers
};

struct CheckpointHeader {
  StateOrigin origin;
  std::span<const int32_t> token_ids;
  std::string_view note;
  uint32_t state_tokens = 0;  // the state stands after as many of token_ids; 0: there is none
};

// What a file with a state holds besides: bank_bytes, and state_tokens * token_bytes of each plane.
struct StatePieces {
  std::span<const uint8_t> bank;
  std::vector<std::span<const uint8_t>> planes;
};

// Of the whole file. Throws CapacityError where that leaves 63 bits.
[[nodiscard]] uint64_t checkpoint_bytes(const CheckpointHeader& header);

// Atomic and durable: PartialFile. Throws CapacityError where the disk is full or somebody else
// writes the same file now, FormatError where the path cannot be written.
void write_checkpoint(const std::filesystem::path& path, const CheckpointHeader& header,
                      const StatePieces& pieces);

// Writes and publishes a file of checkpoint_bytes(header).
void write_checkpoint(PartialFile file, const CheckpointHeader& header, const StatePieces& pieces);

// A mapped checkpoint. The head (all but bank and planes) is checked when it is opened, bank and
// planes each time they are asked for; pages are read from the disk at that moment. Any damage is a
// FormatError. A const object may be used from any thread.
class CheckpointFile {
 public:
  // Throws FormatError where the file is damaged, ModelError where another model made it. `engine`:
  // who wants to read it; its arithmetic is not compared.
  CheckpointFile(const std::filesystem::path& path, const StateOrigin& engine);
  CheckpointFile(MappedFile file, const StateOrigin& engine);

  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }
  [[nodiscard]] const CheckpointHeader& header() const { return header_; }  // views of the mapping

  // Of a file with a state.
  [[nodiscard]] std::span<const uint8_t> bank() const;
  [[nodiscard]] std::span<const uint8_t> plane(uint32_t index) const;

  // Everything that has not been checked yet.
  void verify() const;

 private:
  void read_head();
  void check_head() const;
  void check_engine(const StateOrigin& engine) const;
  [[nodiscard]] std::span<const uint8_t> section(uint64_t index, const std::string& name) const;
  template <class... Parts>
  [[noreturn]] void damaged(const Parts&... parts) const;

  MappedFile file_;
  CheckpointHeader header_;
  uint64_t head_bytes_ = 0;
  uint64_t n_sections_ = 0;
};

}  // namespace mtlqwen
