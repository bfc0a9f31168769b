// Reads what a cubin (a 64-bit ELF) says about its kernels: resources, parameters, and how often the code waits for its
// programmatic predecessors. Trusts nothing in the file: every offset and count is checked. Plans do not rest on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nodewright {

struct CubinParameter {
  unsigned ordinal;
  unsigned offset;  // bytes from the start of the parameter block
  unsigned bytes;
};

struct CubinKernel {
  std::string name;
  int registers = 0;                       // per thread
  uint64_t stack_bytes = 0;                // per thread: local arrays and spilled registers
  uint64_t shared_bytes = 0;               // static, per block
  int max_threads = 0;                     // from __launch_bounds__; 0 when not given
  uint64_t code_bytes = 0;                 // of machine code, padding included
  int waits = 0;                           // griddepcontrol.wait (SASS ACQBULK) in the code, on whatever paths
  std::vector<CubinParameter> parameters;  // by ordinal
};

// The kernels of `image`, in the file's order. Throws Error with `name` and what was wrong when it is not a well-formed
// cubin.
std::vector<CubinKernel> read_cubin(std::span<const std::byte> image, std::string_view name);

}  // namespace nodewright
