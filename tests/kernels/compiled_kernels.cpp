#include "tests/kernels/compiled_kernels.h"

#include "runtime/error.h"

namespace nodewright::test {
namespace {

// ptxas -v says of each function "40 bytes stack frame, 36 bytes spill stores, 36 bytes spill loads".
uint64_t spill_stores(const std::string& log, const std::string& name) {
  constexpr std::string_view kStores = " bytes spill stores";
  uint64_t bytes = 0, functions = 0;
  for (size_t at = log.find(kStores); at != std::string::npos; at = log.find(kStores, at + 1), ++functions)
    bytes += std::stoull(log.substr(log.rfind(' ', at - 1) + 1));
  if (functions == 0)
    throw Error({.doing = "read what ptxas says of", .object = name, .detail = "no word of spills: " + log});
  return bytes;
}

CompiledKernel compile(const Nvrtc& nvrtc, const std::string& key, const ShippedKernel& kernel) {
  std::vector<std::string> options = nvrtc_options(kernel.card.cc_major, kernel.card.cc_minor);
  for (const char* option : {"--ptxas-options=-v", "--no-cache"}) options.emplace_back(option);  // a cache has no log
  const NvrtcResult made = nvrtc.compile(nvrtc_source(kernel.request, kernel.sources), options);
  const std::vector<CubinKernel> read = read_cubin(made.cubin, key);
  if (read.size() != 1)
    throw Error({.doing = "compile", .object = key, .detail = std::to_string(read.size()) + " kernels in one file"});
  return {read[0], spill_stores(made.log, key)};
}

}  // namespace

std::map<std::string, CompiledKernel> compile_all(const ShippedKernels& kernels) {
  const auto nvrtc = Nvrtc::load();
  std::map<std::string, CompiledKernel> compiled;
  for (const auto& [key, kernel] : kernels) compiled.emplace(key, compile(*nvrtc, key, kernel));
  return compiled;
}

}  // namespace nodewright::test
