// hostmetal: work stops when it is asked to.
#include <algorithm>
#include <cstring>
#include <thread>

#include "check.hpp"
#include "host_machine.hpp"

namespace mtlqwen::testing {
namespace {

using Encoder = MTL4::ComputeCommandEncoder*;

// Asks the machine to stop once the first tick of its work is counted.
class Stopper {
 public:
  Stopper(const Machine& machine, const uint32_t* ticks)
      : thread_([this, &machine, ticks] {
          while (now(ticks) == 0) std::this_thread::yield();
          set_abort(machine.device.get(), true);
          begun_ = now(ticks);
        }) {}

  // How many ticks had begun when all threads could see the request.
  uint32_t begun() {
    thread_.join();
    return begun_;
  }

 private:
  static uint32_t now(const uint32_t* ticks) { return __atomic_load_n(ticks, __ATOMIC_RELAXED); }

  uint32_t begun_ = 0;
  std::thread thread_;
};

// The parts that run when the request comes are ended, and no thread begins another.
void test_abort_is_quick_and_lasts_until_cleared() {
  Machine machine;
  const auto tick = machine.pipeline("tick");
  const auto count = machine.pipeline("count");
  const auto ticks = machine.buffer(4, "ticks");
  const auto counts = machine.buffer(4, "counts");
  const auto long_round = [&](Encoder encoder) {
    machine.dispatch(encoder, tick.get(), {ticks->gpuAddress()}, 100'000);
    barrier(encoder);
    machine.dispatch(encoder, count.get(), {counts->gpuAddress()}, 1);
  };
  const auto* const done = static_cast<const uint32_t*>(ticks->contents());
  Stopper stopper(machine, done);
  const Outcome outcome = machine.run(long_round);
  const uint32_t begun = stopper.begun();
  check(outcome.aborted && !outcome.error.empty());
  check(*done >= 1 && *done <= begun + std::thread::hardware_concurrency());
  const uint32_t before = *done;
  check(machine.run(long_round).aborted);
  check_equal(*done, before);
  set_abort(machine.device.get(), false);
  check_equal(*static_cast<uint32_t*>(counts->contents()), 0U);
  const Outcome after = machine.run(
      [&](Encoder encoder) { machine.dispatch(encoder, count.get(), {counts->gpuAddress()}, 1); });
  check(after.error.empty() && !after.aborted);
}

void test_abort_stops_copies_and_fills() {
  Machine machine;
  constexpr uint64_t kBytes = uint64_t{8} << 20;  // several of the parts that threads take
  const auto from = machine.buffer(kBytes, "from");
  const auto to = machine.buffer(kBytes, "to");
  std::memset(from->contents(), 1, kBytes);
  const auto copy = [&](Encoder encoder) {
    encoder->copyFromBuffer(from.get(), 0, to.get(), 0, kBytes);
  };
  const auto fill = [&](Encoder encoder) {
    encoder->fillBuffer(to.get(), NS::Range(0, kBytes), 2);
  };
  set_abort(machine.device.get(), true);
  check(machine.run(copy).aborted);
  check(machine.run(fill).aborted);
  const auto* bytes = static_cast<const char*>(to->contents());
  check_equal(std::count(bytes, bytes + kBytes, 0), static_cast<std::ptrdiff_t>(kBytes));
  set_abort(machine.device.get(), false);
  check_equal(machine.run(copy).error, "");
  check_equal(std::count(bytes, bytes + kBytes, 1), static_cast<std::ptrdiff_t>(kBytes));
  check_equal(machine.run(fill).error, "");
  check_equal(std::count(bytes, bytes + kBytes, 2), static_cast<std::ptrdiff_t>(kBytes));
}

// A long row of copies, each with a tick behind it: the request comes while they run.
void test_abort_ends_running_copies() {
  Machine machine;
  constexpr uint64_t kBytes = uint64_t{4} << 20;
  const auto tick = machine.pipeline("tick");
  const auto ticks = machine.buffer(4, "ticks");
  const auto from = machine.buffer(kBytes, "from");
  const auto to = machine.buffer(kBytes, "to");
  const auto* const done = static_cast<const uint32_t*>(ticks->contents());
  Stopper stopper(machine, done);
  const Outcome outcome = machine.run([&](Encoder encoder) {
    for (int i = 0; i < 2000; ++i) {
      encoder->copyFromBuffer(from.get(), 0, to.get(), 0, kBytes);
      barrier(encoder);
      machine.dispatch(encoder, tick.get(), {ticks->gpuAddress()}, 1);
      barrier(encoder);
    }
  });
  const uint32_t begun = stopper.begun();
  check(outcome.aborted);
  check(*done >= 1 && *done <= begun + 1);
}

void test_abort_stops_one_device_only() {
  Machine machine;
  Machine other;
  set_abort(other.device.get(), true);
  const auto nap = machine.pipeline("nap");
  const auto short_round = [&](Encoder encoder) { machine.dispatch(encoder, nap.get(), {}, 2); };
  check_equal(machine.run(short_round).error, "");
}

}  // namespace
}  // namespace mtlqwen::testing

int main() {
  using namespace mtlqwen::testing;
  return run(
      {{"abort is quick and lasts until cleared", test_abort_is_quick_and_lasts_until_cleared},
       {"abort stops copies and fills", test_abort_stops_copies_and_fills},
       {"abort ends running copies", test_abort_ends_running_copies},
       {"abort stops one device only", test_abort_stops_one_device_only}});
}
