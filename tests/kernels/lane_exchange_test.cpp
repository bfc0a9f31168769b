// The exchange of a lane: blocks that fill an SM by their registers and spill none, so that few of them are enough.
#include <gtest/gtest.h>

#include "kernels_src/exchange/exchange_add.h"
#include "tests/kernels/compiled_kernels.h"

namespace nodewright::test {
namespace {

KernelRequest lane_exchange(unsigned ranks, int64_t chosen) {
  return {"exchange_add",
          {{"kRanks", int64_t{ranks}},
           {"kAdds", int64_t{1}},
           {"kBias", int64_t{0}},
           {"kScale", int64_t{0}},
           {"kLeavesGained", int64_t{0}},
           {"kBulk", int64_t{lane_exchange_multiple(ranks, chosen > 0)}},
           {"kChosen", chosen}}};
}

TEST(LaneExchange, HasBlocksOfAnSmThatSpillNothing) {
  constexpr unsigned kSms = kH100.sm_count;
  constexpr uint64_t kRegistersOfSm = 65536, kValues = uint64_t{4096} * 3072;
  ShippedKernels kernels;
  std::map<std::string, LaunchShape> shapes;
  for (const unsigned ranks : {2u, 4u})
    for (const int64_t chosen : {0, 8}) {
      const KernelRequest request = lane_exchange(ranks, chosen);
      const std::string key = kernel_key(kH100, request);
      shapes[key] = exchange_bulk_shape(kValues, ranks, kSms, chosen > 0, true);
      kernels[key] = {kH100, request, {shapes[key]}};
    }
  for (const auto& [key, compiled] : compile_all(kernels)) {
    const LaunchShape& shape = shapes.at(key);
    EXPECT_EQ(compiled.spill_bytes, 0u) << key;
    EXPECT_EQ(static_cast<uint64_t>(compiled.cubin.max_threads), shape.threads()) << key;
    const uint64_t registers = static_cast<uint64_t>(compiled.cubin.registers) * shape.threads();
    EXPECT_LE(registers, kRegistersOfSm) << key;
    EXPECT_GT(registers, kRegistersOfSm / 2) << key << ": two blocks would fit an SM";
    EXPECT_LE(shape.grid[0], kSms / kLaneShareOfSms) << key;
  }
}

}  // namespace
}  // namespace nodewright::test
