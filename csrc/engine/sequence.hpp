// One conversation's tokens and state. Centre of everything:
//   request[0 : kv_valid]   tokens whose KV, GDN state and convolution state are committed
//   request[kv_valid : ]    tokens that still need a pass        0 <= kv_valid <= request.size()
// A phase is derived, never stored: pending() > 1 is prefill, 1 is decode.
#pragma once
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/types.hpp"
#include "engine/draft_policy.hpp"
#include "engine/ngram.hpp"
#include "model/logit_edits.hpp"

namespace mtlqwen {

using Clock = std::chrono::steady_clock;

// What drafting did for a sequence.
struct DraftCounts {
  uint64_t passes = 0;    // that verified a draft
  uint64_t drafted = 0;   // tokens proposed
  uint64_t accepted = 0;  // of them
};

// A prefix that another sequence is computing.
struct AwaitedPrefix {
  SequenceId sequence = 0;
  uint32_t n_tokens = 0;
};

// Logarithms of probability of tokens, and of the likeliest beside each.
struct LogprobLog {
  std::vector<float> chosen;
  std::vector<std::pair<int32_t, float>> likeliest;  // the same number for each token
};

struct Sequence {
  SequenceId id = 0;
  std::vector<int32_t> request;
  uint32_t n_prompt = 0;
  uint32_t kv_valid = 0;
  RequestOptions options;
  std::optional<uint32_t> slot;       // none while waiting and once finished
  std::optional<uint32_t> bank;       // the GDN state behind kv_valid; none where that is 0
  std::optional<uint32_t> logit_row;  // of the last pass, where it was sampled
  // Where it leaves checkpoints, ascending; those of the interval are not among them.
  std::vector<uint32_t> boundaries;
  std::unique_ptr<LogitEdits> edits;     // null: its logits stay as they are
  uint32_t recalled = 0;                 // tokens that came from a checkpoint when it got its slot
  uint32_t cached_tokens = 0;            // the same of the prompt, the first time
  std::optional<AwaitedPrefix> awaited;  // while it waits for another one to compute it
  bool looked_on_disk = false;
  bool thinking_ended = false;
  bool grammar_begun = false;  // of a constraint that begins behind a token
  uint32_t n_heard = 0;        // generated tokens that who fills masks has heard of
  LogprobLog logprobs;         // of its generated tokens, where they are wanted
  LogprobLog prompt_logprobs;  // of its prompt's, but the first
  uint32_t n_told = 0;  // tokens of the prompt, beside the first, whose logprobs have been added
  DraftCounts drafts;
  DraftHistory history;
  NgramIndex ngram;                   // of its request, as far as somebody has looked
  std::vector<int32_t> forced_draft;  // of its next pass, where a test says so
  std::vector<int32_t> last_draft;    // of its last pass
  uint32_t passed_over = 0;           // later sequences admitted while it waited
  bool cancel_requested = false;
  bool released = false;  // the caller has forgotten it; erased when no pass holds it
  FinishReason finish = FinishReason::kNone;
  std::exception_ptr error;  // with FinishReason::kError
  size_t polled = 0;         // tokens of the request that the caller has, prompt included

  std::optional<Clock::time_point> deadline;

  Clock::time_point submitted{};
  Clock::time_point started{};  // got its slot
  Clock::time_point first_token{};
  Clock::time_point last_token{};

  [[nodiscard]] uint32_t pending() const {
    return static_cast<uint32_t>(request.size()) - kv_valid;
  }
  [[nodiscard]] uint32_t n_completion() const {
    return static_cast<uint32_t>(request.size()) - n_prompt;
  }
  // Tokens of its prompt that are told, before and after now: all but the first, or none.
  [[nodiscard]] uint32_t n_to_tell() const { return options.prompt_logprobs ? n_prompt - 1 : 0; }
  // Whether its thinking goes on, and a budget ends it.
  [[nodiscard]] bool thinks() const { return options.thinking && !thinking_ended; }
  // Whether a grammar says what may come next.
  [[nodiscard]] bool held() const {
    return options.constraint && (grammar_begun || !options.constraint->begins_behind);
  }
  [[nodiscard]] bool finished() const { return finish != FinishReason::kNone; }
};

}  // namespace mtlqwen
