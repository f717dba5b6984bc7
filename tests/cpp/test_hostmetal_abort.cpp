// hostmetal: work stops when it is asked to.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "check.hpp"
#include "host_machine.hpp"

namespace mtlqwen::testing {
namespace {

using Encoder = MTL4::ComputeCommandEncoder*;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void test_abort_is_quick_and_lasts_until_cleared() {
  Machine machine;
  const auto nap = machine.pipeline("nap");
  const auto count = machine.pipeline("count");
  const auto counts = machine.buffer(4, "counts");
  const auto long_round = [&](Encoder encoder) {
    machine.dispatch(encoder, nap.get(), {}, 100'000);  // minutes
    barrier(encoder);
    machine.dispatch(encoder, count.get(), {counts->gpuAddress()}, 1);
  };
  Clock::time_point asked;
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    asked = Clock::now();
    set_abort(machine.device.get(), true);
  });
  const Outcome outcome = machine.run(long_round);
  stopper.join();
  check(seconds_since(asked) < 0.2);
  check(outcome.aborted && !outcome.error.empty());
  check(machine.run(long_round).aborted);
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

// Copies that would take seconds: the request comes while they run.
void test_abort_ends_running_copies() {
  Machine machine;
  constexpr uint64_t kBytes = uint64_t{16} << 20;
  const auto from = machine.buffer(kBytes, "from");
  const auto to = machine.buffer(kBytes, "to");
  Clock::time_point asked;
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    asked = Clock::now();
    set_abort(machine.device.get(), true);
  });
  const Outcome outcome = machine.run([&](Encoder encoder) {
    for (int i = 0; i < 10'000; ++i) {
      encoder->copyFromBuffer(from.get(), 0, to.get(), 0, kBytes);
      barrier(encoder);
      encoder->fillBuffer(to.get(), NS::Range(0, kBytes), 3);
      barrier(encoder);
    }
  });
  stopper.join();
  check(outcome.aborted);
  check(seconds_since(asked) < 0.2);
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
