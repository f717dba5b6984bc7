// Executes one recorded command buffer on a queue's thread.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "hostmetal/commands.hpp"
#include "hostmetal/device.hpp"
#include "hostmetal/error.hpp"
#include "hostmetal/hazards.hpp"
#include "hostmetal/residency.hpp"

namespace mtlqwen::hostmetal {

// How many of the device's mapping updates the queue's barriers have made visible, to each kind of work.
struct VisibleUpdates {
  uint64_t dispatch = 0;
  uint64_t blit = 0;
};

// Gathers commands into groups that nothing orders, and runs a group when a barrier or the end asks for it. Everything that
// a command touches is checked before the group that it is in runs.
class CommandRunner {
 public:
  CommandRunner(HostDevice& device, const ResidentIds& resident, VisibleUpdates& visible)
      : device_(device), resident_(resident), visible_(visible) {}

  [[nodiscard]] Failure run(const Recording& recording);

 private:
  void add(const DispatchCommand& command);
  void add(const CopyCommand& command);
  void add(const FillCommand& command);
  void add(const BarrierCommand& command);
  void add(const TimestampCommand& command);
  Work& add_work(MTL::Stages stage);
  void flush();
  void refuse(const std::string& text);
  [[nodiscard]] std::string describe(const RunResult& result) const;  // of a failed work

  // Under MTLQWEN_HOST_CHECK; runner_checks.cpp.
  [[nodiscard]] RunResult run_group();
  void check_group();                        // after it ran
  [[nodiscard]] std::string replay() const;  // how to see a shuffled failure again
  [[nodiscard]] std::string describe(const Hazard& hazard) const;
  [[nodiscard]] std::vector<PageRange> writable_pages() const;

  // Null, and the run has failed, where a kernel must not use the address.
  void* resolve(const DispatchCommand& command, uint32_t index);
  [[nodiscard]] bool check_blit(const char* what, const std::shared_ptr<Memory>& used,
                                uint64_t offset, uint64_t bytes);
  [[nodiscard]] std::string check_memory(const Memory& memory, MTL::Stages stage) const;
  [[nodiscard]] std::string check_sparse(const Memory& memory, MTL::Stages stage) const;

  HostDevice& device_;
  const ResidentIds& resident_;
  VisibleUpdates& visible_;
  std::vector<Work> group_;
  MTL::Stages group_stages_ = 0;
  size_t group_start_ = 0;  // its first command
  size_t index_ = 0;        // the command at hand
  // By id: what was checked, kept until the run is over.
  std::map<uint64_t, std::shared_ptr<Memory>> used_;
  // Of used_: what each binding pointed into last.
  std::array<const Memory*, MSL_MAX_BUFFERS> recent_{};
  Failure failure_;
};

}  // namespace mtlqwen::hostmetal
