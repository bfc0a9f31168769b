// What the kernels that ship take of an SM, for Ampere and Hopper, without a GPU: rules that hold for all of them, and
// growth beyond budgets.json. After a change that is worth its registers or its code:
//   NODEWRIGHT_WRITE_BUDGETS=1 build/tests/kernel_tests --gtest_filter='KernelBudgetsSweep.*'
// Nothing is compiled for Hopper where the file holds the digest of the very sources, requests and launches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>

#include "tests/examples/nanogpt/kernels/nanogpt_kernels.h"
#include "tests/kernels/compiled_kernels.h"
#include "tests/kernels/recorded_budgets.h"
#include "tests/kernels/shipped_steps.h"

namespace nodewright::test::budgets_test {
namespace {

// cosf and sinf reduce angles above 105615 radians in local memory (CUDA programming guide, mathematical functions).
constexpr uint64_t kRopeStackBytes = 32;

// Bytes that a thread of a few kernels spills with NVRTC 13.0, at most. No other kernel may, whatever the file says.
uint64_t known_spill_bytes(const ShippedKernel& kernel) {
  const auto has = [&](const char* name, int64_t value) {
    return std::ranges::find(kernel.request.constants, Constant{name, value}) != kernel.request.constants.end();
  };
  const std::string& name = kernel.request.name;
  // Llama-3.2-1B's of two rows: an H200 takes less time so (models/tuning).
  if (name == "project_add" && has("kTile", 2) && has("kCols", 8192) && has("kBatch", 4)) return 8;
  if (name == "attend_tiles" && has("kPaddedHeadDim", 256) && kernel.card.cc_major >= 9) return 24;  // of a prompt
  if (name == "tile_norm_gate_up" && has("kFormat", 1) && has("kTokenTiles", 4) && has("kSpans", 6)) return 8;
  // Invariant rows: a part of a head of 256 beside the section that it is folded into.
  if (name == "flash_decode" && has("kHeadDim", 256) && has("kParts", 32)) return 592;
  if (kernel.card.cc_major >= 9) return 0;
  if (name == "project_add" && has("kBias", 1) && has("kSingleRow", 1)) return 176;  // GPT-2, one row
  return name == "attend_tiles" ? 40 : 0;  // of a prompt, heads of 128 and 256
}

// What the kernels are built for. Two, so that the next kernel's first weights are requested while this one ends: those
// that read weights row by row (MatvecShape::kBlocksPerSm), and the small ones around. One: tiles have an SM to
// themselves (TileShape::launch_shape), attention fills its shared memory with keys (FlashDecodeShape), and a block
// that walks a row of logits, or all rows of a step, has nothing to request early.
uint64_t least_blocks_of_sm(const ShippedKernel& kernel) {
  static const std::set<std::string> kAlone = {"flash_decode", "rope_flash_decode", "attend_tiles",   "sample",
                                               "shape_logits", "record_choice",     "group_by_expert"};
  const std::string& name = kernel.request.name;
  if (kAlone.contains(name) || name.starts_with("tile_")) return 1;
  return 2;
}

KernelBudget budget_of(const ShippedKernel& kernel, const CompiledKernel& compiled) {
  const CubinKernel& cubin = compiled.cubin;
  KernelBudget budget{.registers = static_cast<uint64_t>(cubin.registers),
                      .spill_bytes = compiled.spill_bytes,
                      .stack_bytes = cubin.stack_bytes,
                      .threads = static_cast<uint64_t>(cubin.max_threads),
                      .shared_bytes = cubin.shared_bytes,
                      .blocks_of_sm = 0,
                      .code_bytes = cubin.code_bytes};
  for (const LaunchShape& launch : kernel.launches)
    budget.shared_bytes = std::max(budget.shared_bytes, cubin.shared_bytes + launch.shared_bytes);
  budget.blocks_of_sm = blocks_of_sm(kernel.card, budget.registers, budget.threads, budget.shared_bytes);
  return budget;
}

void check_rules(const ShippedKernel& kernel, const CompiledKernel& compiled, const KernelBudget& budget) {
  const CubinKernel& cubin = compiled.cubin;
  ASSERT_GT(cubin.max_threads, 0);
  const uint64_t spilled = known_spill_bytes(kernel);
  EXPECT_LE(budget.spill_bytes, spilled);
  EXPECT_LE(budget.stack_bytes, cubin.name.starts_with("rope_") ? kRopeStackBytes : spilled);
  EXPECT_GE(budget.blocks_of_sm, least_blocks_of_sm(kernel))
      << budget.registers << " registers, " << budget.threads << " threads, " << budget.shared_bytes << " bytes shared";
  EXPECT_LE(cubin.shared_bytes, 48u * 1024);
  for (const LaunchShape& launch : kernel.launches) {
    EXPECT_LE(launch.threads(), budget.threads);
    EXPECT_LE(cubin.shared_bytes + launch.shared_bytes, kernel.card.shared_optin_bytes);
  }
  EXPECT_EQ(cubin.waits, kernel.card.cc_major >= 9 ? 1 : 0) << "the wait at the end of NODEWRIGHT_KERNEL costs nothing";
  ASSERT_EQ(cubin.parameters.size(), 1u);
  EXPECT_EQ(cubin.parameters[0].offset, 0u);
  const uint64_t own = args_bytes().at(cubin.name);
  EXPECT_EQ(cubin.parameters[0].bytes,
            kernel.request.timed ? timed_stamps_offset(own) + sizeof(PartialOut<BlockStamps>) : own);
}

// Compiles and checks them; of each what goes into the file.
std::map<std::string, KernelBudget> checked_budgets(const ShippedKernels& kernels) {
  std::map<std::string, KernelBudget> budgets;
  for (const auto& [key, compiled] : compile_all(kernels)) {
    SCOPED_TRACE(key);
    const ShippedKernel& kernel = kernels.at(key);
    const KernelBudget& budget = budgets[key] = budget_of(kernel, compiled);
    check_rules(kernel, compiled, budget);
  }
  return budgets;
}

std::map<std::string, LayerBudget> layer_budgets(const std::vector<RecordedStep>& steps,
                                                 const std::map<std::string, KernelBudget>& kernels) {
  std::map<std::string, LayerBudget> layers;
  for (const RecordedStep& step : steps) {
    std::set<std::string> of_layer;
    const LoweredStep lowered = lowered_on(step.card, step.model.config, step.shape());
    for (const LoweredRun& run : lowered.kinds.front())
      for (const KernelChoice& kernel : run.kernels) of_layer.insert(kernel_key(step.card, kernel.request));
    LayerBudget& layer = layers[step.name()];
    layer.kernels = of_layer.size();
    for (const std::string& key : of_layer) layer.code_bytes += kernels.at(key).code_bytes;
  }
  return layers;
}

std::string nvrtc_version() {
  const auto nvrtc = Nvrtc::load();
  return std::to_string(nvrtc->major()) + "." + std::to_string(nvrtc->minor());
}

// The file's lines of these steps' cards and target, or of all others.
Budgets lines_of(Budgets budgets, const std::vector<RecordedStep>& steps, bool of_others = false) {
  std::set<std::string> first_words;
  for (const RecordedStep& step : steps) first_words.insert({step.card.name, step.card.target()});
  const auto is_out = [&](const auto& line) {
    return first_words.contains(line.first.substr(0, line.first.find(' '))) == of_others;
  };
  std::erase_if(budgets.kernels, is_out);
  std::erase_if(budgets.layers, is_out);
  return budgets;
}

// The digest of all that decides a line of the file.
std::string digest_of(const ShippedKernels& kernels) {
  std::string all;
  for (const auto& [key, kernel] : kernels) {
    all += key + to_hex(hash_of(program_of(kernel.request, {}, "cpu_driver/"), nvrtc_version()));
    for (const LaunchShape& launch : kernel.launches)
      all += ' ' + std::to_string(launch.threads()) + ' ' + std::to_string(launch.shared_bytes);
  }
  return to_hex(hash_of(std::as_bytes(std::span(all))));
}

void write_lines_of(const std::vector<RecordedStep>& steps, Budgets measured) {
  if (std::filesystem::exists(budgets_file())) {
    Budgets others = lines_of(read_budgets(), steps, true);
    measured.kernels.merge(others.kernels);
    measured.layers.merge(others.layers);
    if (measured.inputs.empty()) measured.inputs = others.inputs;
  }
  write_budgets(measured);
}

void check_budgets(const std::vector<RecordedStep>& steps, const std::string& inputs = "") {
  Budgets measured{nvrtc_version(), inputs, {}, checked_budgets(kernels_of(steps))};
  measured.layers = layer_budgets(steps, measured.kernels);
  if (std::getenv("NODEWRIGHT_WRITE_BUDGETS") != nullptr) return write_lines_of(steps, measured);
  const Budgets recorded = lines_of(read_budgets(), steps);
  if (recorded.nvrtc != measured.nvrtc) {  // another compiler's registers
    std::cout << "budgets.json is of NVRTC " << recorded.nvrtc << ", this is " << measured.nvrtc
              << ": only the rules were checked\n";
    return;
  }
  const std::vector<std::string> said = complaints(recorded, measured);
  for (const std::string& complaint : said) ADD_FAILURE() << complaint;
  if (!said.empty())
    ADD_FAILURE() << "where that is worth it, write the file anew and commit it:\n"
                     "  NODEWRIGHT_WRITE_BUDGETS=1 build/tests/kernel_tests --gtest_filter='KernelBudgetsSweep.*'";
}

TEST(KernelBudgets, HoldForWhatShipsOnHopper) {
  const std::vector<RecordedStep> steps = steps_on_hopper();
  const std::string inputs = digest_of(kernels_of(steps));
  if (inputs != read_budgets().inputs) check_budgets(steps, inputs);
}

// A digest that forgets an input would let a worse kernel pass.
TEST(KernelBudgets, HaveADigestOfRequestsLaunchesAndSources) {
  ShippedKernels kernels;
  add_kernel(kernels, kH100, {"saxpy", {}});
  ShippedKernel& kernel = kernels.begin()->second;
  const std::string first = digest_of(kernels);
  kernel.launches.push_back({{1, 1, 1}, {64, 1, 1}, 0});
  const std::string launched = digest_of(kernels);
  kernel.launches.back().shared_bytes = 16;
  const std::string shared = digest_of(kernels);
  kernel.request.constants = {{"kUnused", 1}};
  const std::string constants = digest_of(kernels);
  kernel.request.name = "stamp";
  EXPECT_EQ((std::set<std::string>{first, launched, shared, constants, digest_of(kernels)}).size(), 5u);
}

TEST(KernelBudgetsSweep, HoldForWhatShipsOnHopper) {
  const std::vector<RecordedStep> steps = steps_on_hopper();
  check_budgets(steps, digest_of(kernels_of(steps)));
}
TEST(KernelBudgetsSweep, HoldForWhatShipsOnAmpere) { check_budgets(steps_on_ampere()); }

// What the file does not record: other rows that a shipped tuning speaks of, and tiles of 16 rows.
TEST(KernelRulesSweep, HoldForOtherRows) {
  ShippedKernels kernels;
  for (const NamedModel& model : shipped_models()) {
    std::set<int64_t> tuned = {16};
    for (const auto& [rows, step] : shipped_tuning({kH200.driver_name, model_sizes(model.config)}).steps)
      tuned.insert(rows);
    const bool untuned = std::set<std::string>{"gpt2", "Qwen3-30B-A3B"}.contains(model.name);
    EXPECT_NE(tuned.contains(1), untuned) << "a tuning of " << model_sizes(model.config);
    for (const int64_t rows : tuned) add_step(kernels, kH200, model.config, shipped_step(kH200, model.config, rows));
  }
  for (const ModelConfig& config : {llama_1b(), gemma3_1b()})
    add_step(kernels, kA100, config, shipped_step(kA100, config, 16));
  for (const auto& [key, budget] : read_budgets().kernels) kernels.erase(key);
  EXPECT_GT(kernels.size(), 10u);
  checked_budgets(kernels);
}

// One row of every width that released models have, untuned: a few bytes of spills cost nothing that can be measured,
// hundreds a quarter of the bandwidth.
TEST(KernelRulesSweep, HoldForEveryWidth) {
  constexpr uint64_t kFewBytes = 16;
  ShippedKernels all;
  const auto add = [&](const ModelConfig& config) {
    add_step(all, kH100, config, step_shape(network_form(network_of(config)), 1, 1, {}, Numerics::fast));
  };
  for (const NamedModel& model : released_models()) add(model.config);
  struct Width {
    int64_t hidden, intermediate, heads;
  };
  // Qwen3-14B and 32B, Qwen2.5-32B, Gemma-3-27B, Llama-3.3-70B, and what nobody has yet.
  for (const auto& [hidden, intermediate, heads] : {Width{5120, 17408, 40},
                                                    {5120, 25600, 64},
                                                    {5120, 27648, 40},
                                                    {5376, 21504, 32},
                                                    {8192, 28672, 64},
                                                    {12288, 36864, 96}}) {
    ModelConfig config = llama_3b();
    config.hidden = hidden, config.intermediate = intermediate, config.heads = heads;
    add(config);
  }
  const std::set<std::string> matvecs = {"norm_project", "norm_gate_up", "project_add", "project"};
  ShippedKernels kernels;
  std::set<std::string> seen;  // the same but for what takes few registers
  const std::set<std::string> of_few = {"kSegment", "kActivation", "kNorm", "kScale", "kCap", "kBias"};
  for (const auto& [key, kernel] : all) {
    KernelRequest request = kernel.request;
    std::erase_if(request.constants, [&](const Constant& constant) { return of_few.contains(constant.name); });
    if (matvecs.contains(request.name) && seen.insert(to_string(request)).second) kernels.emplace(key, kernel);
  }
  EXPECT_GT(kernels.size(), 60u);
  for (const auto& [key, compiled] : compile_all(kernels)) {
    const KernelBudget budget = budget_of(kernels.at(key), compiled);
    EXPECT_LE(budget.spill_bytes, kFewBytes) << key;
    EXPECT_GE(budget.blocks_of_sm, budget.threads == MatvecShape::kAloneOnSm ? 1u : 2u) << key;
  }
}

TEST(KernelRulesSweep, HoldForTheExamplesKernels) {
  for (const Card& card : {kA100, kH100}) checked_budgets(nanogpt_kernels_on(card));
}

// Whatever shares a scale; a step of 128 rows dequantizes.
TEST(KernelRulesSweep, HoldForFp8AndInt4Weights) {
  ShippedKernels kernels;
  for (const ModelConfig& whole : {llama_1b(), llama_3b(), qwen3_4b()})
    for (const ModelConfig& config :
         {with_fp8(whole, false), with_fp8(whole, true), with_int4(whole, 32), with_int4(whole, 128),
          with_groups(whole, {WeightCode::q4, false, 1, 32}), with_groups(whole, {WeightCode::q4_offset, false, 1, 32}),
          with_groups(whole, {WeightCode::q8, false, 1, 32}), with_groups(whole, {WeightCode::q8, false, 1, 16}),
          with_groups(whole, {WeightCode::q8_offset, false, 1, 16})})
      for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128})
        add_step(kernels, kH100, config, shipped_step(kH100, config, rows));
  std::erase_if(kernels, [](const auto& entry) { return entry.first.find("kFormat=") == std::string::npos; });
  EXPECT_GT(kernels.size(), 60u);
  checked_budgets(kernels);
}

TEST(KernelRules, HoldForAdapters) {
  ShippedKernels kernels = kernels_with_adapters(kH100);
  for (const int64_t rows : {1, 8})
    add_with_adapters(kernels, kA100, llama_1b(), shipped_step(kA100, llama_1b(), rows));
  for (const auto& [key, budget] : read_budgets().kernels) kernels.erase(key);
  EXPECT_GT(kernels.size(), 10u);
  checked_budgets(kernels);
}

// The stamps are the same code in every form.
TEST(KernelRules, HoldForTimedForms) {
  ShippedKernels plain, timed;
  add_step(plain, kH100, llama_1b(), shipped_step(kH100, llama_1b(), 8));
  add_step(plain, kH100, gpt2_small(), shipped_step(kH100, gpt2_small(), 1));
  for (auto [key, kernel] : plain) {
    kernel.request.timed = true;
    timed.emplace(kernel_key(kernel.card, kernel.request), kernel);
  }
  checked_budgets(timed);
}

// One number of one line worse than recorded, a line too few, one too many: each is named.
TEST(RecordedBudgets, NameEachNumberThatIsWorse) {
  const Budgets recorded = read_budgets();
  EXPECT_TRUE(complaints(recorded, recorded).empty());
  const std::string kernel = recorded.kernels.begin()->first, layer = recorded.layers.begin()->first;
  const auto said_of = [&](auto&& change_recorded) {
    Budgets lowered = recorded;
    change_recorded(lowered);
    const std::vector<std::string> said = complaints(lowered, recorded);
    return said.size() == 1 ? said.front() : std::to_string(said.size()) + " complaints";
  };
  const KernelBudget& now = recorded.kernels.at(kernel);
  EXPECT_EQ(
      said_of([&](Budgets& b) { --b.kernels.at(kernel).registers; }),
      kernel + ": registers " + std::to_string(now.registers) + ", recorded " + std::to_string(now.registers - 1));
  EXPECT_EQ(
      said_of([&](Budgets& b) { ++b.kernels.at(kernel).blocks_of_sm; }),
      kernel + ": blocks " + std::to_string(now.blocks_of_sm) + ", recorded " + std::to_string(now.blocks_of_sm + 1));
  EXPECT_EQ(said_of([&](Budgets& b) { b.kernels.at(kernel).code_bytes -= now.code_bytes / 33; }),
            kernel + ": code " + std::to_string(now.code_bytes) + ", recorded " +
                std::to_string(now.code_bytes - now.code_bytes / 33));
  EXPECT_EQ(said_of([&](Budgets& b) { b.kernels.at(kernel).code_bytes -= now.code_bytes / 100; }), "0 complaints");
  EXPECT_NE(said_of([&](Budgets& b) { b.layers.at(layer).code_bytes -= 4096; }).find(layer + ": code "),
            std::string::npos);
  EXPECT_EQ(said_of([&](Budgets& b) { b.kernels.erase(kernel); }), kernel + " has no line");
  EXPECT_EQ(said_of([&](Budgets& b) { b.kernels["sm_90 gone"]; }), "sm_90 gone has a line and does not ship");
}

// 16 rows of 8192 columns in flight for 2 rows of x are more than the 128 registers of 256 threads hold.
TEST(RecordedBudgets, SeeAKernelThatSpills) {
  ShippedKernels kernels;
  for (const int64_t batch : {1, 16})
    add_kernel(kernels, kH100,
               {"project",
                {{"kSingleRow", 0},
                 {"kTile", 2},
                 {"kCols", 8192},
                 {"kStride", 8192},
                 {"kThreads", 256},
                 {"kBatch", batch},
                 {"kSegment", 16},
                 {"kScale", 0},
                 {"kBias", 0}}});
  size_t spilling = 0;
  for (const auto& [key, compiled] : compile_all(kernels)) {
    const KernelBudget budget = budget_of(kernels.at(key), compiled);
    EXPECT_EQ(budget.spill_bytes > 0, key.find("kBatch=16") != std::string::npos) << key;
    spilling += budget.spill_bytes > 0;
  }
  EXPECT_EQ(spilling, 1u);
}

}  // namespace
}  // namespace nodewright::test::budgets_test
