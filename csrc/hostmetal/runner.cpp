#include "hostmetal/runner.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/math.hpp"

namespace mtlqwen::hostmetal {
namespace {

bool holds(const Memory& memory, uint64_t address) {
  return address - reinterpret_cast<uint64_t>(memory.base) < memory.bytes;
}

std::string subject_of(const DispatchCommand& command, uint32_t index) {
  return concat("[hostmetal] kernel ", command.pipeline->kernel->name, ": buffer ", index);
}

void add_checks(HostDevice& device, MslDispatch& dispatch) {
  const HostChecks& checks = device.checks;
  if (checks.poison) dispatch.check |= MSL_CHECK_POISON;
  if (!checks.shuffle) return;
  dispatch.check |= MSL_CHECK_SHUFFLE | MSL_CHECK_DIVERGENCE;
  dispatch.seed = checks.seed + (++device.n_dispatches << 32);  // room for a threadgroup's number
}

}  // namespace

bool CommandRunner::run(Clock::time_point limit) {
  if (!recording_.problem.empty()) refuse(recording_.problem);
  limit_ = limit;
  is_late_ = false;
  while (index_ < recording_.commands.size() && !failure_) {
    if (is_late_) {
      turn_.reset();
      return false;
    }
    std::visit([this](const auto& one) { add(one); }, recording_.commands[index_]);
    ++index_;
  }
  flush();
  turn_.reset();
  return true;
}

void CommandRunner::refuse(const std::string& text) {
  if (!failure_) failure_ = refused(text);
}

Work& CommandRunner::add_work(MTL::Stages stage) {
  if (n_works_ == 0) group_start_ = index_;
  group_stages_ |= stage;
  if (n_works_ == works_.size()) works_.emplace_back();
  Work& work = works_[n_works_++];
  if (device_.checks.any()) work = Work{};  // which compare whole works
  return work;
}

void CommandRunner::add(const DispatchCommand& command) {
  const HostPipeline& pipeline = *command.pipeline.get();
  Work& work = add_work(MTL::StageDispatch);
  work.kind = WorkKind::kLaunch;
  work.library = pipeline.library;
  MslDispatch& dispatch = work.dispatch;
  dispatch.kernel = pipeline.kernel;
  std::ranges::fill(dispatch.buffers, nullptr);
  for (uint32_t mask = pipeline.kernel->buffer_mask; mask != 0; mask &= mask - 1) {
    const auto index = static_cast<uint32_t>(__builtin_ctz(mask));
    dispatch.buffers[index] = resolve(command, index);
  }
  std::ranges::copy(pipeline.constants, dispatch.constants);
  std::ranges::copy(command.groups, dispatch.groups);
  std::ranges::copy(command.threads, dispatch.threads);
  std::ranges::copy(command.threadgroup_bytes, dispatch.threadgroup_bytes);
  dispatch.check = 0;
  dispatch.seed = 0;
  dispatch.abort = device_.abort_flag();
  if (device_.checks.any()) add_checks(device_, dispatch);
}

const Memory* CommandRunner::find_known(uint64_t address) const {
  const auto found = std::ranges::find_if(
      known_, [address](const Memory* memory) { return holds(*memory, address); });
  return found == known_.end() ? nullptr : *found;
}

void* CommandRunner::resolve(const DispatchCommand& command, uint32_t index) {
  const uint64_t address = command.addresses[index];
  const Memory*& recent = recent_[index];
  if (recent && holds(*recent, address)) return reinterpret_cast<void*>(address);
  recent = find_known(address);
  if (recent) return reinterpret_cast<void*>(address);
  const std::shared_ptr<Memory> memory = device_.addresses.find(address);
  if (!memory) {
    refuse(concat(subject_of(command, index), ": points into no buffer (address ",
                  reinterpret_cast<const void*>(address), ")"));
    return nullptr;
  }
  used_.insert_or_assign(memory->id, memory);
  const std::string problem = check_memory(*memory, MTL::StageDispatch);
  if (problem.empty()) {
    known_.push_back(memory.get());
    recent = memory.get();
  } else {
    refuse(concat(subject_of(command, index), " (", memory->name(), "): ", problem));
  }
  return reinterpret_cast<void*>(address);
}

void CommandRunner::add(const CopyCommand& command) {
  if (!check_blit("copy from", command.source, command.source_offset, command.bytes) ||
      !check_blit("copy to", command.destination, command.destination_offset, command.bytes)) {
    return;
  }
  Work& work = add_work(MTL::StageBlit);
  work.kind = WorkKind::kCopy;
  work.source = static_cast<const char*>(command.source->base) + command.source_offset;
  work.destination = static_cast<char*>(command.destination->base) + command.destination_offset;
  work.bytes = command.bytes;
}

void CommandRunner::add(const FillCommand& command) {
  if (!check_blit("fill of", command.destination, command.offset, command.bytes)) return;
  Work& work = add_work(MTL::StageBlit);
  work.kind = WorkKind::kFill;
  work.destination = static_cast<char*>(command.destination->base) + command.offset;
  work.bytes = command.bytes;
  work.value = command.value;
}

bool CommandRunner::check_blit(const char* what, const std::shared_ptr<Memory>& used,
                               uint64_t offset, uint64_t bytes) {
  const Memory& memory = *used;
  used_.try_emplace(memory.id, used);
  std::string problem = check_memory(memory, MTL::StageBlit);
  if (problem.empty() && memory.kind == MemoryKind::kSparse) {
    const uint64_t first = offset / memory.page_bytes;
    const uint64_t end = ceil_div(offset + bytes, memory.page_bytes);
    const std::lock_guard lock(device_.mapping_mutex);
    if (!memory.runs.is_mapped(first, end - first)) problem = "some of its tiles are not mapped";
  }
  if (!problem.empty()) refuse(concat("[hostmetal] ", what, " ", memory.name(), ": ", problem));
  return problem.empty();
}

std::string CommandRunner::check_memory(const Memory& memory, MTL::Stages stage) const {
  if (memory.released) return "was released before the command buffer ran";
  if (!resident_.contains(memory.id)) {
    return "is not resident; add it to a residency set of the queue and commit the set";
  }
  return memory.kind == MemoryKind::kSparse ? check_sparse(memory, stage) : std::string();
}

std::string CommandRunner::check_sparse(const Memory& memory, MTL::Stages stage) const {
  const std::lock_guard lock(device_.mapping_mutex);
  const uint64_t visible = stage == MTL::StageBlit ? visible_.blit : visible_.dispatch;
  if (memory.last_update > visible) {
    return "its mappings changed, and no barrierAfterQueueStages(StageResourceState, ...) with "
           "VisibilityOptionDevice makes that visible";
  }
  for (const auto& [heap, n_tiles] : memory.runs.heaps()) {
    if (heap->released) {
      return concat(heap->name(), " was released while ", n_tiles, " of its tiles are mapped here");
    }
    if (!resident_.contains(heap->id)) {
      return concat(heap->name(), " is mapped here and not resident; add it to a residency set");
    }
  }
  return {};
}

void CommandRunner::add(const BarrierCommand& command) {
  const bool orders_group = !command.of_queue || group_start_ < command.encoder_start;
  if (orders_group && (group_stages_ & command.after)) flush();
  if (!command.of_queue) return;
  const bool shows_mappings = (command.after & MTL::StageResourceState) &&
                              (command.visibility & MTL4::VisibilityOptionDevice);
  if (!shows_mappings) return;
  const uint64_t updates = device_.updates.load();
  if (command.before & MTL::StageDispatch) visible_.dispatch = updates;
  if (command.before & MTL::StageBlit) visible_.blit = updates;
}

void CommandRunner::add(const TimestampCommand& command) {
  flush();
  command.heap->set(command.index, timestamp_now());
}

void CommandRunner::flush() {
  if (failure_ || n_works_ == 0) return;
  const bool is_checked = device_.checks.any();
  if (!is_checked && !turn_) turn_ = device_.executor().take_turn();
  const RunResult result = is_checked ? run_group() : turn_->run(group(), device_.abort_flag());
  if (result.status == MSL_ABORTED) {
    failure_ = {
        .code = MTL4::CommandQueueErrorInternal, .text = "stopped on request", .aborted = true};
  } else if (result.status != MSL_OK) {
    refuse(describe(result));
  } else if (is_checked) {
    check_group();
  }
  n_works_ = 0;
  group_stages_ = 0;
  is_late_ = limit_ != Clock::time_point::max() && Clock::now() >= limit_;
}

std::string CommandRunner::describe(const RunResult& result) const {
  const Work& work = works_[result.index];
  const std::string subject = concat("[hostmetal] ", name_of(work), ": ");
  if (!result.error.empty()) return concat(subject, result.error, replay());
  const std::string where = device_.addresses.describe(result.fault_address);
  if (work.kind != WorkKind::kLaunch) return concat(subject, "touched ", where);
  const uint32_t* groups = work.dispatch.groups;
  const uint64_t at = result.fault_threadgroup;
  return concat(subject, "threadgroup (", at % groups[0], ", ", at / groups[0] % groups[1], ", ",
                at / groups[0] / groups[1], ") touched ", where, replay());
}

}  // namespace mtlqwen::hostmetal
