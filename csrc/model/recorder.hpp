// One method for each kernel: turns tensors and shapes into a recorded launch, building the
// pipelines that it may need.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "gpu/device.hpp"
#include "kernel_args.h"
#include "model/control.hpp"
#include "model/edit_arrays.hpp"
#include "model/linear_table.hpp"
#include "model/program.hpp"
#include "model/tensor.hpp"

namespace mtlqwen {

// The half K and V planes of one attention layer; address 0 of slot 0. `bytes` covers all slots.
struct KvPlanes {
  Span key;
  Span value;
};

[[nodiscard]] constexpr uint64_t float_bytes(uint64_t n) { return n * sizeof(float); }

// Where a kernel that writes either floats or int16 rows puts them.
struct ActivationResult {
  explicit ActivationResult(const Activation& out)
      : int16(out.int16.bytes != 0), span(int16 ? out.int16 : out.span),
        row_bytes(int16 ? int16_row_bytes(out.cols) : float_bytes(out.cols)) {}
  bool int16;
  Span span;
  uint64_t row_bytes;
};

// Records launches of one pass. Lives while the model is loaded. Args structs go into `args`, which outlives the program.
class Recorder {
 public:
  // deterministic: only kernels whose bits do not depend on how many rows there are.
  Recorder(Device& device, Program& program, Arena& args, const PassBuffers& pass,
           bool deterministic);

  // Whether the linears of a matrix read int16 rows, where their input has some.
  [[nodiscard]] bool reads_int16(const Matrix& matrix) const;
  // Whether mlp() serves the two.
  [[nodiscard]] bool fuses_mlp(const Matrix& gate, const Matrix& up) const;

  void embed(const Activation& out, const Matrix& table);
  // Writes int16 rows as well where `out` has some. place: that gave `in`, see NormArgs.
  void rms_norm(const Activation& out, const Activation& in, Span weight, float eps, uint32_t place,
                Count count = Count::kRows);
  // out (+)= in * matrix^T
  void linear(const Activation& out, const Activation& in, const Matrix& matrix,
              bool accumulate = false, Count count = Count::kRows);
  // out.int16 = silu(in * gate^T) * (in * up^T), in from int16 rows.
  void mlp(const Activation& out, const Activation& in, const Matrix& gate, const Matrix& up);
  void swiglu(const Activation& out, const Activation& gate, const Activation& up);
  void gather_last_rows(const Activation& out, const Activation& in);

  struct AttentionTensors {
    Activation query;
    Activation query_gate;  // of each head, the query, then its gate if args.gated
    Activation key, value;
    Activation attended;  // written as int16 rows where it has some, else as floats
    Span partial, stats;
    Span q_norm, k_norm;  // (head_dim)
    Span rope;            // (context, rotary_dim / 2, 2): cos, sin
    KvPlanes planes;
  };
  void attention(const AttentionTensors& tensors, const AttentionArgs& args);

  // The keys and values of rows that attend to nothing themselves, into the planes.
  struct KeyValueTensors {
    Activation key, value;
    Span k_norm, rope;
    KvPlanes planes;
  };
  void keys_and_values(const KeyValueTensors& tensors, AttentionArgs args);

  struct GdnTensors {
    Activation qkv, z, a, b, convolved, gates, delta_out;
    Activation delta_gated;  // written as int16 rows where it has some, else as floats
    Span conv;               // (channels, 4)
    Span decay, dt_bias;     // (v_heads): -exp(A_log), bias of the step size
    Span norm;               // (head_dim)
    Span banks;              // all of them
    Span tape;               // the layer's; empty: no query of the pass is taped
  };
  void gdn(const GdnTensors& tensors, const GdnArgs& args);
  // The states after the accepted rows of every taped query, in all layers. tape: of all layers.
  void gdn_replay(Span banks, Span tape, const GdnReplayArgs& args);

  // Columns `first` .. of `out`, or of its int16 rows where it has some, from all columns of `in`.
  void place_columns(const Activation& out, const Activation& in, uint32_t first);
  // out[r] = in[r - 1]; before a query's first row stands the seed of its bank.
  void shift_rows(const Activation& out, const Activation& in, Span banks, const SeedArgs& args);
  // Seeds of the banks that the pass writes, and of those that it makes from the tape: the row of `in` behind which the state stands.
  void keep_seeds(Span banks, const Activation& in, const SeedArgs& args);
  void keep_taped_seeds(Span banks, const Activation& in, const SeedArgs& args);
  // out[places[i]] = ids[i], for i below the count.
  void scatter_ids(Span out, Span ids, Span places, Count count);
  // Counts what the target accepts of each draft of the pass.
  void verify();

  // What requests change about their logits, and what these were before.
  void edit_logits(const Activation& logits, const EditSpans& edits, const SampleScanArgs& args);
  void restore_logits(const Activation& logits, const EditSpans& edits, const SampleScanArgs& args);
  // Which ids of a row top_k, top_p and min_p leave.
  void filter(const Activation& logits, const SampleScanArgs& args);
  // The next token of each logit row into the pass's `sampled`, of those that SampleArgs leave.
  void sample(const Activation& logits, Span candidates, const SampleScanArgs& args);
  // Logarithms of probability in raw logits, of the chosen ids and of the likeliest.
  void logprobs(const Activation& logits, const SampleScanArgs& args);

 private:
  enum class Access : uint8_t { kRead, kWrite, kReadWrite, kUntracked };
  struct Binding {
    Span span;
    Access access = Access::kRead;
  };
  static Binding out(const Span& span) { return {.span = span, .access = Access::kWrite}; }
  static Binding in_out(const Span& span) { return {.span = span, .access = Access::kReadWrite}; }
  static Binding in(const Span& span) { return {.span = span, .access = Access::kRead}; }
  // What kernels of a place say is read by the CPU alone.
  [[nodiscard]] Binding spoilt(uint32_t place, Count count = Count::kRows) const {
    const Span& rows = count == Count::kLogitRows ? pass_.spoilt_logits : pass_.spoilt;
    return place == MTLQWEN_NO_INDEX ? untracked(rows) : in_out(rows);
  }
  // For memory in which one pass never touches what it writes and what it reads of it in the same
  // place (GDN banks).
  static Binding untracked(const Span& span) {
    return {.span = span, .access = Access::kUntracked};
  }

  // One launch of a kernel that serves any count with one pipeline.
  struct Simple {
    std::string_view kernel;
    uint32_t groups_x = 1;
    Count count = Count::kRows;
    std::vector<Binding> bindings{};  // in [[buffer]] order, up to the args
    Traffic traffic{};
    bool per_split = false;
    QueryRows serves{};
    Constants constants{};
  };
  [[nodiscard]] LinearDevice linear_device(bool int16) const;
  // One variant for each LinearLaunch that choose(rows) gives, with `more` constants.
  template <class Choose>
  void add_variants(Launch& launch, uint32_t n, const Constants& more, const Choose& choose);
  void attention_split(const AttentionTensors& tensors, const AttentionArgs& args,
                       const Traffic& traffic);
  void add(const Simple& simple, const Span& args);
  void add_rowwise(const Simple& simple, const SampleScanArgs& args);
  template <class Args>
  void add(const Simple& simple, const Args& args) {
    add(simple, args_.put(args));
  }
  // Binds buffers, args and the Pass of the count; tracks hazards. No args: neither they nor the Pass.
  void bind(Launch& launch, const std::vector<Binding>& bindings, const Span& args) const;

  Device& device_;
  Program& program_;
  Arena& args_;
  const PassBuffers& pass_;
  bool software_;
  bool deterministic_;
  bool int16_;
};

}  // namespace mtlqwen
