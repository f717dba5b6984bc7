#include "hostmetal/trap.hpp"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <mutex>

#include "hostmetal/cpu.hpp"

namespace mtlqwen::hostmetal {
namespace {

// A frame with all vector registers takes up to 11 KiB on x86-64.
constexpr size_t kStackBytes = size_t{64} << 10;

struct Landing {
  sigjmp_buf place;
  uint64_t address = 0;
};

struct sigaction previous_segv;
struct sigaction previous_bus;
std::atomic<const FaultFilter*> fault_filter{nullptr};
thread_local Landing* volatile landing = nullptr;  // of the body that this thread runs

// The alternate stack of one thread: kernels run on small stacks of their own.
class SignalStack {
 public:
  SignalStack() {
    void* memory =
        mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    const stack_t stack{.ss_sp = memory, .ss_flags = 0, .ss_size = kStackBytes};
    if (sigaltstack(&stack, &before_) == 0) {
      memory_ = memory;
    } else {
      munmap(memory, kStackBytes);
    }
  }
  ~SignalStack() {
    if (!memory_) return;
    sigaltstack(&before_, nullptr);
    munmap(memory_, kStackBytes);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  void* memory_ = nullptr;
  stack_t before_{};
};

void call_previous(int signal, siginfo_t* info, void* context) {
  const struct sigaction& previous = signal == SIGBUS ? previous_bus : previous_segv;
  if (previous.sa_flags & SA_SIGINFO) return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN) {
    sigaction(signal, &previous, nullptr);  // the access is repeated, and ends the process
    return;
  }
  previous.sa_handler(signal);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uint64_t>(info->si_addr);
  const FaultFilter* filter = fault_filter.load(std::memory_order_acquire);
  if (filter && filter->repair(filter->context, address)) return;
  Landing* target = landing;
  if (!target) return call_previous(signal, info, context);
  target->address = address;
  siglongjmp(target->place, 1);
}

}  // namespace

void install_traps() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &previous_segv);
    sigaction(SIGBUS, &action, &previous_bus);
  });
}

void set_fault_filter(const FaultFilter* filter) {
  fault_filter.store(filter, std::memory_order_release);
}

bool run_trapped(const std::function<void()>& body, uint64_t& address) {
  static thread_local const SignalStack stack;
  static_cast<void>(&stack);
  Landing here;
  if (sigsetjmp(here.place, 1) == 0) {
    landing = &here;
    body();
    landing = nullptr;
    return true;
  }
  landing = nullptr;
  flush_denormals();  // the handler began with a fresh control word
  address = here.address;
  return false;
}

}  // namespace mtlqwen::hostmetal
