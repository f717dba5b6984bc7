// The kernels of metal/draft.metal.
#include "int16.h"
#include "twin.h"

namespace mtlqwen::twins {
namespace {

void copy_floats(float* to, const float* from, uint64_t n) {
  __builtin_memcpy(to, from, n * sizeof(float));
}

// Columns of an int16 row; they begin and end with qblocks.
void place_row(uint8_t* row, const float* x, const PlaceArgs& args) {
  for (uint32_t i = 0; i < args.dim; i += kInt16Qblock) {
    int16_quantise(row, args.stride, (args.first + i) / kInt16Qblock, load(x + i),
                   load(x + i + kWide));
  }
}

uint64_t seed_at(uint32_t bank, const SeedArgs& args) {
  return bank * args.bank_floats + args.seed_offset;
}

// Where the proposals of a query start, what is said in their place, and the ids that end a text.
struct Draft {
  const int32_t* proposals;
  const int32_t* sampled;
  const int32_t* stops;
};

uint32_t accepted_of(const VerifyArgs& check, const Draft& draft) {
  for (uint32_t i = 0; i < check.width; ++i) {
    const int32_t id = draft.sampled[i];
    if (id < 0 || id != draft.proposals[i]) return i;
    for (uint32_t s = 0; s < check.n_stops; ++s) {
      if (id == draft.stops[s]) return i;
    }
  }
  return check.width;
}

}  // namespace
}  // namespace mtlqwen::twins

MTLQWEN_TWIN(place_columns) {
  using namespace mtlqwen::twins;
  const auto& args = dispatch.args<mtlqwen::PlaceArgs>(2);
  return for_each_group(dispatch, first, count, [&](uint32_t, uint32_t row) {
    copy_floats(dispatch.buffer<float>(0) + uint64_t{row} * args.stride + args.first,
                dispatch.buffer<const float>(1) + uint64_t{row} * args.dim, args.dim);
  });
}

MTLQWEN_TWIN(place_columns_int16) {
  using namespace mtlqwen::twins;
  const auto& args = dispatch.args<mtlqwen::PlaceArgs>(2);
  return for_each_group(dispatch, first, count, [&](uint32_t, uint32_t row) {
    place_row(dispatch.buffer<uint8_t>(0) + row * int16_row_bytes(args.stride),
              dispatch.buffer<const float>(1) + uint64_t{row} * args.dim, args);
  });
}

MTLQWEN_TWIN(shift_rows) {
  using namespace mtlqwen::twins;
  const auto* queries = dispatch.buffer<const mtlqwen::QueryArgs>(3);
  const auto* row_query = dispatch.buffer<const uint32_t>(4);
  const auto& args = dispatch.args<mtlqwen::SeedArgs>(5);
  return for_each_group(dispatch, first, count, [&](uint32_t, uint32_t row) {
    const mtlqwen::QueryArgs& query = queries[row_query[row]];
    float* out = dispatch.buffer<float>(0) + uint64_t{row} * args.dim;
    if (row != query.first_row) {
      copy_floats(out, dispatch.buffer<const float>(1) + uint64_t{row - 1} * args.dim, args.dim);
    } else if (query.kv_valid > 0) {
      copy_floats(out, dispatch.buffer<const float>(2) + seed_at(query.bank, args), args.dim);
    } else {
      __builtin_memset(out, 0, args.dim * sizeof(float));
    }
  });
}

MTLQWEN_TWIN(keep_seeds) {
  using namespace mtlqwen::twins;
  const auto* queries = dispatch.buffer<const mtlqwen::QueryArgs>(2);
  const auto* writes = dispatch.buffer<const mtlqwen::StateWriteArgs>(3);
  const auto& args = dispatch.args<mtlqwen::SeedArgs>(4);
  return for_each_group(dispatch, first, count, [&](uint32_t, uint32_t index) {
    const mtlqwen::StateWriteArgs& write = writes[index];
    const uint64_t row = queries[write.query].first_row + write.rows - 1;
    copy_floats(dispatch.buffer<float>(0) + seed_at(write.bank, args),
                dispatch.buffer<const float>(1) + row * args.dim, args.dim);
  });
}

MTLQWEN_TWIN(keep_taped_seeds) {
  using namespace mtlqwen::twins;
  const auto* queries = dispatch.buffer<const mtlqwen::QueryArgs>(2);
  const auto* verifies = dispatch.buffer<const mtlqwen::VerifyArgs>(3);
  const auto* accepted = dispatch.buffer<const uint32_t>(4);
  const auto& args = dispatch.args<mtlqwen::SeedArgs>(5);
  return for_each_group(dispatch, first, count, [&](uint32_t, uint32_t index) {
    const mtlqwen::VerifyArgs& check = verifies[index];
    const uint64_t row = queries[check.query].first_row + accepted[index];
    copy_floats(dispatch.buffer<float>(0) + seed_at(check.bank, args),
                dispatch.buffer<const float>(1) + row * args.dim, args.dim);
  });
}

MTLQWEN_TWIN(scatter_ids) {
  using namespace mtlqwen::twins;
  const auto* ids = dispatch.buffer<const int32_t>(1);
  const auto* places = dispatch.buffer<const uint32_t>(2);
  return for_each_group(dispatch, first, count, [&](uint32_t, uint32_t index) {
    dispatch.buffer<int32_t>(0)[places[index]] = ids[index];
  });
}

MTLQWEN_TWIN(verify) {
  using namespace mtlqwen::twins;
  const auto* queries = dispatch.buffer<const mtlqwen::QueryArgs>(3);
  const auto* verifies = dispatch.buffer<const mtlqwen::VerifyArgs>(4);
  return for_each_group(dispatch, first, count, [&](uint32_t, uint32_t index) {
    const mtlqwen::VerifyArgs& check = verifies[index];
    const uint64_t first_proposal = uint64_t{queries[check.query].first_row} + 1;
    const Draft draft = {
        .proposals = dispatch.buffer<const int32_t>(1) + first_proposal,
        .sampled = dispatch.buffer<const int32_t>(2) + check.first_logit,
        .stops = dispatch.buffer<const int32_t>(5) + check.first_stop,
    };
    dispatch.buffer<uint32_t>(0)[index] = accepted_of(check, draft);
  });
}
