// swiglu: metal/mlp.metal.
#include "math.h"
#include "rows.h"
#include "twin.h"

namespace mtlqwen::twins {
namespace {

void swiglu_row(float* out, const float* gate, const float* up, uint32_t dim) {
  uint32_t i = 0;
  for (; i + kWide <= dim; i += kWide) store(out + i, silu(load(gate + i)) * load(up + i));
  if (i < dim) {
    const Wide rest = silu(load_few(gate + i, dim - i)) * load_few(up + i, dim - i);
    store_few(out + i, rest, dim - i);
  }
}

}  // namespace
}  // namespace mtlqwen::twins

MTLQWEN_TWIN(swiglu) {
  using namespace mtlqwen::twins;
  const uint32_t dim = dispatch.args<mtlqwen::RowsArgs>(3).dim;
  return for_each_group(dispatch, first, count, [&](uint32_t, uint32_t row) {
    const uint64_t start = uint64_t{row} * dim;
    swiglu_row(dispatch.buffer<float>(0) + start, dispatch.buffer<const float>(1) + start,
               dispatch.buffer<const float>(2) + start, dim);
  });
}
