#include "graph/read/read_kernels.h"

#include "graph/nodes/held_nodes.h"
#include "graph/read/kernel_names.h"

namespace nodewright {
namespace {

std::string name_of_kernel(const Driver& driver, const CUDA_KERNEL_NODE_PARAMS& held) {
  const char* symbol = nullptr;
  const CUresult result =
      held.func != nullptr ? driver.cuFuncGetName(&symbol, held.func) : driver.cuKernelGetName(&symbol, held.kern);
  driver.check(result, held.func != nullptr ? "cuFuncGetName" : "cuKernelGetName", "read graph", "a kernel");
  return demangled(symbol);
}

}  // namespace

const ReadKernels::Kernel& ReadKernels::of(const Device& device, const CUDA_KERNEL_NODE_PARAMS& held) {
  const auto [found, is_new] = kernels_.try_emplace({held.func, held.kern});
  Kernel& kernel = found->second;
  if (!is_new) return kernel;
  kernel.loaded.name = name_of_kernel(device.driver(), held);
  kernel.loaded.function = held.func;
  kernel.loaded.kernel = held.kern;
  kernel.loaded.device = &device;
  std::vector<KernelParameter>& parameters = kernel.loaded.parameters;
  parameters = held_parameters(device.driver(), held, kernel.loaded.name);
  if (!parameters.empty()) kernel.loaded.args_bytes = parameters.back().end();
  kernel.short_name = short_name(kernel.loaded.name);
  for (size_t i = 0; i < parameters.size(); ++i) {
    FieldInfo field{};
    field.name = kernel.names.emplace_back(std::to_string(i));
    field.offset = parameters[i].offset;
    field.bytes = parameters[i].bytes;
    kernel.fields.push_back(field);
  }
  return kernel;
}

}  // namespace nodewright
