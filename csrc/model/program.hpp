// The forward pass as a flat list of launches. The walk over the layers (forward.cpp, layer_walk.cpp) runs once, when the
// model is loaded, and records what to launch: pipelines, buffers, grids, and where barriers must
// stand. A pass only replays the list.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "base/types.hpp"
#include "gpu/commands.hpp"

namespace mtlqwen {

// What a launch counts along the y axis of its grid.
enum class Count : uint8_t {
  kRows,
  kQueries,
  kLogitRows,
  kStateWrites,
  kVerified,
  kTaped,
  kEdits,
  kFilters,
  kLogprobs
};

// Passes of one command buffer at most: number 0 is the target's, the others are a drafter's.
inline constexpr uint32_t kMaxPasses = 5;

// The counts of one pass that size its grids.
struct PassShape {
  uint32_t rows = 0;
  uint32_t n_queries = 0;
  uint32_t n_logit_rows = 0;
  uint32_t n_writes = 0;    // GDN states kept
  uint32_t n_verified = 0;  // queries whose drafts are checked
  uint32_t n_taped = 0;     // of them, those that are rolled back by the tape
  uint32_t n_edits = 0;     // logit rows that are changed before they are sampled
  uint32_t n_filters = 0;   // logit rows of whose ids some may not be drawn
  uint32_t n_logprobs = 0;  // logit rows whose logarithms of probability are wanted
  uint32_t n_splits = 0;
  uint32_t shortest = 0;  // rows of a query
  uint32_t longest = 0;
  uint64_t n_keys = 0;  // positions that all queries look back at, their own rows included
};

// By number of the pass; one without rows is left out.
using StepShape = std::array<PassShape, kMaxPasses>;

// Bytes that a launch must read and write, each once.
struct Traffic {
  uint64_t once = 0;       // weights
  uint64_t per_count = 0;  // for each of what the launch counts
  uint64_t per_row = 0;
  uint64_t per_query = 0;
  uint64_t per_write = 0;  // for each GDN state kept
  uint64_t per_split = 0;  // for each row and attention split
  uint64_t per_key = 0;
};

// Launches of a program: a part of a pass that is a round of its own.
struct LaunchRange {
  size_t first = 0;
  size_t last = std::numeric_limits<size_t>::max();  // behind it; all that there are
};

// What one launch did in a pass.
struct KernelWork {
  std::string_view kernel;
  uint64_t bytes = 0;
};

// Launches between two barriers: nothing orders them, and they are timed together.
struct KernelGroup {
  Timer::Clock::time_point begin{};
  Timer::Clock::time_point end{};
  std::vector<KernelWork> kernels;
};

// One pipeline with its share of the work for each threadgroup.
struct Variant {
  const Pipeline* pipeline = nullptr;
  uint32_t groups_x = 1;
  uint32_t rows_per_group = 1;
  uint32_t threads = 32;
  uint32_t threadgroup_bytes = 0;
  auto operator<=>(const Variant&) const = default;
};

// A launch that serves only queries of `least` to `most` rows is left out of passes without one.
struct QueryRows {
  uint32_t least = 0;
  uint32_t most = std::numeric_limits<uint32_t>::max();
};

// What to record. `reads` and `writes` are what hazards are tracked by; `buffers` is what is bound,
// in [[buffer]] order.
struct Launch {
  std::vector<uint64_t> buffers{};
  std::vector<Span> reads{};
  std::vector<Span> writes{};
  uint8_t pass = 0;  // whose counts are meant
  Count count = Count::kRows;
  QueryRows serves{};
  bool per_split = false;           // groups_x counts once for each attention split
  bool variant_by_longest = false;  // the longest query's rows choose, not the count
  std::vector<Variant> variants{};  // at least one
  std::array<uint8_t, kPassRows + 1> variant_of{};  // index into variants, by count or longest
  Traffic traffic{};
};

// Invariant: replaying the launches in order, with the barriers recorded, never lets a launch start
// before one that it depends on: a barrier stands where a span read or written now was written
// since the last barrier, or read and is written now.
class Program {
 public:
  void add(Launch launch);
  // An array that launches are bound to stands elsewhere from now on.
  void rebind(const Span& from, const Span& to);
  // Encodes the launches between commands.begin() and commit. Those of one range are over before
  // those of the next are encoded: barriers stand within a range alone.
  void replay(Commands& commands, const StepShape& shape, const LaunchRange& range = {}) const;
  // What the replay of this shape did, with the times of its marks. Groups without a mark are left out.
  [[nodiscard]] std::vector<KernelGroup> groups(const StepShape& shape,
                                                std::span<const Timer::Clock::time_point> marks,
                                                const LaunchRange& range = {}) const;
  [[nodiscard]] size_t n_launches() const { return launches_.size(); }
  [[nodiscard]] size_t n_barriers() const;

 private:
  struct Recorded {
    Launch launch;
    bool barrier_before = false;
  };
  [[nodiscard]] bool depends_on_pending(const Launch& launch) const;
  // Calls barrier() and run(launch, count) in the order of a pass, without what it has nothing to do for.
  template <class Barrier, class Run>
  void walk(const StepShape& shape, const LaunchRange& range, const Barrier& barrier,
            const Run& run) const;

  std::vector<Recorded> launches_;
  std::vector<Span> pending_reads_;  // since the last barrier
  std::vector<Span> pending_writes_;
};

}  // namespace mtlqwen
