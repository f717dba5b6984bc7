// out[row] = table[ids[row]] as float. out (rows, dim), ids (rows), table (n_tokens, dim) in the
// format of the name. Grid (1, rows), 32 threads: each takes every 32nd run of 16. An id outside the
// table gives a row of NaN, which no later kernel can mistake for a token.
#include "kernel_args.h"
#include "packed.h"

template <typename Format>
kernel void embed(device float* out [[buffer(0)]], device const int* ids [[buffer(1)]],
                  device const uchar* table [[buffer(2)]], constant EmbedArgs& args [[buffer(3)]],
                  constant Pass& pass [[buffer(4)]], uint2 group [[threadgroup_position_in_grid]],
                  uint lane [[thread_index_in_simdgroup]]) {
  const uint row = group.y;
  if (row >= pass.rows) return;
  const uint id = uint(ids[row]);
  const bool known = id < args.n_tokens;
  device const uchar* source = table + (known ? id : 0u) * Format::row_bytes(args.dim);
  device float* target = out + row * args.dim;
  for (uint i = 16 * lane; i < args.dim; i += 16 * 32) {
    float4 values[4];
    Format::unpack16(values, source, i);
    for (uint j = 0; j < 4; j++) {
      if (!known) values[j] = float4(NAN);
      *(device float4*)(target + i + 4 * j) = values[j];
    }
  }
}

template [[host_name("embed_f32")]] [[kernel]] decltype(embed<FormatF32>) embed<FormatF32>;
template [[host_name("embed_f16")]] [[kernel]] decltype(embed<FormatF16>) embed<FormatF16>;
template [[host_name("embed_bf16")]] [[kernel]] decltype(embed<FormatBF16>) embed<FormatBF16>;
template [[host_name("embed_q8_0")]] [[kernel]] decltype(embed<FormatQ8_0>) embed<FormatQ8_0>;
template [[host_name("embed_packed")]] [[kernel]] decltype(embed<FormatPacked>) embed<FormatPacked>;
