#include "model/program.hpp"

#include <algorithm>
#include <utility>

#include "base/math.hpp"
#include "gpu/foundation.hpp"

namespace mtlqwen {

namespace {

bool overlap(const Span& a, const Span& b) {
  return a.address < b.address + b.bytes && b.address < a.address + a.bytes;
}

bool overlap_any(const Span& span, const std::vector<Span>& others) {
  return std::any_of(others.begin(), others.end(),
                     [&](const Span& other) { return overlap(span, other); });
}

uint32_t count_of(Count count, const PassShape& shape) {
  switch (count) {
  case Count::kRows:
    return shape.rows;
  case Count::kQueries:
    return shape.n_queries;
  case Count::kLogitRows:
    return shape.n_logit_rows;
  case Count::kStateWrites:
    return shape.n_writes;
  case Count::kVerified:
    return shape.n_verified;
  case Count::kTaped:
    return shape.n_taped;
  case Count::kEdits:
    return shape.n_edits;
  case Count::kFilters:
    return shape.n_filters;
  case Count::kLogprobs:
    return shape.n_logprobs;
  }
  return 0;
}

uint64_t bytes_of(const Traffic& traffic, uint32_t count, const PassShape& shape) {
  return traffic.once + traffic.per_count * count + traffic.per_row * shape.rows +
         traffic.per_query * shape.n_queries + traffic.per_write * shape.n_writes +
         traffic.per_split * shape.rows * shape.n_splits + traffic.per_key * shape.n_keys;
}

const Variant& variant_of(const Launch& launch, uint32_t count, const PassShape& shape) {
  return launch.variants[launch.variant_of[launch.variant_by_longest ? shape.longest : count]];
}

}  // namespace

bool Program::depends_on_pending(const Launch& launch) const {
  for (const Span& span : launch.writes) {
    if (overlap_any(span, pending_writes_) || overlap_any(span, pending_reads_)) return true;
  }
  return std::any_of(launch.reads.begin(), launch.reads.end(),
                     [&](const Span& span) { return overlap_any(span, pending_writes_); });
}

void Program::add(Launch launch) {
  const bool barrier = depends_on_pending(launch);
  if (barrier) {
    pending_reads_.clear();
    pending_writes_.clear();
  }
  pending_reads_.insert(pending_reads_.end(), launch.reads.begin(), launch.reads.end());
  pending_writes_.insert(pending_writes_.end(), launch.writes.begin(), launch.writes.end());
  launches_.push_back({.launch = std::move(launch), .barrier_before = barrier});
}

// Barriers stay as they are: what overlapped still does.
void Program::rebind(const Span& from, const Span& to) {
  for (auto& [launch, barrier_before] : launches_) {
    std::ranges::replace(launch.buffers, from.address, to.address);
    for (std::vector<Span>* spans : {&launch.reads, &launch.writes}) {
      std::ranges::replace_if(
          *spans, [&](const Span& span) { return span.address == from.address; }, to);
    }
  }
}

template <class Barrier, class Run>
void Program::walk(const StepShape& step, const LaunchRange& range, const Barrier& barrier,
                   const Run& run) const {
  bool has_started = false;
  bool barrier_due = false;
  const size_t last = std::min(range.last, launches_.size());
  for (size_t i = range.first; i < last; ++i) {
    const auto& [launch, barrier_before] = launches_[i];
    barrier_due |= barrier_before && has_started;
    const PassShape& shape = step[launch.pass];
    const uint32_t count = count_of(launch.count, shape);
    const QueryRows& serves = launch.serves;
    if (count == 0 || shape.longest < serves.least || shape.shortest > serves.most) continue;
    if (std::exchange(barrier_due, false)) barrier();
    run(launch, count);
    has_started = true;
  }
}

void Program::replay(Commands& commands, const StepShape& step, const LaunchRange& range) const {
  const AutoreleaseScope scope;
  commands.mark();
  const auto barrier = [&] {
    commands.mark();
    commands.barrier();
  };
  walk(step, range, barrier, [&](const Launch& launch, uint32_t count) {
    const PassShape& shape = step[launch.pass];
    const Variant& variant = variant_of(launch, count, shape);
    const uint32_t groups_x =
        launch.per_split ? variant.groups_x * shape.n_splits : variant.groups_x;
    const auto groups_y = static_cast<uint32_t>(ceil_div(count, variant.rows_per_group));
    commands.dispatch(*variant.pipeline, launch.buffers,
                      {.groups = {groups_x, groups_y, 1},
                       .threads = variant.threads,
                       .threadgroup_bytes = variant.threadgroup_bytes});
  });
  commands.mark();
}

std::vector<KernelGroup> Program::groups(const StepShape& step,
                                         std::span<const Timer::Clock::time_point> marks,
                                         const LaunchRange& range) const {
  std::vector<KernelGroup> groups(1);
  walk(
      step, range, [&] { groups.emplace_back(); },
      [&](const Launch& launch, uint32_t count) {
        const PassShape& shape = step[launch.pass];
        const Variant& variant = variant_of(launch, count, shape);
        groups.back().kernels.push_back(
            {.kernel = variant.pipeline->name, .bytes = bytes_of(launch.traffic, count, shape)});
      });
  groups.resize(std::min(groups.size(), marks.empty() ? 0 : marks.size() - 1));
  for (size_t i = 0; i < groups.size(); ++i) {
    groups[i].begin = marks[i];
    groups[i].end = marks[i + 1];
  }
  return groups;
}

size_t Program::n_barriers() const {
  return static_cast<size_t>(
      std::count_if(launches_.begin(), launches_.end(),
                    [](const Recorded& recorded) { return recorded.barrier_before; }));
}

}  // namespace mtlqwen
