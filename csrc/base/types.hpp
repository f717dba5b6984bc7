// The nouns that every room shares, as plain data. Glossary: docs/glossary.md.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mtlqwen {

inline constexpr uint32_t kPassRows = 128;  // rows of one pass
inline constexpr uint32_t kMaxSlots = 32;
inline constexpr uint32_t kSampledRows =
    64;  // rows of one pass whose next token is asked for, at most
inline constexpr uint32_t kMostLogprobs = 20;  // of the likeliest tokens of a row, at most
inline constexpr uint32_t kMostWidth = 15;     // proposals of one draft, at most

using SequenceId = uint64_t;

// Who proposes tokens: nobody, the text itself, the model's own prediction head, a DFlash model.
enum class DrafterKind : uint8_t { kNone, kNgram, kMtp, kDflash };
inline constexpr std::array<std::string_view, 4> kDrafterNames = {"off", "ngram", "mtp", "dflash"};
[[nodiscard]] constexpr std::string_view name_of(DrafterKind kind) {
  return kDrafterNames.at(static_cast<size_t>(kind));
}
// None: nobody is called so.
[[nodiscard]] constexpr std::optional<DrafterKind> drafter_named(std::string_view name) {
  for (size_t i = 0; i < kDrafterNames.size(); ++i) {
    if (kDrafterNames.at(i) == name) return static_cast<DrafterKind>(i);
  }
  return std::nullopt;
}

// How the next token of a sequence is drawn.
struct Sampling {
  float temperature = 0.0F;  // 0 is greedy
  uint64_t seed = 0;
  uint32_t sample_index = 0;  // which of n continuations of one prompt
  // Which ids may be drawn at all: the first so many, the fewest that have so much of the
  // probability, those with this share of the likeliest one's. A greedy choice needs none.
  uint32_t top_k = 0;  // 0: all
  float top_p = 1.0F;  // 1: all
  float min_p = 0.0F;  // 0: all

  [[nodiscard]] bool filters() const {
    return temperature > 0.0F && (top_k > 0 || top_p < 1.0F || min_p > 0.0F);
  }
};

// How logits change before a token is chosen. Penalties are on generated tokens.
struct EditOptions {
  float presence = 0.0F;    // off the logits of ids that occur
  float frequency = 0.0F;   // off them for each time
  float repetition = 1.0F;  // divides the positive ones of ids that occur, multiplies the others
  std::vector<std::pair<int32_t, float>> biases{};  // added; -infinity forbids
  std::vector<std::vector<int32_t>> bad_words{};    // tokens that never follow each other so
  std::vector<int32_t> allowed{};                   // ids; empty: all
  uint32_t min_tokens = 0;                          // before so many no stop id is chosen

  bool operator==(const EditOptions&) const = default;
};

// How long a model may think. Of a prompt that ends inside of it.
struct ThinkingBudget {
  uint32_t n_tokens = 0;
  int32_t end_id = 0;              // the token by which it ends by itself
  std::vector<int32_t> closing{};  // what stands in the text in place of the token behind the last
};

// A grammar that holds a text. Only whoever fills masks knows it (Engine::set_mask_fn).
struct ConstraintOptions {
  uint64_t key = 0;                        // that they know it by
  std::optional<int32_t> begins_behind{};  // a generated token; none: it holds from the first on
};

// Everything a caller says about one generation.
struct RequestOptions {
  Sampling sampling;
  EditOptions edits{};
  // The logarithms of probability of chosen tokens, and of so many of the likeliest; none: not wanted.
  std::optional<uint32_t> logprobs{};
  std::optional<uint32_t> prompt_logprobs{};  // the same of the prompt's tokens but the first
  std::optional<ThinkingBudget> thinking{};
  std::optional<ConstraintOptions> constraint{};
  uint32_t max_tokens = 0;
  std::vector<int32_t> stop_ids;
  int32_t priority = 0;              // higher is admitted earlier
  std::optional<double> deadline_s;  // from submit; then it ends with what it has
  // Positions in 1 .. prompt, ascending, up to which another prompt is likely to be the same.
  std::vector<uint32_t> checkpoint_at;
  bool recall = true;  // take over a checkpoint; else all of the prompt is computed
};

enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled, kDeadline, kError };

// A GDN state that a pass keeps: the one after the first `rows` rows of a query.
struct StateWrite {
  uint32_t rows = 0;
  uint32_t bank = 0;
};

// One sequence's rows in one pass.
struct Query {
  SequenceId sequence = 0;
  uint32_t slot = 0;
  uint32_t first_row = 0;  // where its rows start in the pass
  uint32_t count = 0;      // rows in this pass
  uint32_t kv_valid = 0;   // position of its first row
  uint32_t bank = 0;       // GDN bank read where kv_valid > 0; no pass writes what it reads
  std::vector<StateWrite> writes{};  // rows ascend, the last is count
  bool emits = false;                // its last row is sampled: all of the request has been seen
  // Of its rows, the last are a draft: proposals for the tokens behind the anchor, which is the row
  // before them. All of these rows are sampled.
  uint32_t width = 0;
  std::vector<int32_t> proposals{};  // the draft, where it is known; else the drafter makes it
  // The state after the rows that turn out to be right goes to its only write, by the tape. Else
  // there is a write for each row to choose from.
  bool taped = false;
  // Rows whose next token is known, and is to be told with its logarithm of probability: none of them is sampled, none
  // stands behind one that is not.
  uint32_t first_told = 0;
  uint32_t n_told = 0;

  [[nodiscard]] uint32_t n_logits() const { return n_told + n_sampled(); }
  [[nodiscard]] uint32_t n_sampled() const { return emits ? width + 1 : 0; }
  [[nodiscard]] bool asks_drafter() const { return width > 0 && proposals.empty(); }
};

// All queries of one pass.
struct Batch {
  std::vector<Query> queries;
  uint32_t rows = 0;
};

}  // namespace mtlqwen
