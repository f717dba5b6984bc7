// filter_rows: metal/filter.metal. The same thresholds, whatever the input.
//
// Sums above a key are halved upon until one key is left. The sums over a row pass by the blocks of
// ids that have nothing above the key; as soon as few keys are left, they go into a list.
#include <math.h>  // logf

#include "filter_keys.h"

namespace mtlqwen::twins {
namespace {

constexpr uint32_t kLogitSteps = 12;  // then keys are halved, for which there is a bound
constexpr float kLeastTemperature = 1.17549435e-38F;  // a normal float: others may be 0
constexpr float kWeightless = 28.0F;                  // exp of less than -27.73 is below 2^-40

// What is looked for: the greatest key from which on there is as much as is wanted.
struct Search {
  uint64_t wanted;
  const Scale* scale;  // of weights; none: a number of ids is wanted
  int32_t low;         // from here on there is enough
  Sum at_low;
  int32_t high;  // from here on there is not
  Sum at_high{};

  [[nodiscard]] bool is_enough(const Sum& sum) const {
    return (scale != nullptr ? sum.weight : sum.count) >= wanted;
  }
  [[nodiscard]] uint64_t n_left() const { return at_low.count - at_high.count; }
  [[nodiscard]] bool is_over() const { return int64_t{high} - low <= 1; }
  [[nodiscard]] int32_t middle() const { return static_cast<int32_t>((int64_t{low} + high) >> 1); }
  void halve(int32_t key, const Sum& sum) {
    if (is_enough(sum)) {
      low = key;
      at_low = sum;
    } else {
      high = key;
      at_high = sum;
    }
  }
};

// Goes on over a list that has all keys between low and high.
void search_list(Search& search, List& list) {
  while (!search.is_over()) {
    if (search.n_left() <= list.n / 2) {
      const uint32_t n = list.n;
      list.n = 0;
      for (uint32_t i = 0; i < n; i++) {
        const int32_t key = list.keys[i];
        if (key >= search.low && key < search.high) list.put(key);
      }
      list.end();
    }
    const int32_t key = search.middle();
    Tally tally(key, search.scale);
    for (uint32_t i = 0; i < list.n; i += kWide) {
      const WideInts keys = list.at(i);
      tally.add(keys < search.high ? keys : WideInts(INT32_MIN));
    }
    Sum sum = tally.sum();
    sum.count += search.at_high.count;
    sum.weight += search.at_high.weight;
    search.halve(key, sum);
  }
}

Sum sum_from(const Blocks& blocks, int32_t low, const Scale* scale) {
  Tally tally(low, scale);
  blocks.each(low, [&](uint32_t, WideInts keys) {
    tally.add(keys);
    return true;
  });
  return tally.sum();
}

// Until the keys left fit into a list.
void search_row(Search& search, const Blocks& blocks, List& list) {
  // Weights are at the maximum, mostly, or near it. Logits are spread more evenly than keys.
  const int32_t first_low = search.low;
  float reach = 0.0F;
  for (uint32_t step = 0; search.n_left() > kMostListed && !search.is_over(); step++) {
    int32_t key = search.middle();
    if (search.scale != nullptr && search.low == first_low) {
      key = key_of(search.scale->max - reach);
      reach = reach == 0.0F ? 1.0F / search.scale->factor : 2.0F * reach;
    } else if (step < kLogitSteps) {
      key = key_of(0.5F * logit_of(search.low) + 0.5F * logit_of(search.high - 1));
    }
    if (key <= search.low || key >= search.high) key = search.middle();
    search.halve(key, sum_from(blocks, key, search.scale));
  }
  if (search.is_over()) return;
  list.n = 0;
  blocks.each(search.low, [&](uint32_t, WideInts keys) {
    if (any(keys >= search.low & keys < search.high)) {
      for (uint32_t i = 0; i < kWide; i++) {
        if (keys[i] >= search.low && keys[i] < search.high) list.put(keys[i]);
      }
    }
    return true;
  });
  list.end();
  search_list(search, list);
}

// Where a row is cut: the last place that is kept, the greater the fewer are. `equals` of those with
// the key are kept; the id is left out if they all are.
struct Cut {
  int32_t key = INT32_MIN;
  uint32_t last_id = kNoIndex;
  uint64_t equals = 0;

  [[nodiscard]] bool is_stricter(const Cut& other) const {
    return key != other.key ? key > other.key : last_id < other.last_id;
  }
};

// The id of the `rank`th, from 1, with this key.
uint32_t id_of_equal(const Blocks& blocks, int32_t key, uint64_t rank) {
  uint32_t found = kNoIndex;
  blocks.each(key, [&](uint32_t id, WideInts keys) {
    if (!any(keys == key)) return true;
    for (uint32_t i = 0; i < kWide; i++) {
      if (keys[i] == key && --rank == 0) found = id + i;
      if (found != kNoIndex) return false;
    }
    return true;
  });
  return found;
}

// Behind `equals` of the n ids that have the key.
Cut cut_at(const Blocks& blocks, int32_t key, uint64_t equals, uint64_t n) {
  return {key, equals < n ? id_of_equal(blocks, key, equals) : kNoIndex, equals};
}

Cut top_k(const Blocks& blocks, List& list, int32_t max_key, uint32_t k) {
  Search search = {.wanted = k, .scale = nullptr, .low = kLeast, .at_low = {}, .high = max_key + 1};
  if (k <= blocks.most.n) {
    // As many ids as blocks, at least, are not below the kth greatest of the blocks.
    list = blocks.most;
    Tally tally(kLeast, nullptr);
    for (uint32_t i = 0; i < list.n; i += kWide) tally.add(list.at(i));
    search.at_low = tally.sum();
    if (search.is_enough(search.at_low)) search_list(search, list);
    search.high = max_key + 1;
    search.at_high = {};
  }
  search.at_low = sum_from(blocks, search.low, nullptr);
  if (!search.is_enough(search.at_low)) return {};
  search_row(search, blocks, list);
  return cut_at(blocks, search.low, k - search.at_high.count, search.n_left());
}

// top_p of a sum, rounded up; see metal/filter.metal.
uint64_t share_of(float top_p, uint64_t total) {
  const auto p = static_cast<uint64_t>((top_p > 0.0F ? top_p : 0.0F) * 4294967296.0F);
  const uint64_t low = p * (total & 0xFFFFFFFFU);
  const uint64_t share = p * (total >> 32) + (low >> 32) + ((low & 0xFFFFFFFFU) != 0 ? 1 : 0);
  return share > 0 ? share : 1;
}

// Of what `top_k` keeps.
Cut top_p(const Blocks& blocks, List& list, const Scale& scale, const Cut& kept, float p) {
  const int32_t weightless = key_of(scale.max - kWeightless / scale.factor);
  Search search = {
      .wanted = 0, .scale = &scale, .low = kLeast, .at_low = {}, .high = scale.max_key + 1};
  if (weightless > search.low) search.low = weightless;
  if (kept.key >= search.low) search.low = kept.key + 1;
  search.at_low = sum_from(blocks, search.low, &scale);
  const uint64_t each = kept.equals > 0 ? scale.weight_of(kept.key) : 0;
  search.wanted = share_of(p, search.at_low.weight + kept.equals * each);
  if (!search.is_enough(search.at_low)) {
    const uint64_t rest = search.wanted - search.at_low.weight;
    const uint64_t equals = (rest + each - 1) / each;
    if (equals == kept.equals) return kept;
    return cut_at(blocks, kept.key, equals, kept.equals);
  }
  search_row(search, blocks, list);
  const uint64_t one = scale.weight_of(search.low);
  const uint64_t rest = search.wanted - search.at_high.weight;
  return cut_at(blocks, search.low, (rest + one - 1) / one, search.n_left());
}

Cut min_p(const Scale& scale, float temperature, float p) {
  const int32_t key = key_of(__builtin_fmaf(temperature, logf(p), scale.max));
  return {.key = key < scale.max_key ? key : scale.max_key};
}

Kept filter(const Row& row, const FilterArgs& args, float temperature) {
  const Kept all = {-__builtin_inff(), kNoIndex};
  if (!(temperature >= kLeastTemperature)) return all;
  Blocks blocks = {.row = row};
  blocks.measure();
  WideInts greatest = INT32_MIN;
  for (uint32_t i = 0; i < blocks.most.n; i += kWide) {
    greatest = larger(greatest, blocks.most.at(i));
  }
  const int32_t max_key = largest(greatest);
  if (max_key < kLeast) return all;
  const float clamped = temperature < 1e-37F ? 1e-37F : temperature > 1e37F ? 1e37F : temperature;
  const Scale scale = {max_key, logit_of(max_key), 1.0F / clamped};
  List list;
  Cut cut;
  if (args.top_k != 0) cut = top_k(blocks, list, max_key, args.top_k);
  if (args.top_p < 1.0F) {
    const Cut other = top_p(blocks, list, scale, cut, args.top_p);
    if (other.is_stricter(cut)) cut = other;
  }
  if (args.min_p > 0.0F) {
    const Cut other = min_p(scale, temperature, args.min_p);
    if (other.is_stricter(cut)) cut = other;
  }
  return cut.key < kLeast ? all : Kept{logit_of(cut.key), cut.last_id};
}

}  // namespace
}  // namespace mtlqwen::twins

MTLQWEN_TWIN(filter_rows) {
  using namespace mtlqwen::twins;
  const auto* samples = dispatch.buffer<const mtlqwen::SampleArgs>(2);
  const auto* filters = dispatch.buffer<const mtlqwen::FilterArgs>(3);
  const auto* masks = dispatch.buffer<const uint32_t>(4);
  const auto& args = dispatch.args<mtlqwen::SampleScanArgs>(5);
  return for_each_group(dispatch, first, count, [&](uint32_t, uint32_t index) {
    const mtlqwen::FilterArgs& of = filters[index];
    const mtlqwen::SampleArgs& sample = samples[of.row];
    const Row row = {dispatch.buffer<const float>(1) + uint64_t{of.row} * args.vocab,
                     mask_of(masks, sample, args), args.n_valid};
    dispatch.buffer<mtlqwen::Kept>(0)[index] = filter(row, of, sample.temperature);
  });
}
