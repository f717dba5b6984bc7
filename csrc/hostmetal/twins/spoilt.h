// Rows that are spoilt: metal/spoilt.h.
#pragma once
#include "twin.h"

namespace mtlqwen::twins {

// Threads that say so at once say the same.
inline void note_spoilt(uint32_t* spoilt, uint32_t row, uint32_t place) {
  if (place < __atomic_load_n(spoilt + row, __ATOMIC_RELAXED)) {
    __atomic_store_n(spoilt + row, place, __ATOMIC_RELAXED);
  }
}

}  // namespace mtlqwen::twins
