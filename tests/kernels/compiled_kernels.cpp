#include "tests/kernels/compiled_kernels.h"

#include <algorithm>

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

uint64_t rounded_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

uint64_t blocks_of_sm(const Card& card, uint64_t registers, uint64_t threads, uint64_t shared_bytes) {
  const uint64_t warps = (threads + 31) / 32, of_warp = rounded_up(32 * registers, 256);
  const uint64_t by_registers = 16384 / of_warp * 4 / warps;
  const uint64_t by_shared = card.shared_bytes / rounded_up(shared_bytes + 1024, 128);
  return std::min({by_registers, by_shared, card.most_warps / warps, card.most_blocks});
}

std::map<std::string, CompiledKernel> compile_all(const ShippedKernels& kernels) {
  const auto nvrtc = Nvrtc::load();
  std::map<std::string, CompiledKernel> compiled;
  for (const auto& [key, kernel] : kernels) compiled.emplace(key, compile(*nvrtc, key, kernel));
  return compiled;
}

}  // namespace nodewright::test
