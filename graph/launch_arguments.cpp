#include "graph/launch_arguments.h"

#include <fmt/format.h>

namespace nodewright {

std::string parameter_problem(const LoadedKernel& kernel, std::span<const FieldInfo> arguments) {
  const std::span<const KernelParameter> parameters = kernel.parameters;
  if (parameters.size() != arguments.size())
    return fmt::format("kernel '{}' takes {} parameters, and the launch has {} arguments", kernel.name,
                       parameters.size(), arguments.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const FieldInfo& argument = arguments[i];
    if (argument.offset == parameters[i].offset && argument.bytes == parameters[i].bytes) continue;
    return fmt::format("argument {}{} has {} bytes at offset {}, and parameter {} of kernel '{}' has {} at {}", i,
                       argument.name == std::to_string(i) ? "" : fmt::format(" ('{}')", argument.name), argument.bytes,
                       argument.offset, i, kernel.name, parameters[i].bytes, parameters[i].offset);
  }
  return "";
}

}  // namespace nodewright
