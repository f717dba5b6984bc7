// Faults of kernels as values: under MTLQWEN_HOST_CHECK an access to memory that is not there ends the kernel, not the
// process.
#pragma once
#include <cstdint>
#include <functional>

namespace mtlqwen::hostmetal {

// Installs handlers of SIGSEGV and SIGBUS for this process, once. They run on a stack of their own, and hand on to the
// previous ones what is not ours.
void install_traps();

// Runs body(). False, with the address, where it touched memory that it must not: it then stopped there, and nothing on its
// stack was destroyed. Needs install_traps().
[[nodiscard]] bool run_trapped(const std::function<void()>& body, uint64_t& address);

// What the handlers ask first, at most one in the process: true where the access can now be repeated. Called in a signal
// handler, on any thread.
struct FaultFilter {
  bool (*repair)(void* context, uint64_t address) = nullptr;
  void* context = nullptr;
};
void set_fault_filter(const FaultFilter* filter);  // null: none

}  // namespace mtlqwen::hostmetal
