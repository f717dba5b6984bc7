// gpu/: buffers, pipelines, rounds of commands, sparse mappings, errors and aborts on the device.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "check.hpp"
#include "gpu/commands.hpp"
#include "gpu/device.hpp"
#include "row_copier.hpp"

namespace mtlqwen::testing {
namespace {

constexpr uint64_t kPage = 64 << 10;

std::string library_path;  // the program's first argument

std::vector<float> ramp(size_t n, float first) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = first + static_cast<float>(i);
  return values;
}

void test_buffers() {
  Device device(library_path);
  check(!device.name().empty());
  const uint64_t before = device.allocated_bytes();
  {
    Buffer shared = device.new_buffer(1000, Storage::kShared, "shared");
    check(shared.contents() != nullptr);
    check_equal(shared.bytes(), 1000U);
    check(shared.span().address != 0);
    Buffer moved = std::move(shared);
    check_equal(shared.bytes(), 0U);
    check(moved.as<char>() != nullptr);
    Buffer hidden = device.new_buffer(4096, Storage::kPrivate, "hidden");
    check(hidden.contents() == nullptr);
    check_equal(device.allocated_bytes(), before + 5096);
    Buffer sparse = device.new_sparse_buffer(kPage + 1, kPage, "sparse");
    check_equal(sparse.bytes(), 2 * kPage);
    check_equal(device.allocated_bytes(), before + 5096);
    Heap heap = device.new_heap(3 * kPage, kPage, "heap");
    check_equal(device.allocated_bytes(), before + 5096 + 3 * kPage);
    moved = device.new_buffer(96, Storage::kShared, "smaller");
    check_equal(device.allocated_bytes(), before + 4192 + 3 * kPage);
  }
  check_equal(device.allocated_bytes(), before);
}

void test_refused_memory_is_named() {
  Device device(library_path);
  const uint64_t before = device.allocated_bytes();
  check_throws<DeviceError>([&] { (void)device.new_buffer(0, Storage::kShared, "rope"); }, "rope");
  check_throws<DeviceError>(
      [&] { (void)device.new_buffer(UINT64_MAX - 100, Storage::kShared, "logits"); }, "logits");
  check_throws<CapacityError>([&] { (void)device.new_heap(1ULL << 63, kPage, "kv heap 3"); },
                              "kv heap 3");
  check_throws<DeviceError>([&] { (void)device.new_sparse_buffer(kPage, 4096, "kv"); }, "4096");
  std::vector<char> bytes(100);
  check_throws<DeviceError>([&] { (void)device.wrap_pages(bytes.data() + 1, 100, "weights"); },
                            "weights");
  check_equal(device.allocated_bytes(), before);
}

void test_wrapped_pages_are_not_copied() {
  Device device(library_path);
  Commands commands(device);
  RowCopier copier(device);
  constexpr size_t kBytes = 64 << 10;  // whole pages on every machine
  auto* pages = static_cast<float*>(std::aligned_alloc(kBytes, kBytes));
  {
    Buffer wrapped = device.wrap_pages(pages, kBytes, "weights");
    check(wrapped.contents() == pages);
    copier.store(commands, wrapped.span().address + 256, ramp(8, 5.0F));
    check_equal(pages[64], 5.0F);
    check_equal(pages[71], 12.0F);
  }
  pages[64] = 1.0F;  // still ours
  std::free(pages);
}

void test_pipelines() {
  Device device(library_path);
  Pipelines& pipelines = device.pipelines();
  const Pipeline& first = pipelines.get("gather_rows");
  check(first.max_threads >= 32);
  check_equal(first.name, "gather_rows");
  check(&pipelines.get("gather_rows") == &first);
  check_equal(pipelines.n_built(), 1U);
  check_throws<DeviceError>([&] { (void)pipelines.get("no_such_kernel"); }, "no_such_kernel");
  check_equal(pipelines.n_built(), 1U);
  bool listed = false;
  for (const std::string& name : pipelines.kernel_names()) listed = listed || name == "gather_rows";
  check(listed);
}

void test_missing_library_is_named() {
  check_throws<DeviceError>([] { Device device("/nowhere/kernels.metallib"); },
                            "/nowhere/kernels.metallib");
}

// A long copy, then a short one of its last floats: a device with two threads that misses the
// barrier between them makes the short one first.
void test_barriers_order_a_chain() {
  Device device(library_path);
  Commands commands(device);
  RowCopier copier(device);
  constexpr uint32_t kLong = 1 << 19;
  constexpr uint32_t kShort = 16;
  constexpr uint64_t kEnd = (kLong - kShort) * sizeof(float);
  constexpr int kLinks = 6;
  std::vector<Buffer> chain;
  for (int i = 0; i <= kLinks; ++i) {
    chain.push_back(device.new_buffer(kLong * sizeof(float), Storage::kShared, "link"));
    std::memset(chain.back().contents(), 0, kLong * sizeof(float));
  }
  for (int round = 0; round < 3; ++round) {
    const std::vector<float> values = ramp(kShort, static_cast<float>(1 + 100 * round));
    std::memcpy(chain[0].as<char>() + kEnd, values.data(), kShort * sizeof(float));
    commands.begin();
    for (int i = 0; i < kLinks; ++i) {
      const uint64_t from = chain[i].span().address;
      const uint64_t to = chain[i + 1].span().address;
      copier.encode(commands, to, from, kLong);
      commands.barrier();
      copier.encode(commands, to, to + kEnd, kShort);
      commands.barrier();
      commands.copy(chain[i + 1], 0, chain[i + 1], kEnd, kShort * sizeof(float));
      commands.barrier();
    }
    commands.commit_and_wait();
    check(commands.gpu_seconds() > 0.0);
    check(std::memcmp(chain.back().contents(), values.data(), kShort * sizeof(float)) == 0);
  }
}

void test_arguments_are_snapshots() {
  Device device(library_path);
  Commands commands(device);
  RowCopier copier(device);
  Buffer from = device.new_buffer(64 * sizeof(float), Storage::kShared, "from");
  Buffer to = device.new_buffer(64 * sizeof(float), Storage::kShared, "to");
  const std::vector<float> values = ramp(64, 1.0F);
  std::memcpy(from.contents(), values.data(), 64 * sizeof(float));
  commands.begin();
  for (uint64_t i = 0; i < 16;
       ++i) {  // reversed in groups of four, no barrier: all are independent
    copier.encode(commands, to.span().address + 16 * i, from.span().address + 16 * (15 - i), 4);
  }
  commands.commit_and_wait();
  for (size_t i = 0; i < 64; ++i) check_equal(to.as<float>()[i], values[4 * (15 - i / 4) + i % 4]);
}

void test_begin_drops_an_open_round() {
  Device device(library_path);
  Commands commands(device);
  RowCopier copier(device);
  Buffer from = device.new_buffer(64, Storage::kShared, "from");
  Buffer to = device.new_buffer(64, Storage::kShared, "to");
  std::memset(from.contents(), 1, 64);
  std::memset(to.contents(), 0, 64);
  commands.begin();
  copier.encode(commands, to.span().address, from.span().address, 16);
  commands.begin();
  commands.commit_and_wait();
  check_equal(to.as<char>()[0], 0);
  commands.begin();  // left open: the destructor drops it
}

void test_launch_too_large() {
  Device device(library_path);
  Commands commands(device);
  const Pipeline& pipeline = device.pipelines().get("gather_rows");
  const std::vector<uint64_t> none;
  commands.begin();
  check_throws<DeviceError>(
      [&] { commands.dispatch(pipeline, none, {.threads = pipeline.max_threads + 1}); },
      "gather_rows");
  const std::vector<uint64_t> many(32, 0);
  check_throws<DeviceError>([&] { commands.dispatch(pipeline, many, {}); }, "gather_rows");
}

// Two tiles of a sparse buffer change places; what they hold moves with them.
void test_mappings() {
  Device device(library_path);
  Commands commands(device);
  RowCopier copier(device);
  Buffer sparse = device.new_sparse_buffer(8 * kPage, kPage, "sparse");
  Heap heap = device.new_heap(2 * kPage, kPage, "heap");
  const uint64_t base = sparse.span().address;
  const MappingRun far[] = {{.buffer_tile = 1, .n_tiles = 1, .heap_tile = 0},
                            {.buffer_tile = 6, .n_tiles = 1, .heap_tile = 1}};
  device.update_mappings(sparse, &heap, far);
  copier.store(commands, base + 1 * kPage + 512, ramp(32, 1.0F));
  copier.store(commands, base + 6 * kPage + 512, ramp(32, 1000.0F));
  device.update_mappings(sparse, nullptr, far);
  const MappingRun both[] = {{.buffer_tile = 3, .n_tiles = 2, .heap_tile = 0}};
  device.update_mappings(sparse, &heap, both);
  check(copier.load(commands, base + 3 * kPage + 512, 32) == ramp(32, 1.0F));
  check(copier.load(commands, base + 4 * kPage + 512, 32) == ramp(32, 1000.0F));
  device.update_mappings(sparse, nullptr, both);
}

// Keeps the device busy for far longer than the test waits: it has to be stopped.
void encode_long_work(Commands& commands, RowCopier& copier, const Buffer& to, const Buffer& from,
                      uint32_t n_rows) {
  const auto dim = static_cast<uint32_t>(to.bytes() / sizeof(float) / n_rows);
  for (int i = 0; i < 20'000; ++i) {
    copier.encode(commands, to.span().address, from.span().address, dim, n_rows);
    commands.barrier();
  }
}

void test_too_many_mappings_are_a_capacity_error() {
  constexpr uint64_t kTiles = 80'000;
  Device device(library_path);
  Commands commands(device);
  const Heap heap = device.new_heap(kPage, kPage, "heap");
  const Buffer sparse = device.new_sparse_buffer(kTiles * kPage, kPage, "kv");
  std::vector<MappingRun> runs;  // every second tile: none can be merged
  for (uint64_t tile = 0; tile < kTiles; tile += 2)
    runs.push_back({.buffer_tile = tile, .n_tiles = 1});
  device.update_mappings(sparse, &heap, runs);
  commands.begin();
  check_throws<CapacityError>([&] { commands.commit_and_wait(); }, "more mapped ranges");
  const MappingRun all{.buffer_tile = 0, .n_tiles = kTiles};
  device.update_mappings(sparse, nullptr, {&all, 1});
  commands.begin();
  commands.commit_and_wait();
}

// Whether a kernel has stored its first element. A look at memory that the device writes, which the thread sanitizer need
// not hear of.
__attribute__((no_sanitize("thread"))) bool has_begun(const Buffer& buffer) {
  return *static_cast<const volatile float*>(buffer.contents()) != 0.0F;
}

void test_abort_from_another_thread() {
  Device device(library_path);
  Commands commands(device);
  RowCopier copier(device);
  constexpr uint32_t kRows = 1024;
  Buffer from = device.new_buffer(64 << 10, Storage::kShared, "from");
  Buffer to = device.new_buffer(32 << 20, Storage::kShared, "to");
  *from.as<float>() = 1.0F;
  for (int i = 0; i < 3; ++i) {
    commands.begin();
    encode_long_work(commands, copier, to, from, kRows);
    std::memset(to.contents(), 0, kRows);
    std::thread other([&] {
      while (!has_begun(to)) std::this_thread::yield();
      device.request_abort();
    });
    check_throws<Aborted>([&] { commands.commit_and_wait(); }, "stopped");  // it would take minutes
    other.join();
    device.clear_abort();
    copier.store(commands, to.span().address, ramp(64, static_cast<float>(i)));
    check_equal(to.as<float>()[63], static_cast<float>(63 + i));
  }
}

void test_abort_stays_until_cleared() {
  Device device(library_path);
  Commands commands(device);
  RowCopier copier(device);
  Buffer to = device.new_buffer(256, Storage::kShared, "to");
  device.request_abort();
  for (int i = 0; i < 2; ++i) {
    check_throws<Aborted>([&] { copier.store(commands, to.span().address, ramp(64, 1.0F)); }, "");
  }
  device.clear_abort();
  copier.store(commands, to.span().address, ramp(64, 1.0F));
  check_equal(to.as<float>()[0], 1.0F);
}

void test_one_device_does_not_stop_another() {
  Device stopped(library_path);
  Device running(library_path);
  stopped.request_abort();
  Commands commands(running);
  RowCopier copier(running);
  Buffer to = running.new_buffer(256, Storage::kShared, "to");
  copier.store(commands, to.span().address, ramp(64, 1.0F));
  check_equal(to.as<float>()[0], 1.0F);
}

void test_round_over_its_limit_is_reported() {
  Device device(library_path);
  Commands commands(device, 0.05);
  RowCopier copier(device);
  Buffer from = device.new_buffer(64 << 10, Storage::kShared, "from");
  Buffer to = device.new_buffer(32 << 20, Storage::kShared, "to");
  commands.begin();
  encode_long_work(commands, copier, to, from, 1024);
  check_throws<DeviceError>([&] { commands.commit_and_wait(); }, "no answer");
  check(!device.lost());
  copier.store(commands, to.span().address, ramp(64, 7.0F));
  check_equal(to.as<float>()[0], 7.0F);
}

void test_open_and_close() {
  for (int i = 0; i < 20; ++i) {
    Device device(library_path);
    Commands commands(device);
    RowCopier copier(device);
    Buffer sparse = device.new_sparse_buffer(4 * kPage, kPage, "sparse");
    Heap heap = device.new_heap(kPage, kPage, "heap");
    const MappingRun run{.buffer_tile = 2, .n_tiles = 1, .heap_tile = 0};
    device.update_mappings(sparse, &heap, {&run, 1});
    copier.store(commands, sparse.span().address + 2 * kPage, ramp(16, 3.0F));
    device.update_mappings(sparse, nullptr, {&run, 1});
  }
}

}  // namespace
}  // namespace mtlqwen::testing

int main(int n_arguments, char** arguments) {
  using namespace mtlqwen::testing;
  if (n_arguments < 2) return 2;
  library_path = arguments[1];
  return run(
      {{"buffers", test_buffers},
       {"refused memory is named", test_refused_memory_is_named},
       {"wrapped pages are not copied", test_wrapped_pages_are_not_copied},
       {"pipelines", test_pipelines},
       {"missing library is named", test_missing_library_is_named},
       {"barriers order a chain", test_barriers_order_a_chain},
       {"arguments are snapshots", test_arguments_are_snapshots},
       {"begin drops an open round", test_begin_drops_an_open_round},
       {"launch too large", test_launch_too_large},
       {"mappings", test_mappings},
       {"too many mappings are a capacity error", test_too_many_mappings_are_a_capacity_error},
       {"abort from another thread", test_abort_from_another_thread},
       {"abort stays until cleared", test_abort_stays_until_cleared},
       {"one device does not stop another", test_one_device_does_not_stop_another},
       {"round over its limit is reported", test_round_over_its_limit_is_reported},
       {"open and close", test_open_and_close}},
      n_arguments > 2 ? arguments[2] : "");
}
