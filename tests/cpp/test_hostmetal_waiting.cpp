// hostmetal: who waits for an event carries out the work of the queue that is to signal it.
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <thread>

#include "check.hpp"
#include "gpu/platform.hpp"
#include "host_machine.hpp"

namespace mtlqwen::testing {
namespace {

using Encoder = MTL4::ComputeCommandEncoder*;

uint64_t this_thread() { return std::hash<std::thread::id>()(std::this_thread::get_id()); }

// A machine whose kernel notes the thread that it ran on.
struct Witness {
  Machine machine;
  NS::SharedPtr<MTL::ComputePipelineState> thread = machine.pipeline("thread");
  NS::SharedPtr<MTL::ComputePipelineState> nap = machine.pipeline("nap");
  NS::SharedPtr<MTL::Buffer> threads = machine.buffer(64, "threads");

  [[nodiscard]] uint64_t ran_on() const { return *static_cast<uint64_t*>(threads->contents()); }

  // Commits n naps of 2 ms, one after the other, then the note, then the signal.
  std::future<std::string> commit(int n_naps = 0) {
    const Pool scope;
    std::memset(threads->contents(), 0, 64);
    machine.allocator->reset();
    machine.commands->beginCommandBuffer(machine.allocator.get());
    MTL4::ComputeCommandEncoder* encoder = machine.commands->computeCommandEncoder();
    encoder->setArgumentTable(machine.table.get());
    for (int i = 0; i < n_naps; ++i) {
      machine.dispatch(encoder, nap.get(), {}, 1);
      barrier(encoder);
    }
    machine.dispatch(encoder, thread.get(), {threads->gpuAddress()}, 1);
    encoder->endEncoding();
    machine.commands->endCommandBuffer();
    const auto promise = std::make_shared<std::promise<std::string>>();
    const auto options = NS::TransferPtr(MTL4::CommitOptions::alloc()->init());
    options->addFeedbackHandler([promise](MTL4::CommitFeedback* feedback) {
      const NS::Error* error = feedback->error();
      promise->set_value(error ? error->localizedDescription()->utf8String() : "");
    });
    const MTL4::CommandBuffer* buffers[] = {machine.commands.get()};
    machine.queue->commit(buffers, 1, options.get());
    machine.queue->signalEvent(machine.event.get(), ++machine.round);
    return promise->get_future();
  }
  bool wait(uint64_t milliseconds = 60'000) const {
    return machine.event->waitUntilSignaledValue(machine.round, milliseconds);
  }
};

void test_the_waiter_does_the_work() {
  Witness witness;
  for (int i = 0; i < 100; ++i) {
    expect_wait(witness.machine.queue.get());
    auto feedback = witness.commit();
    check(witness.wait());
    check_equal(feedback.get(), "");
    check_equal(witness.ran_on(), this_thread());
  }
}

void test_without_a_waiter_the_queue_does_it() {
  Witness witness;
  check_equal(witness.commit().get(), "");
  check(witness.ran_on() != 0 && witness.ran_on() != this_thread());
  check(witness.wait());
}

// A wait keeps to its limit: the thread of the queue goes on where the waiter stopped.
void test_work_that_outlasts_a_wait() {
  Witness witness;
  expect_wait(witness.machine.queue.get());
  auto feedback = witness.commit(100);
  check(!witness.wait(10));
  check_equal(feedback.get(), "");
  check(witness.ran_on() != 0 && witness.ran_on() != this_thread());
  check(witness.wait());
}

// A promise to wait that is not kept delays the work until the queue goes, and no longer.
void test_a_queue_that_goes_does_what_is_left() {
  Witness witness;
  expect_wait(witness.machine.queue.get());
  auto feedback = witness.commit();
  witness.machine.queue.reset();
  check_equal(feedback.get(), "");
  check(witness.ran_on() != 0);
}

void test_many_waiters() {
  Witness witness;
  for (int round = 0; round < 50; ++round) {
    expect_wait(witness.machine.queue.get());
    auto feedback = witness.commit(1);
    std::atomic<int> n_told{0};
    std::vector<std::thread> others;
    for (int i = 0; i < 3; ++i) {
      others.emplace_back([&] { n_told += witness.wait(); });
    }
    check(witness.wait());
    for (std::thread& other : others) other.join();
    check_equal(n_told.load(), 3);
    check_equal(feedback.get(), "");
    check(witness.ran_on() != 0);
  }
}

// What the queue itself has to wait for is never waited for by a guest.
void test_a_gate_in_front_of_the_work() {
  Witness witness;
  const auto gate = NS::TransferPtr(witness.machine.device->newSharedEvent());
  expect_wait(witness.machine.queue.get());
  witness.machine.queue->wait(gate.get(), 1);
  auto feedback = witness.commit();
  check(!witness.wait(5));
  check_equal(witness.ran_on(), 0U);
  gate->setSignaledValue(1);
  check(witness.wait());
  check_equal(feedback.get(), "");
  check(witness.ran_on() != 0);
}

void test_the_waiter_keeps_its_denormals() {
  Witness witness;
  const auto denormal = witness.machine.pipeline("denormal");
  const auto out = witness.machine.buffer(4, "out");
  *static_cast<float*>(out->contents()) = 1.0F;
  expect_wait(witness.machine.queue.get());
  const Outcome outcome = witness.machine.run([&](Encoder encoder) {
    witness.machine.dispatch(encoder, denormal.get(), {out->gpuAddress()}, 1);
  });
  check_equal(outcome.error, "");
  check_equal(*static_cast<float*>(out->contents()), 0.0F);
  const volatile float tiny = 1e-40F;
  check(tiny * 1.0F != 0.0F);
}

// Several queues of one process, each driven by a thread that waits.
void test_queues_of_several_threads() {
  const auto work = [] {
    Witness witness;
    for (int i = 0; i < 50; ++i) {
      expect_wait(witness.machine.queue.get());
      auto feedback = witness.commit(i % 16 == 0 ? 1 : 0);
      check(witness.wait());
      check_equal(feedback.get(), "");
      check(witness.ran_on() != 0);
    }
    return true;
  };
  auto first = std::async(std::launch::async, work);
  auto second = std::async(std::launch::async, work);
  check(first.get() && second.get());
}

}  // namespace
}  // namespace mtlqwen::testing

int main() {
  using namespace mtlqwen::testing;
  return run({
      {"the_waiter_does_the_work", test_the_waiter_does_the_work},
      {"without_a_waiter_the_queue_does_it", test_without_a_waiter_the_queue_does_it},
      {"work_that_outlasts_a_wait", test_work_that_outlasts_a_wait},
      {"a_queue_that_goes_does_what_is_left", test_a_queue_that_goes_does_what_is_left},
      {"many_waiters", test_many_waiters},
      {"a_gate_in_front_of_the_work", test_a_gate_in_front_of_the_work},
      {"the_waiter_keeps_its_denormals", test_the_waiter_keeps_its_denormals},
      {"queues_of_several_threads", test_queues_of_several_threads},
  });
}
