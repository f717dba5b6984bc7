// What every twin includes: how it is declared, and how it reads its dispatch.
//
// A twin is a kernel of metal/ written again by hand for CPU vectors: the same name, arguments and
// grid. It exists for speed alone. hostmetal runs it in the place of the MSL kernel unless
// MTLQWEN_HOST_KERNELS=msl. Twins are compiled once for each CPU level; files that multiply int16
// once more with MTLQWEN_DOT (msl/twins.py lists them).
#pragma once
#include <stdint.h>

#include "../msl/abi.h"
#include "kernel_args.h"

namespace mtlqwen::twins {

// A dispatch with types put on its arguments.
class Dispatch {
 public:
  explicit Dispatch(const MslDispatch& dispatch) : raw_(dispatch) {}

  template <class T>
  [[nodiscard]] T* buffer(uint32_t index) const {
    return static_cast<T*>(raw_.buffers[index]);
  }
  // An argument struct of kernel_args.h.
  template <class T>
  [[nodiscard]] const T& args(uint32_t index) const {
    return *static_cast<const T*>(raw_.buffers[index]);
  }
  template <class T>
  [[nodiscard]] T constant(uint32_t index) const {
    T value;
    __builtin_memcpy(&value, &raw_.constants[index], sizeof value);
    return value;
  }
  [[nodiscard]] uint32_t groups_x() const { return raw_.groups[0]; }
  [[nodiscard]] uint32_t groups_y() const { return raw_.groups[1]; }
  [[nodiscard]] bool is_aborted() const { return raw_.abort && *raw_.abort != 0; }

 private:
  const MslDispatch& raw_;
};

// Calls body(x, y) for the threadgroups of a range, x fastest. Grids of twins have no z.
template <class Body>
inline int for_each_group(const Dispatch& dispatch, uint64_t first, uint64_t count,
                          const Body& body) {
  const uint32_t width = dispatch.groups_x();
  auto x = static_cast<uint32_t>(first % width);
  auto y = static_cast<uint32_t>(first / width);
  for (uint64_t i = 0; i < count; ++i) {
    if (dispatch.is_aborted()) return MSL_ABORTED;
    body(x, y);
    if (++x == width) {
      x = 0;
      ++y;
    }
  }
  return MSL_OK;
}

}  // namespace mtlqwen::twins

#ifdef MTLQWEN_DOT
#define MTLQWEN_TWIN_SYMBOL(KERNEL) dot_twin_##KERNEL
#else
#define MTLQWEN_TWIN_SYMBOL(KERNEL) twin_##KERNEL
#endif

// MTLQWEN_TWIN(rms_norm) { ... } defines the twin of the kernel rms_norm. The body sees `dispatch`,
// `first` and `count`, and returns what MslTwin returns. The name must be spelled out: the build
// finds it in the source.
#define MTLQWEN_TWIN(KERNEL)                                                                       \
  static int run_##KERNEL(const mtlqwen::twins::Dispatch& dispatch, uint64_t first,                \
                          uint64_t count);                                                         \
  extern "C" int MTLQWEN_TWIN_SYMBOL(KERNEL)(const MslDispatch* raw, uint64_t first,               \
                                             uint64_t count) {                                     \
    return run_##KERNEL(mtlqwen::twins::Dispatch(*raw), first, count);                             \
  }                                                                                                \
  static int run_##KERNEL([[maybe_unused]] const mtlqwen::twins::Dispatch& dispatch,               \
                          uint64_t first, uint64_t count)
