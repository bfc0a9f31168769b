// Which products of a parallel block, past rows that one norm leaves for all of them, are held tiles.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "models/lowering/lowering.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

// Whether gate and up of Command R7B at 32 rows, with `hidden` columns, are the step's own tiles on an H200.
bool has_tiles_of_gate_up(int64_t hidden) {
  ScratchFolder folder;
  folder.write("config.json", read_text(test::source_dir() / "tests/golden/configs/command-r7b.json"));
  ModelConfig config = read_model_config(folder.path());
  config.hidden = hidden;
  const StepShape shape = step_shape(network_form(network_of(config)), 32, 32, std::nullopt, Numerics::fast);
  DeviceProperties device;
  device.cc_major = 9, device.sm_count = 132, device.shared_optin_bytes = 227 << 10;
  const auto clusters = [](int64_t blocks) { return 120 / blocks; };
  const auto lowered = lower(network_of(config), {config, shape, device, clusters});
  return std::ranges::any_of(lowered.kinds[0], [](const LoweredRun& run) {
    return std::ranges::any_of(run.kernels,
                               [](const KernelChoice& k) { return k.request.name == "tile_project_gate_up"; });
  });
}

// The library's product runs beside attention (docs/products.md).
TEST(SharedNorm, GateAndUpAreTheLibrarysWhereSumsWouldMeetTileByTile) {
  EXPECT_TRUE(has_tiles_of_gate_up(2048));
  EXPECT_FALSE(has_tiles_of_gate_up(4096));
}

}  // namespace
}  // namespace nodewright
