// Runs on the signal stack of the thread that faulted; allocates nothing. Built without sanitizers.
#include "cpu_driver/blocks/fault_handler.h"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <mutex>

#include "cpu_driver/blocks/block_state.h"

namespace nodewright::cpu {
namespace {

constexpr int kFaultSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr int kTimeoutSignal = SIGURG;  // ignored by default, so a late one is harmless
constexpr size_t kSignalStackBytes = 64 << 10;

struct sigaction previous[65];

BlockFailure describe(int signal_number, const siginfo_t& info, const BlockRunner::State& s) {
  BlockFailure failure{};
  failure.address = reinterpret_cast<uint64_t>(info.si_addr);
  switch (signal_number) {
    case SIGFPE:
      failure.fault = BlockFault::trap;
      failure.what = "an integer division by zero or overflow";
      break;
    case SIGILL:
      failure.fault = BlockFault::trap;
      failure.what = "an illegal instruction: was the image built on another machine?";
      break;
    case kTimeoutSignal:
      failure.fault = BlockFault::timeout;
      failure.address = 0;  // si_addr is of faults only
      failure.what = "the launch ran longer than launch_timeout_ms";
      break;
    default:
      failure.fault = BlockFault::illegal_address;
      failure.what = s.stacks.contains(info.si_addr) ? "a stack overflow of one thread" : "an illegal address";
  }
  return failure;
}

void chain(int signal_number, siginfo_t* info, void* context) {
  const struct sigaction& old = previous[signal_number];
  if ((old.sa_flags & SA_SIGINFO) != 0 && old.sa_sigaction != nullptr)
    return old.sa_sigaction(signal_number, info, context);
  if (old.sa_handler == SIG_IGN || signal_number == kTimeoutSignal) return;
  if (old.sa_handler != SIG_DFL && old.sa_handler != nullptr) return old.sa_handler(signal_number);
  signal(signal_number, SIG_DFL);  // the instruction faults again and ends the process as it would have
}

// Whether the thread has left the runner's own stack, so that main_sp is where the runner waits.
bool is_on_fiber_stack(const Cluster& cluster, const ucontext_t& context) {
  const auto* sp = reinterpret_cast<const void*>(context.uc_mcontext.gregs[REG_RSP]);
  for (uint32_t rank = 0; rank < cluster.size; ++rank)
    if (cluster.blocks[rank]->stacks.contains(sp)) return true;
  return false;
}

void on_signal(int signal_number, siginfo_t* info, void* context) {
  Fiber* me = running_fiber();
  if (me == nullptr) return chain(signal_number, info, context);
  BlockRunner::State& s = *me->owner;
  Cluster& cluster = *s.cluster;
  // Between the choice of a fiber and the switch to it there is nothing to abandon; the watchdog asks again.
  if (signal_number == kTimeoutSignal && !is_on_fiber_stack(cluster, *static_cast<ucontext_t*>(context))) return;
  cluster.failure = describe(signal_number, *info, s);
  cluster.failure.block = s.block;
  cluster.failure.thread = me->thread;
  running_thread = nullptr;
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  registers[REG_RSP] = reinterpret_cast<greg_t>(cluster.main_sp);
  registers[REG_RIP] = reinterpret_cast<greg_t>(&nodewright_cpu_resume);
}

}  // namespace

void install_fault_handlers() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = &on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (const int signal_number : kFaultSignals) sigaction(signal_number, &action, &previous[signal_number]);
    sigaction(kTimeoutSignal, &action, &previous[kTimeoutSignal]);
  });
}

void install_signal_stack() {
  void* memory = mmap(nullptr, kSignalStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = kSignalStackBytes;
  sigaltstack(&stack, nullptr);
}

void interrupt_block(pthread_t thread) { pthread_kill(thread, kTimeoutSignal); }

}  // namespace nodewright::cpu
