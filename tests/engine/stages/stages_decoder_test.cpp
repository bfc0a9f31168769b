// Models cut into stages over several devices: the same bits as on one device, in every form and every run; what a
// stage hands over and holds; and what cannot be cut.
#include "tests/engine/stages/stages_decoder.h"

#include <algorithm>
#include <map>
#include <set>

#include "tests/support/error_text.h"

namespace nodewright {
namespace {

using namespace test;

std::vector<std::string> cut_models() {
  std::vector<std::string> names = kGoldenModels;
  names.insert(names.end(), kFamilyModels.begin(), kFamilyModels.end());
  return names;
}

int64_t layers_of(const std::string& golden) { return read_model_config(golden_folder(golden)).layers; }

// On the CPU driver some stand for all in every form but eight rows: of each way of the residual and of the cache.
bool runs_form(const std::string& name, int64_t rows) {
  const std::set<std::string> some = {"llama/odd_sizes", "gpt2/nanogpt",   "gemma2/caps",         "gemma3/window_16",
                                      "cohere/parallel", "exaone4/hybrid", "mixtral/two_of_four", "llama/unaligned"};
  return test_device_is_cuda() || rows == 8 || some.contains(name);
}

std::vector<Logits> all_logits(const std::string& golden, int count, int64_t rows, RunMode mode = RunMode::explicit_) {
  LoadedStages loaded(golden_folder(golden), count, test_device());
  StagesDecoder decoder(loaded, rows, mode);
  const auto vocab = static_cast<size_t>(loaded.models[0].config().vocab);
  return decoder.forced(some_tokens(39, vocab, 5), some_tokens(3, vocab, 6), true);
}

class StagedFamilies : public testing::TestWithParam<std::string> {};

// Prompts of several chunks, but at one row, and steps of one token after them.
TEST_P(StagedFamilies, LogitsHaveTheBitsOfOneDevice) {
  for (const int64_t rows : {int64_t{1}, int64_t{8}, int64_t{17}}) {
    if (!runs_form(GetParam(), rows)) continue;
    const std::vector<Logits> expected = all_logits(GetParam(), 1, rows);
    EXPECT_TRUE(same_bits(all_logits(GetParam(), 2, rows), expected)) << rows << " rows";
  }
}

INSTANTIATE_TEST_SUITE_P(TwoDevicesSweep, StagedFamilies, testing::ValuesIn(cut_models()), golden_test_name);

class StagesOnCpuDriver : public testing::TestWithParam<std::string> {};

TEST_P(StagesOnCpuDriver, AsManyAsThereAreLayersGiveTheBitsOfOneDevice) {
  const auto most = static_cast<int>(layers_of(GetParam()));
  ASSERT_GE(most, 3);
  for (const int64_t rows : {int64_t{1}, int64_t{8}}) {
    const std::vector<Logits> expected = all_logits(GetParam(), 1, rows);
    for (const int count : {3, most})
      EXPECT_TRUE(same_bits(all_logits(GetParam(), count, rows), expected)) << count << " stages, " << rows << " rows";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StagesOnCpuDriver,
                         testing::Values("llama/unaligned", "gemma3/window_16", "smollm3/unrotated", "cohere2/hybrid",
                                         "qwen3_moe/every_second"),
                         golden_test_name);

TEST(TwoDevicesStages, RunCapturedAndEagerToTheSameBits) {
  for (const std::string golden : {"llama/odd_sizes", "gemma2/caps"}) {
    const std::vector<Logits> expected = all_logits(golden, 1, 8);
    for (const RunMode mode : {RunMode::captured, RunMode::eager})
      EXPECT_TRUE(same_bits(all_logits(golden, 2, 8, mode), expected)) << golden << ", " << to_string(mode);
  }
}

// The names of the copies at the end of a plan.
std::set<std::string> handed_over(const Plan& plan) {
  std::set<std::string> names;
  for (const PlanNode& node : plan.nodes)
    if (node.name.starts_with("hand_over.")) names.insert(node.name.substr(10));
  return names;
}

TEST(StagePlansOnCpuDriver, HandOverTheResidualInTheFormInWhichItTravels) {
  const auto handed = [](const std::string& golden, int64_t rows) {
    LoadedStages loaded(golden_folder(golden), 2, "cpu");
    const StagesDecoder decoder(loaded, rows);
    EXPECT_TRUE(handed_over(decoder.plans()[1]).empty());
    return handed_over(decoder.plans()[0]);
  };
  EXPECT_EQ(handed("llama/odd_sizes", 1), (std::set<std::string>{"inputs", "residual"}));
  EXPECT_EQ(handed("llama/odd_sizes", 8), (std::set<std::string>{"inputs", "residual", "gained", "squares"}));
  EXPECT_TRUE(handed("gemma2/caps", 8).contains("projected"));
  EXPECT_EQ(handed("gemma2/caps", 17), (std::set<std::string>{"inputs", "mid_residual", "projected"}));
}

// The weights of a model on several devices, by stage.
struct HeldWeights {
  explicit HeldWeights(const std::string& golden, int count) {
    LoadedStages loaded(golden_folder(golden), count, "cpu");
    for (const DecoderModel& model : loaded.models) {
      std::map<std::string, uint64_t>& own = bytes.emplace_back();
      for (const NamedRange& range : model.weights().ranges()) own[range.name] = range.bytes;
      total.push_back(model.weights().bytes());
    }
    layers_of_first = loaded.models[0].config().layers;
    tied = loaded.models[0].config().tied;
  }
  uint64_t of(size_t stage, const std::string& name) const {
    const auto found = bytes[stage].find(name);
    return found == bytes[stage].end() ? 0 : found->second;
  }

  std::vector<std::map<std::string, uint64_t>> bytes;
  std::vector<uint64_t> total;
  int64_t layers_of_first = 0;
  bool tied = false;
};

TEST(StageWeightsOnCpuDriver, AreThoseOfTheStageAlone) {
  for (const std::string golden : {"llama/unaligned", "gpt2/nanogpt", "gemma2/caps"}) {
    const HeldWeights whole(golden, 1), cut(golden, 2);
    for (int64_t l = 0; l < whole.layers_of_first; ++l)
      for (const std::string part : {"qkv", "out", "down"}) {
        const std::string name = "l" + std::to_string(l) + "." + part;
        const size_t owner = l < cut.layers_of_first ? 0 : 1;
        EXPECT_GT(whole.of(0, name), 0u) << golden << " " << name;
        EXPECT_EQ(cut.of(owner, name), whole.of(0, name)) << golden << " " << name;
        EXPECT_EQ(cut.of(1 - owner, name), 0u) << golden << " " << name;
      }
    EXPECT_EQ(cut.of(0, "embedding"), whole.of(0, "embedding")) << golden;
    EXPECT_EQ(cut.of(1, "embedding"), whole.tied ? whole.of(0, "embedding") : 0) << golden;
    EXPECT_EQ(cut.of(0, "positions"), whole.of(0, "positions")) << golden;
    EXPECT_EQ(cut.of(1, "positions") + cut.of(0, "head") + cut.of(0, "final_norm"), 0u) << golden;
    EXPECT_EQ(cut.of(1, "head"), whole.of(0, "head")) << golden;
    EXPECT_EQ(cut.of(1, "final_norm"), whole.of(0, "final_norm")) << golden;
    // What else is on both: a norm or two at the cut.
    EXPECT_LE(cut.total[0] + cut.total[1], whole.total[0] + cut.of(1, "embedding") + 4096) << golden;
  }
}

TEST(StageConfigs, CutLayersEvenlyByTheirBytes) {
  ModelConfig whole = read_model_config(golden_folder("llama/odd_sizes"));
  whole.layers = 28;
  const auto layers = [&](int64_t count) {
    std::vector<int64_t> all;
    int64_t first = 0;
    for (int64_t i = 0; i < count; ++i) {
      const ModelConfig stage = stage_of(whole, i, count);
      EXPECT_EQ(stage.stage.first_layer, first);
      EXPECT_EQ(stage.all_layers(), 28);
      all.push_back(stage.layers);
      first += stage.layers;
    }
    EXPECT_EQ(first, 28);
    return all;
  };
  EXPECT_EQ(layers(1), (std::vector<int64_t>{28}));
  EXPECT_EQ(layers(2), (std::vector<int64_t>{14, 14}));
  whole.vocab = 6 * (whole.qkv_width() + whole.query_width() + 3 * whole.intermediate);  // as large as six layers
  EXPECT_EQ(layers(3), (std::vector<int64_t>{8, 13, 7}));
  whole.vocab *= 100;
  EXPECT_EQ(layers(3), (std::vector<int64_t>{1, 26, 1}));
}

// Eight layers, and four of experts that are four times as large.
TEST(StageConfigs, CutWhereTheBytesAreWhereLayersDiffer) {
  ModelConfig whole = read_model_config(golden_folder("llama/odd_sizes"));
  whole.layers = 12, whole.vocab = 1;
  const int64_t attention = whole.qkv_width() + whole.query_width();
  whole.intermediate = attention;
  whole.experts = {.count = 5, .chosen = 2, .intermediate = attention};
  whole.dense = {true, true, true, true, true, true, true, true, false, false, false, false};
  const auto layers = [&](int64_t count) {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < count; ++i) all.push_back(stage_of(whole, i, count).layers);
    return all;
  };
  EXPECT_EQ(layers(2), (std::vector<int64_t>{9, 3}));
  EXPECT_EQ(layers(3), (std::vector<int64_t>{8, 2, 2}));
  std::reverse(whole.dense.begin(), whole.dense.end());
  EXPECT_EQ(layers(3), (std::vector<int64_t>{2, 2, 8}));
}

TEST(StageConfigs, KeepWhatIsSaidOfEachLayer) {
  const ModelConfig whole = read_model_config(golden_folder("gemma3/window_16"));
  for (const int64_t count : {2, 3, 7})
    for (int64_t i = 0; i < count; ++i) {
      const ModelConfig stage = stage_of(whole, i, count);
      EXPECT_EQ(stage.page_groups(), whole.page_groups());
      EXPECT_EQ(stage.window_of_all(), whole.window_of_all());
      EXPECT_EQ(stage.layers_of_group(0) + stage.layers_of_group(1), stage.layers);
      for (int64_t l = 0; l < stage.layers; ++l) {
        EXPECT_EQ(stage.window_of(l), whole.window_of(stage.stage.first_layer + l));
        EXPECT_EQ(stage.page_group(l), whole.page_group(stage.stage.first_layer + l));
      }
    }
}

TEST(StageConfigs, SayWhatCannotBeCut) {
  const ModelConfig whole = read_model_config(golden_folder("llama/odd_sizes"));
  EXPECT_EQ(error_of([&] { stage_of(whole, 0, 3); }),
            "cannot cut into stages 'LlamaForCausalLM': 2 layers are fewer than 3 stages; try: fewer stages than 3, or "
            "one device");
  EXPECT_NE(error_of([&] { stage_of(whole, 0, 9); }).find("8 at most"), std::string::npos);
  EXPECT_NE(error_of([&] {
              stage_of(shard_of(whole, {0, 2}), 0, 2);
            }).find("part of a network already"),
            std::string::npos);
}

}  // namespace
}  // namespace nodewright
