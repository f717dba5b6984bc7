#include "io/checkpoint_file.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/error.hpp"
#include "base/math.hpp"
#include "io/checksum.hpp"
#include "io/utf8.hpp"

namespace mtlqwen {
namespace {

// The largest page of the systems that we run on. All sections are padded to it, head included.
constexpr uint64_t kAlignment = 16 << 10;
constexpr uint64_t kChunkBytes = 256 << 10;  // summed, then written while a cache still holds it
constexpr uint32_t kVersion = 1;
// The first bytes catch what treats the file as text.
constexpr std::array<uint8_t, 8> kMagic = {0x89, 'M', 'T', 'L', 'Q', '\r', '\n', 0x1A};

// The file begins with it; sums of the sections, token ids and note follow.
struct FixedHead {
  std::array<uint8_t, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t n_planes = 0;
  uint64_t head_sum = 0;  // of the padded head, with 0 in this place
  Fingerprint model{};
  uint64_t arithmetic = 0;
  uint64_t token_bytes = 0;
  uint64_t bank_bytes = 0;
  uint32_t n_tokens = 0;
  uint32_t state_tokens = 0;
  uint64_t note_bytes = 0;
};
static_assert(sizeof(FixedHead) == 80 && offsetof(FixedHead, head_sum) == 16);

// What lies where follows from the counts alone. Nothing where it leaves 63 bits.
struct Layout {
  uint64_t n_sections;  // bank, then planes
  uint64_t plane_bytes;
  uint64_t head_bytes;
  uint64_t file_bytes;

  [[nodiscard]] static std::optional<Layout> of(const FixedHead& head);
};

constexpr uint64_t kMaxBytes = 1ULL << 62;  // align_up cannot overflow below it

std::optional<uint64_t> bounded(std::optional<uint64_t> bytes) {
  return bytes && *bytes <= kMaxBytes ? bytes : std::nullopt;
}

std::optional<Layout> Layout::of(const FixedHead& head) {
  const bool has_state = head.state_tokens != 0;
  const uint64_t n_sections = has_state ? uint64_t{head.n_planes} + 1 : 0;
  const uint64_t before_note =
      sizeof(FixedHead) + n_sections * sizeof(uint64_t) + head.n_tokens * sizeof(int32_t);
  const auto used = bounded(checked_add(before_note, head.note_bytes));
  const auto plane = bounded(checked_mul(head.token_bytes, head.state_tokens));
  if (!used || !plane || head.bank_bytes > kMaxBytes) return std::nullopt;
  Layout layout{n_sections, *plane, align_up(*used, kAlignment), 0};
  layout.file_bytes = layout.head_bytes;
  if (!has_state) return layout;
  const auto planes = bounded(checked_mul(align_up(*plane, kAlignment), head.n_planes));
  if (!planes) return std::nullopt;
  layout.file_bytes += align_up(head.bank_bytes, kAlignment) + *planes;
  return bounded(layout.file_bytes) ? std::optional(layout) : std::nullopt;
}

FixedHead fixed_head(const CheckpointHeader& header) {
  const StateOrigin& origin = header.origin;
  return {.n_planes = origin.n_planes,
          .model = origin.model,
          .arithmetic = origin.arithmetic,
          .token_bytes = origin.token_bytes,
          .bank_bytes = origin.bank_bytes,
          .n_tokens = static_cast<uint32_t>(header.token_ids.size()),
          .state_tokens = header.state_tokens,
          .note_bytes = header.note.size()};
}

Layout layout_of(const CheckpointHeader& header) {
  const auto layout = Layout::of(fixed_head(header));
  if (!layout || header.token_ids.size() > std::numeric_limits<uint32_t>::max()) {
    throw CapacityError(concat("[checkpoint] ", header.token_ids.size(), " tokens and ",
                               header.note.size(), " bytes of note: too much for one file"));
  }
  return *layout;
}

template <class T>
std::span<const uint8_t> bytes_of(const T* first, uint64_t count) {
  return {reinterpret_cast<const uint8_t*>(first), count * sizeof(T)};
}

uint64_t head_sum(std::span<const uint8_t> head) {
  constexpr uint64_t kPlace = offsetof(FixedHead, head_sum);
  constexpr std::array<uint8_t, sizeof(uint64_t)> kZeros{};
  Checksum sum;
  sum.add(head.first(kPlace));
  sum.add(kZeros);
  sum.add(head.subspan(kPlace + sizeof(uint64_t)));
  return sum.value();
}

// Writes a section and the sum of it with its padding, which is a hole in the file: zeros.
uint64_t write_section(PartialFile& file, std::span<const uint8_t> bytes, uint64_t offset) {
  static constexpr std::array<uint8_t, kAlignment> kZeros{};
  const uint64_t padding = align_up(bytes.size(), kAlignment) - bytes.size();
  Checksum sum;
  while (!bytes.empty()) {
    const auto chunk = bytes.first(std::min<uint64_t>(bytes.size(), kChunkBytes));
    sum.add(chunk);
    file.write(chunk, offset);
    offset += chunk.size();
    bytes = bytes.subspan(chunk.size());
  }
  sum.add(std::span(kZeros).first(padding));
  return sum.value();
}

// The caller's mistakes, not a file's.
void check_arguments(const CheckpointHeader& header, const StatePieces& pieces,
                     const Layout& layout) {
  const bool has_state = header.state_tokens != 0;
  bool fits = header.state_tokens <= header.token_ids.size() && is_utf8(header.note);
  fits = fits && pieces.bank.size() == (has_state ? header.origin.bank_bytes : 0);
  fits = fits && pieces.planes.size() == (has_state ? header.origin.n_planes : 0);
  for (const auto& plane : pieces.planes) fits = fits && plane.size() == layout.plane_bytes;
  if (!fits) throw std::logic_error("[checkpoint] header and pieces do not agree");
}

}  // namespace

std::string to_hex(const Fingerprint& fingerprint) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const uint8_t byte : fingerprint) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

uint64_t checkpoint_bytes(const CheckpointHeader& header) { return layout_of(header).file_bytes; }

void write_checkpoint(const std::filesystem::path& path, const CheckpointHeader& header,
                      const StatePieces& pieces) {
  auto file = PartialFile::open(path, checkpoint_bytes(header));
  if (!file) {
    throw CapacityError(concat("[checkpoint] ", path.string(),
                               ": is being written by somebody else; save it again later"));
  }
  write_checkpoint(std::move(*file), header, pieces);
}

void write_checkpoint(PartialFile file, const CheckpointHeader& header, const StatePieces& pieces) {
  const Layout layout = layout_of(header);
  check_arguments(header, pieces, layout);
  std::vector<uint64_t> sums;
  uint64_t offset = layout.head_bytes;
  if (layout.n_sections != 0) {
    sums.push_back(write_section(file, pieces.bank, offset));
    offset += align_up(pieces.bank.size(), kAlignment);
  }
  for (const auto& plane : pieces.planes) {
    sums.push_back(write_section(file, plane, offset));
    offset += align_up(plane.size(), kAlignment);
  }
  std::vector<uint8_t> head(layout.head_bytes);
  FixedHead fixed = fixed_head(header);
  auto place = head.begin() + sizeof(fixed);
  const auto put = [&](std::span<const uint8_t> bytes) {
    place = std::copy(bytes.begin(), bytes.end(), place);
  };
  put(bytes_of(sums.data(), sums.size()));
  put(bytes_of(header.token_ids.data(), header.token_ids.size()));
  put(bytes_of(header.note.data(), header.note.size()));
  std::memcpy(head.data(), &fixed, sizeof(fixed));
  fixed.head_sum = head_sum(head);
  std::memcpy(head.data(), &fixed, sizeof(fixed));
  file.write(head, 0);
  file.publish();
}

template <class... Parts>
void CheckpointFile::damaged(const Parts&... parts) const {
  throw FormatError(concat("[checkpoint] ", path().string(), ": ", parts..., "; delete the file"));
}

CheckpointFile::CheckpointFile(const std::filesystem::path& path, const StateOrigin& engine)
    : CheckpointFile(MappedFile(path), engine) {}

CheckpointFile::CheckpointFile(MappedFile file, const StateOrigin& engine)
    : file_(std::move(file)) {
  read_head();
  check_head();
  check_engine(engine);
}

// Every count is held against the size of the file before anything is read through it.
void CheckpointFile::read_head() {
  const std::span<const uint8_t> bytes = file_.bytes();
  FixedHead head;
  std::memcpy(&head, bytes.data(), std::min<uint64_t>(bytes.size(), sizeof(head)));
  if (bytes.size() < sizeof(head.magic) || head.magic != kMagic) {
    throw FormatError(
        concat("[checkpoint] ", path().string(), ": is no checkpoint of mtlqwen; check the path"));
  }
  if (bytes.size() < sizeof(head)) damaged("ends too early (got ", bytes.size(), " bytes)");
  if (head.version != kVersion) {
    throw FormatError(concat("[checkpoint] ", path().string(), ": version does not run (got ",
                             head.version, ", want ", kVersion,
                             "); take the mtlqwen that made it"));
  }
  const auto layout = Layout::of(head);
  if (!layout || layout->file_bytes != bytes.size()) {
    damaged("size is wrong (got ", bytes.size(), " bytes, want ",
            layout ? std::to_string(layout->file_bytes) : "more than 2^62", ")");
  }
  head_bytes_ = layout->head_bytes;
  n_sections_ = layout->n_sections;
  if (head_sum(bytes.first(head_bytes_)) != head.head_sum) damaged("checksum of the head differs");

  const uint8_t* tokens = bytes.data() + sizeof(head) + n_sections_ * sizeof(uint64_t);
  const uint8_t* note = tokens + head.n_tokens * sizeof(int32_t);
  header_ = {.origin = {.model = head.model,
                        .arithmetic = head.arithmetic,
                        .n_planes = head.n_planes,
                        .token_bytes = head.token_bytes,
                        .bank_bytes = head.bank_bytes},
             .token_ids = {reinterpret_cast<const int32_t*>(tokens), head.n_tokens},
             .note = {reinterpret_cast<const char*>(note), head.note_bytes},
             .state_tokens = head.state_tokens};
}

// A matching sum proves nothing about a file that was made to deceive.
void CheckpointFile::check_head() const {
  const auto& tokens = header_.token_ids;
  if (header_.state_tokens > tokens.size()) {
    damaged("state goes beyond the tokens (got ", header_.state_tokens, " of ", tokens.size(), ")");
  }
  if (std::any_of(tokens.begin(), tokens.end(), [](int32_t id) { return id < 0; })) {
    damaged("a token id is negative");
  }
  if (!is_utf8(header_.note)) damaged("note is not UTF-8");
}

void CheckpointFile::check_engine(const StateOrigin& engine) const {
  const StateOrigin& own = header_.origin;
  if (own.model != engine.model) {
    throw ModelError(concat("[checkpoint] ", path().string(), ": was made with another model (got ",
                            to_hex(own.model), ", want ", to_hex(engine.model),
                            "); open it with the model that made it"));
  }
  if (own.arithmetic != engine.arithmetic) return;  // nobody will use its state
  if (own.n_planes != engine.n_planes || own.token_bytes != engine.token_bytes ||
      own.bank_bytes != engine.bank_bytes) {
    damaged("state has another shape than the model's");
  }
}

std::span<const uint8_t> CheckpointFile::bank() const { return section(0, "the bank"); }

std::span<const uint8_t> CheckpointFile::plane(uint32_t index) const {
  return section(uint64_t{index} + 1, concat("plane ", index));
}

std::span<const uint8_t> CheckpointFile::section(uint64_t index, const std::string& name) const {
  if (index >= n_sections_) throw std::logic_error(concat("[checkpoint] no section of ", name));
  const StateOrigin& own = header_.origin;
  const uint64_t plane_bytes = own.token_bytes * header_.state_tokens;
  const uint64_t bytes = index == 0 ? own.bank_bytes : plane_bytes;
  uint64_t offset = head_bytes_;
  if (index != 0) {
    offset += align_up(own.bank_bytes, kAlignment) + (index - 1) * align_up(bytes, kAlignment);
  }
  uint64_t want = 0;
  std::memcpy(&want, file_.pages() + sizeof(FixedHead) + index * sizeof(want), sizeof(want));
  const uint8_t* first = file_.pages() + offset;
  const uint64_t got = checksum({first, align_up(bytes, kAlignment)});
  if (got != want) damaged("checksum of ", name, " differs (got ", got, ", want ", want, ")");
  return {first, bytes};
}

void CheckpointFile::verify() const {
  if (n_sections_ == 0) return;
  static_cast<void>(bank());
  for (uint32_t i = 0; i < header_.origin.n_planes; ++i) static_cast<void>(plane(i));
}

}  // namespace mtlqwen
