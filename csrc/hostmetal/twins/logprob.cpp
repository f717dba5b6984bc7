// logprob_rows: metal/logprob.metal. The same ids; sums in another order.
#include <math.h>  // INFINITY, logf

#include "math.h"
#include "sample.h"
#include "twin.h"

namespace mtlqwen::twins {
namespace {

constexpr float kMost = -kLowest;
constexpr uint32_t kGroup = 64;    // ids that are looked at together
constexpr uint32_t kBlock = 4096;  // ids whose sum is a float
constexpr uint32_t kMaxTop = 20;   // of LogprobArgs.n_top

// A row's logits as they count.
struct Logits {
  const float* row;
  uint32_t n_valid;

  [[nodiscard]] float at(uint32_t id) const {
    const float x = row[id];
    if (x != x) return -INFINITY;
    return x > kMost ? kMost : x;
  }
  // From `id` on; -infinity where there is none.
  [[nodiscard]] MTLQWEN_INLINE Wide from(uint32_t id) const {
    Wide x = -INFINITY;
    if (id + kWide <= n_valid) {
      x = load(row + id);
    } else {
      for (uint32_t i = 0; id + i < n_valid; i++) x[i] = row[id + i];
    }
    const Wide capped = x > kMost ? Wide(kMost) : x;
    return x == x ? capped : -INFINITY;
  }
};

// The likeliest ids so far, the best first.
class Tops {
 public:
  explicit Tops(uint32_t capacity) : capacity_(capacity) {}

  [[nodiscard]] bool is_full() const { return n_ == capacity_; }
  // A later id must exceed it.
  [[nodiscard]] float bar() const { return is_full() ? kept_[n_ - 1].score : -INFINITY; }
  [[nodiscard]] Candidate at(uint32_t i) const {
    return i < n_ ? kept_[i] : Candidate{-INFINITY, kNoId};
  }
  // Behind those that are as good; the last one goes if there is no room.
  void insert(const Candidate& one) {
    uint32_t i = is_full() ? n_ - 1 : n_++;
    for (; i > 0 && kept_[i - 1].score < one.score; i--) kept_[i] = kept_[i - 1];
    kept_[i] = one;
  }

 private:
  Candidate kept_[kMaxTop];
  uint32_t n_ = 0;
  uint32_t capacity_;
};

MTLQWEN_INLINE Tops likeliest(const Logits& logits, uint32_t count) {
  Tops tops(count);
  for (uint32_t start = 0; start < logits.n_valid; start += kGroup) {
    Wide most = -INFINITY;
    for (uint32_t i = 0; i < kGroup && start + i < logits.n_valid; i += kWide) {
      most = larger(most, logits.from(start + i));
    }
    if (!any(most > tops.bar())) continue;
    for (uint32_t id = start; id < start + kGroup && id < logits.n_valid; id++) {
      if (logits.at(id) > tops.bar()) tops.insert({logits.at(id), id});
    }
  }
  // Those without a probability come last.
  for (uint32_t id = 0; id < logits.n_valid && !tops.is_full(); id++) {
    if (logits.at(id) == -INFINITY) tops.insert({-INFINITY, id});
  }
  return tops;
}

// The logarithm of the sum of exp(logit - top).
MTLQWEN_INLINE float log_sum(const Logits& logits, float top) {
  double sum = 0;
  for (uint32_t start = 0; start < logits.n_valid; start += kBlock) {
    Wide sums[4] = {0.0F, 0.0F, 0.0F, 0.0F};
    for (uint32_t i = 0; i < kBlock && start + i < logits.n_valid; i += kGroup) {
      for (uint32_t j = 0; j < 4; j++) {
        const uint32_t id = start + i + j * kWide;
        if (id < logits.n_valid) sums[j] += exp(logits.from(id) - top);
      }
    }
    sum += static_cast<double>(fold((sums[0] + sums[1]) + (sums[2] + sums[3])));
  }
  return logf(static_cast<float>(sum));
}

TokenLogprob logprob_of(const Candidate& one, float top, float log_sum) {
  return {static_cast<int32_t>(one.id),
          one.score == -INFINITY ? -INFINITY : one.score - top - log_sum};
}

}  // namespace
}  // namespace mtlqwen::twins

MTLQWEN_TWIN(logprob_rows) {
  using namespace mtlqwen::twins;
  const auto& args = dispatch.args<mtlqwen::SampleScanArgs>(5);
  return for_each_group(dispatch, first, count, [&](uint32_t, uint32_t index) {
    const auto& want = dispatch.buffer<const mtlqwen::LogprobArgs>(4)[index];
    const Logits logits = {dispatch.buffer<const float>(2) + uint64_t{want.row} * args.vocab,
                           args.n_valid};
    const Tops tops = likeliest(logits, want.n_top > 0 ? want.n_top : 1);
    const float most = tops.at(0).score;
    const float top = most > kLowest ? most : kLowest;
    const float log = log_sum(logits, top);
    const int32_t id = want.told >= 0 ? want.told : dispatch.buffer<const int32_t>(3)[want.row];
    auto& chosen = dispatch.buffer<mtlqwen::TokenLogprob>(0)[index];
    chosen = {-1, 0.0F};
    if (const auto u = static_cast<uint32_t>(id); id >= 0) {
      chosen = logprob_of({u < args.n_valid ? logits.at(u) : -INFINITY, u}, top, log);
    }
    for (uint32_t i = 0; i < want.n_top; i++) {
      dispatch.buffer<mtlqwen::TokenLogprob>(1)[want.first_top + i] =
          logprob_of(tops.at(i), top, log);
    }
  });
}
