// The kernels that ship, lowered for a card of every architecture and compiled for it, without a GPU: that they fit the
// card, and that ptxas takes them. What it spills is printed.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "models/lowering/device_forms.h"
#include "tests/examples/nanogpt/kernels/nanogpt_kernels.h"
#include "tests/kernels/compiled_kernels.h"
#include "tests/kernels/shipped_steps.h"

namespace nodewright::test::architectures_test {
namespace {

// What keeps a card from launching so, or nothing. `static_bytes`: of shared memory.
std::string launch_problem(const Card& card, const LaunchShape& launch, uint64_t static_bytes) {
  const uint64_t shared = launch.shared_bytes + static_bytes;
  if (shared > card.shared_optin_bytes)
    return std::to_string(shared) + " bytes of shared memory, a block has " + std::to_string(card.shared_optin_bytes);
  if (launch.cluster_blocks() > card.properties().cluster_blocks())
    return "a cluster of " + std::to_string(launch.cluster_blocks()) + " blocks";
  if (launch.threads() > 1024) return std::to_string(launch.threads()) + " threads";
  return "";
}

// A rank's block may wait for any block of another rank: all run at once (kernels_src/device/packets.cuh).
bool runs_at_once(const ShippedKernel& kernel) {
  const std::string& name = kernel.request.name;
  return name.find("exchange") != std::string::npos || name == "gather_logits";
}

std::string launch_problem(const ShippedKernel& kernel, const CubinKernel& cubin, const LaunchShape& launch) {
  const Card& card = kernel.card;
  if (std::string why = launch_problem(card, launch, cubin.shared_bytes); !why.empty()) return why;
  if (launch.threads() > static_cast<uint64_t>(cubin.max_threads))
    return std::to_string(launch.threads()) + " threads, compiled for " + std::to_string(cubin.max_threads);
  const uint64_t of_sm = blocks_of_sm(card, static_cast<uint64_t>(cubin.registers), launch.threads(),
                                      cubin.shared_bytes + launch.shared_bytes);
  if (of_sm == 0)
    return std::to_string(cubin.registers) + " registers of " + std::to_string(launch.threads()) + " threads";
  if (runs_at_once(kernel) && launch.blocks() > of_sm * static_cast<uint64_t>(card.sm_count))
    return std::to_string(launch.blocks()) + " blocks, of which " + std::to_string(of_sm) + " an SM run at once";
  return "";
}

// NVRTC 13.0 spills 584 in a tile_project of 32 rows and 4096 columns, for 10.0, and 328 at most elsewhere.
constexpr uint64_t kMostSpillBytes = 600;

// Compiles and checks them; prints spills.
void compile_and_check(const ShippedKernels& kernels) {
  for (const auto& [key, compiled] : compile_all(kernels)) {
    SCOPED_TRACE(key);
    const ShippedKernel& kernel = kernels.at(key);
    EXPECT_LE(compiled.spill_bytes, kMostSpillBytes);
    if (compiled.spill_bytes > 0) std::cout << key << " spills " << compiled.spill_bytes << " bytes\n";
    EXPECT_EQ(compiled.cubin.waits, kernel.card.properties().has_programmatic_launch() ? 1 : 0);
    for (const LaunchShape& launch : kernel.launches) EXPECT_EQ(launch_problem(kernel, compiled.cubin, launch), "");
  }
}

// All that steps take on the card: those of budgets.json, with adapters, of ranks and of NanoGPT.
ShippedKernels kernels_on(const Card& card) {
  ShippedKernels kernels = kernels_of(steps_on(card));
  kernels.merge(kernels_with_adapters(card));
  kernels.merge(kernels_of_ranks(card));
  kernels.merge(nanogpt_kernels_on(card));
  return kernels;
}

void add_released_models(ShippedKernels& kernels, const Card& card, std::span<const int64_t> of_rows) {
  for (const NamedModel& model : released_models()) {
    for (const int64_t rows : of_rows) add_step(kernels, card, model.config, shipped_step(card, model.config, rows));
    add_step(kernels, card, model.config, prompt_step(model.config));
  }
}

// The folder of its source, below kernels_src.
std::string family_of(const ShippedKernel& kernel) {
  const std::filesystem::path source = program_of(kernel.request, kernel.sources, "cpu_driver/").source.path;
  return source.parent_path().string();
}

// `make check-architectures`.
class EveryArchitecture : public ::testing::TestWithParam<Card> {};
INSTANTIATE_TEST_SUITE_P(Of, EveryArchitecture, ::testing::ValuesIn(kCardOfEachTarget),
                         [](const auto& card) { return card.param.target(); });

TEST_P(EveryArchitecture, CompilesWhatShips) {
  ShippedKernels kernels = kernels_on(GetParam());
  add_released_models(kernels, GetParam(), kRecordedRows);
  compile_and_check(kernels);
  std::cout << kernels.size() << " kernels for " << GetParam().target() << '\n';
}

// The first kernel of each family for an architecture without clusters, the last for one with them, in turns.
TEST(Architectures, CompileTwoKernelsOfEachFamily) {
  constexpr size_t kTurns = kCardOfEachTarget.size() / 2;
  std::array<std::map<std::string, ShippedKernels>, kCardOfEachTarget.size()> families;
  for (size_t i = 0; i < kCardOfEachTarget.size(); ++i)
    for (const auto& [key, kernel] : kernels_on(kCardOfEachTarget[i]))
      families[i][family_of(kernel)].emplace(key, kernel);
  ShippedKernels chosen;
  size_t turn = 0;
  for (const auto& [family, unused] : families[0]) {
    chosen.insert(*families[turn % kTurns].at(family).begin());
    chosen.insert(*families[kTurns + turn % kTurns].at(family).rbegin());
    ++turn;
  }
  EXPECT_EQ(chosen.size(), 2 * families[0].size());
  EXPECT_GT(turn, 10u);
  compile_and_check(chosen);
}

// Every released model has kernels on every card for every kind of step, and their launches fit it.
TEST(Architectures, FitTheLaunchesOfReleasedModels) {
  constexpr std::array<int64_t, 10> kRows = {1, 2, 3, 4, 8, 16, 17, 32, 64, 256};
  for (const Card& card : kCards) {
    ShippedKernels kernels = kernels_on(card);
    add_released_models(kernels, card, kRows);
    EXPECT_GT(kernels.size(), 800u) << card.name;
    for (const auto& [key, kernel] : kernels)
      for (const LaunchShape& launch : kernel.launches)
        EXPECT_EQ(launch_problem(card, launch, 0), "") << card.name << ", " << key;
  }
}

// `nodewright doctor` names them.
TEST(Architectures, AreThoseThatDoctorNames) {
  std::vector<int> capabilities;
  for (const Card& card : kCardOfEachTarget) capabilities.push_back(10 * card.cc_major + card.cc_minor);
  EXPECT_EQ(capabilities, std::vector<int>(kCompiledFor.begin(), kCompiledFor.end()));
}

// What an H100 gets does not fit the smaller blocks and clusters of other cards.
TEST(Architectures, SeeALaunchThatDoesNotFit) {
  ShippedKernels kernels;
  add_step(kernels, kH100, llama_3b(), shipped_step(kH100, llama_3b(), 1));
  std::set<std::string> problems;
  for (const auto& [key, kernel] : kernels)
    for (const Card& card : {kA100, kRtx5090})
      for (const LaunchShape& launch : kernel.launches)
        if (std::string why = launch_problem(card, launch, 0); !why.empty())
          problems.insert(std::string(card.name) + ", " + kernel.request.name + ": " + why);
  EXPECT_EQ(problems, (std::set<std::string>{
                          "A100, rope_flash_decode: a cluster of 8 blocks",
                          "A100, sample: a cluster of 16 blocks",
                          "RTX 5090, rope_flash_decode: 138712 bytes of shared memory, a block has 101376",
                          "RTX 5090, sample: a cluster of 16 blocks",
                      }));
}

}  // namespace
}  // namespace nodewright::test::architectures_test
