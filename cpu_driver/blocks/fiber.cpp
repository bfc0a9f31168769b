// The context switch in assembly: 6 callee-saved registers; a kernel changes neither MXCSR nor the x87 control word.
// One core of an EPYC VM under load, 2026-11-20: a barrier of 128 threads 1.0 us, a warp shuffle 0.28 us, four warp
// sums in one collective 0.49 us, an empty block of 128 threads 0.8 us. Built without sanitizers, as all that runs on
// fibers.
#include "cpu_driver/blocks/fiber.h"

#include <sys/mman.h>

#include <atomic>
#include <new>

asm(R"(
.text
.globl nodewright_cpu_switch
.hidden nodewright_cpu_switch
.type nodewright_cpu_switch,@function
.globl nodewright_cpu_resume
.hidden nodewright_cpu_resume
nodewright_cpu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
nodewright_cpu_resume:
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx
.size nodewright_cpu_switch,.-nodewright_cpu_switch
)");

namespace nodewright::cpu {
namespace {

constexpr size_t kPage = 4096;

// Each guard page parts a mapping in two, and Linux allows a process 65530 (vm.max_map_count). Clusters on many cores
// would need more: the stacks beyond these have none.
constexpr uint32_t kMostGuards = 16384;
std::atomic<uint32_t> guards{0};

}  // namespace

FiberStacks::FiberStacks(uint32_t count) : bytes_(count * kStackBytes) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<char*>(memory);
  madvise(base_, bytes_, MADV_NOHUGEPAGE);
}

FiberStacks::~FiberStacks() {
  munmap(base_, bytes_);
  guards -= guarded_;
}

void* FiberStacks::prepare(uint32_t index, void (*main)()) {
  for (; guarded_ <= index; ++guarded_)
    if (guards++ < kMostGuards) mprotect(base_ + guarded_ * kStackBytes, kPage, PROT_NONE);
  // Colouring: 61 different cache-line offsets, or the tops of all stacks would share one set of the L1 cache.
  char* top = base_ + (index + 1) * kStackBytes - (index % 61) * 192;
  void** sp = reinterpret_cast<void**>(top);
  *--sp = nullptr;  // the frame above `main`: keeps %rsp = 8 mod 16 at entry
  *--sp = reinterpret_cast<void*>(main);
  for (int i = 0; i < 6; ++i) *--sp = nullptr;
  return sp;
}

}  // namespace nodewright::cpu
