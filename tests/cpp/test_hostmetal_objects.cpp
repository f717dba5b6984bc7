// hostmetal: reference counts, autorelease pools, nil messages, values.
#include <Metal/Metal.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <type_traits>

#include "check.hpp"
#include "host_machine.hpp"

namespace mtlqwen::testing {
namespace {

NS::String* new_string(const char* text) {
  return NS::String::alloc()->init(text, NS::UTF8StringEncoding);
}

void test_shared_pointers_count() {
  NS::SharedPtr<NS::String> first = NS::TransferPtr(new_string("a"));
  check_equal(first->retainCount(), 1U);
  {
    const NS::SharedPtr<NS::String> second = first;
    const NS::SharedPtr<NS::Object> base = second;
    check_equal(first->retainCount(), 3U);
    check(first == second);
  }
  check_equal(first->retainCount(), 1U);
  const NS::SharedPtr<NS::String> retained = NS::RetainPtr(first.get());
  check_equal(first->retainCount(), 2U);
  NS::SharedPtr<NS::String> moved = std::move(first);
  check(!first);
  check_equal(moved->retainCount(), 2U);
  moved = moved;
  check_equal(moved->retainCount(), 2U);
  NS::String* raw = moved.get();
  moved.detach();
  check_equal(raw->retainCount(), 2U);
  raw->release();
  check_equal(retained->retainCount(), 1U);
}

void test_empty_shared_pointers_do_nothing() {
  NS::SharedPtr<NS::String> empty;
  const NS::SharedPtr<NS::String> copy = empty;
  const NS::SharedPtr<NS::String> null = nullptr;
  empty.reset();
  empty = copy;
  check(!empty && !null && NS::RetainPtr<NS::String>(nullptr) == copy);
}

void test_pools_release_when_they_go() {
  const auto string = NS::TransferPtr(new_string("kept"));
  {
    const Pool outer;
    string->retain()->autorelease();
    {
      const Pool inner;
      string->retain()->autorelease();
      string->retain()->autorelease();
      check_equal(string->retainCount(), 4U);
    }
    check_equal(string->retainCount(), 2U);
    string->retain()->autorelease();
    check_equal(string->retainCount(), 3U);
  }
  check_equal(string->retainCount(), 1U);
}

void test_an_outer_pool_takes_inner_ones_along() {
  const auto string = NS::TransferPtr(new_string("kept"));
  NS::AutoreleasePool* outer = NS::AutoreleasePool::alloc()->init();
  static_cast<void>(NS::AutoreleasePool::alloc()->init());
  string->retain()->autorelease();
  outer->drain();
  check_equal(string->retainCount(), 1U);
}

void test_pools_belong_to_threads() {
  const auto string = NS::TransferPtr(new_string("kept"));
  const Pool here;
  std::thread([&] {
    const Pool there;
    string->retain()->autorelease();
  }).join();
  check_equal(string->retainCount(), 1U);
}

void test_without_a_pool_objects_leak() {
  const auto string = NS::TransferPtr(new_string("leaked"));
  std::thread([&] { string->retain()->autorelease(); }).join();
  check_equal(string->retainCount(), 2U);
  string->release();
}

template <class T>
T* nil() {
  volatile uintptr_t zero = 0;  // the compiler must not see it
  return reinterpret_cast<T*>(zero);
}

void test_messages_to_nil_return_zero() {
  check(nil<NS::String>()->utf8String() == nullptr);
  check_equal(nil<NS::Array>()->count(), 0U);
  check_equal(nil<NS::Error>()->code(), 0);
  check(nil<NS::Error>()->localizedDescription()->utf8String() == nullptr);
  check(nil<NS::String>()->retain()->autorelease() == nullptr);
  nil<NS::String>()->release();
  check_equal(nil<MTL::Buffer>()->length(), 0U);
  check(nil<MTL::Buffer>()->contents() == nullptr);
  check(nil<MTL::Device>()->newBuffer(16, kShared) == nullptr);
  check(nil<MTL::Device>()->newMTL4CommandQueue() == nullptr);
  check(!nil<MTL::Device>()->supportsFamily(MTL::GPUFamilyMetal4));
  check_equal(nil<MTL::Device>()->maxThreadsPerThreadgroup().width, 0U);
  nil<MTL4::CommandBuffer>()->computeCommandEncoder()->endEncoding();
  nil<MTL4::ComputeCommandEncoder>()->dispatchThreadgroups({1, 1, 1}, {1, 1, 1});
  nil<MTL4::CommandQueue>()->signalEvent(nullptr, 1);
  nil<MTL4::CommandQueue>()->commit(nullptr, 0);
  check(!nil<MTL::SharedEvent>()->waitUntilSignaledValue(1, 0));
  nil<MTL::ResidencySet>()->commit();
  nil<MTL4::ArgumentTable>()->setAddress(1, 0);
  MTL::HeapDescriptor* none = nil<MTL::HeapDescriptor>()->init();
  none->setSize(1);
  check_equal(none->size(), 0U);
}

void test_a_null_check_behind_a_message_survives() {
  MTL::Buffer* buffer = nil<MTL::Buffer>();
  const NS::UInteger length = buffer->length();
  check(!buffer && length == 0);
}

void test_values() {
  const Pool scope;
  const NS::String* text = ns("Gru\xC3\x9F");
  check_equal(std::string(text->utf8String()), "Gru\xC3\x9F");
  check(text->isEqualToString(ns("Gru\xC3\x9F")) && !text->isEqualToString(nullptr));
  const NS::Object* objects[] = {ns("a"), ns("b")};
  const NS::Array* array = NS::Array::array(objects, 2);
  check_equal(array->count(), 2U);
  check_equal(std::string(array->object<NS::String>(1)->utf8String()), "b");
  check(array->object(2) == nullptr);
  check_equal(std::string(NS::URL::fileURLWithPath(ns("/a b"))->fileSystemRepresentation()),
              "/a b");
  const NS::Range range = NS::Range::Make(3, 4);
  check(range.Max() == 7 && range.LocationInRange(6) && !range.LocationInRange(7));
}

// Whether the kernel was asked for huge pages where an address lies ("hg" of VmFlags).
bool wants_huge_pages(uint64_t address) {
  std::ifstream maps("/proc/self/smaps");
  bool is_inside = false;
  for (std::string line; std::getline(maps, line);) {
    uint64_t first = 0;
    uint64_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &end) == 2) {
      is_inside = first <= address && address < end;
    } else if (is_inside && line.starts_with("VmFlags:")) {
      return line.find(" hg") != std::string::npos;
    }
  }
  return false;
}

void test_large_buffers_lie_in_huge_pages() {
  constexpr uint64_t kHuge = uint64_t{2} << 20;
  const Machine machine;
  const auto small = machine.buffer(kHuge - 1, "small");
  check(!wants_huge_pages(small->gpuAddress()));
  for (const uint64_t bytes : {kHuge, kHuge + 1, 3 * kHuge + 5000}) {
    const auto buffer = machine.buffer(bytes, "large");
    const uint64_t address = buffer->gpuAddress();
    check_equal(address % kHuge, 0U);
    // A kernel without huge pages refuses the advice.
    const bool has_huge_pages = std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled").good();
    check_equal(wants_huge_pages(address), has_huge_pages);
    auto* bytes_of = static_cast<char*>(buffer->contents());
    check_equal(std::count(bytes_of, bytes_of + bytes, 0), static_cast<std::ptrdiff_t>(bytes));
    bytes_of[bytes - 1] = 1;
  }
  check_equal(machine.sparse_buffer(64, "sparse")->gpuAddress() % kHuge, 0U);
}

// Passed by address to the driver on a Mac, so their layout is part of the interface.
static_assert(sizeof(MTL4::UpdateSparseBufferMappingOperation) == 32);
static_assert(sizeof(MTL::Size) == 24 && sizeof(NS::Range) == 16);
static_assert(MTL::StageAll == 9223372036854775807 && MTL::StageDispatch == 134217728);
static_assert(std::is_same_v<NS::UInteger, std::uintptr_t>);

}  // namespace
}  // namespace mtlqwen::testing

int main() {
  using namespace mtlqwen::testing;
  return run({
      {"shared_pointers_count", test_shared_pointers_count},
      {"empty_shared_pointers_do_nothing", test_empty_shared_pointers_do_nothing},
      {"pools_release_when_they_go", test_pools_release_when_they_go},
      {"an_outer_pool_takes_inner_ones_along", test_an_outer_pool_takes_inner_ones_along},
      {"pools_belong_to_threads", test_pools_belong_to_threads},
      {"without_a_pool_objects_leak", test_without_a_pool_objects_leak},
      {"messages_to_nil_return_zero", test_messages_to_nil_return_zero},
      {"a_null_check_behind_a_message_survives", test_a_null_check_behind_a_message_survives},
      {"values", test_values},
      {"large_buffers_lie_in_huge_pages", test_large_buffers_lie_in_huge_pages},
  });
}
