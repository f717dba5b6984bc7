// embed_f32, _f16, _bf16, _q8_0, _packed: metal/embed.metal.
#include "packed.h"
#include "twin.h"
#include "wide.h"

namespace mtlqwen::twins {
namespace {

constexpr uint32_t kQblock = 32;
constexpr uint32_t kQblockBytes = 34;  // a half scale, 32 int8

MTLQWEN_WIDE(WideUints, uint32_t, 64);

void unpack_f16(float* out, const uint8_t* row, uint32_t dim) {
  const auto* from = reinterpret_cast<const _Float16*>(row);
  for (uint32_t i = 0; i < dim; i += kWide) store(out + i, load(from + i));
}

void unpack_bf16(float* out, const uint8_t* row, uint32_t dim) {
  for (uint32_t i = 0; i < dim; i += kWide) {
    const auto* from = reinterpret_cast<const LooseShorts*>(row + uint64_t{2} * i);
    store(out + i, (Wide)(__builtin_convertvector(*from, WideUints) << 16));
  }
}

void unpack_q8_0(float* out, const uint8_t* row, uint32_t dim) {
  for (uint32_t i = 0; i < dim; i += kQblock) {
    const auto scale = static_cast<float>(*reinterpret_cast<const _Float16*>(row));
    const auto* quants = reinterpret_cast<const LooseChars*>(row + 2);
    for (uint32_t half = 0; half < 2; half++) {
      store(out + i + half * kWide, __builtin_convertvector(quants[half], Wide) * scale);
    }
    row += kQblockBytes;
  }
}

void unpack_f32(float* out, const uint8_t* row, uint32_t dim) {
  __builtin_memcpy(out, row, uint64_t{dim} * sizeof(float));
}

// qblock_bytes: of n elements.
template <class Unpack>
int embed(const Dispatch& dispatch, uint64_t first, uint64_t count, uint64_t qblock_bytes,
          const Unpack& unpack, uint32_t n = kQblock) {
  const auto* ids = dispatch.buffer<const int32_t>(1);
  const auto* table = dispatch.buffer<const uint8_t>(2);
  const auto& args = dispatch.args<EmbedArgs>(3);
  const uint32_t rows = dispatch.args<Pass>(4).rows;
  const uint64_t row_bytes = args.dim / n * qblock_bytes;
  return for_each_group(dispatch, first, count, [&](uint32_t, uint32_t row) {
    if (row >= rows) return;
    float* out = dispatch.buffer<float>(0) + uint64_t{row} * args.dim;
    const auto id = static_cast<uint32_t>(ids[row]);
    if (id < args.n_tokens) {
      unpack(out, table + id * row_bytes, args.dim);
    } else {
      for (uint32_t i = 0; i < args.dim; i++) out[i] = __builtin_nanf("");
    }
  });
}

}  // namespace
}  // namespace mtlqwen::twins

MTLQWEN_TWIN(embed_f32) {
  return mtlqwen::twins::embed(dispatch, first, count, 128, mtlqwen::twins::unpack_f32);
}

MTLQWEN_TWIN(embed_f16) {
  return mtlqwen::twins::embed(dispatch, first, count, 64, mtlqwen::twins::unpack_f16);
}

MTLQWEN_TWIN(embed_bf16) {
  return mtlqwen::twins::embed(dispatch, first, count, 64, mtlqwen::twins::unpack_bf16);
}

MTLQWEN_TWIN(embed_q8_0) {
  return mtlqwen::twins::embed(dispatch, first, count, mtlqwen::twins::kQblockBytes,
                               mtlqwen::twins::unpack_q8_0);
}

MTLQWEN_TWIN(embed_packed) {
  using namespace mtlqwen::twins;
  const PackedKernels& format = packed_kernels(dispatch.constant<uint32_t>(2));
  const auto unpack = [&](float* out, const uint8_t* row, uint32_t dim) {
    for (uint32_t i = 0; i < dim; i += format.elements) {
      format.unpack(out + i, row);
      row += format.bytes;
    }
  };
  return embed(dispatch, first, count, format.bytes, unpack, format.elements);
}
