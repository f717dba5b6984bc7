// attention_prepare, attention_merge and attention_merge_int16: metal/attention.metal.
#include "attention.h"

#include "int16.h"
#include "math.h"
#include "rows.h"
#include "spoilt.h"

namespace mtlqwen::twins {
namespace {

constexpr float kHalfMax = 65504.0F;

// A head, normed, turned, times `scale`; `turns`: cos, sin of each pair (i, i + rotary_dim / 2). Returns
// the factor of the norm.
MTLQWEN_INLINE float prepare_head(float* y, const float* x, const float* weight, const float* turns,
                                  float scale, const AttentionArgs& args) {
  const float mean = sum_of_squares(x, args.head_dim) / static_cast<float>(args.head_dim);
  const float norm = 1.0F / __builtin_sqrtf(mean + args.eps);
  for (uint32_t d = 0; d < args.head_dim; d += kWide) {
    store(y + d, load(x + d) * norm * load(weight + d));
  }
  const uint32_t half_turn = args.rotary_dim / 2;
  float* z = y + half_turn;
  uint32_t i = 0;
  for (; i + kWide <= half_turn; i += kWide) {
    const Wide first = load(turns + 2 * i);
    const Wide second = load(turns + 2 * i + kWide);
    const Wide cosines = __builtin_shufflevector(first, second, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18,
                                                 20, 22, 24, 26, 28, 30);
    const Wide sines = __builtin_shufflevector(first, second, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21,
                                               23, 25, 27, 29, 31);
    const Wide a = load(y + i);
    const Wide b = load(z + i);
    store(y + i, multiply_add(a, cosines, -(b * sines)));
    store(z + i, multiply_add(b, cosines, a * sines));
  }
  for (; i < half_turn; i++) {
    const float a = y[i];
    const float b = z[i];
    y[i] = __builtin_fmaf(a, turns[2 * i], -(b * turns[2 * i + 1]));
    z[i] = __builtin_fmaf(b, turns[2 * i], a * turns[2 * i + 1]);
  }
  for (uint32_t d = 0; d < args.head_dim; d += kWide) store(y + d, load(y + d) * scale);
  return norm;
}

// Returns whether all were finite; 0 stands for those that were not.
MTLQWEN_INLINE bool store_halves(_Float16* to, const float* from, uint32_t n) {
  WideInts all = -1;
  for (uint32_t d = 0; d < n; d += kWide) {
    const Wide x = load(from + d);
    const WideInts finite = __builtin_elementwise_abs(x) < __builtin_inff();
    const Wide low = __builtin_elementwise_max(x, Wide(-kHalfMax));
    const Wide some = finite ? __builtin_elementwise_min(low, Wide(kHalfMax)) : Wide(0.0F);
    *reinterpret_cast<LooseHalves*>(to + d) = __builtin_convertvector(some, LooseHalves);
    all &= finite;
  }
  return __builtin_reduce_and(all) != 0;
}

void prepare(const Dispatch& dispatch, uint32_t x, uint32_t row) {
  const auto* queries = dispatch.buffer<const QueryArgs>(9);
  const QueryArgs& query = queries[dispatch.buffer<const uint32_t>(10)[row]];
  const auto& args = dispatch.args<AttentionArgs>(12);
  const uint32_t position = row_position(row, query);
  const float* turns = dispatch.buffer<const float>(8) + uint64_t{position} * args.rotary_dim;
  const uint64_t dim = args.head_dim;
  if (x < args.n_heads) {
    const uint64_t head = uint64_t{row} * args.n_heads + x;
    const uint64_t from = (args.gated != 0 ? 2 : 1) * head * dim;
    prepare_head(dispatch.buffer<float>(0) + head * dim, dispatch.buffer<const float>(3) + from,
                 dispatch.buffer<const float>(6), turns, args.scale, args);
    return;
  }
  const uint32_t kv_head = x - args.n_heads;
  const uint64_t head = uint64_t{row} * args.n_kv_heads + kv_head;
  const uint64_t place = plane_offset(position, kv_head, query, args);
  float k[kMaxDim];
  const float norm = prepare_head(k, dispatch.buffer<const float>(4) + head * dim,
                                  dispatch.buffer<const float>(7), turns, 1.0F, args);
  const bool has_key = store_halves(dispatch.buffer<_Float16>(1) + place, k, args.head_dim);
  const bool has_value = store_halves(dispatch.buffer<_Float16>(2) + place,
                                      dispatch.buffer<const float>(5) + head * dim, args.head_dim);
  if (norm > 0.0F && has_key && has_value) return;
  note_spoilt(dispatch.buffer<uint32_t>(11), row, args.place);
}

// softmax(q k) v of one head, from its splits in order; zeros where there is none. Pointers stand at
// the first split.
MTLQWEN_INLINE void merge_splits(float* out, const float* partial, const float* stats,
                                 uint32_t n_splits, uint32_t dim) {
  for (uint32_t d = 0; d < dim; d += kWide) store(out + d, Wide(0.0F));
  if (n_splits == 0) return;
  float top = stats[0];
  for (uint32_t split = 1; split < n_splits; split++) {
    top = __builtin_fmaxf(top, stats[uint64_t{2} * split]);
  }
  float total = 0.0F;
  for (uint32_t split = 0; split < n_splits; split++) {
    const Wide weight = exp(Wide(stats[uint64_t{2} * split] - top));
    total = __builtin_fmaf(stats[uint64_t{2} * split + 1], weight[0], total);
    for (uint32_t d = 0; d < dim; d += kWide) {
      store(out + d, multiply_add(load(partial + d), weight, load(out + d)));
    }
    partial += dim;
  }
  for (uint32_t d = 0; d < dim; d += kWide) store(out + d, load(out + d) / total);
}

// Head x of the row, times sigmoid(gate) where there are gates: head_dim floats.
MTLQWEN_INLINE void merge(const Dispatch& dispatch, float* out, uint32_t x, uint32_t row) {
  const auto* queries = dispatch.buffer<const QueryArgs>(4);
  const QueryArgs& query = queries[dispatch.buffer<const uint32_t>(5)[row]];
  const auto& args = dispatch.args<AttentionArgs>(6);
  const auto& pass = dispatch.args<Pass>(7);
  const uint64_t dim = args.head_dim;
  const uint64_t head = uint64_t{row} * args.n_heads + x;
  const Splits splits = row_splits(row, query, args, pass);
  const uint64_t place = head * pass.n_splits + splits.first;
  merge_splits(out, dispatch.buffer<const float>(1) + place * dim,
               dispatch.buffer<const float>(2) + 2 * place, splits.end - splits.first,
               args.head_dim);
  if (args.gated == 0) return;
  const float* gate = dispatch.buffer<const float>(3) + (2 * head + 1) * dim;
  for (uint32_t d = 0; d < args.head_dim; d += kWide) {
    store(out + d, load(out + d) * sigmoid(load(gate + d)));
  }
}

void merge_int16(const Dispatch& dispatch, uint32_t x, uint32_t row) {
  const auto& args = dispatch.args<AttentionArgs>(6);
  float out[kMaxDim];
  merge(dispatch, out, x, row);
  const uint32_t k = args.n_heads * args.head_dim;
  uint8_t* out16 = dispatch.buffer<uint8_t>(0) + row * int16_row_bytes(k);
  for (uint32_t d = 0; d < args.head_dim; d += kInt16Qblock) {
    int16_quantise(out16, k, (x * args.head_dim + d) / kInt16Qblock, load(out + d),
                   load(out + d + kWide));
  }
}

void merge_float(const Dispatch& dispatch, uint32_t x, uint32_t row) {
  const auto& args = dispatch.args<AttentionArgs>(6);
  const uint64_t head = uint64_t{row} * args.n_heads + x;
  merge(dispatch, dispatch.buffer<float>(0) + head * args.head_dim, x, row);
}

}  // namespace
}  // namespace mtlqwen::twins

MTLQWEN_TWIN(attention_prepare) {
  using namespace mtlqwen::twins;
  return for_each_group(dispatch, first, count,
                        [&](uint32_t x, uint32_t row) { prepare(dispatch, x, row); });
}

MTLQWEN_TWIN(attention_merge) {
  using namespace mtlqwen::twins;
  return for_each_group(dispatch, first, count,
                        [&](uint32_t x, uint32_t row) { merge_float(dispatch, x, row); });
}

MTLQWEN_TWIN(attention_merge_int16) {
  using namespace mtlqwen::twins;
  return for_each_group(dispatch, first, count,
                        [&](uint32_t x, uint32_t row) { merge_int16(dispatch, x, row); });
}
