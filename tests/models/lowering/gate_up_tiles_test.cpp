// When gate and up are tiles on an H200, and when these hold their rows in registers.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "models/lowering/lowering.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

// The value of `kHeld` of a step's tiles of gate and up, of `model` with `hidden` columns; nothing without tiles.
std::optional<int64_t> held(const std::string& model, int64_t hidden, int64_t rows) {
  ScratchFolder folder;
  folder.write("config.json", read_text(test::source_dir() / ("tests/golden/configs/" + model + ".json")));
  ModelConfig config = read_model_config(folder.path());
  config.hidden = hidden;
  const StepShape shape = step_shape(network_form(network_of(config)), rows, rows, std::nullopt, Numerics::fast);
  DeviceProperties device;
  device.cc_major = 9, device.sm_count = 132, device.shared_optin_bytes = 227 << 10;
  const auto clusters = [](int64_t blocks) { return 120 / blocks; };
  const auto lowered = lower(network_of(config), {config, shape, device, clusters});
  for (const LoweredRun& run : lowered.kinds[0])
    for (const KernelChoice& kernel : run.kernels)
      if (kernel.request.name.starts_with("tile_") && kernel.request.name.ends_with("gate_up"))
        return std::get<int64_t>(std::ranges::find(kernel.request.constants, "kHeld", &Constant::name)->value.held);
  return std::nullopt;
}

// The library's product runs beside attention (docs/products.md).
TEST(GateUpTiles, OfAParallelBlockAreTheLibrarysWhereSumsWouldMeetTileByTile) {
  EXPECT_TRUE(held("command-r7b", 2048, 32));
  EXPECT_FALSE(held("command-r7b", 4096, 32));
}

TEST(GateUpTiles, HoldFewRowsInOneBlockAlone) {
  for (const int64_t rows : {5, 8, 16}) {
    EXPECT_EQ(held("llama-3.1-8b", 2048, rows), 1) << rows << " rows";
    EXPECT_EQ(held("llama-3.1-8b", 4096, rows), 0) << rows << " rows";
  }
  EXPECT_NE(held("llama-3.1-8b", 4096, 32), 0);
}

}  // namespace
}  // namespace nodewright
