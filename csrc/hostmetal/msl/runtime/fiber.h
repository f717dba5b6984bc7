// One fiber for each thread of a threadgroup. A fiber runs until a cross-lane operation or a
// barrier, parks there, and the next lane of its simdgroup runs. The last lane to arrive does the
// work of the operation for all and goes on.
//
// Shared by the runtime and by every kernel. All of it belongs to one OS thread (a Worker); nothing
// here is atomic.
#pragma once
#include <stdint.h>

#include "../abi.h"

namespace msl {

struct Simdgroup;
struct Worker;

constexpr uint32_t kLanes = 32;
constexpr uint32_t kSlotBytes = 32;  // the widest value that a lane passes to others (long4)

struct Position {
  uint32_t x, y, z;
};

// The first four words are written and read by switch_fiber().
struct alignas(64) Fiber {
  void* stack;   // where it stands; for one that has not started: the top of its own stack
  void* resume;  // code address to go on at; fiber_main for one that has not started
  void* saved[2];
  Fiber* next;  // ring of the simdgroup's lanes that have not returned
  Simdgroup* simdgroup;
  uint32_t lane;
  uint32_t index;     // in the threadgroup
  Position position;  // in the threadgroup
};

// Where lanes meet. A round begins when the previous one is complete; every live lane arrives once
// in it.
struct Simdgroup {
  uint32_t pending;   // lanes that this round still waits for
  uint32_t live;      // lanes in the ring
  uint32_t site;      // what the lanes of this round wait at
  uint32_t special;   // not zero: the round cannot be completed by the short way
  uint32_t active;    // mask of the lanes in the ring
  uint32_t returned;  // mask of those that returned in this round
  void (*combine)(Simdgroup&);
  char* slots;        // one value for each lane, of this round
  char* other_slots;  // of the previous round: lanes may still read them
  Worker* worker;
  Fiber* first;  // runs first when the simdgroup is chosen
  uint32_t n_lanes;
  uint32_t index;
  uint32_t state;
};

// The fiber that runs on this OS thread, and the dispatch that it belongs to. initial-exec: two
// words of static TLS, reached by one instruction.
extern __thread Fiber* current __attribute__((tls_model("initial-exec"), visibility("hidden")));
extern __thread const MslDispatch* dispatch
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

// Parks `from` and runs `to`. Inlined where a lane waits, and left through an indirect jump: each
// site then predicts its own target, where a shared `ret` would not. Every register but the stack
// pointer and the two saved ones is given up to the compiler.
#if defined(__x86_64__)
#ifdef __AVX512F__
#define MSL_WIDE_REGISTERS                                                                         \
  , "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25",      \
      "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31", "k0", "k1", "k2", "k3", "k4", "k5",    \
      "k6", "k7"
#else
#define MSL_WIDE_REGISTERS
#endif
inline __attribute__((always_inline)) void switch_fiber(Fiber* from, Fiber* to) {
  asm volatile("leaq 1f(%%rip), %%rax\n\t"
               "movq %%rsp, (%%rdi)\n\t"
               "movq %%rax, 8(%%rdi)\n\t"
               "movq %%rbp, 16(%%rdi)\n\t"
               "movq %%rbx, 24(%%rdi)\n\t"
               "movq (%%rsi), %%rsp\n\t"
               "jmpq *8(%%rsi)\n"
               "1:\n\t"  // resumed: rsi is whoever was switched to, that is, `from`
               "movq 16(%%rsi), %%rbp\n\t"
               "movq 24(%%rsi), %%rbx"
               : "+D"(from), "+S"(to)
               :
               : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
                 "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                 "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
                 "xmm15" MSL_WIDE_REGISTERS);
}
#elif defined(__aarch64__)
inline __attribute__((always_inline)) void switch_fiber(Fiber* from, Fiber* to) {
  register Fiber* x0 asm("x0") = from;
  register Fiber* x1 asm("x1") = to;
  asm volatile("adr x9, 1f\n\t"
               "mov x10, sp\n\t"
               "stp x10, x9, [x0]\n\t"
               "stp x29, x19, [x0, #16]\n\t"
               "ldp x10, x9, [x1]\n\t"
               "mov sp, x10\n\t"
               "br x9\n"
               "1:\n\t"
               "ldp x29, x19, [x1, #16]"
               : "+r"(x0), "+r"(x1)
               :
               : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14",
                 "x15", "x16", "x17", "x18", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27",
                 "x28", "x30", "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8",
                 "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20",
                 "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
}
#else
#error "kernels run on x86-64 and aarch64"
#endif

// A site is the line of the call and what is called there, in the low bits.
enum SiteKind : uint32_t { kThreadgroupBarrier, kSimdgroupBarrier, kReduce, kShuffle, kMatrix };
constexpr uint32_t make_site(uint32_t line, SiteKind kind) { return line << 3 | kind; }

void enter_other_site(Simdgroup& group, uint32_t site);
void complete_round(Fiber* me);
[[noreturn]] void fail_threadgroup_bytes(uint32_t bytes);

// Waits until every live lane of the simdgroup is here. `combine`, if any, runs once, when all have
// arrived and before any goes on. `whole_threadgroup`: the wait is for the other simdgroups, too.
template <bool whole_threadgroup = false>
inline __attribute__((always_inline)) void meet(uint32_t site, void (*combine)(Simdgroup&)) {
  Fiber* me = current;
  Simdgroup& group = *me->simdgroup;
  if (group.site != site) enter_other_site(group, site);
  group.combine = combine;
  if (--group.pending != 0) {
    Fiber* to = me->next;
    current = to;
    switch_fiber(me, to);
  } else if (whole_threadgroup || group.special != 0) {
    complete_round(me);
  } else {
    if (combine) combine(group);
    group.pending = group.live;
    char* slots = group.slots;
    group.slots = group.other_slots;
    group.other_slots = slots;
  }
}

}  // namespace msl
