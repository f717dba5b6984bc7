// The forward pass of the target model: embedding, layers, head, sampling.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cache/gdn_banks.hpp"
#include "cache/kv_pool.hpp"
#include "gpu/commands.hpp"
#include "model/config.hpp"
#include "model/control.hpp"
#include "model/device_weights.hpp"
#include "model/dflash_config.hpp"
#include "model/drafter.hpp"
#include "model/edit_arrays.hpp"
#include "model/program.hpp"
#include "model/scratch.hpp"

namespace mtlqwen {

// Ids that end a text, of a query that is drafted for, at most.
inline constexpr uint32_t kMostStops = 32;

// Rows of a pass that get logits beside one for each sequence, where nobody drafts.
inline constexpr uint32_t kToldRows = 16;

// Of the last pass; valid until the next.
struct PassResult {
  std::span<const int32_t> sampled;  // an id for each row with logits, in the order of the queries
  std::span<const uint32_t> accepted;  // proposals that hold, of each query with a draft
  std::span<const int32_t> input_ids;  // of each row, proposals included
  // What each row, and each with logits, is spoilt by (NormArgs).
  std::span<const uint32_t> spoilt;
  std::span<const uint32_t> spoilt_logits;
  Logprobs logprobs;  // of the told rows, and the sampled ones of queries that want them
  // Of each query that a grammar holds: why its text cannot go on, or null.
  std::vector<std::exception_ptr> mask_errors;
};

// Built once: walks the layers, resolves every weight, chooses and builds every pipeline, and keeps
// the launches. Reference of the arithmetic: the Qwen 3.5 model of transformers
// (modeling_qwen3_5.py).
class Forward {
 public:
  struct Parts {
    Device& device;
    const ModelConfig& config;
    DeviceWeights& weights;
    const KvPool& kv_pool;
    const GdnBanks& banks;
    uint32_t slots = 0;
    uint32_t context = 0;  // tokens; rows of the rope table
    // A row's bits depend on nothing but its own request: not on its company, nor on how its prompt is cut.
    bool deterministic = false;
    DrafterKind drafter = DrafterKind::kNone;
    const DflashConfig* dflash = nullptr;  // with its weights, for kDflash
    DeviceWeights* dflash_weights = nullptr;
    bool draft_noise = false;  // see DraftedTarget

    [[nodiscard]] bool drafts() const { return drafter != DrafterKind::kNone; }
  };
  explicit Forward(const Parts& parts);

  // Makes the copies and runs one pass behind them. fill: is asked where a grammar holds rows that are
  // sampled. Throws DeviceError, CapacityError, Aborted; MasksFailed with what fill threw.
  PassResult run(std::span<const PackedQuery> queries, std::span<const BlockCopy> copies,
                 const FillMasks& fill);

  // A drafter may put off its context (settling.cpp). The caller says which rows hold: the first `rows`
  // of a query of the last pass; and who gives up a slot, that it is given up.
  void keep(const Query& query, uint32_t rows);
  void drop(uint32_t slot);
  // Computes what was put off for a slot, so that its bundles are whole. False: it cannot be done now.
  bool settle(uint32_t slot);
  [[nodiscard]] uint32_t n_unsettled(uint32_t slot) const;  // rows that it is put off for
  // Rounds that did nothing else, since begin_step().
  struct Settled {
    uint32_t rows = 0;
    double seconds = 0;
  };
  [[nodiscard]] const Settled& settled() const { return settled_; }
  void begin_step() { settled_ = {}; }

  [[nodiscard]] std::span<const float>
  logits(uint32_t logit_row) const;  // (vocab) of the last pass
  // Of the last run, and of what its step settled.
  [[nodiscard]] double gpu_seconds() const { return pass_seconds_ + settled_.seconds; }

  // Times the kernels of the passes to come; null: no more.
  void set_timer(std::shared_ptr<Timer> timer) { commands_.set_timer(std::move(timer)); }
  // When the last pass was encoded: from then on the device works.
  [[nodiscard]] Timer::Clock::time_point encoded() const { return encoded_; }
  // What the last pass did, where it was timed and succeeded.
  [[nodiscard]] std::vector<KernelGroup> kernels() const;
  [[nodiscard]] uint64_t arena_bytes() const;
  // Of a pass, at most: told and sampled ones.
  [[nodiscard]] uint32_t logit_rows() const { return logit_rows_; }
  [[nodiscard]] const Program& program() const { return program_; }

 private:
  void record(const Parts& parts, Span rope);
  void record_rollback(const Parts& parts, Recorder& recorder);
  [[nodiscard]] std::unique_ptr<Drafter> make_drafter(const Parts& parts, Span rope,
                                                      const Matrix& embedding, const Matrix& head);
  [[nodiscard]] Span tape_of(const ModelConfig& config, uint32_t layer) const;
  void encode(std::span<const BlockCopy> copies);
  // Rounds of a pass (masking.cpp).
  std::vector<std::exception_ptr> run_held(std::span<const PackedQuery> queries,
                                           std::span<const BlockCopy> copies,
                                           const FillMasks& fill);
  void narrow_masks(std::span<const PackedQuery> queries);
  void encode_round(const LaunchRange& range, std::span<const BlockCopy> copies);
  void finish_round();
  void wait_for_round();
  [[nodiscard]] LazyContext* lazy() const { return drafter_ ? drafter_->lazy_context() : nullptr; }
  void make_ready(std::span<const PackedQuery> queries);
  void settle_some(std::span<const uint32_t> slots);

  uint32_t vocab_;
  uint32_t logit_rows_;
  uint32_t min_blocks_per_split_;
  Control control_;
  EditArrays edits_;
  Scratch scratch_;
  Arena args_;
  Arena rope_;
  std::optional<Arena> tape_;  // none: nothing is drafted, or there are no GDN layers
  Span tape_span_{};
  Program program_;
  std::unique_ptr<Drafter> drafter_;
  Commands commands_;
  Commands settling_;
  size_t target_ = 0;  // the program's first launch behind the drafter's
  size_t choice_ = 0;  // and its first behind the logits
  // Of the last pass:
  struct Round {
    LaunchRange range;
    std::vector<Timer::Clock::time_point> marks{};
  };
  std::vector<Round> rounds_;
  double pass_seconds_ = 0.0;
  StepShape shape_{};
  Settled settled_{};
  std::vector<uint32_t> drafting_;  // slots that the pass drafts for
  Timer::Clock::time_point encoded_{};
};

}  // namespace mtlqwen
