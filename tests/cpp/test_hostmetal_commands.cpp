// hostmetal: what command buffers do, what they refuse, and how they end.
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "host_machine.hpp"

namespace mtlqwen::testing {
namespace {

using Encoder = MTL4::ComputeCommandEncoder*;

void test_every_threadgroup_runs_once() {
  Machine machine;
  const auto count = machine.pipeline("count");
  for (const uint64_t groups : {1U, 2U, 3U, 64U, 1000U, 4099U}) {
    const auto counts = machine.buffer(4 * groups, "counts");
    const Outcome outcome = machine.run([&](Encoder encoder) {
      machine.dispatch(encoder, count.get(), {counts->gpuAddress()}, groups);
      barrier(encoder);
      machine.dispatch(encoder, count.get(), {counts->gpuAddress()}, groups);
    });
    check_equal(outcome.error, "");
    for (uint64_t i = 0; i < groups; ++i) {
      check_equal(static_cast<uint32_t*>(counts->contents())[i], 2U);
    }
  }
}

void test_only_residents_may_be_used() {
  Machine machine;
  const auto count = machine.pipeline("count");
  const auto counts = machine.buffer(64, "counts");
  const auto use = [&](Encoder encoder) {
    machine.dispatch(encoder, count.get(), {counts->gpuAddress()}, 1);
  };
  check_equal(machine.run(use).error, "");
  machine.resident->removeAllocation(counts.get());
  check_equal(machine.run(use).error, "");  // the set is not committed yet
  machine.resident->commit();
  const Outcome outcome = machine.run(use);
  check(contains(outcome.error, "kernel count: buffer 0 (buffer 'counts'): is not resident"));
  check(!outcome.aborted);
  machine.resident->addAllocation(counts.get());
  check(!machine.run(use).error.empty());
  machine.resident->commit();
  check_equal(machine.run(use).error, "");
  machine.queue->removeResidencySet(machine.resident.get());
  check(!machine.run(use).error.empty());
  const auto set_of_buffer = [&](Encoder encoder) {
    machine.commands->useResidencySet(machine.resident.get());
    use(encoder);
  };
  check_equal(machine.run(set_of_buffer).error, "");
  check(!machine.run(use).error.empty());
}

void test_addresses_must_lie_in_a_living_buffer() {
  Machine machine;
  const auto count = machine.pipeline("count");
  auto counts = machine.buffer(64, "counts");
  const uint64_t address = counts->gpuAddress();
  const auto use = [&](uint64_t at) {
    return machine.run([&](Encoder encoder) { machine.dispatch(encoder, count.get(), {at}, 1); });
  };
  check_equal(use(address + 60).error, "");
  check(contains(use(address + 64).error, "buffer 0: points into no buffer"));
  check(contains(use(0).error, "buffer 0 is not bound"));
  counts.reset();
  check(contains(use(address).error, "points into no buffer"));
}

void test_released_buffers_of_copies_are_found() {
  Machine machine;
  auto from = machine.buffer(64, "from");
  const auto to = machine.buffer(64, "to");
  const Outcome outcome = machine.run([&](Encoder encoder) {
    encoder->copyFromBuffer(from.get(), 0, to.get(), 0, 64);
    from.reset();
  });
  check(contains(outcome.error, "copy from buffer 'from': was released"));
}

void test_arguments_are_taken_at_the_dispatch() {
  Machine machine;
  const auto count = machine.pipeline("count");
  const auto first = machine.buffer(4, "first");
  const auto second = machine.buffer(4, "second");
  const Outcome outcome = machine.run([&](Encoder encoder) {
    machine.dispatch(encoder, count.get(), {first->gpuAddress()}, 1);
    machine.dispatch(encoder, count.get(), {second->gpuAddress()}, 1);
    machine.table->setAddress(0, 0);
  });
  check_equal(outcome.error, "");
  check_equal(*static_cast<uint32_t*>(first->contents()), 1U);
  check_equal(*static_cast<uint32_t*>(second->contents()), 1U);
}

void test_barriers_order_and_nothing_else_does() {
  Machine machine;
  const auto add = machine.pipeline("add_slowly");
  const auto sum = machine.buffer(8, "sum");
  const auto one = machine.buffer(8, "one");
  *static_cast<uint64_t*>(one->contents()) = 1;
  const Outcome ordered = machine.run([&](Encoder encoder) {
    for (int i = 0; i < 50; ++i) {
      machine.dispatch(encoder, add.get(), {sum->gpuAddress(), one->gpuAddress()}, 1);
      barrier(encoder);
    }
  });
  check_equal(ordered.error, "");
  check_equal(*static_cast<uint64_t*>(sum->contents()), 50U);
  if (hostmetal::usable_cores() < 2) return;
  // Two dispatches of one group meet, though each has one threadgroup only.
  const auto meet = machine.pipeline("meet");
  const auto meeting = machine.buffer(8, "meeting");
  const auto arrange = [&](Encoder encoder, bool ordered_by_wrong_stage) {
    machine.dispatch(encoder, meet.get(), {meeting->gpuAddress()}, 1);
    if (ordered_by_wrong_stage) {
      encoder->barrierAfterEncoderStages(MTL::StageBlit, MTL::StageDispatch,
                                         MTL4::VisibilityOptionDevice);
    }
    machine.dispatch(encoder, meet.get(), {meeting->gpuAddress()}, 1);
  };
  for (const bool wrong_stage : {false, true}) {
    std::fill_n(static_cast<uint32_t*>(meeting->contents()), 2, 0U);
    check_equal(machine.run([&](Encoder encoder) { arrange(encoder, wrong_stage); }).error, "");
    check_equal(static_cast<uint32_t*>(meeting->contents())[1], 0U);
  }
}

void test_copies_and_fills() {
  Machine machine;
  constexpr uint64_t kBytes = 3'000'001;
  const auto a = machine.buffer(kBytes, "a");
  const auto b = machine.buffer(kBytes, "b");
  const Outcome outcome = machine.run([&](Encoder encoder) {
    encoder->fillBuffer(a.get(), NS::Range(1, kBytes - 1), 7);
    barrier(encoder);
    encoder->copyFromBuffer(a.get(), 1, b.get(), 0, kBytes - 1);
  });
  check_equal(outcome.error, "");
  check_equal(int{static_cast<char*>(a->contents())[0]}, 0);
  for (uint64_t i = 0; i + 1 < kBytes; ++i) {
    if (static_cast<char*>(b->contents())[i] != 7) fail("wrong byte", Location::current());
  }
  check_equal(int{static_cast<char*>(b->contents())[kBytes - 1]}, 0);
}

void test_misuse_is_named() {
  Machine machine;
  const auto count = machine.pipeline("count");
  const auto scratch = machine.pipeline("scratch");
  const auto b = machine.buffer(64, "b");
  const MTL::Size one(1, 1, 1);
  const auto problem = [&](const std::function<void(Encoder)>& encode) {
    return machine.run(encode).error;
  };
  const auto launch = [&](MTL::Size groups, MTL::Size threads) {
    return problem([&](Encoder encoder) {
      machine.table->setAddress(b->gpuAddress(), 0);
      encoder->setComputePipelineState(count.get());
      encoder->dispatchThreadgroups(groups, threads);
    });
  };
  check_equal(launch(one, one), "");
  check(contains(launch(one, {1025, 1, 1}), "kernel count: wrong number of threads"));
  check(contains(launch(one, {0, 1, 1}), "wrong number of threads"));
  check(contains(launch({0, 1, 1}, one), "wrong number of threadgroups"));
  check(contains(launch({1 << 20, 1 << 20, 1 << 30}, one), "wrong number of threadgroups"));
  check(contains(problem([&](Encoder e) { e->dispatchThreadgroups(one, one); }), "without a pipe"));
  check(contains(problem([&](Encoder e) { e->setThreadgroupMemoryLength(8, 0); }), "bad length"));
  check(
      contains(problem([&](Encoder e) { e->setThreadgroupMemoryLength(1 << 16, 0); }), "bad len"));
  check(contains(problem([&](Encoder e) { machine.dispatch(e, scratch.get(), {}, 1); }),
                 "threadgroup argument 0 has no length"));
  check_equal(problem([&](Encoder e) {
                e->setThreadgroupMemoryLength(64, 0);
                machine.dispatch(e, scratch.get(), {}, 1);
              }),
              "");
  check(
      contains(problem([&](Encoder e) { e->copyFromBuffer(b.get(), 1, b.get(), 0, 64); }), "outs"));
  check(
      contains(problem([&](Encoder e) { e->copyFromBuffer(b.get(), 1, b.get(), 0, 60); }), "over"));
  check(contains(problem([&](Encoder e) { e->fillBuffer(b.get(), {60, 5}, 0); }), "outside"));
  check(contains(problem([&](Encoder e) { e->fillBuffer(nullptr, {0, 5}, 0); }), "no buffer"));
  check(contains(problem([&](Encoder e) { e->endEncoding(), barrier(e); }), "after endEncoding"));
}

void test_a_wrong_binding_is_named() {
  Machine machine;
  const auto count = machine.pipeline("count");
  const auto b = machine.buffer(64, "b");
  machine.table->setAddress(b->gpuAddress(), 8);
  const Outcome outcome = machine.run(
      [&](Encoder encoder) { machine.dispatch(encoder, count.get(), {b->gpuAddress()}, 1); });
  check(contains(outcome.error, "no binding 8"));
  const auto descriptor = NS::TransferPtr(MTL4::ArgumentTableDescriptor::alloc()->init());
  descriptor->setMaxBufferBindCount(32);
  NS::Error* error = nullptr;
  check(machine.device->newArgumentTable(descriptor.get(), &error) == nullptr && error);
}

void test_wrong_order_of_begin_end_commit() {
  Machine machine;
  MTL4::CommandBuffer* commands = machine.commands.get();
  check(contains(machine.commit().error, "committed without commands"));
  commands->beginCommandBuffer(machine.allocator.get());
  check(contains(machine.commit().error, "before endCommandBuffer"));
  check_equal(machine.run([](Encoder) {}).error, "");
  check(contains(machine.commit().error, "or twice"));
  commands->beginCommandBuffer(machine.allocator.get());
  check(commands->computeCommandEncoder() != nullptr);
  commands->endCommandBuffer();
  check(contains(machine.commit().error, "its encoder is open"));
  check(commands->computeCommandEncoder() == nullptr);
  commands->beginCommandBuffer(nullptr);
  commands->endCommandBuffer();
  check(contains(machine.commit().error, "without an allocator"));
}

void test_an_allocator_is_not_reset_while_in_use() {
  Machine machine;
  const auto gate = NS::TransferPtr(machine.device->newSharedEvent());
  machine.queue->wait(gate.get(), 1);
  machine.commands->beginCommandBuffer(machine.allocator.get());
  machine.commands->endCommandBuffer();
  const MTL4::CommandBuffer* buffers[] = {machine.commands.get()};
  machine.queue->commit(buffers, 1);
  machine.allocator->reset();
  gate->setSignaledValue(1);
  machine.commands->beginCommandBuffer(machine.allocator.get());
  machine.commands->endCommandBuffer();
  check(contains(machine.commit().error, "reset while its commands were running"));
  check_equal(machine.run([](Encoder) {}).error, "");
}

void test_a_failing_kernel_names_itself() {
  Machine machine;
  const auto failing = machine.pipeline("fail");
  const Outcome outcome =
      machine.run([&](Encoder encoder) { machine.dispatch(encoder, failing.get(), {}, 10); });
  check(contains(outcome.error, "kernel fail: barrier reached by 7 of 32 threads"));
  check_equal(machine.run([](Encoder) {}).error, "");
}

void test_events_order_two_queues() {
  Machine machine;
  const auto other = NS::TransferPtr(machine.device->newMTL4CommandQueue());
  const auto first = NS::TransferPtr(machine.device->newSharedEvent());
  const auto second = NS::TransferPtr(machine.device->newSharedEvent());
  other->wait(first.get(), 5);
  other->signalEvent(second.get(), 1);
  check(!second->waitUntilSignaledValue(1, 20));
  machine.queue->signalEvent(first.get(), 6);
  check(second->waitUntilSignaledValue(1, UINT64_MAX));
  check_equal(first->signaledValue(), 6U);
  const auto never = NS::TransferPtr(machine.device->newSharedEvent());
  other->wait(never.get(), 1);  // the queue can go all the same
}

void test_feedback_comes_after_the_signal() {
  Machine machine;
  const auto gate = NS::TransferPtr(machine.device->newSharedEvent());
  const auto done = NS::TransferPtr(machine.device->newSharedEvent());
  uint64_t seen = 0;
  const auto options = NS::TransferPtr(MTL4::CommitOptions::alloc()->init());
  options->addFeedbackHandler([&](MTL4::CommitFeedback*) { seen = done->signaledValue(); });
  machine.queue->wait(gate.get(), 1);  // until all is queued
  machine.commands->beginCommandBuffer(machine.allocator.get());
  machine.commands->endCommandBuffer();
  const MTL4::CommandBuffer* buffers[] = {machine.commands.get()};
  machine.queue->commit(buffers, 1, options.get());
  machine.queue->signalEvent(done.get(), 9);
  gate->setSignaledValue(1);
  machine.queue.reset();  // returns when all is done
  check_equal(seen, 9U);
}

#if defined(__SANITIZE_THREAD__)
constexpr bool kForkedThreadsRun = false;  // the sanitizer ends a forked child that starts threads
#else
constexpr bool kForkedThreadsRun = true;
#endif

void test_a_forked_child_is_told() {
  Machine machine;
  check_equal(machine.run([](Encoder) {}).error, "");
  const pid_t child = fork();
  if (child == 0) {
    const Outcome outcome = machine.run([](Encoder) {});
    const bool told = contains(outcome.error, "forked");
    // A device of its own works.
    bool works = !kForkedThreadsRun;
    if (kForkedThreadsRun) {
      Machine fresh;
      const auto count = fresh.pipeline("count");
      const auto counts = fresh.buffer(4 * 64, "counts");
      works = fresh
                  .run([&](Encoder encoder) {
                    fresh.dispatch(encoder, count.get(), {counts->gpuAddress()}, 64);
                  })
                  .error.empty();
    }
    machine.queue.reset();
    machine.event.reset();
    _exit(told && works ? 0 : 1);
  }
  int status = 1;
  check_equal(waitpid(child, &status, 0), child);
  check_equal(status, 0);
  check_equal(machine.run([](Encoder) {}).error, "");
}

}  // namespace
}  // namespace mtlqwen::testing

int main() {
  using namespace mtlqwen::testing;
  return run({
      {"every_threadgroup_runs_once", test_every_threadgroup_runs_once},
      {"only_residents_may_be_used", test_only_residents_may_be_used},
      {"addresses_must_lie_in_a_living_buffer", test_addresses_must_lie_in_a_living_buffer},
      {"released_buffers_of_copies_are_found", test_released_buffers_of_copies_are_found},
      {"arguments_are_taken_at_the_dispatch", test_arguments_are_taken_at_the_dispatch},
      {"barriers_order_and_nothing_else_does", test_barriers_order_and_nothing_else_does},
      {"copies_and_fills", test_copies_and_fills},
      {"misuse_is_named", test_misuse_is_named},
      {"a_wrong_binding_is_named", test_a_wrong_binding_is_named},
      {"wrong_order_of_begin_end_commit", test_wrong_order_of_begin_end_commit},
      {"an_allocator_is_not_reset_while_in_use", test_an_allocator_is_not_reset_while_in_use},
      {"a_failing_kernel_names_itself", test_a_failing_kernel_names_itself},
      {"events_order_two_queues", test_events_order_two_queues},
      {"feedback_comes_after_the_signal", test_feedback_comes_after_the_signal},
      {"a_forked_child_is_told", test_a_forked_child_is_told},
  });
}
