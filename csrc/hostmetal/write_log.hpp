// Which pages kernels write, and what stood there before: pages are read-only until they are first written.
#pragma once
#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "hostmetal/trap.hpp"

namespace mtlqwen::hostmetal {

// Physical memory, however many addresses it has: a heap and an offset in it, or no heap and the address.
struct PageKey {
  uint64_t heap = 0;
  uint64_t offset = 0;
  auto operator<=>(const PageKey&) const = default;
};

// Whole pages that are writable.
struct PageRange {
  char* base = nullptr;
  uint64_t bytes = 0;
  PageKey key;  // of the first page; those of the others follow
};

// One written page.
struct PageEffect {
  char* page = nullptr;
  std::vector<char> before;
  std::vector<char> after;

  [[nodiscard]] bool changes(size_t byte) const { return before[byte] != after[byte]; }
};
using Effects = std::map<PageKey, PageEffect>;

// One at a time in the process: others wait in the constructor. Memory is writable again when it is gone.
class WriteLog {
 public:
  explicit WriteLog(std::vector<PageRange> ranges);
  ~WriteLog();
  WriteLog(const WriteLog&) = delete;
  WriteLog& operator=(const WriteLog&) = delete;

  // False where the machine refused; nothing is watched then.
  [[nodiscard]] bool start();
  [[nodiscard]] Effects stop();  // pages written since start(); a page with two addresses once

  // Take what was written back, or write it again. Between stop() and start().
  void undo(const Effects& effects);
  void repeat(const Effects& effects);

 private:
  struct Saved {
    char* page;
    PageKey key;
  };
  // A page of a range; `range` is null for an address in none.
  struct Place {
    const PageRange* range = nullptr;
    uint64_t page = 0;
  };
  [[nodiscard]] Place find(uint64_t address) const;
  [[nodiscard]] bool is_open(const Place& place) const;
  bool open(const Place& place);
  [[nodiscard]] bool close_all();
  bool save(uint64_t address);
  void write(const Effects& effects, std::vector<char> PageEffect::* bytes);

  const uint64_t page_bytes_;
  std::vector<PageRange> ranges_;        // by address
  std::vector<std::vector<bool>> open_;  // by range and page: it can be written
  std::vector<char*>
      opened_;          // those pages; has room for all, as saved_: a handler must not allocate
  bool is_new_ = true;  // all pages are open
  std::vector<Saved> saved_;  // since start()
  char* copies_ = nullptr;    // of the saved pages, in that order
  uint64_t copies_bytes_ = 0;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  FaultFilter filter_;
  std::unique_lock<std::mutex> turn_;
};

}  // namespace mtlqwen::hostmetal
