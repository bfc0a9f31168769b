// The kernels of a graph that was built elsewhere, as plans name kernels: what is known of each, kept as long as the
// plans that refer to it.
#pragma once

#include <cuda.h>

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/node.h"

namespace nodewright {

class ReadKernels {
 public:
  struct Kernel {
    LoadedKernel loaded;            // with the whole demangled name
    std::string short_name;         // without namespaces, template arguments and parameters
    std::deque<std::string> names;  // of the parameters: "0", "1"
    std::vector<FieldInfo> fields;  // one a parameter: bytes without a type
  };

  // `held`: what the driver says of a node. Asks the driver once for each kernel.
  const Kernel& of(const Device& device, const CUDA_KERNEL_NODE_PARAMS& held);

 private:
  std::map<std::pair<CUfunction, CUkernel>, Kernel> kernels_;
};

}  // namespace nodewright
