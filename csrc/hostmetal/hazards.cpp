#include "hostmetal/hazards.hpp"

#include <algorithm>
#include <utility>

namespace mtlqwen::hostmetal {
namespace {

constexpr uint32_t kAlwaysChecked = 4;  // times that one group is seen
constexpr uint32_t kThenOneIn = 32;
constexpr uint64_t kOtherSeed = 0x5851F42D4C957F2DU;

// Whether `again`, wherever it ran, wrote what `alone` did.
bool same_writes(const Effects& alone, const Effects& again) {
  for (const auto& [key, effect] : again) {
    const auto found = alone.find(key);
    for (size_t i = 0; i < effect.after.size(); ++i) {
      const bool expected = found != alone.end() && found->second.changes(i);
      const char want = expected ? found->second.after[i] : effect.before[i];
      if (effect.after[i] != want) return false;
    }
  }
  return std::ranges::all_of(alone, [&](const auto& one) {
    return again.contains(one.first) || one.second.before == one.second.after;
  });
}

const char* common_byte(const Effects& first, const Effects& second) {
  for (const auto& [key, effect] : first) {
    const auto found = second.find(key);
    if (found == second.end()) continue;
    for (size_t i = 0; i < effect.after.size(); ++i) {
      if (effect.changes(i) && found->second.changes(i)) return effect.page + i;
    }
  }
  return nullptr;
}

uint64_t count_changes(const Effects& effects) {
  uint64_t n = 0;
  for (const auto& [key, effect] : effects) {
    for (size_t i = 0; i < effect.after.size(); ++i) n += effect.changes(i) ? 1 : 0;
  }
  return n;
}

// The first n changed bytes alone, and the address of the last of them.
std::pair<Effects, const char*> first_changes(const Effects& effects, uint64_t n) {
  std::pair<Effects, const char*> part{effects, nullptr};
  for (auto& [key, effect] : part.first) {
    for (size_t i = 0; i < effect.after.size(); ++i) {
      if (!effect.changes(i)) continue;
      if (n == 0) {
        effect.after[i] = effect.before[i];
      } else {
        --n;
        part.second = effect.page + i;
      }
    }
  }
  return part;
}

}  // namespace

UnorderedGroup::UnorderedGroup(Executor& executor, std::span<const Work> group,
                               std::vector<PageRange> writable, const volatile uint32_t* abort)
    : executor_(executor), group_(group), abort_(abort), log_(std::move(writable)),
      alone_(group.size()) {}

RunResult UnorderedGroup::run() {
  if (!run_alone()) return std::move(result_);
  find_double_write();
  if (hazard_.kind == Hazard::Kind::kNone && !run_after_others()) return std::move(result_);
  return std::move(result_);
}

// False where the work failed. Its effects are in memory in either case.
bool UnorderedGroup::run_one(size_t index, uint64_t seed, Effects& effects) {
  Work work = group_[index];
  work.dispatch.seed ^= seed;
  if (!log_.start()) {
    result_ = {.status = MSL_FAILED, .error = "its memory cannot be watched", .index = index};
    return false;
  }
  result_ = executor_.run({&work, 1}, abort_);
  result_.index = index;
  effects = log_.stop();
  return result_.status == MSL_OK;
}

bool UnorderedGroup::run_alone() {
  for (size_t index = 0; index < group_.size(); ++index) {
    if (!run_one(index, 0, alone_[index])) return false;
    log_.undo(alone_[index]);
  }
  return true;
}

void UnorderedGroup::find_double_write() {
  for (size_t i = 0; i < group_.size(); ++i) {
    for (size_t j = i + 1; j < group_.size(); ++j) {
      const char* address = common_byte(alone_[i], alone_[j]);
      if (!address) continue;
      hazard_ = {.kind = Hazard::Kind::kBothWrite, .writer = i, .other = j, .address = address};
      return;
    }
  }
}

bool UnorderedGroup::run_after_others() {
  for (const Effects& effects : alone_) log_.repeat(effects);
  for (size_t index = 0; index < group_.size(); ++index) {
    log_.undo(alone_[index]);
    Effects again;
    const bool ran = run_one(index, kOtherSeed, again);
    if (ran && same_writes(alone_[index], again)) continue;
    if (result_.status == MSL_ABORTED) return false;
    log_.undo(again);
    for (size_t i = 0; i < group_.size(); ++i) {
      if (i != index) log_.undo(alone_[i]);
    }
    explain(index);
    return false;
  }
  return true;
}

// Whether the work writes the same on the memory as it is now, which stays so.
bool UnorderedGroup::repeats(size_t index, uint64_t seed) {
  Effects again;
  const bool ran = run_one(index, seed, again);
  const bool same = ran && same_writes(alone_[index], again);
  log_.undo(again);
  return same;
}

// Memory is as the group found it. A work alone must not depend on the order of its own threads.
void UnorderedGroup::explain(size_t reader) {
  if (!repeats(reader, kOtherSeed)) {
    hazard_ = {.kind = Hazard::Kind::kUnstable, .writer = reader, .other = reader};
    return;
  }
  for (size_t writer = 0; writer < group_.size(); ++writer) {
    if (writer == reader) continue;
    log_.repeat(alone_[writer]);
    const bool same = repeats(reader, kOtherSeed);
    log_.undo(alone_[writer]);
    if (same) continue;
    hazard_ = {.kind = Hazard::Kind::kReads,
               .writer = writer,
               .other = reader,
               .address = find_byte(reader, alone_[writer])};
    return;
  }
  // Only several together change it: the first stands for them.
  const size_t writer = reader == 0 ? 1 : 0;
  hazard_ = {.kind = Hazard::Kind::kReads, .writer = writer, .other = reader};
}

// With the first `low` changed bytes of `written` in place the reader does as before, with the first `high` it does not.
const char* UnorderedGroup::find_byte(size_t reader, const Effects& written) {
  uint64_t low = 0;
  uint64_t high = count_changes(written);
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    const Effects part = first_changes(written, middle).first;
    log_.repeat(part);
    const bool same = repeats(reader, kOtherSeed);
    log_.undo(part);
    (same ? low : high) = middle;
  }
  return first_changes(written, high).second;
}

namespace {

// FNV-1a.
template <class T>
uint64_t mix(uint64_t hash, const T& value) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
  for (size_t i = 0; i < sizeof value; ++i) hash = (hash ^ bytes[i]) * 0x100000001B3U;
  return hash;
}

}  // namespace

bool GroupSampler::is_due(std::span<const Work> group) {
  uint64_t hash = 0xCBF29CE484222325U;
  for (const Work& work : group) {
    hash = mix(hash, work.dispatch.kernel);
    hash = mix(hash, work.dispatch.buffers);
    hash = mix(hash, work.dispatch.constants);
    hash = mix(hash, work.dispatch.groups);
    hash = mix(hash, work.source);
    hash = mix(hash, work.destination);
    hash = mix(hash, work.bytes);
  }
  const std::lock_guard lock(mutex_);
  const uint32_t n = n_seen_[hash]++;
  return n < kAlwaysChecked || n % kThenOneIn == 0;
}

}  // namespace mtlqwen::hostmetal
