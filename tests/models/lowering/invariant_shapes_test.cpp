// With invariant numerics the order of a product's sums follows from the matrix alone: not from the rows of the step,
// nor from adapters that other rows have.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "models/lowering/lowering.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

ModelConfig config_of(const std::filesystem::path& file) {
  ScratchFolder folder;
  folder.write("config.json", read_text(file));
  return read_model_config(folder.path());
}

// The products of a step's layers and head, each with the constants that order its sums.
std::vector<std::string> orders(const ModelConfig& config, int64_t rows, const DeviceProperties& device,
                                AdapterLimits adapters, bool beside_adapters) {
  const NetworkForm form = network_form(network_of(config));
  StepShape shape = step_shape(form, rows, rows, std::nullopt, Numerics::invariant);
  shape.adapters = adapters;
  shape.beside_adapters = beside_adapters;
  const auto clusters = [&](int64_t blocks) { return device.sm_count / blocks; };
  const auto lowered = lower(network_of(config), {config, shape, device, clusters});
  std::vector<std::string> found;
  const auto add = [&](const LoweredRun& run) {
    for (const KernelChoice& kernel : run.kernels) {
      const std::string& name = kernel.request.name;
      if (name.find("project") == name.npos && name.find("gate_up") == name.npos) continue;
      std::string order = name.starts_with("tile_") ? "tiles" : "rows";
      for (const Constant& constant : kernel.request.constants)
        for (const char* ordering : {"kCols", "kSplits", "kThreads", "kSpans", "kPieceSpans", "kTileRows"})
          if ((order.starts_with("tiles") || std::string_view(ordering) == "kThreads") && constant.name == ordering)
            order += " " + constant.name + "=" + std::to_string(std::get<int64_t>(constant.value.held));
      found.push_back(order);
    }
  };
  for (const auto& kind : lowered.kinds) std::ranges::for_each(kind, add);
  std::ranges::for_each(lowered.last, add);
  return found;
}

void expect_one_order(const ModelConfig& config) {
  for (const auto& [sms, shared_kib] : {std::pair{132, 227u}, std::pair{170, 99u}}) {
    DeviceProperties device;
    device.cc_major = sms == 132 ? 9 : 12, device.sm_count = sms, device.shared_optin_bytes = shared_kib << 10;
    const std::vector<std::string> alone = orders(config, 1, device, {}, false);
    EXPECT_FALSE(alone.empty());
    for (const int64_t rows : {2, 8, 16, 32, 33, 64, 256}) EXPECT_EQ(orders(config, rows, device, {}, false), alone);
    const AdapterLimits adapters{.slots = 2, .rank = 16};
    const std::vector<std::string> beside = orders(config, 1, device, {}, true);
    for (const int64_t rows : {1, 8, 64}) EXPECT_EQ(orders(config, rows, device, adapters, true), beside);
  }
}
ModelConfig released(const std::string& name) {
  return config_of(test::source_dir() / "tests/golden/configs" / (name + ".json"));
}

class InvariantShapesOf : public testing::TestWithParam<const char*> {};

TEST_P(InvariantShapesOf, OrderSumsAlikeForAnyRowsAndBesideAdapters) { expect_one_order(released(GetParam())); }
// Shared memory of 99 KiB holds one tile of down, and not the two that groups of rows need.
TEST(InvariantShapes, OrderSumsAlikeWhereRingsAreShort) {
  ModelConfig config = released("llama-3.2-1b");
  config.hidden = 576, config.intermediate = 1536, config.heads = 9, config.kv_heads = 3;
  expect_one_order(config);
}
// Several rows of x leave a thread fewer registers than one, beside the scales of small groups.
TEST(InvariantShapes, OrderSumsAlikeBesideSmallGroups) {
  for (const char* name : {"gemma-2-2b", "gemma-3-4b", "gemma-3-12b"})
    for (const WeightCode code : {WeightCode::int4, WeightCode::q4, WeightCode::q4_offset}) {
      ModelConfig config = released(name);
      const WeightLayout layout{code, false, 1, 32};
      config.layouts = {{layout, layout, layout, layout}};
      expect_one_order(config);
    }
}
INSTANTIATE_TEST_SUITE_P(Released, InvariantShapesOf,
                         testing::Values("llama-3.2-1b", "llama-3.2-3b", "qwen3-4b", "llama-3.1-8b", "qwen3-0.6b",
                                         "smollm2-1.7b", "granite-3.1-2b", "qwen2.5-1.5b", "gemma-3-1b"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace_if(
                               name, [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace nodewright
