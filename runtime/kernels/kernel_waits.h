// What a kernel's program says of its waiting, which decides what edges into it and after it may be. Reads source
// text; that the compiled code keeps to it is the work of NODEWRIGHT_KERNEL (kernels_src/device/dialect.cuh).
#pragma once

#include "runtime/kernels/kernel_request.h"

namespace nodewright {

struct KernelWaits {
  // The kernel is one of NODEWRIGHT_KERNEL that calls wait_for_inputs(): it touches its inputs after that, which is
  // the author's promise, and none of its threads ends without having waited, which the macro sees to.
  bool for_inputs = false;
  // And it lets dependents start only after its wait or when it ends: the program has nothing but
  // release_behind_wait() to release them, and no include folders, whose headers are not read.
  bool releases_after = false;
};

// Errs on the side of false, which costs a full edge.
KernelWaits waits_of(const KernelProgram& program);

// A line for the end of the program's text that compiles only when NODEWRIGHT_KERNEL defines kernel `name`.
std::string demand_of_macro(const std::string& name);

}  // namespace nodewright
