#include "engine/trace.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/version.hpp"

namespace mtlqwen {

namespace {

constexpr uint32_t kStepTrack = 1;
constexpr uint32_t kKernelTrack = 2;
constexpr uint32_t kSequenceTrack = 3;

// "a x2 + b": the kernels of a group, repetitions counted.
std::string group_name(const std::vector<KernelWork>& kernels) {
  std::string name;
  for (size_t i = 0; i < kernels.size();) {
    size_t next = i + 1;
    while (next < kernels.size() && kernels[next].kernel == kernels[i].kernel) ++next;
    if (!name.empty()) name += " + ";
    name += kernels[i].kernel;
    if (next - i > 1) name += " x" + std::to_string(next - i);
    i = next;
  }
  return name;
}

std::string kernel_list(const std::vector<KernelWork>& kernels) {
  std::string json = "[";
  for (const KernelWork& work : kernels) {
    if (json.size() > 1) json += ',';
    json += "{\"kernel\":\"";
    json += work.kernel;
    json += "\",\"bytes\":";
    json += std::to_string(work.bytes);
    json += '}';
  }
  return json += ']';
}

// Why no more of a request was recalled.
std::string_view reason_of(const Sequence& sequence, const Recall& recall) {
  if (!sequence.options.recall) return "recall is off";
  if (recall.evicted) return "evicted";
  if (recall.known > recall.n_tokens) return "no checkpoint";
  return "new text";
}

uint64_t total_bytes(const std::vector<KernelWork>& kernels) {
  uint64_t bytes = 0;
  for (const KernelWork& work : kernels) bytes += work.bytes;
  return bytes;
}

}  // namespace

Trace::Trace(const std::string& path, std::string_view device, std::shared_ptr<Timer> timer)
    : path_(path), timer_(std::move(timer)), events_(path, start_) {
  name_tracks(device);
}

template <class Write>
void Trace::guarded(const Write& write) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    if (!is_open_ || !is_whole_) return;
    write();
    is_whole_ = events_.is_good();
  } catch (...) {
    is_whole_ = false;  // out of memory
  }
}

void Trace::name_tracks(std::string_view device) {
  events_.begin('M', kStepTrack, "process_name")
      .arg("name", "mtlqwen")
      .arg("version", kVersion)
      .arg("device", device)
      .end();
  constexpr std::array<std::pair<uint32_t, std::string_view>, 3> kTracks = {
      {{kStepTrack, "step"}, {kKernelTrack, "kernels"}, {kSequenceTrack, "sequences"}}};
  for (const auto& [track, name] : kTracks) {
    events_.begin('M', track, "thread_name").arg("name", name).end();
    events_.begin('M', track, "thread_sort_index").arg("sort_index", uint64_t{track}).end();
  }
}

void Trace::add(const StepRecord& step) noexcept {
  guarded([&] {
    const auto begin = Clock::now();
    if (writing_.end != Clock::time_point{}) {
      events_.begin('X', kStepTrack, "write trace").lasting(writing_.begin, writing_.end).end();
    }
    add_rooms(step);
    add_kernels(step);
    add_counters(step);
    writing_ = {.begin = begin, .end = Clock::now()};
  });
}

void Trace::add_rooms(const StepRecord& step) {
  const auto& intervals = step.rooms.intervals();
  Clock::time_point end = step.begin;
  for (const Interval& interval : intervals) end = std::max(end, interval.end);
  events_.begin('X', kStepTrack, "step")
      .lasting(step.begin, end)
      .arg("pass", step.pass)
      .arg("outcome", step.outcome)
      .arg("rows", uint64_t{step.prefill_rows} + step.decode_rows)
      .end();
  for (size_t i = 0; i < intervals.size(); ++i) {
    if (intervals[i].end == Clock::time_point{}) continue;
    events_.begin('X', kStepTrack, kRoomNames[i])
        .lasting(intervals[i].begin, intervals[i].end)
        .end();
  }
  const Interval& forward = step.rooms.of(Room::kForward);
  if (step.encoded < forward.begin || step.encoded > forward.end) return;
  events_.begin('X', kStepTrack, "encode").lasting(forward.begin, step.encoded).end();
  events_.begin('X', kStepTrack, "wait").lasting(step.encoded, forward.end).end();
}

void Trace::add_kernels(const StepRecord& step) {
  for (const KernelGroup& group : step.kernels) {
    const uint64_t bytes = total_bytes(group.kernels);
    const auto ns =
        static_cast<uint64_t>(std::chrono::nanoseconds(group.end - group.begin).count());
    events_.begin('X', kKernelTrack, group_name(group.kernels))
        .lasting(group.begin, group.end)
        .arg("bytes", bytes)
        .arg("MB_per_s", ns == 0 ? 0 : bytes * 1000 / ns)
        .raw_arg("kernels", kernel_list(group.kernels))
        .end();
  }
}

void Trace::add_counters(const StepRecord& step) {
  const Clock::time_point time = step.rooms.of(Room::kForward).begin;
  if (time == Clock::time_point{}) return;
  events_.begin('C', kStepTrack, "rows")
      .at(time)
      .arg("prefill", uint64_t{step.prefill_rows})
      .arg("decode", uint64_t{step.decode_rows})
      .end();
  if (step.outcome == "committed") {
    events_.begin('C', kStepTrack, "drafts")
        .at(time)
        .arg("accepted", uint64_t{step.accepted})
        .arg("rejected", uint64_t{step.drafted} - step.accepted)
        .end();
  }
  events_.begin('C', kStepTrack, "number of sequences")
      .at(time)
      .arg("live", uint64_t{step.live})
      .arg("waiting", uint64_t{step.waiting})
      .end();
  events_.begin('C', kStepTrack, "kv bytes").at(time).arg("bound", step.kv_bytes).end();
}

void Trace::add(const Sequence& sequence, std::string_view finish) noexcept {
  guarded([&] {
    const Clock::time_point now = Clock::now();
    const bool has_started = sequence.started != Clock::time_point{};
    const bool has_token = sequence.n_completion() > 0;
    events_.begin('b', kSequenceTrack, "sequence")
        .sequence(sequence.id)
        .at(sequence.submitted)
        .arg("sequence", sequence.id)
        .arg("prompt_tokens", uint64_t{sequence.n_prompt})
        .arg("completion_tokens", uint64_t{sequence.n_completion()})
        .arg("finish", finish)
        .end();
    add_phase(sequence.id, "waiting",
              {.begin = sequence.submitted, .end = has_started ? sequence.started : now});
    if (has_started) {
      add_phase(sequence.id, "prefill",
                {.begin = sequence.started, .end = has_token ? sequence.first_token : now});
    }
    if (has_token) add_phase(sequence.id, "decode", {.begin = sequence.first_token, .end = now});
    events_.begin('e', kSequenceTrack, "sequence").sequence(sequence.id).at(now).end();
  });
}

// What ended before the trace began is left out.
void Trace::add_phase(SequenceId id, std::string_view name, const Interval& interval) {
  if (interval.end < start_) return;
  events_.begin('b', kSequenceTrack, name).sequence(id).at(interval.begin).end();
  events_.begin('e', kSequenceTrack, name).sequence(id).at(interval.end).end();
}

void Trace::add_preemption(SequenceId id) noexcept {
  guarded(
      [&] { events_.begin('n', kSequenceTrack, "preempted").sequence(id).at(Clock::now()).end(); });
}

void Trace::add_recall(const Sequence& sequence, const Recall& recall) noexcept {
  guarded([&] {
    events_.begin('n', kSequenceTrack, "recall")
        .sequence(sequence.id)
        .at(Clock::now())
        .arg("request_tokens", sequence.request.size())
        .arg("cached_tokens", uint64_t{recall.n_tokens})
        .arg("known_tokens", uint64_t{recall.known})
        .arg("rest", reason_of(sequence, recall))
        .end();
  });
}

bool Trace::close() noexcept {
  guarded([&] {
    events_.close();
    is_open_ = false;
  });
  const std::lock_guard lock(mutex_);
  return is_whole_;
}

}  // namespace mtlqwen
