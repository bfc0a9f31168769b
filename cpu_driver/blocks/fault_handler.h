// Turns a signal inside a kernel (bad address, division by zero, time-out) into an abandoned block. Faults elsewhere
// go to the handler before.
#pragma once

#include <pthread.h>

namespace nodewright::cpu {

// Once per process: the handlers. Chains to those that stood before.
void install_fault_handlers();

// Once per thread that runs blocks: a signal stack, because a fiber's own may be what overflowed.
void install_signal_stack();

// Makes `thread` abandon the block that it runs, if it runs one, with BlockFault::timeout.
void interrupt_block(pthread_t thread);

}  // namespace nodewright::cpu
