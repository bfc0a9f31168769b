// The parameters of a loaded kernel: from its code where that is a cubin, or from the driver. The driver can only be
// asked for one after the other until it refuses, which compute-sanitizer reports as an error of the program.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/driver.h"
#include "runtime/kernels/parameter_layout.h"

namespace nodewright {

// As `driver` knows them; needs a current context. Throws Error with `name` when the driver fails.
std::vector<KernelParameter> parameters_of(const Driver& driver, CUfunction function, std::string_view name);
std::vector<KernelParameter> parameters_of(const Driver& driver, CUkernel kernel, std::string_view name);

// The parameters of the kernel `name` in `cubin`. Throws Error when the cubin is not well-formed or has no such kernel.
std::vector<KernelParameter> parameters_in(std::span<const std::byte> cubin, std::string_view name);

}  // namespace nodewright
