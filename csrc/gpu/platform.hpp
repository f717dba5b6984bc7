// What differs between an Apple GPU and hostmetal and is no part of Metal. Two implementations,
// chosen by one CMake line: csrc/gpu/platform_apple.cpp and csrc/hostmetal/platform.cpp.
#pragma once
#include <Metal/Metal.hpp>
#include <cstdint>
#include <string>

namespace mtlqwen {

// Stops, or lets run again, the work of a device that has been committed. Apple GPUs cannot: there
// it does nothing.
void set_abort(MTL::Device* device, bool abort);

// The calling thread will wait, for an event, for what it is about to commit. A software device lets
// it carry the work out itself then; to an Apple GPU it makes no difference.
void expect_wait(MTL4::CommandQueue* queue);

// Threads that a software device runs kernels on, 1 to max_threads(); a new one has one for each
// core that the process may use. Of an Apple GPU they are 0, and not to be set.
void set_threads(MTL::Device* device, uint32_t n);
[[nodiscard]] uint32_t n_threads(MTL::Device* device);
[[nodiscard]] uint32_t max_threads();

// Throws DeviceError with what to do where this machine cannot run the library at all (a CPU
// without AVX2, no Metal 4).
void require_machine();

// True where threadgroups run on CPU cores: launch tables prefer few threads with much work each.
[[nodiscard]] bool is_software_device(MTL::Device* device);

// True where the device has kernels for int16 activations that beat those for float.
[[nodiscard]] bool prefers_int16(MTL::Device* device);

// What decides the bits of results beside the model: kernels, compiler, kind of processor. States
// are only exchanged between devices that agree in it.
[[nodiscard]] std::string arithmetic_name(MTL::Device* device);

// An error of a command buffer that set_abort() caused.
[[nodiscard]] bool is_abort_error(const NS::Error* error);

// What a test can make fail: memory refused, an update of sparse mappings, a committed round.
enum class Fault : uint8_t { kAllocation, kMapping, kCommit };

// The nth of a kind from now on fails, once, whichever device of the process meets it; 0: none.
// Returns whether an earlier order was still waiting. Apple GPUs cannot: false, and nothing fails.
bool inject_fault(Fault kind, uint32_t nth);

}  // namespace mtlqwen
