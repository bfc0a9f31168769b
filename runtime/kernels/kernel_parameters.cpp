#include "runtime/kernels/kernel_parameters.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "runtime/compilers/cubin_reader.h"
#include "runtime/error.h"

namespace nodewright {

namespace {

// `ask`: cuFuncGetParamInfo or cuKernelGetParamInfo, of one kernel; `count`: cuFuncGetParamCount or
// cuKernelGetParamCount, where the driver has them. Others answer for what is beyond the last parameter by an error.
template <class Count, class Ask>
std::vector<KernelParameter> ask_for_parameters(const Driver& driver, std::string_view call, std::string_view name,
                                                const Count& count, const Ask& ask) {
  std::vector<KernelParameter> parameters;
  size_t most = SIZE_MAX;
  if (driver.cuFuncGetParamCount && driver.cuKernelGetParamCount)
    driver.check(count(&most), "cuFuncGetParamCount", "read the parameters of kernel", name);
  for (;;) {
    const size_t index = parameters.size();
    if (index == most) return parameters;
    size_t offset = 0, bytes = 0;
    const CUresult result = ask(index, &offset, &bytes);
    if (result == CUDA_ERROR_INVALID_VALUE) return parameters;  // beyond the last
    driver.check(result, call, "read the parameters of kernel", name, "parameter " + std::to_string(index));
    parameters.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(bytes)});
  }
}

}  // namespace

std::vector<KernelParameter> parameters_of(const Driver& driver, CUfunction function, std::string_view name) {
  return ask_for_parameters(
      driver, "cuFuncGetParamInfo", name, [&](size_t* count) { return driver.cuFuncGetParamCount(function, count); },
      [&](size_t index, size_t* offset, size_t* bytes) {
        return driver.cuFuncGetParamInfo(function, index, offset, bytes);
      });
}

std::vector<KernelParameter> parameters_of(const Driver& driver, CUkernel kernel, std::string_view name) {
  return ask_for_parameters(
      driver, "cuKernelGetParamInfo", name, [&](size_t* count) { return driver.cuKernelGetParamCount(kernel, count); },
      [&](size_t index, size_t* offset, size_t* bytes) {
        return driver.cuKernelGetParamInfo(kernel, index, offset, bytes);
      });
}

std::vector<KernelParameter> parameters_in(std::span<const std::byte> cubin, std::string_view name) {
  const std::vector<CubinKernel> kernels = read_cubin(cubin, name);
  const auto kernel =
      std::find_if(kernels.begin(), kernels.end(), [&](const CubinKernel& k) { return k.name == name; });
  if (kernel == kernels.end())
    throw Error({.doing = "read the parameters of kernel",
                 .object = std::string(name),
                 .detail = "the code has no such kernel"});
  std::vector<KernelParameter> parameters;
  for (const CubinParameter& p : kernel->parameters) parameters.push_back({p.offset, p.bytes});
  return parameters;
}

}  // namespace nodewright
