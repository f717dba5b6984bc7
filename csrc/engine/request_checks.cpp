#include "engine/request_checks.hpp"

#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>

#include "base/error.hpp"
#include "gpu/platform.hpp"

namespace mtlqwen {

namespace {

constexpr double kLongestDeadline = 1e9;  // seconds
constexpr float kMostPenalty = 1e6F;

void require_range(std::string_view name, float value, float low, float high) {
  if (value >= low && value <= high) return;
  throw std::invalid_argument(concat("[sampling] ", name, ": out of range (got ", value, ", want ",
                                     low, " to ", high, ")"));
}

void require_logprobs(std::string_view name, const std::optional<uint32_t>& n) {
  if (n.value_or(0) <= kMostLogprobs) return;
  throw std::invalid_argument(
      concat("[sampling] ", name, ": out of range (got ", *n, ", want 0 to ", kMostLogprobs, ")"));
}

void require_ids(std::string_view name, std::span<const int32_t> ids, uint32_t n_valid) {
  for (const int32_t id : ids) {
    if (id >= 0 && static_cast<uint32_t>(id) < n_valid) continue;
    throw std::invalid_argument(concat("[sampling] ", name, ": token id out of range (got ", id,
                                       ", want 0 to ", n_valid - 1, ")"));
  }
}

void require_valid(const Sampling& sampling) {
  const float temperature = sampling.temperature;
  if (!(temperature >= 0.0F && temperature <= std::numeric_limits<float>::max())) {
    throw std::invalid_argument(concat("[engine] temperature: not a finite number >= 0 (got ",
                                       temperature, "); use 0 for greedy, 0.7 to 1.0 for variety"));
  }
  require_range("top_p", sampling.top_p, std::numeric_limits<float>::min(), 1.0F);
  require_range("min_p", sampling.min_p, 0.0F, 1.0F);
}

void require_valid(const EditOptions& edits, uint32_t n_valid) {
  require_range("presence_penalty", edits.presence, -kMostPenalty, kMostPenalty);
  require_range("frequency_penalty", edits.frequency, -kMostPenalty, kMostPenalty);
  require_range("repetition_penalty", edits.repetition, 1 / kMostPenalty, kMostPenalty);
  require_ids("allowed_token_ids", edits.allowed, n_valid);
  for (const auto& [id, bias] : edits.biases) {
    require_ids("logit_bias", std::span(&id, 1), n_valid);
    if (bias != -std::numeric_limits<float>::infinity()) {
      require_range("logit_bias", bias, -kMostPenalty, kMostPenalty);
    }
  }
  for (const std::vector<int32_t>& word : edits.bad_words) {
    if (word.empty())
      throw std::invalid_argument("[sampling] bad_words: one is empty (want tokens)");
    require_ids("bad_words", word, n_valid);
  }
}

}  // namespace

void require_valid(const EngineOptions& options) {
  if (options.slots < 1 || options.slots > kMaxSlots) {
    throw std::invalid_argument(concat("[engine] slots: out of range (got ", options.slots,
                                       ", want 1 to ", kMaxSlots, ")"));
  }
  if (options.block_tokens != 64 && options.block_tokens != 128 && options.block_tokens != 256) {
    throw std::invalid_argument(concat("[engine] block_tokens: not a size of blocks (got ",
                                       options.block_tokens, ", want 64, 128 or 256)"));
  }
  if (!options.cache_dir.empty() && options.cache_memory == 0) {
    throw std::invalid_argument(
        "[engine] cache_dir: without a cache in memory (got cache_memory 0, want more, or unset)");
  }
  if (!(options.prefill_share >= 0.0F && options.prefill_share <= 1.0F)) {
    throw std::invalid_argument(concat("[engine] prefill_share: out of range (got ",
                                       options.prefill_share, ", want 0 to 1)"));
  }
  if (options.threads > max_threads()) {
    throw std::invalid_argument(
        max_threads() == 0
            ? concat("[engine] threads: for a CPU only (got ", options.threads,
                     ", the device is a GPU); leave it unset")
            : concat("[engine] threads: more than this process may use (got ", options.threads,
                     ", want 1 to ", max_threads(),
                     "); ask for less, or raise its CPU affinity or its cgroup's quota"));
  }
}

void require_valid(const std::vector<int32_t>& token_ids, const RequestOptions& options,
                   uint32_t vocab, uint32_t n_valid) {
  if (token_ids.empty()) {
    throw std::invalid_argument(
        "[engine] prompt: empty (got 0 tokens, want at least 1); pass some text");
  }
  for (size_t i = 0; i < token_ids.size(); ++i) {
    if (token_ids[i] < 0 || static_cast<uint32_t>(token_ids[i]) >= vocab) {
      throw std::invalid_argument(concat("[engine] prompt: token id out of range at index ", i,
                                         " (got ", token_ids[i], ", want 0 to ", vocab - 1,
                                         "); encode with the model's tokenizer"));
    }
  }
  for (const uint32_t position : options.checkpoint_at) {
    if (position < 1 || position > token_ids.size()) {
      throw std::invalid_argument(concat("[engine] checkpoint_at: outside of the prompt (got ",
                                         position, ", want 1 to ", token_ids.size(), ")"));
    }
  }
  require_valid(options.sampling);
  require_valid(options.edits, n_valid);
  if (options.thinking) {
    require_ids("thinking", options.thinking->closing, n_valid);
    if (options.thinking->closing.empty()) {
      throw std::invalid_argument(
          "[sampling] thinking: nothing closes it (got no tokens, want some)");
    }
  }
  require_logprobs("logprobs", options.logprobs);
  require_logprobs("prompt_logprobs", options.prompt_logprobs);
  if (options.constraint && options.constraint->begins_behind) {
    require_ids("begins_behind", std::span(&*options.constraint->begins_behind, 1), n_valid);
  }
  if (options.deadline_s &&
      !(*options.deadline_s > 0.0 && *options.deadline_s <= kLongestDeadline)) {
    throw std::invalid_argument(concat("[engine] deadline_s: out of range (got ",
                                       *options.deadline_s, ", want more than 0 and at most ",
                                       kLongestDeadline, ")"));
  }
}

}  // namespace mtlqwen
