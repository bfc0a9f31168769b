// The kernels of exchanges as NVRTC builds them for Ampere and Hopper, without a GPU: they compile, wait on every path,
// spill nothing, and read and write packets by one access of system scope each.
#include <gtest/gtest.h>

#include "kernels_src/adapters/adapted_exchange.h"
#include "kernels_src/exchange/all_reduce.h"
#include "kernels_src/exchange/embed_exchange.h"
#include "kernels_src/exchange/exchange_add.h"
#include "kernels_src/exchange/gather_logits.h"
#include "kernels_src/exchange/norm_heads_exchange.h"
#include "kernels_src/product/tiles/tile_shape.h"
#include "kernels_src/projection/project_exchange.h"
#include "kernels_src/projection/project_exchange_shape.h"
#include "runtime/compilers/cubin_reader.h"
#include "runtime/compilers/nvrtc.h"
#include "runtime/kernels/kernel_waits.h"

namespace nodewright {
namespace {

constexpr int64_t kSms = 132, kSharedBytes = 232448;  // of an H100, and of a block there
constexpr int64_t kAdapterRank = 64;  // whose rows of B take more registers at once than those of rank 16

struct BuiltKernel {
  CubinKernel cubin;
  std::string log;
  KernelWaits waits;
};

BuiltKernel build(const Nvrtc& nvrtc, const KernelRequest& request, int cc_major) {
  const KernelProgram program = program_of(request, {}, "cpu_driver/");
  NvrtcSource source{std::string(program.source.path), program.prelude + std::string(program.source.text), {}};
  for (const EmbeddedSource& header : program.headers)
    source.headers.push_back({std::string(header.path), std::string(header.text)});
  std::vector<std::string> options = nvrtc_options(cc_major, 0);
  for (const char* option : {"--ptxas-options=-v", "--no-cache"}) options.emplace_back(option);  // a cache has no log
  const NvrtcResult made = nvrtc.compile(source, options);
  return {read_cubin(made.cubin, request.name).at(0), made.log, waits_of(program)};
}

void expect_sound(const BuiltKernel& built, uint64_t args_bytes, const std::string& what) {
  EXPECT_TRUE(built.waits.for_inputs) << what;
  EXPECT_NE(built.log.find(" 0 bytes spill stores"), std::string::npos) << what << ": " << built.log;
  ASSERT_EQ(built.cubin.parameters.size(), 1u) << what;
  EXPECT_EQ(built.cubin.parameters[0].bytes, args_bytes) << what << ": both compilers lay the struct out alike";
}

TEST(ExchangeKernels, AnAllReduceOfEveryTeamCompiles) {
  const auto nvrtc = Nvrtc::load();
  for (const int cc_major : {8, 9})
    for (const int ranks : {2, 3, 4, 8})
      expect_sound(build(*nvrtc, {.name = "all_reduce", .constants = {{"kRanks", ranks}}}, cc_major), sizeof(AllReduce),
                   std::to_string(ranks) + " ranks, " + std::to_string(cc_major) + ".0");
}

// So many blocks of 256 threads run on an SM at once as the shapes of these kernels count on.
TEST(ExchangeKernels, ThoseOfTheirOwnNodesLeaveRoomForTheirBlocks) {
  const auto nvrtc = Nvrtc::load();
  const auto expect_blocks = [&](int blocks, const KernelRequest& request, uint64_t args_bytes, int64_t ranks) {
    const std::string what = request.name + " of " + std::to_string(ranks);
    const BuiltKernel built = build(*nvrtc, request, 9);
    expect_sound(built, args_bytes, what);
    EXPECT_LE(built.cubin.registers * 256 * blocks, 65536) << what << ": " << blocks << " blocks";
  };
  for (const int64_t ranks : {2, 4, 8}) {
    const Constant of{"kRanks", ranks};
    struct Form {
      int gained, bulk, chosen;
    };
    for (const auto& [gained, bulk, chosen] : {Form{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 0, 8}, {0, 1, 8}}) {
      KernelRequest request{.name = "exchange_add",
                            .constants = {of,
                                          {"kAdds", 1},
                                          {"kBias", chosen == 0 ? 1 : 0},
                                          {"kScale", 0x3e800000},
                                          {"kLeavesGained", gained},
                                          {"kBulk", bulk},
                                          {"kChosen", chosen}}};
      expect_blocks(ranks > 2 || chosen > 0 ? 2 : 4, request, sizeof(ExchangeAdd), ranks);
      if (chosen > 0) continue;
      request.name = "adapted_exchange_add";
      request.constants.push_back({"kAdapterRank", kAdapterRank});
      expect_blocks(2, request, sizeof(AdaptedExchangeAdd), ranks);
    }
    expect_blocks(4, {.name = "gather_logits", .constants = {of, {"kBest", 1}}}, sizeof(GatherLogits), ranks);
    expect_blocks(
        2, {.name = "embed_exchange", .constants = {of, {"kScaled", 1}, {"kPositions", 1}, {"kLeavesGained", 1}}},
        sizeof(EmbedExchange), ranks);
    expect_blocks(
        2,  // of OLMo 2 7B
        {.name = "norm_heads_exchange",
         .constants = {of, {"kHeads", 32 / ranks}, {"kKvHeads", 32 / ranks}, {"kHeadDim", 128}, {"kNorm", 0}}},
        sizeof(NormHeadsExchange), ranks);
  }
}

// All blocks run at once, by what they take of an SM's registers, which come in groups of 8 a thread. Of more than one
// block of rows another kernel is taken.
void expect_one_wave(const BuiltKernel& built, const LaunchShape& launch, const std::string& what) {
  if (launch.grid[1] > 1) return;
  const auto of_sm = static_cast<int64_t>((launch.blocks() + kSms - 1) / kSms);
  EXPECT_LE((built.cubin.registers + 7) / 8 * 8 * static_cast<int64_t>(launch.block[0]) * of_sm, 65536) << what;
}

// Rows of `cols` columns over all ranks, in products of 3072 outputs.
void expect_products_without_spills(std::initializer_list<int64_t> teams, std::initializer_list<int64_t> all_cols,
                                    std::initializer_list<int64_t> all_rows) {
  const auto nvrtc = Nvrtc::load();
  for (const int64_t ranks : teams)
    for (const int64_t cols_of_all : all_cols)
      for (const int64_t rows : all_rows) {
        const int64_t cols = cols_of_all / ranks;
        const MatvecShape shape = project_exchange_shape({rows, cols, cols, 3072, 1});
        KernelRequest request{.name = "project_exchange",
                              .constants = {{"kBias", 0}, {"kScale", 0}, {"kRanks", ranks}, {"kAdds", 1}}};
        for (const ShapeConstant& constant : shape.constants().of)
          request.constants.push_back({constant.name, constant.value});
        const std::string what =
            std::to_string(ranks) + " ranks, " + std::to_string(cols) + " columns, " + std::to_string(rows) + " rows";
        const LaunchShape launch = shape.launch_shape(kSms);
        const BuiltKernel plain = build(*nvrtc, request, 9);
        expect_sound(plain, sizeof(ProjectExchange), what);
        expect_one_wave(plain, launch, what);
        request.name = "adapted_project_exchange";
        request.constants.push_back({"kAdapterRank", kAdapterRank});
        const BuiltKernel adapted = build(*nvrtc, request, 9);
        expect_sound(adapted, sizeof(AdaptedProjectExchange), what + ", adapters");
        expect_one_wave(adapted, launch, what + ", adapters");
      }
}

// Out and down of Llama 3.2 3B.
TEST(ExchangeKernels, AProductOfATeamCompilesWithoutSpills) {
  expect_products_without_spills({2}, {3072, 8192}, {1, 8});
}

// The same of other rows and teams, and one row of Qwen3-14B, Qwen3-32B and Llama 3.3 70B on two devices.
TEST(ExchangeKernelsSweep, AProductOfATeamCompilesWithoutSpills) {
  expect_products_without_spills({2}, {3072, 8192}, {2, 4});
  expect_products_without_spills({4}, {3072, 8192, 5120}, {1, 2, 4, 8});
  expect_products_without_spills({2}, {5120}, {1, 2, 4, 8});
  expect_products_without_spills({2}, {17408, 25600, 28672}, {1});
}

// Out and down of Llama 3.2 3B and of Llama 3.1 8B, on an H100: streamed rows up to 16, and held ones of 32, of which
// blocks of a cluster share the columns where they are many.
TEST(ExchangeKernelsSweep, AProductInTilesOfATeamCompilesWithoutSpills) {
  struct Product {
    int64_t hidden, cols;
  };
  const auto nvrtc = Nvrtc::load();
  for (const int64_t ranks : {2, 4})
    for (const auto& [hidden, cols] : {Product{3072, 3072}, {3072, 8192}, {4096, 4096}, {4096, 14336}})
      for (const int64_t rows : {8, 16, 32})
        for (const bool gained : {true, false}) {
          TileShape shape{rows, cols / ranks, cols / ranks, hidden};
          shape.held = rows > 16;
          if (!gained && rows > 8) continue;  // a norm that follows leaves more registers, and rows are not held for it
          shape.keeps_sums = true;
          shape = shape.fitting(kSms, kSharedBytes);
          const int64_t ring = shape.ring(kSms, kSharedBytes);
          const std::string what = std::to_string(ranks) + " ranks, " + std::to_string(cols / ranks) + " columns, " +
                                   std::to_string(rows) + " rows" + (gained ? ", gained" : "");
          ASSERT_TRUE(ring > 0 && (!shape.held || shape.holds())) << what;
          ASSERT_LE(shape.launch_shape(kSms, ring).blocks(), kSms) << what;
          KernelRequest request{
              "tile_project_exchange",
              constants_of(
                  shape.constants(ring),
                  {{"kBias", 0}, {"kScale", 0}, {"kRanks", ranks}, {"kAdds", gained}, {"kLeavesGained", gained}})};
          expect_sound(build(*nvrtc, request, 9), sizeof(ProjectExchange), what);
          request.name = "tile_adapted_project_exchange";
          request.constants.push_back({"kAdapterRank", kAdapterRank});
          expect_sound(build(*nvrtc, request, 9), sizeof(AdaptedProjectExchange), what + ", adapters");
        }
}

}  // namespace
}  // namespace nodewright
