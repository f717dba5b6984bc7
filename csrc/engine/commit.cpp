// What a pass found becomes visible: tokens, states, ends.
#include <algorithm>
#include <stdexcept>

#include "base/error.hpp"
#include "engine/drafts.hpp"
#include "engine/engine.hpp"
#include "engine/runtime.hpp"
#include "engine/spoilt.hpp"

namespace mtlqwen {

namespace {

const char* name_of(FinishReason reason) {
  switch (reason) {
  case FinishReason::kNone:
    return "none";
  case FinishReason::kStop:
    return "stop";
  case FinishReason::kLength:
    return "length";
  case FinishReason::kCancelled:
    return "cancelled";
  case FinishReason::kDeadline:
    return "deadline";
  case FinishReason::kError:
    return "error";
  }
  return "";
}

const char* no_choice(const Sequence& sequence) {
  if (sequence.held()) {
    return "[structured] sampling: no token is left (got a form that goes on with tokens that "
           "allowed_token_ids, bad_words or logit_bias forbid); allow them";
  }
  return "[sampling] tokens: all are forbidden (got options that leave none, want one at least); "
         "allow more by allowed_token_ids, logit_bias, bad_words or min_tokens";
}

}  // namespace

Decoded Engine::commit_locked(const Batch& batch, const PassResult& result) {
  runtime_->banks.confirm();
  runtime_->kv_pool.copies_done();
  Committed committed{.result = result, .now = Clock::now()};
  for (const Query& query : batch.queries) {
    commit_one_locked(query, committed);
    committed.pass_over(query, sequences_.at(query.sequence).options);
  }
  drop_pass_banks_locked();
  return std::move(committed.decoded);
}

// The only publication: kv_valid, bank and request move together.
void Engine::commit_one_locked(const Query& query, Committed& committed) {
  Sequence& sequence = sequences_.at(query.sequence);
  sequence.logit_row.reset();
  const std::span<const int32_t> sampled =
      committed.result.sampled.subspan(committed.n_logits + query.n_told, query.n_sampled());
  const uint32_t accepted = is_decode(query) ? commit_draft_locked(sequence, query, committed) : 0;
  const bool is_held = sequence.held() && query.emits;
  const std::exception_ptr grammar_error =
      is_held ? committed.result.mask_errors[committed.n_held++] : nullptr;
  const uint32_t rows = query.count - query.width + accepted;
  if (const auto spoilt = find_spoilt(query, rows, committed)) {
    const ModelConfig& config = runtime_->weights.config();
    return finish_locked(sequence, FinishReason::kError,
                         std::make_exception_ptr(error_of(*spoilt, config)));
  }
  // What the pass has of a text whose grammar gave up was chosen freely.
  if (grammar_error) return finish_locked(sequence, FinishReason::kError, grammar_error);
  if (is_held) sequence.n_heard = sequence.n_completion();
  for (const int32_t token : sampled.first(accepted))
    append_token_locked(sequence, token, committed.now);
  commit_logprobs_locked(sequence, query, accepted, committed);
  sequence.kv_valid += rows;
  keep_bank_locked(sequence, bank_behind(query, rows));
  runtime_->forward.keep(query, rows);
  remember_locked(sequence, query, rows);
  if (query.emits) {
    sequence.logit_row = committed.n_logits + query.n_told + accepted;
    append_token_locked(sequence, sampled[accepted], committed.now);
  }
}

// Of told tokens, and of those that it gets from the pass: what drafts had beyond them is passed over.
void Engine::commit_logprobs_locked(Sequence& sequence, const Query& query, uint32_t accepted,
                                    const Committed& committed) {
  const auto add = [&](LogprobLog& log, uint32_t first, uint32_t n, uint32_t first_each,
                       uint32_t n_each) {
    const auto [chosen, likeliest] = committed.result.logprobs;
    for (const TokenLogprob& one : chosen.subspan(committed.n_logprobs + first, n)) {
      log.chosen.push_back(one.logprob);
    }
    for (const TokenLogprob& one :
         likeliest.subspan(committed.n_likeliest + first_each, n * n_each)) {
      log.likeliest.emplace_back(one.id, one.logprob);
    }
  };
  const RequestOptions& options = sequence.options;
  const uint32_t n_of_told = query.n_told * options.prompt_logprobs.value_or(0);
  if (query.n_told > 0) {
    add(sequence.prompt_logprobs, 0, query.n_told, 0, *options.prompt_logprobs);
    sequence.n_told += query.n_told;
  }
  if (options.logprobs && query.emits) {
    add(sequence.logprobs, query.n_told, accepted + 1, n_of_told, *options.logprobs);
  }
}

void Engine::append_token_locked(Sequence& sequence, int32_t token, Clock::time_point now) {
  if (token == MTLQWEN_NO_CHOICE) {
    return finish_locked(sequence, FinishReason::kError,
                         std::make_exception_ptr(std::invalid_argument(no_choice(sequence))));
  }
  if (sequence.thinks()) {
    sequence.thinking_ended = token == sequence.options.thinking->end_id ||
                              sequence.n_completion() == sequence.options.thinking->n_tokens;
    if (sequence.thinking_ended && token != sequence.options.thinking->end_id) {
      return close_thinking_locked(sequence, now);
    }
  }
  push_token_locked(sequence, token, now);
}

// The tokens that close it come instead of the one that was chosen, each with the probability of 1.
void Engine::close_thinking_locked(Sequence& sequence, Clock::time_point now) {
  LogprobLog& log = sequence.logprobs;
  const size_t n_each = sequence.options.logprobs.value_or(0);
  if (sequence.options.logprobs) {
    log.chosen.pop_back();
    log.likeliest.resize(log.likeliest.size() - n_each);
  }
  for (const int32_t token : sequence.options.thinking->closing) {
    if (sequence.finished()) return;
    push_token_locked(sequence, token, now);
    if (!sequence.options.logprobs) continue;
    log.chosen.push_back(0.0F);
    log.likeliest.resize(log.likeliest.size() + n_each, {-1, 0.0F});
  }
}

void Engine::push_token_locked(Sequence& sequence, int32_t token, Clock::time_point now) {
  sequence.request.push_back(token);
  if (sequence.edits) sequence.edits->count(token);
  if (const auto& constraint = sequence.options.constraint) {
    sequence.grammar_begun |= constraint->begins_behind == token;
  }
  ++stats_.tokens;
  sequence.last_token = now;
  if (sequence.n_completion() == 1) sequence.first_token = now;
  const std::vector<int32_t>& stop_ids = sequence.options.stop_ids;
  if (std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end()) {
    finish_locked(sequence, FinishReason::kStop);
  } else if (sequence.n_completion() == sequence.options.max_tokens ||
             sequence.request.size() == context_) {
    finish_locked(sequence, FinishReason::kLength);
  }
}

void Engine::finish_locked(Sequence& sequence, FinishReason reason, std::exception_ptr error) {
  sequence.finish = reason;
  sequence.ngram = {};
  if (trace_) trace_->add(sequence, name_of(reason));
  sequence.error = std::move(error);
  if (!sequence.slot) return;
  if (reason != FinishReason::kError) remember_end_locked(sequence);
  free_slot_locked(sequence);
}

}  // namespace mtlqwen
