// Replaces operator new to record the largest request; to be included by one source of a program.
// Not inlined: g++ 12 takes malloc and free in them for mismatched otherwise.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <new>

#include "files.hpp"

[[gnu::noinline]] void* operator new(std::size_t size) {
  mtlqwen::testing::largest_allocation =
      std::max<uint64_t>(mtlqwen::testing::largest_allocation, size);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
