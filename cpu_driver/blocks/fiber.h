// Stacks and the switch between them: one fiber per CUDA thread. Knows nothing of blocks or warps.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nodewright::cpu {

extern "C" {
// Keeps the callee-saved registers on this stack, its pointer in *save, and goes on where `to` was left.
void nodewright_cpu_switch(void** save, void* to);
// The second half of the switch: where a fault handler sends a thread whose fiber it abandons, with %rsp set.
void nodewright_cpu_resume();
}

// 64 KiB each, the lowest page a guard: kernels keep a few hundred bytes, a deep recursion faults.
inline constexpr size_t kStackBytes = 64 << 10;

// `count` stacks of one mapping, touched only when used.
class FiberStacks {
 public:
  explicit FiberStacks(uint32_t count);
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  // A stack pointer from which nodewright_cpu_switch enters `main` on stack `index`. `main` must not return.
  void* prepare(uint32_t index, void (*main)());
  bool contains(const void* address) const {
    const auto offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(base_);
    return offset < bytes_;
  }

 private:
  char* base_;
  size_t bytes_;
  uint32_t guarded_ = 0;  // stacks below this one have their guard page, unless kMostGuards were in use
};

}  // namespace nodewright::cpu
