// The order of a row's scores as integers, and sums from a key on: what filter_rows searches.
#pragma once
#include "filter.h"
#include "math.h"

namespace mtlqwen::twins {

constexpr uint32_t kGroup = 64;  // ids of the smallest block
constexpr uint32_t kMostListed = 4096;
constexpr uint32_t kMostBlocks = kMostListed;  // of a row
constexpr int32_t kInfinity = 0x7F800000;
constexpr int32_t kLeast = -0x7F800000;  // of the lowest float; what is below is no score

// Keys ascend with the logits. Zeros of both signs, and what is too small to be a normal float, are 0.
MTLQWEN_INLINE WideInts keys_of(Wide logits) {
  const WideInts bits = (WideInts)logits;
  const WideInts ordered = bits ^ (bits >> 31 & 0x7FFFFFFF);
  const WideInts keys = (bits & 0x7FFFFFFF) < 0x00800000 ? WideInts(0) : ordered;
  return keys > kInfinity ? WideInts(INT32_MIN) : keys;
}

MTLQWEN_INLINE Wide logits_of(WideInts keys) { return (Wide)(keys ^ (keys >> 31 & 0x7FFFFFFF)); }

MTLQWEN_INLINE int32_t key_of(float logit) { return keys_of(Wide(logit))[0]; }
MTLQWEN_INLINE float logit_of(int32_t key) { return logits_of(WideInts(key))[0]; }

// Of a row, the ids that may be chosen.
struct Row {
  const float* logits;
  Mask mask;
  uint32_t n;

  [[nodiscard]] MTLQWEN_INLINE WideInts keys(uint32_t id) const {
    WideInts keys;
    if (id + kWide <= n) {
      keys = keys_of(load(logits + id));
    } else {
      Wide some = __builtin_nanf("");
      for (uint32_t i = 0; id + i < n; i++) some[i] = logits[id + i];
      keys = keys_of(some);
    }
    if (mask.words == nullptr) return keys;
    return allowed(mask, id) ? keys : WideInts(INT32_MIN);
  }
};

// 2^40 * exp((logit - max) / temperature), as 20 bits and 20 more.
struct Weight {
  WideInts high;
  WideInts low;
};

struct Scale {
  int32_t max_key;
  float max;
  float factor;

  [[nodiscard]] MTLQWEN_INLINE Weight weight(WideInts keys) const {
    const Wide below = (logits_of(keys) - max) * factor;
    // Infinity less infinity is no number.
    const Wide scaled = exp(keys == max_key ? Wide(0.0F) : below) * 1048576.0F;
    const WideInts high = __builtin_convertvector(scaled, WideInts);
    const Wide rest = (scaled - __builtin_convertvector(high, Wide)) * 1048576.0F;
    return {high, __builtin_convertvector(rest, WideInts)};
  }
  [[nodiscard]] uint64_t weight_of(int32_t key) const {
    const Weight one = weight(WideInts(key));
    return (static_cast<uint64_t>(one.high[0]) << 20) + static_cast<uint64_t>(one.low[0]);
  }
};

struct Sum {
  uint64_t count = 0;
  uint64_t weight = 0;
};

// Adds up the keys from `low` on.
class Tally {
 public:
  Tally(int32_t low, const Scale* scale) : low_(low), scale_(scale) {}

  MTLQWEN_INLINE void add(WideInts keys) {
    const WideInts counts = keys >= low_;
    if (!any(counts)) return;
    count_ -= counts;
    if (scale_ != nullptr) {
      const Weight weight = scale_->weight(counts ? keys : WideInts(scale_->max_key));
      high_ += counts & weight.high;
      low_bits_ += counts & weight.low;
    }
    if (++n_ == kMostAdded) flush();
  }
  MTLQWEN_INLINE Sum sum() {
    flush();
    return sum_;
  }

 private:
  static constexpr uint32_t kMostAdded = 1024;  // of 20 bits each

  MTLQWEN_INLINE void flush() {
    for (uint32_t i = 0; i < kWide; i++) {
      sum_.count += static_cast<uint32_t>(count_[i]);
      sum_.weight += (static_cast<uint64_t>(high_[i]) << 20) + static_cast<uint64_t>(low_bits_[i]);
    }
    count_ = high_ = low_bits_ = 0;
    n_ = 0;
  }

  int32_t low_;
  const Scale* scale_;
  WideInts count_ = 0;
  WideInts high_ = 0;
  WideInts low_bits_ = 0;
  uint32_t n_ = 0;
  Sum sum_;
};

struct List {
  int32_t keys[kMostListed + kWide];
  uint32_t n = 0;

  void put(int32_t key) { keys[n++] = key; }
  // Whole vectors are read.
  void end() {
    for (uint32_t i = 0; i < kWide; i++) keys[n + i] = INT32_MIN;
  }
  [[nodiscard]] MTLQWEN_INLINE WideInts at(uint32_t i) const {
    typedef int32_t Loose __attribute__((ext_vector_type(16), aligned(4)));
    return *reinterpret_cast<const Loose*>(keys + i);
  }
};

// A row in blocks, each with its greatest key.
struct Blocks {
  Row row;
  uint32_t block = kGroup;  // ids
  List most{};              // one key a block

  template <class Body>
  MTLQWEN_INLINE void each(int32_t low, const Body& body) const {
    for (uint32_t i = 0; i < most.n; i++) {
      if (most.keys[i] < low) continue;
      const uint32_t first = i * block;
      const uint32_t last = row.n - first < block ? row.n : first + block;
      for (uint32_t id = first; id < last; id += kWide) {
        if (!body(id, row.keys(id))) return;
      }
    }
  }
  void measure() {
    while (row.n > uint64_t{block} * kMostBlocks) block *= 2;
    for (uint32_t first = 0; first < row.n; first += block) {
      const uint32_t last = row.n - first < block ? row.n : first + block;
      WideInts greatest = INT32_MIN;
      for (uint32_t id = first; id < last; id += kWide) greatest = larger(greatest, row.keys(id));
      most.put(largest(greatest));
    }
    most.end();
  }
};

}  // namespace mtlqwen::twins
