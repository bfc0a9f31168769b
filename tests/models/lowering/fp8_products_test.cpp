// Which kernels multiply weights in FP8 on a device of Hopper's sizes, for any number of rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "models/lowering/lowering.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

// How often a layer has each kernel: "tile_project_add, held", "dequantize", "norm_project".
std::map<std::string, int> kernels_of_layer(const std::string& model, int64_t rows, bool in_blocks) {
  ScratchFolder folder;
  folder.write("config.json", read_text(test::source_dir() / ("tests/golden/configs/" + model + ".json")));
  ModelConfig config = read_model_config(folder.path());
  const WeightLayout layout{WeightCode::fp8, in_blocks, 1}, of_gates{WeightCode::fp8, in_blocks, 2};
  config.layouts = {layout, layout, of_gates, layout};
  const StepShape shape = step_shape(network_form(network_of(config)), rows, rows, std::nullopt, Numerics::fast);
  DeviceProperties device;
  device.cc_major = 9, device.sm_count = 132, device.shared_optin_bytes = 227 << 10;
  const auto clusters = [](int64_t blocks) { return 120 / blocks; };
  std::map<std::string, int> found;
  const LoweredStep lowered = lower(network_of(config), {config, shape, device, clusters});
  for (const LoweredRun& run : lowered.kinds[0])
    for (const KernelChoice& kernel : run.kernels) {
      const auto& constants = kernel.request.constants;
      if (std::ranges::find(constants, "kFormat", &Constant::name) == constants.end()) continue;
      const auto held = std::ranges::find(constants, "kHeld", &Constant::name);
      const bool holds = held != constants.end() && std::get<int64_t>(held->value.held) != 0;
      ++found[kernel.request.name + (holds ? ", held" : "")];
    }
  return found;
}

using Kernels = std::map<std::string, int>;

TEST(Fp8Products, AreByRowsUpToTwoRowsAndInTilesUpTo64) {
  const Kernels by_rows = {{"norm_project", 1}, {"norm_gate_up", 1}, {"project_add", 2}},
                held = {{"tile_norm_project, held", 1}, {"tile_norm_gate_up, held", 1}, {"tile_project_add, held", 2}};
  for (const std::string model : {"llama-3.2-1b", "llama-3.2-3b", "qwen3-4b", "llama-3.1-8b"})
    for (const bool in_blocks : {false, true}) {
      for (const int64_t rows : {1, 2}) EXPECT_EQ(kernels_of_layer(model, rows, in_blocks), by_rows) << model;
      for (const int64_t rows : {3, 4, 8, 9, 16, 17, 32, 33, 64})
        EXPECT_EQ(kernels_of_layer(model, rows, in_blocks), held) << model << ", " << rows << " rows";
    }
}

TEST(Fp8Products, OfMoreRowsAreALibrarysOfDequantizedWeights) {
  EXPECT_EQ(kernels_of_layer("llama-3.2-3b", 65, true), (Kernels{{"dequantize", 4}}));
}

// Norms behind blocks: a kernel norms rows for held tiles, of matrices of any size.
TEST(Fp8Products, OfNetworksWhoseRowsAKernelNormsAreHeldToo) {
  for (const int64_t rows : {17, 64}) {
    const Kernels kernels = kernels_of_layer("gemma-3-12b", rows, false);
    EXPECT_EQ(kernels.count("dequantize"), 0u) << rows << " rows";
    EXPECT_EQ(kernels.size(), 2u) << rows << " rows";
  }
}

}  // namespace
}  // namespace nodewright
