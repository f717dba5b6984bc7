// Counter heaps of the software device, and the Timer that reads them.
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "check.hpp"
#include "gpu/commands.hpp"
#include "gpu/foundation.hpp"
#include "host_machine.hpp"
#include "row_copier.hpp"

namespace mtlqwen::testing {
namespace {

std::string library_path;

NS::SharedPtr<MTL4::CounterHeap> heap_of(MTL::Device* device, NS::UInteger count,
                                         MTL4::CounterHeapType type, std::string* text = nullptr) {
  const Pool scope;
  const auto descriptor = NS::TransferPtr(MTL4::CounterHeapDescriptor::alloc()->init());
  descriptor->setType(type);
  descriptor->setCount(count);
  NS::Error* error = nullptr;
  auto heap = NS::TransferPtr(device->newCounterHeap(descriptor.get(), &error));
  if (text && error) *text = error->localizedDescription()->utf8String();
  return heap;
}

std::vector<uint64_t> entries(MTL4::CounterHeap* heap, NS::Range range) {
  const Pool scope;
  const NS::Data* data = heap->resolveCounterRange(range);
  std::vector<uint64_t> values(data->length() / sizeof(uint64_t));
  if (!values.empty()) std::memcpy(values.data(), data->mutableBytes(), data->length());
  return values;
}

void test_heaps_of_impossible_kinds() {
  Machine machine;
  MTL::Device* device = machine.device.get();
  std::string text;
  check(!heap_of(device, 8, MTL4::CounterHeapTypeInvalid, &text));
  check(contains(text, "counter heap"));
  check(!heap_of(device, 0, MTL4::CounterHeapTypeTimestamp));
  check(!heap_of(device, 4097, MTL4::CounterHeapTypeTimestamp));
  const auto heap = heap_of(device, 4096, MTL4::CounterHeapTypeTimestamp);
  check_equal(heap->count(), NS::UInteger{4096});
  check(device->queryTimestampFrequency() > 0);
}

void test_timestamps_follow_the_work() {
  Machine machine;
  const auto heap = heap_of(machine.device.get(), 4, MTL4::CounterHeapTypeTimestamp);
  const auto counts = machine.buffer(4096, "counts");
  const auto count = machine.pipeline("count");
  const Outcome outcome = machine.run([&](MTL4::ComputeCommandEncoder* encoder) {
    for (NS::UInteger i = 0; i < 3; ++i) {
      encoder->writeTimestamp(MTL4::TimestampGranularityPrecise, heap.get(), i);
      machine.dispatch(encoder, count.get(), {counts->gpuAddress()}, 64);
    }
  });
  check_equal(outcome.error, std::string());
  const std::vector<uint64_t> times = entries(heap.get(), NS::Range(0, 4));
  check_equal(times.size(), size_t{4});
  check(0 < times[0] && times[0] < times[1] && times[1] < times[2]);
  check_equal(times[3], uint64_t{0});
  const double frequency = static_cast<double>(machine.device->queryTimestampFrequency());
  check(static_cast<double>(times[2] - times[0]) / frequency <= outcome.seconds);
  heap->invalidateCounterRange(NS::Range(1, 1));
  check_equal(entries(heap.get(), NS::Range(1, 2))[0], uint64_t{0});
  check_equal(entries(heap.get(), NS::Range(1, 2))[1], times[2]);
  check_equal(entries(heap.get(), NS::Range(3, 2)).size(), size_t{0});
}

void test_timestamps_outside_of_the_heap() {
  Machine machine;
  const auto heap = heap_of(machine.device.get(), 4, MTL4::CounterHeapTypeTimestamp);
  for (MTL4::CounterHeap* into : {heap.get(), static_cast<MTL4::CounterHeap*>(nullptr)}) {
    const Outcome outcome = machine.run([&](MTL4::ComputeCommandEncoder* encoder) {
      encoder->writeTimestamp(MTL4::TimestampGranularityPrecise, into, 4);
    });
    check(contains(outcome.error, "counter heap"));
  }
}

void test_marks_lie_between_commit_and_answer() {
  Device device(library_path);
  Commands commands(device);
  RowCopier copier(device);
  Buffer from = device.new_buffer(4096, Storage::kShared, "from");
  Buffer to = device.new_buffer(4096, Storage::kShared, "to");
  const auto round = [&](int n_marks) {
    const AutoreleaseScope scope;
    commands.begin();
    for (int i = 0; i < n_marks; ++i) {
      commands.mark();
      copier.encode(commands, to.span().address, from.span().address, 64);
      commands.barrier();
    }
    const auto before = Timer::Clock::now();
    commands.commit_and_wait();
    const auto after = Timer::Clock::now();
    auto last = before;
    for (const auto mark : commands.marks()) {
      check(last <= mark && mark <= after);
      last = mark;
    }
  };
  round(3);
  check(commands.marks().empty());
  commands.set_timer(device.new_timer());
  for (const int n_marks : {3, 1, 0, 5}) {
    round(n_marks);
    check_equal(commands.marks().size(), static_cast<size_t>(n_marks));
  }
  round(5000);
  check_equal(commands.marks().size(), size_t{Timer::kMaxMarks});
  commands.set_timer(nullptr);
  round(2);
  check(commands.marks().empty());
}

}  // namespace
}  // namespace mtlqwen::testing

int main(int argc, char** argv) {
  using namespace mtlqwen::testing;
  if (argc < 2) return 2;
  library_path = argv[1];
  return run(
      {
          {"heaps of impossible kinds are refused", test_heaps_of_impossible_kinds},
          {"timestamps follow the work before them", test_timestamps_follow_the_work},
          {"timestamps outside of the heap are refused", test_timestamps_outside_of_the_heap},
          {"marks lie between commit and answer", test_marks_lie_between_commit_and_answer},
      },
      argc > 2 ? argv[2] : "");
}
