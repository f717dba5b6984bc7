// The executor of this machine's CPU cores: anonymous memory, memfd heaps, kernels from shared objects.
#pragma once
#include <atomic>
#include <span>

#include "hostmetal/executor.hpp"
#include "hostmetal/thread_pool.hpp"

namespace mtlqwen::hostmetal {

class CpuExecutor : public Executor {
 public:
  explicit CpuExecutor(ThreadPool& pool, const Environment& environment = {});

  void* allocate(uint64_t bytes) override;
  void free(void* address, uint64_t bytes) override;
  void* reserve(uint64_t bytes) override;
  int create_heap(uint64_t bytes) override;
  void destroy_heap(int heap) override;
  void bring(int heap, uint64_t offset, uint64_t bytes) override;
  bool map(void* address, uint64_t bytes, int heap, uint64_t offset) override;
  void populate(std::span<const std::span<char>> ranges) override;
  bool unmap(void* address, uint64_t bytes) override;
  [[nodiscard]] uint64_t max_regions() const override { return max_regions_; }
  const MslLibrary* open_library(const std::string& path, std::string& error) override;
  std::unique_ptr<Turn> take_turn() override;
  void expect_turn() override { pool_.expect(n_threads_); }
  void set_threads(unsigned n) override { n_threads_ = n; }
  [[nodiscard]] unsigned n_threads() const override { return n_threads_; }
  [[nodiscard]] unsigned max_threads() const override { return max_threads_; }
  [[nodiscard]] bool has_twins() const override { return has_twins_; }
  [[nodiscard]] std::string name() const override;

 private:
  ThreadPool& pool_;
  const unsigned max_threads_;
  std::atomic<unsigned> n_threads_;
  const uint64_t max_regions_;
  const HostChecks checks_;
  const bool has_twins_;
  const bool can_populate_;           // else mappings are populated as they are made
  std::atomic<bool> has_dot_{false};  // of the CPU level that the library was opened for
  std::atomic<uint64_t> n_allocated_{0};
};

// A sentence where a library's table is not one that this program can use, else "".
[[nodiscard]] std::string check_library(const MslLibrary* library, const std::string& isa);

}  // namespace mtlqwen::hostmetal
