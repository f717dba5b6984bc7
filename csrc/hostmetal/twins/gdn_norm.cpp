// What stands behind the delta rule: the gated norm, as floats or as int16 rows.
#include "gdn.h"
#include "int16.h"
#include "math.h"
#include "twin.h"

namespace mtlqwen::twins {
namespace {

struct Norm {
  const float* o;       // (rows, Hv * Dv)
  const float* z;       // (rows, Hv * Dv)
  const float* weight;  // (Dv)
  const GdnArgs& args;

  explicit Norm(const Dispatch& dispatch)
      : o(dispatch.buffer<const float>(1)), z(dispatch.buffer<const float>(2)),
        weight(dispatch.buffer<const float>(3)), args(dispatch.args<GdnArgs>(4)) {}

  // One head of one row, 32 values a call to put(d, low, high).
  template <class Put>
  MTLQWEN_INLINE void head(uint32_t v_head, uint32_t row, const Put& put) const {
    const uint32_t dim = args.head_dim;
    const uint64_t start = (uint64_t{row} * args.n_v_heads + v_head) * dim;
    Wide squares = 0.0F;
    for (uint32_t d = 0; d < dim; d += kWide) {
      const Wide x = load(o + start + d);
      squares = multiply_add(x, x, squares);
    }
    const float mean = fold(squares) / static_cast<float>(dim);
    const float scale = 1.0F / __builtin_sqrtf(mean + args.eps);
    const auto value = [&](uint32_t d) {
      return load(o + start + d) * scale * load(weight + d) * silu(load(z + start + d));
    };
    for (uint32_t d = 0; d < dim; d += 2 * kWide) put(d, value(d), value(d + kWide));
  }
};

}  // namespace
}  // namespace mtlqwen::twins

MTLQWEN_TWIN(gdn_norm) {
  using namespace mtlqwen::twins;
  const Norm norm(dispatch);
  auto* out = dispatch.buffer<float>(0);
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    float* to = out + (uint64_t{y} * norm.args.n_v_heads + x) * norm.args.head_dim;
    norm.head(x, y, [&](uint32_t d, Wide low, Wide high) {
      store(to + d, low);
      store(to + d + kWide, high);
    });
  });
}

MTLQWEN_TWIN(gdn_norm_int16) {
  using namespace mtlqwen::twins;
  const Norm norm(dispatch);
  auto* out16 = dispatch.buffer<uint8_t>(0);
  const uint32_t values = norm.args.n_v_heads * norm.args.head_dim;
  return for_each_group(dispatch, first, count, [&](uint32_t x, uint32_t y) {
    uint8_t* to = out16 + y * int16_row_bytes(values);
    norm.head(x, y, [&](uint32_t d, Wide low, Wide high) {
      int16_quantise(to, values, (x * norm.args.head_dim + d) / kInt16Qblock, low, high);
    });
  });
}
