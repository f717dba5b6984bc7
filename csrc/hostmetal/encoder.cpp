// The compute encoder: every misuse that can be seen while recording is found here.
#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "base/math.hpp"
#include "hostmetal/commands.hpp"
#include "hostmetal/error.hpp"

namespace mtlqwen::hostmetal {
namespace {

uint64_t volume(const MTL::Size& size) {
  const auto plane = checked_mul(size.width, size.height);
  const auto all = plane ? checked_mul(*plane, size.depth) : std::nullopt;
  return all.value_or(std::numeric_limits<uint64_t>::max());
}

std::array<uint32_t, 3> to_array(const MTL::Size& size) {
  return {static_cast<uint32_t>(size.width), static_cast<uint32_t>(size.height),
          static_cast<uint32_t>(size.depth)};
}

}  // namespace

void HostEncoder::refuse(const std::string& text) {
  if (Recording* recording = commands_->recording()) recording->refuse("[hostmetal] " + text);
}

Recording* HostEncoder::open_recording() {
  if (!is_open_) refuse("encoder: a command came after endEncoding");
  return is_open_ ? commands_->recording() : nullptr;
}

void HostEncoder::dispatch(const MTL::Size& groups, const MTL::Size& threads) {
  Recording* recording = open_recording();
  if (!recording) return;
  if (!pipeline) return refuse("encoder: a dispatch without a pipeline");
  std::string problem = check_dispatch(groups, threads);
  if (problem.empty()) problem = check_arguments();
  if (!problem.empty()) return refuse(concat("kernel ", pipeline->kernel->name, ": ", problem));
  Command& command = recording->commands.emplace_back(std::in_place_type<DispatchCommand>);
  auto& dispatched = std::get<DispatchCommand>(command);
  dispatched.pipeline = pipeline;
  const int n_bindings = std::bit_width(pipeline->kernel->buffer_mask);
  if (n_bindings != 0) {
    std::copy_n(arguments->addresses.begin(), n_bindings, dispatched.addresses.begin());
  }
  dispatched.groups = to_array(groups);
  dispatched.threads = to_array(threads);
  dispatched.threadgroup_bytes = threadgroup_bytes;
}

std::string HostEncoder::check_dispatch(const MTL::Size& groups, const MTL::Size& threads) const {
  const uint64_t n_threads = volume(threads);
  const uint64_t n_groups = volume(groups);
  if (n_threads == 0 || n_threads > MSL_MAX_THREADS) {
    return concat("wrong number of threads in a threadgroup (got ", n_threads, ", want 1 to ",
                  MSL_MAX_THREADS, ")");
  }
  if (n_groups == 0 || n_groups > std::numeric_limits<uint32_t>::max()) {
    return concat("wrong number of threadgroups (got ", n_groups, ", want 1 to 2^32 - 1)");
  }
  uint64_t bytes = 0;
  for (const uint32_t length : threadgroup_bytes) bytes += length;
  if (bytes > MSL_THREADGROUP_BYTES) {
    return concat("too much threadgroup memory (got ", bytes, " bytes, want at most ",
                  MSL_THREADGROUP_BYTES, ")");
  }
  for (uint32_t i = 0; i < pipeline->kernel->n_threadgroup_args; ++i) {
    if (threadgroup_bytes[i] == 0) return concat("threadgroup argument ", i, " has no length");
  }
  return {};
}

std::string HostEncoder::check_arguments() const {
  const uint32_t mask = pipeline->kernel->buffer_mask;
  if (mask == 0) return {};
  if (!arguments) return "no argument table is set";
  if (!arguments->problem.empty()) return arguments->problem;
  for (uint32_t i = 0; i < MSL_MAX_BUFFERS; ++i) {
    if ((mask >> i & 1) && arguments->addresses[i] == 0)
      return concat("buffer ", i, " is not bound");
  }
  return {};
}

void HostEncoder::copy(CopyCommand command) {
  Recording* recording = open_recording();
  if (!recording) return;
  if (!command.source || !command.destination) return refuse("copy: from or to no buffer");
  const bool fits = command.source->contains(command.source_offset, command.bytes) &&
                    command.destination->contains(command.destination_offset, command.bytes);
  if (!fits || command.bytes == 0) {
    return refuse(concat("copy: outside of its buffers (got ", command.bytes, " bytes from ",
                         command.source_offset, " of ", command.source->name(), " to ",
                         command.destination_offset, " of ", command.destination->name(), ")"));
  }
  const bool overlaps = command.source == command.destination &&
                        command.source_offset < command.destination_offset + command.bytes &&
                        command.destination_offset < command.source_offset + command.bytes;
  if (overlaps) {
    return refuse(concat("copy: source and destination overlap in ", command.source->name()));
  }
  recording->commands.emplace_back(std::move(command));
}

void HostEncoder::fill(FillCommand command) {
  Recording* recording = open_recording();
  if (!recording) return;
  if (!command.destination) return refuse("fill: of no buffer");
  if (!command.destination->contains(command.offset, command.bytes) || command.bytes == 0) {
    return refuse(concat("fill: outside of its buffer (got ", command.bytes, " bytes at ",
                         command.offset, " of ", command.destination->name(), ")"));
  }
  recording->commands.emplace_back(std::move(command));
}

void HostEncoder::barrier(BarrierCommand command) {
  Recording* recording = open_recording();
  if (!recording) return;
  command.encoder_start = first_command_;
  recording->commands.emplace_back(command);
}

void HostEncoder::timestamp(TimestampCommand command) {
  Recording* recording = open_recording();
  if (!recording) return;
  if (!command.heap || command.index >= command.heap->size()) {
    return refuse(concat("timestamp: outside of its counter heap (got index ", command.index,
                         ", want less than ", command.heap ? command.heap->size() : 0, ")"));
  }
  recording->commands.emplace_back(std::move(command));
}

void HostEncoder::end() {
  is_open_ = false;
  commands_->has_encoder = false;
}

namespace {

HostEncoder* host(MTL4::CommandEncoder* encoder) { return static_cast<HostEncoder*>(encoder); }

}  // namespace
}  // namespace mtlqwen::hostmetal

namespace MTL4 {

using namespace mtlqwen::hostmetal;

void CommandEncoder::barrierAfterEncoderStages(MTL::Stages afterEncoderStages,
                                               MTL::Stages beforeEncoderStages,
                                               VisibilityOptions visibilityOptions) {
  if (!this) return;
  host(this)->barrier({.after = afterEncoderStages,
                       .before = beforeEncoderStages,
                       .visibility = visibilityOptions,
                       .of_queue = false});
}

void CommandEncoder::barrierAfterQueueStages(MTL::Stages afterQueueStages, MTL::Stages beforeStages,
                                             VisibilityOptions visibilityOptions) {
  if (!this) return;
  host(this)->barrier({.after = afterQueueStages,
                       .before = beforeStages,
                       .visibility = visibilityOptions,
                       .of_queue = true});
}

void CommandEncoder::endEncoding() {
  if (this) host(this)->end();
}

void ComputeCommandEncoder::setArgumentTable(const ArgumentTable* argumentTable) {
  if (!this) return;
  host(this)->arguments =
      NS::RetainPtr(static_cast<HostArgumentTable*>(const_cast<ArgumentTable*>(argumentTable)));
}

void ComputeCommandEncoder::setComputePipelineState(const MTL::ComputePipelineState* state) {
  if (!this) return;
  host(this)->pipeline = NS::RetainPtr(const_cast<HostPipeline*>(mtlqwen::hostmetal::host(state)));
}

void ComputeCommandEncoder::setThreadgroupMemoryLength(NS::UInteger length, NS::UInteger index) {
  if (!this) return;
  constexpr NS::UInteger kGranule = 16;
  HostEncoder& encoder = *host(this);
  if (index >= MSL_MAX_THREADGROUP_SLOTS || length % kGranule != 0 ||
      length > MSL_THREADGROUP_BYTES) {
    return encoder.refuse(mtlqwen::concat("threadgroup memory: bad length (got ", length,
                                          " bytes at index ", index,
                                          ", want a multiple of 16 up to ", MSL_THREADGROUP_BYTES,
                                          " at an index below ", MSL_MAX_THREADGROUP_SLOTS, ")"));
  }
  encoder.threadgroup_bytes[index] = static_cast<uint32_t>(length);
}

void ComputeCommandEncoder::dispatchThreadgroups(MTL::Size threadgroupsPerGrid,
                                                 MTL::Size threadsPerThreadgroup) {
  if (this) host(this)->dispatch(threadgroupsPerGrid, threadsPerThreadgroup);
}

void ComputeCommandEncoder::copyFromBuffer(const MTL::Buffer* sourceBuffer,
                                           NS::UInteger sourceOffset,
                                           const MTL::Buffer* destinationBuffer,
                                           NS::UInteger destinationOffset, NS::UInteger size) {
  if (!this) return;
  host(this)->copy({.source = MemoryOf::get(sourceBuffer),
                    .source_offset = sourceOffset,
                    .destination = MemoryOf::get(destinationBuffer),
                    .destination_offset = destinationOffset,
                    .bytes = size});
}

void ComputeCommandEncoder::fillBuffer(const MTL::Buffer* buffer, NS::Range range, uint8_t value) {
  if (!this) return;
  host(this)->fill({.destination = MemoryOf::get(buffer),
                    .offset = range.location,
                    .bytes = range.length,
                    .value = value});
}

void ComputeCommandEncoder::writeTimestamp(TimestampGranularity /*granularity*/,
                                           const CounterHeap* counterHeap, NS::UInteger index) {
  if (!this) return;
  host(this)->timestamp(
      {.heap = NS::RetainPtr(mtlqwen::hostmetal::host(counterHeap)), .index = index});
}

}  // namespace MTL4
