// What a step knows of drafts, as plain data, and the rules that need no engine.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.hpp"
#include "engine/draft_policy.hpp"
#include "engine/sequence.hpp"
#include "model/forward.hpp"

namespace mtlqwen {

// What a sequence drafts in a pass. Without proposals, the drafter makes them on the device.
struct Draft {
  DraftChoice choice{};
  std::vector<int32_t> proposals{};
};

// What the decoding sequences of a pass drafted, one choice each, and how many proposals of all held.
struct Decoded {
  std::vector<DraftChoice> choices;
  uint32_t n_accepted = 0;
};

// How far a commit has got through the pass's results.
struct Committed {
  const PassResult& result;
  Clock::time_point now;
  uint32_t n_logits = 0;
  uint32_t n_drafts = 0;
  uint32_t n_logprobs = 0;
  uint32_t n_likeliest = 0;
  uint32_t n_held = 0;
  Decoded decoded{};

  // options: of the query's sequence.
  void pass_over(const Query& query, const RequestOptions& options) {
    n_logits += query.n_logits();
    n_logprobs += query.n_told + (options.logprobs ? query.n_sampled() : 0);
    n_likeliest += query.n_told * options.prompt_logprobs.value_or(0) +
                   query.n_sampled() * options.logprobs.value_or(0);
  }
};

// Its only row but a draft's is the last of its request.
[[nodiscard]] inline bool is_decode(const Query& query) {
  return query.emits && query.count == 1 + query.width;
}

// The bank of the state behind so many rows of a query that was run.
[[nodiscard]] uint32_t bank_behind(const Query& query, uint32_t rows);

// Takes the draft off a query that has its first write for one row.
void drop_draft(Query& query);

}  // namespace mtlqwen
