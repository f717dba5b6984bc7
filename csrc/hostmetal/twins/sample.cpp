// sample_scan and sample_pick: metal/sample.metal. The same ids, whatever the input.
#include <math.h>  // logf

#include "filter.h"
#include "math.h"

namespace mtlqwen::twins {
namespace {

constexpr uint32_t kGroup = 64;  // ids of 16 Philox blocks
constexpr auto kSpoilt = static_cast<uint32_t>(MTLQWEN_SPOILT_LOGITS);

// Ids first .. last - 1 of a row.
struct Ids {
  const float* row;
  uint32_t first;
  uint32_t last;
};

// The same of a row with a filter or a mask.
struct SomeIds : Ids {
  Kept kept;
  Mask mask;
};

// The bits of |x| are ordered as the values are, with infinity and NaN above all others.
MTLQWEN_INLINE bool all_finite(const Ids& ids) {
  WideInts most[2] = {0, 0};
  uint32_t id = ids.first;
  for (; id + 2 * kWide <= ids.last; id += 2 * kWide) {
    for (uint32_t i = 0; i < 2; i++) {
      const WideInts bits = (WideInts)load(ids.row + id + i * kWide) & INT32_MAX;
      most[i] = __builtin_elementwise_max(most[i], bits);
    }
  }
  bool rest = true;
  for (; id < ids.last; id++) rest &= __builtin_isfinite(ids.row[id]);
  return rest && __builtin_reduce_max(__builtin_elementwise_max(most[0], most[1])) < 0x7F800000;
}

// Sixteen logits from `id` on; NaN where there is none.
MTLQWEN_INLINE Wide load_logits(const Ids& ids, uint32_t id) {
  if (id >= ids.first && id + kWide <= ids.last) return load(ids.row + id);
  Wide logits = __builtin_nanf("");
  for (uint32_t i = 0; i < kWide; i++) {
    if (id + i >= ids.first && id + i < ids.last) logits[i] = ids.row[id + i];
  }
  return logits;
}

MTLQWEN_INLINE WideInts keeps(const Kept& kept, Wide logits, uint32_t id) {
  const WideUints place = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const WideInts is_early = place + id <= kept.last_id;
  return logits > kept.lowest | (logits == kept.lowest & is_early);
}

// NaN where an id is not kept, either.
MTLQWEN_INLINE Wide load_logits(const SomeIds& ids, uint32_t id) {
  const Wide logits = load_logits(static_cast<const Ids&>(ids), id);
  WideInts chosen = keeps(ids.kept, logits, id);
  if (ids.mask.words != nullptr && any(chosen)) chosen &= allowed(ids.mask, id);
  return chosen ? logits : Wide(__builtin_nanf(""));
}

MTLQWEN_INLINE Wide load_whole(const Ids& ids, uint32_t id) { return load(ids.row + id); }
MTLQWEN_INLINE Wide load_whole(const SomeIds& ids, uint32_t id) { return load_logits(ids, id); }

// The first id of the highest logit.
template <class Some>
MTLQWEN_INLINE Candidate scan_greedy(const Some& ids) {
  Wide best[4];
  for (Wide& one : best) one = kLowest;
  uint32_t id = ids.first;
  for (; id + kGroup <= ids.last; id += kGroup) {
    for (uint32_t i = 0; i < 4; i++) best[i] = larger(best[i], load_whole(ids, id + i * kWide));
  }
  for (; id < ids.last; id += kWide) best[0] = larger(best[0], load_logits(ids, id));
  const Wide most = larger(larger(best[0], best[1]), larger(best[2], best[3]));
  const float score = largest(most);
  if (!(score > kLowest)) return {kLowest, kNoId};
  for (id = ids.first;; id += kWide) {
    const WideInts equal = load_logits(ids, id) == score;
    if (!any(equal)) continue;
    uint32_t i = 0;
    while (!equal[i]) i++;
    return {score, id + i};
  }
}

// What a score is made of, beside logit and noise.
struct Scales {
  float logit;
  float noise;
};

// The best of the ids from `id` on that `may_win`, or `best`.
inline void choose(Candidate& best, const Ids& ids, uint32_t id, const uint32_t* words,
                   WideInts may_win, const Scales& scales) {
  for (uint32_t i = 0; i < kWide; i++) {
    if (!may_win[i] || !(ids.row[id + i] > kLowest)) continue;
    const float noise = logf(-logf(uniform_open(words[i])));
    const float score = __builtin_fmaf(-scales.noise, noise, ids.row[id + i] * scales.logit);
    if (score > best.score) best = {score, id + i};
  }
}

// The ids whose noise -log(-log(u)) may bring their score above the best: log u <= u - 1, so it is
// at least x only if 1 - u <= e^-x.
MTLQWEN_INLINE WideInts may_win(Wide scores, WideUints words, float best, float per_noise) {
  constexpr float kMargin = 1.0F / 512.0F;  // far more than all roundings, here and of the noise
  return 1.0F - uniform_open(words) <= exp(kMargin - (best - scores) * per_noise);
}

// The best score with noise. Few ids come near the best so far; the others are ruled out without a
// logarithm, 64 at a time, those without a chance before they are drawn.
template <class Some>
MTLQWEN_INLINE Candidate scan_noisy(const Some& ids, const SampleArgs& sample,
                                    const Scales& scales) {
  const Draw draw = make_draw(sample);
  const float per_noise = 1.0F / scales.noise;
  Candidate best = {kLowest, kNoId};
  for (uint32_t id = ids.first / 4 * 4; id < ids.last; id += kGroup) {
    Wide scores[4];
    Wide most = kLowest;
    for (uint32_t i = 0; i < 4; i++) {
      scores[i] = load_logits(ids, id + i * kWide) * scales.logit;
      most = larger(most, scores[i]);
    }
    if (!any(most + kGumbelBound * scales.noise > best.score)) continue;
    WideUints words[4];
    philox_ids(words, id / 4, draw);
    WideInts wins = 0;
    for (uint32_t i = 0; i < 4; i++) wins |= may_win(scores[i], words[i], best.score, per_noise);
    if (!any(wins)) continue;
    for (uint32_t i = 0; i < 4; i++) {
      // Again: the best may have risen, from nothing in the first group.
      wins = may_win(scores[i], words[i], best.score, per_noise);
      const auto* drawn = reinterpret_cast<const uint32_t*>(&words[i]);
      if (any(wins)) choose(best, ids, id + i * kWide, drawn, wins, scales);
    }
  }
  return best;
}

template <class Some>
MTLQWEN_INLINE Candidate scan(const Some& ids, const SampleArgs& sample) {
  const float temperature = sample.temperature;
  const Scales scales = {1.0F / (temperature > 1.0F ? temperature : 1.0F),
                         temperature < 1.0F ? temperature : 1.0F};
  return scales.noise > 0.0F ? scan_noisy(ids, sample, scales) : scan_greedy(ids);
}

}  // namespace
}  // namespace mtlqwen::twins

MTLQWEN_TWIN(sample_scan) {
  using namespace mtlqwen::twins;
  const auto* samples = dispatch.buffer<const mtlqwen::SampleArgs>(2);
  const auto* filtered = dispatch.buffer<const mtlqwen::Kept>(3);
  const auto* masks = dispatch.buffer<const uint32_t>(4);
  const auto& args = dispatch.args<mtlqwen::SampleScanArgs>(5);
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t row) {
    const uint32_t start = x * args.chunk < args.n_valid ? x * args.chunk : args.n_valid;
    const uint32_t left = args.n_valid - start;
    const Ids ids = {dispatch.buffer<const float>(1) + uint64_t{row} * args.vocab, start,
                     start + (left < args.chunk ? left : args.chunk)};
    const mtlqwen::SampleArgs& sample = samples[row];
    mtlqwen::Candidate& best =
        dispatch.buffer<mtlqwen::Candidate>(0)[uint64_t{row} * args.n_chunks + x];
    if (!all_finite(ids)) {
      best = {__builtin_inff(), kSpoilt};
    } else if (sample.filter == kNoIndex && sample.mask == kNoIndex) {
      best = scan(ids, sample);
    } else {
      const mtlqwen::Kept all = {-__builtin_inff(), kNoIndex};
      const SomeIds some = {ids, sample.filter == kNoIndex ? all : filtered[sample.filter],
                            mask_of(masks, sample, args)};
      best = scan(some, sample);
    }
  });
}

MTLQWEN_TWIN(sample_pick) {
  using namespace mtlqwen::twins;
  const auto& args = dispatch.args<mtlqwen::SampleScanArgs>(2);
  return for_each_group(dispatch, first, count, [&](uint32_t, uint32_t row) {
    const auto* chunks =
        dispatch.buffer<const mtlqwen::Candidate>(1) + uint64_t{row} * args.n_chunks;
    mtlqwen::Candidate best = {kLowest, kNoId};
    for (uint32_t i = 0; i < args.n_chunks; i++) {
      if (chunks[i].score > best.score) best = chunks[i];
    }
    dispatch.buffer<int32_t>(0)[row] = static_cast<int32_t>(best.id);
  });
}
