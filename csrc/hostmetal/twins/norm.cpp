// rms_norm, rms_norm_int16 and gather_rows: metal/norm.metal.
#include "int16.h"
#include "rows.h"
#include "spoilt.h"
#include "twin.h"

namespace mtlqwen::twins {
namespace {

MTLQWEN_INLINE float norm_scale(const float* x, const NormArgs& args) {
  const float mean = sum_of_squares(x, args.dim) / static_cast<float>(args.dim);
  return 1.0F / __builtin_sqrtf(mean + args.eps);
}

// Both return the scale: 0 or NaN is that of a row whose sum is not finite.
float norm_row(float* out, const float* x, const float* weight, const NormArgs& args) {
  const float scale = norm_scale(x, args);
  uint32_t i = 0;
  for (; i + kWide <= args.dim; i += kWide) store(out + i, load(x + i) * scale * load(weight + i));
  for (; i < args.dim; i++) out[i] = x[i] * scale * weight[i];
  return scale;
}

float norm_row_int16(float* out, uint8_t* out16, const float* x, const float* weight,
                     const NormArgs& args) {
  const float scale = norm_scale(x, args);
  for (uint32_t i = 0; i < args.dim; i += kInt16Qblock) {
    const Wide low = load(x + i) * scale * load(weight + i);
    const Wide high = load(x + i + kWide) * scale * load(weight + i + kWide);
    store(out + i, low);
    store(out + i + kWide, high);
    int16_quantise(out16, args.dim, i / kInt16Qblock, low, high);
  }
  return scale;
}

}  // namespace
}  // namespace mtlqwen::twins

MTLQWEN_TWIN(rms_norm) {
  using namespace mtlqwen::twins;
  const auto& args = dispatch.args<mtlqwen::NormArgs>(4);
  return for_each_group(dispatch, first, count, [&](uint32_t, uint32_t row) {
    const uint64_t start = uint64_t{row} * args.dim;
    const float scale =
        norm_row(dispatch.buffer<float>(0) + start, dispatch.buffer<const float>(1) + start,
                 dispatch.buffer<const float>(2), args);
    if (!(scale > 0.0F)) note_spoilt(dispatch.buffer<uint32_t>(3), row, args.place);
  });
}

MTLQWEN_TWIN(rms_norm_int16) {
  using namespace mtlqwen::twins;
  const auto& args = dispatch.args<mtlqwen::NormArgs>(5);
  return for_each_group(dispatch, first, count, [&](uint32_t, uint32_t row) {
    const uint64_t start = uint64_t{row} * args.dim;
    const float scale = norm_row_int16(
        dispatch.buffer<float>(0) + start,
        dispatch.buffer<uint8_t>(1) + row * int16_row_bytes(args.dim),
        dispatch.buffer<const float>(2) + start, dispatch.buffer<const float>(3), args);
    if (!(scale > 0.0F)) note_spoilt(dispatch.buffer<uint32_t>(4), row, args.place);
  });
}

MTLQWEN_TWIN(gather_rows) {
  using namespace mtlqwen::twins;
  const auto* logit_rows = dispatch.buffer<const uint32_t>(2);
  const uint64_t dim = dispatch.args<mtlqwen::RowsArgs>(3).dim;
  return for_each_group(dispatch, first, count, [&](uint32_t, uint32_t row) {
    __builtin_memcpy(dispatch.buffer<float>(0) + row * dim,
                     dispatch.buffer<const float>(1) + logit_rows[row] * dim, dim * sizeof(float));
  });
}
