// Runs kernels of an aarch64 kernel library under an emulator, for tests/neon/emulator.py: lists
// them on standard output, then answers requests from standard input.
//
// driver LIBRARY
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "hostmetal/cpu.hpp"
#include "hostmetal/msl/abi.h"

namespace {

constexpr uint64_t kAlignment = 16;  // of buffers: all that a kernel may count on, a float4

enum class Form : uint32_t { kMsl, kTwin };  // as tests/msl/runner.py numbers them

// Head of a request. The kernel's name follows, the length of each buffer, then their bytes.
struct Request {
  uint64_t constants[MSL_MAX_CONSTANTS];
  uint64_t first, count;  // threadgroups
  uint64_t part;          // of them that one call runs
  uint64_t seed;
  uint32_t groups[3];
  uint32_t threads[3];
  uint32_t threadgroup_bytes[MSL_MAX_THREADGROUP_SLOTS];
  uint32_t check;
  uint32_t abort;
  uint32_t n_workers;
  Form form;
  uint32_t name_bytes;
  uint32_t n_buffers;
};

// Head of an answer. The error follows, then the bytes of all buffers.
struct Answer {
  uint32_t status;
  uint32_t error_bytes;
};

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "driver: %s\n", what);
  std::exit(1);
}

bool read_all(void* to, size_t bytes) { return std::fread(to, 1, bytes, stdin) == bytes; }

void read_or_give_up(void* to, size_t bytes) {
  if (!read_all(to, bytes)) give_up("a request ends too early");
}

void write_all(const void* from, size_t bytes) {
  if (std::fwrite(from, 1, bytes, stdout) != bytes) give_up("nobody reads the answers");
}

// Memory between two guard pages, at the end of its own: an access behind it ends the driver.
class Buffer {
 public:
  explicit Buffer(uint64_t bytes) : bytes_(bytes) {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t used = (bytes + page - 1) / page * page;
    mapped_ = used + 2 * page;
    pages_ =
        static_cast<char*>(mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (pages_ == MAP_FAILED || mprotect(pages_ + page, used, PROT_READ | PROT_WRITE) != 0) {
      give_up("no memory for a buffer");
    }
    data_ = pages_ + page + used - (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  ~Buffer() { munmap(pages_, mapped_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] char* data() const { return data_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_;
  uint64_t mapped_;
  char* pages_;
  char* data_;
};

const MslLibrary* open_library(const char* path) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) give_up(dlerror());
  using Entry = const MslLibrary* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, "msl_library"));
  if (!entry) give_up("no symbol msl_library");
  if (entry()->abi_version != MSL_ABI_VERSION) give_up("a library of another ABI version");
  return entry();
}

// One line for the CPU, one for each kernel (its twin, buffers and constants), and an empty one.
void list(const MslLibrary& library) {
  std::printf("%s\n", mtlqwen::hostmetal::cpu_levels().neon ? library.isa : "none");
  for (uint32_t i = 0; i < library.n_kernels; ++i) {
    const MslKernel& kernel = library.kernels[i];
    std::printf("%s %d %u", kernel.name, kernel.twin != nullptr, kernel.buffer_mask);
    for (uint32_t c = 0; c < kernel.n_constants; ++c) {
      const MslConstant& constant = kernel.constants[c];
      std::printf(" %s:%u:%u", constant.name, constant.index, constant.data_type);
    }
    std::printf("\n");
  }
  std::printf("\n");
  std::fflush(stdout);
}

const MslKernel& find(const MslLibrary& library, const std::string& name) {
  for (uint32_t i = 0; i < library.n_kernels; ++i) {
    if (library.kernels[i].name == name) return library.kernels[i];
  }
  give_up(("no kernel " + name).c_str());
}

// Shares the threadgroups out among threads, `part` at a time, as the pool does.
class Run {
 public:
  Run(const MslLibrary& library, const MslDispatch& dispatch, const Request& request)
      : library_(library), dispatch_(dispatch), request_(request) {}

  int operator()(std::string& error) {
    std::vector<std::string> errors(request_.n_workers);
    std::vector<std::thread> threads;
    threads.reserve(errors.size());
    for (std::string& one : errors) threads.emplace_back([&] { run_parts(one); });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& one : errors) error += one;
    return status_;
  }

 private:
  void run_parts(std::string& error) {
    mtlqwen::hostmetal::flush_denormals();
    while (status_ == MSL_OK) {
      const uint64_t done = done_.fetch_add(request_.part);
      if (done >= request_.count && done != 0) return;  // no threadgroups: one call all the same
      const uint64_t count = std::min(request_.part, request_.count - done);
      std::array<char, 512> text{};
      const int status = run_part(request_.first + done, count, text);
      if (status == MSL_OK) continue;
      status_ = status;
      error = text.data();
    }
  }

  int run_part(uint64_t first, uint64_t count, std::array<char, 512>& error) const {
    const MslKernel& kernel = *dispatch_.kernel;
    if (request_.form == Form::kMsl) {
      return library_.run(&dispatch_, first, count, error.data(), error.size());
    }
    return kernel.twin(&dispatch_, first, count);
  }

  const MslLibrary& library_;
  const MslDispatch& dispatch_;
  const Request& request_;
  std::atomic<uint64_t> done_ = 0;
  std::atomic<int> status_ = MSL_OK;
};

MslDispatch make_dispatch(const MslLibrary& library, const Request& request,
                          const std::string& kernel) {
  MslDispatch dispatch{};
  dispatch.kernel = &find(library, kernel);
  dispatch.check = request.check;
  dispatch.seed = request.seed;
  dispatch.abort = &request.abort;
  std::ranges::copy(request.groups, dispatch.groups);
  std::ranges::copy(request.threads, dispatch.threads);
  std::ranges::copy(request.threadgroup_bytes, dispatch.threadgroup_bytes);
  std::ranges::copy(request.constants, dispatch.constants);
  return dispatch;
}

void serve(const MslLibrary& library, const Request& request) {
  std::string kernel(request.name_bytes, '\0');
  read_or_give_up(kernel.data(), kernel.size());
  MslDispatch dispatch = make_dispatch(library, request, kernel);
  std::vector<uint64_t> sizes(request.n_buffers);
  read_or_give_up(sizes.data(), sizes.size() * sizeof(uint64_t));
  std::vector<std::unique_ptr<Buffer>> buffers;
  for (const uint64_t bytes : sizes) {
    const Buffer& buffer = *buffers.emplace_back(new Buffer(bytes));
    read_or_give_up(buffer.data(), bytes);
    dispatch.buffers[buffers.size() - 1] = buffer.data();
  }
  std::string error;
  const int status = Run(library, dispatch, request)(error);
  const Answer answer{static_cast<uint32_t>(status), static_cast<uint32_t>(error.size())};
  write_all(&answer, sizeof answer);
  write_all(error.data(), error.size());
  for (const auto& buffer : buffers) write_all(buffer->data(), buffer->bytes());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) give_up("want the path of a kernel library");
  const MslLibrary& library = *open_library(argv[1]);
  list(library);
  Request request;
  while (read_all(&request, sizeof request)) serve(library, request);
  return 0;
}
