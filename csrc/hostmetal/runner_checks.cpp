// What MTLQWEN_HOST_CHECK adds to the running of a group.
#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/error.hpp"
#include "base/math.hpp"
#include "hostmetal/runner.hpp"

namespace mtlqwen::hostmetal {

RunResult CommandRunner::run_group() {
  Executor& executor = device_.executor();
  const bool is_due = device_.checks.shuffle && n_works_ > 1 && device_.sampler.is_due(group());
  if (device_.checks.shuffle) {
    std::ranges::shuffle(group(), std::mt19937_64(device_.checks.seed + device_.n_dispatches));
  }
  if (!is_due) return executor.run(group(), device_.abort_flag());
  UnorderedGroup unordered(executor, group(), writable_pages(), device_.abort_flag());
  RunResult result = unordered.run();
  if (unordered.hazard().kind != Hazard::Kind::kNone) {
    result = {.status = MSL_FAILED,
              .error = describe(unordered.hazard()),
              .index = unordered.hazard().other};
  }
  return result;
}

std::string CommandRunner::replay() const {
  if (!device_.checks.shuffle) return {};
  return concat(" (MTLQWEN_HOST_SEED=", device_.checks.seed, ")");
}

std::string CommandRunner::describe(const Hazard& hazard) const {
  if (hazard.kind == Hazard::Kind::kUnstable) {
    return "what it writes depends on the order in which its threads run";
  }
  const char* what = hazard.kind == Hazard::Kind::kBothWrite ? "writes" : "depends on";
  const std::string where =
      hazard.address
          ? concat(" at ", device_.addresses.describe(reinterpret_cast<uint64_t>(hazard.address)))
          : std::string();
  return concat(what, " what ", name_of(works_[hazard.writer]), " writes", where,
                ", and no barrier orders the two");
}

// All that kernels of the group may write. Pages that the host wrapped stay as they are: who maps a file need not be able to
// make it writable again.
std::vector<PageRange> CommandRunner::writable_pages() const {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::vector<PageRange> ranges;
  for (const auto& [id, memory] : used_) {
    char* base = static_cast<char*>(memory->base);
    if (memory->kind == MemoryKind::kOwned) {
      const uint64_t in_front = reinterpret_cast<uint64_t>(base) % page;
      char* first = base - in_front;
      ranges.push_back({.base = first,
                        .bytes = align_up(in_front + memory->bytes, page),
                        .key = {.offset = reinterpret_cast<uint64_t>(first)}});
    }
    if (memory->kind != MemoryKind::kSparse) continue;
    const std::lock_guard lock(device_.mapping_mutex);
    for (const auto& [tile, run] : memory->runs.all()) {
      ranges.push_back(
          {.base = base + tile * memory->page_bytes,
           .bytes = run.n_tiles * memory->page_bytes,
           .key = {.heap = run.heap->id, .offset = run.heap_tile * memory->page_bytes}});
    }
  }
  return ranges;
}

void CommandRunner::check_group() {
  for (const auto& [id, memory] : used_) {
    const std::string subject =
        concat("[hostmetal] ", name_of(group().back()), ": ", memory->name());
    if (device_.checks.guard && memory->kind == MemoryKind::kOwned &&
        !memory->has_margins_intact()) {
      refuse(concat(subject, " was overrun: the bytes around it changed"));
    }
    if (!device_.checks.residency) continue;
    if (memory->released) refuse(concat(subject, " was released while the command buffer ran"));
    if (!resident_.still_contains(id)) {
      refuse(concat(subject, " left its residency set while the command buffer ran"));
    }
    if (memory->kind != MemoryKind::kSparse) continue;
    const std::lock_guard lock(device_.mapping_mutex);
    for (const auto& [heap, n_tiles] : memory->runs.heaps()) {
      if (!resident_.still_contains(heap->id)) {
        refuse(concat(subject, ": ", heap->name(),
                      ", mapped there, left its residency set while the command buffer ran"));
      }
    }
  }
}

}  // namespace mtlqwen::hostmetal
