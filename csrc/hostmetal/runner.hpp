// Executes one recorded command buffer.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
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
  using Clock = std::chrono::steady_clock;

  // `works` is scratch, which a queue keeps from one recording to the next.
  CommandRunner(HostDevice& device, const Recording& recording, const ResidentIds& resident,
                VisibleUpdates& visible, std::vector<Work>& works)
      : device_(device), recording_(recording), resident_(resident), visible_(visible),
        works_(works) {}

  // False: a group ended after `limit`. Another call, of any thread, goes on with the next one.
  [[nodiscard]] bool run(Clock::time_point limit);
  [[nodiscard]] Failure take_failure() { return std::move(failure_); }

 private:
  void add(const DispatchCommand& command);
  void add(const CopyCommand& command);
  void add(const FillCommand& command);
  void add(const BarrierCommand& command);
  void add(const TimestampCommand& command);
  Work& add_work(MTL::Stages stage);
  [[nodiscard]] std::span<Work> group() const { return {works_.data(), n_works_}; }
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
  [[nodiscard]] const Memory* find_known(uint64_t address) const;
  [[nodiscard]] bool check_blit(const char* what, const std::shared_ptr<Memory>& used,
                                uint64_t offset, uint64_t bytes);
  [[nodiscard]] std::string check_memory(const Memory& memory, MTL::Stages stage) const;
  [[nodiscard]] std::string check_sparse(const Memory& memory, MTL::Stages stage) const;

  HostDevice& device_;
  const Recording& recording_;
  const ResidentIds& resident_;
  VisibleUpdates& visible_;
  std::vector<Work>& works_;  // of the group: the first n_works_; the others are used again
  size_t n_works_ = 0;
  std::unique_ptr<Executor::Turn> turn_;  // from the first group on
  MTL::Stages group_stages_ = 0;
  size_t group_start_ = 0;  // its first command
  size_t index_ = 0;        // the command at hand
  // By id: what was checked, kept until the run is over.
  std::map<uint64_t, std::shared_ptr<Memory>> used_;
  // Of used_: what kernels may use, and what of it each binding pointed into last.
  std::vector<const Memory*> known_;
  std::array<const Memory*, MSL_MAX_BUFFERS> recent_{};
  bool is_late_ = false;
  Clock::time_point limit_;
  Failure failure_;
};

}  // namespace mtlqwen::hostmetal
