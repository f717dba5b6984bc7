#include "hostmetal/write_log.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "hostmetal/cpu.hpp"

namespace mtlqwen::hostmetal {
namespace {

std::mutex one_at_a_time;

uint64_t sum_of_bytes(const std::vector<PageRange>& ranges) {
  uint64_t bytes = 0;
  for (const PageRange& range : ranges) bytes += range.bytes;
  return bytes;
}

// The page cannot be written meanwhile. The thread sanitizer, which notes a write before it happens, would see a race.
__attribute__((no_sanitize("thread"))) void copy_page(char* to, const char* from, uint64_t bytes) {
  auto* words = reinterpret_cast<volatile uint64_t*>(to);
  const auto* source = reinterpret_cast<const volatile uint64_t*>(from);
  for (uint64_t i = 0; i < bytes / sizeof(uint64_t); ++i) words[i] = source[i];
}

}  // namespace

WriteLog::WriteLog(std::vector<PageRange> ranges)
    : page_bytes_(static_cast<uint64_t>(sysconf(_SC_PAGESIZE))), ranges_(std::move(ranges)),
      copies_bytes_(sum_of_bytes(ranges_)), turn_(one_at_a_time) {
  std::ranges::sort(ranges_, {}, &PageRange::base);
  for (const PageRange& range : ranges_) open_.emplace_back(range.bytes / page_bytes_);
  saved_.reserve(copies_bytes_ / page_bytes_);
  opened_.reserve(copies_bytes_ / page_bytes_);
  if (copies_bytes_ != 0) {
    void* copies = mmap(nullptr, copies_bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (copies != MAP_FAILED) copies_ = static_cast<char*>(copies);
  }
  filter_ = {.repair = [](void* log,
                          uint64_t address) { return static_cast<WriteLog*>(log)->save(address); },
             .context = this};
  set_fault_filter(&filter_);
}

WriteLog::~WriteLog() {
  for (const PageRange& range : ranges_) {
    static_cast<void>(mprotect(range.base, range.bytes, PROT_READ | PROT_WRITE));
  }
  set_fault_filter(nullptr);
  if (copies_) munmap(copies_, copies_bytes_);
}

WriteLog::Place WriteLog::find(uint64_t address) const {
  const auto after = std::ranges::upper_bound(ranges_, address, {}, [](const PageRange& range) {
    return reinterpret_cast<uint64_t>(range.base);
  });
  if (after == ranges_.begin()) return {};
  const PageRange& range = *std::prev(after);
  const uint64_t offset = address - reinterpret_cast<uint64_t>(range.base);
  if (offset >= range.bytes) return {};
  return {.range = &range, .page = offset / page_bytes_};
}

bool WriteLog::is_open(const Place& place) const {
  return open_[static_cast<size_t>(place.range - ranges_.data())][place.page];
}

bool WriteLog::open(const Place& place) {
  char* page = place.range->base + place.page * page_bytes_;
  if (mprotect(page, page_bytes_, PROT_READ | PROT_WRITE) != 0) return false;
  open_[static_cast<size_t>(place.range - ranges_.data())][place.page] = true;
  opened_.push_back(page);
  return true;
}

// Neighbours in one call: page tables are slow to change.
bool WriteLog::close_all() {
  std::ranges::sort(opened_);
  bool closed = true;
  for (size_t i = 0; i < opened_.size();) {
    const size_t first = i;
    while (++i < opened_.size() && opened_[i] == opened_[i - 1] + page_bytes_) {}
    closed = mprotect(opened_[first], (i - first) * page_bytes_, PROT_READ) == 0 && closed;
  }
  for (const char* page : opened_) {
    const Place place = find(reinterpret_cast<uint64_t>(page));
    open_[static_cast<size_t>(place.range - ranges_.data())][place.page] = false;
  }
  opened_.clear();
  return closed;
}

bool WriteLog::start() {
  saved_.clear();
  if (!copies_) return false;
  if (!is_new_) return close_all();
  is_new_ = false;
  return std::ranges::all_of(ranges_, [](const PageRange& range) {
    return mprotect(range.base, range.bytes, PROT_READ) == 0;
  });
}

// In a signal handler, of any thread.
bool WriteLog::save(uint64_t address) {
  const Place place = find(address);
  if (!place.range) return false;
  while (busy_.test_and_set(std::memory_order_acquire)) spin_pause();
  bool can_write = is_open(place);
  if (!can_write) {
    char* page = place.range->base + place.page * page_bytes_;
    copy_page(copies_ + saved_.size() * page_bytes_, page, page_bytes_);
    can_write = open(place);
    PageKey key = place.range->key;
    key.offset += place.page * page_bytes_;
    if (can_write) saved_.push_back({.page = page, .key = key});
  }
  busy_.clear(std::memory_order_release);
  return can_write;
}

Effects WriteLog::stop() {
  Effects effects;
  for (size_t i = 0; i < saved_.size(); ++i) {
    const char* before = copies_ + i * page_bytes_;
    const char* page = saved_[i].page;
    // The first address that a page was written through has what stood there before all writes.
    effects.try_emplace(saved_[i].key, PageEffect{.page = saved_[i].page,
                                                  .before = {before, before + page_bytes_},
                                                  .after = {page, page + page_bytes_}});
  }
  return effects;
}

void WriteLog::write(const Effects& effects, std::vector<char> PageEffect::* bytes) {
  for (const auto& [key, effect] : effects) {
    const Place place = find(reinterpret_cast<uint64_t>(effect.page));
    if (!is_open(place) && !open(place)) continue;
    for (size_t i = 0; i < effect.before.size(); ++i) {
      if (effect.changes(i)) effect.page[i] = (effect.*bytes)[i];
    }
  }
}

void WriteLog::undo(const Effects& effects) { write(effects, &PageEffect::before); }

void WriteLog::repeat(const Effects& effects) { write(effects, &PageEffect::after); }

}  // namespace mtlqwen::hostmetal
