// Which layers of a mixture have experts, and which have one feed-forward block, as transformers reads it: layer i has
// experts where (i + 1) % decoder_sparse_step is 0 and mlp_only_layers does not name it.
#include "models/config/model_config.h"
#include "models/config/part.h"
#include "models/network/network.h"
#include "tests/models/checkpoint_files.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

using nlohmann::json;

ModelConfig mixture(const json& changes) {
  json config = {{"architectures", {"Qwen3MoeForCausalLM"}},
                 {"hidden_size", 64},
                 {"num_hidden_layers", 4},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"intermediate_size", 100},
                 {"moe_intermediate_size", 36},
                 {"num_experts", 5},
                 {"num_experts_per_tok", 2},
                 {"vocab_size", 131}};
  config.update(changes);
  const ScratchFolder folder;
  folder.write("config.json", config.dump());
  return read_model_config(folder.path());
}

// "DEDE": dense, experts, ...
std::string blocks_of(const ModelConfig& config) {
  std::string blocks;
  for (const FeedForward feed_forward : config.feed_forwards())
    blocks += feed_forward == FeedForward::dense ? 'D' : 'E';
  return blocks;
}

TEST(DenseLayers, AreThoseThatTransformersMakesDense) {
  const std::vector<std::pair<json, std::string>> cases = {
      {json::object(), "EEEE"},
      {{{"mlp_only_layers", json::array()}}, "EEEE"},
      {{{"mlp_only_layers", nullptr}}, "EEEE"},
      {{{"mlp_only_layers", {0}}}, "DEEE"},
      {{{"mlp_only_layers", {3}}}, "EEED"},
      {{{"mlp_only_layers", {2, 0, 2}}}, "DEDE"},
      {{{"mlp_only_layers", {0, 4, -1, 1000000000000}}}, "DEEE"},
      {{{"mlp_only_layers", {1.0}}}, "EDEE"},
      {{{"decoder_sparse_step", 2}}, "DEDE"},
      {{{"decoder_sparse_step", 3}}, "DDED"},
      {{{"decoder_sparse_step", 2}, {"mlp_only_layers", {1}}}, "DDDE"},
      {{{"mlp_only_layers", {0, 1, 2, 3}}}, "DDDD"},
      {{{"decoder_sparse_step", 5}}, "DDDD"},
      {{{"num_experts", 0}}, "DDDD"},
  };
  for (const auto& [changes, blocks] : cases) EXPECT_EQ(blocks_of(mixture(changes)), blocks) << changes;
}

TEST(DenseLayers, HaveAWidthOfTheirOwn) {
  const ModelConfig some = mixture({{"mlp_only_layers", {0}}});
  EXPECT_EQ(some.intermediate, 100);
  EXPECT_EQ(some.experts.intermediate, 36);
  const int64_t attention = matrix_size(some, Part::qkv).elements() + matrix_size(some, Part::out).elements();
  EXPECT_EQ(layer_elements(some, 0, some.experts.chosen), attention + 3 * some.hidden * 100);
  EXPECT_EQ(layer_elements(some, 1, some.experts.chosen), attention + 2 * 3 * some.hidden * 36);
  EXPECT_TRUE(some.has_dense());
  const ModelConfig none = mixture(json::object());
  EXPECT_EQ(none.intermediate, 0) << "no layer has it, so no devices need to share it";
  EXPECT_FALSE(none.has_dense());
  const ModelConfig all = mixture({{"decoder_sparse_step", 5}});
  EXPECT_FALSE(all.has_experts());
  EXPECT_EQ(all.intermediate, 100);
}

TEST(DenseLayers, AreRefusedByKeyWhereTheyAreNoLayers) {
  const auto refused = [](const json& changes, std::initializer_list<std::string_view> words) {
    expect_error([&] { mixture(changes); }, words);
  };
  for (const json& step : {json(0), json(-2), json(1.5), json("2"), json(true), json::array({2})})
    refused({{"decoder_sparse_step", step}}, {"decoder_sparse_step is"});
  for (const json& layers : {json(0), json("0"), json::object({{"0", 1}}), json::array({"0"}), json::array({0.5}),
                             json::array({true}), json::array({0, nullptr})})
    refused({{"mlp_only_layers", layers}}, {"mlp_only_layers is", "expected a list of integers"});
}

TEST(DenseLayers, AreAKindOfLayerOfTheNetwork) {
  const ModelConfig config = mixture({{"decoder_sparse_step", 2}, {"mlp_only_layers", {3}}});
  const Network network = network_of(config);
  EXPECT_EQ(network.layers, (std::vector<size_t>{0, 1, 0, 0}));
  ASSERT_EQ(network.kinds.size(), 2u);
  const std::string text = to_text(network);
  EXPECT_NE(text.find("each layer without experts (3 of 4):"), std::string::npos) << text;
  EXPECT_NE(text.find("each layer with experts (1 of 4):"), std::string::npos) << text;
  EXPECT_NE(text.find("gate_up) [64 -> 200]"), std::string::npos) << text;
  EXPECT_NE(text.find("gate_up) [64 -> 72] each"), std::string::npos) << text;
  EXPECT_EQ(network_of(mixture(json::object())).kinds.size(), 1u);
}

// A part of a network or of its layers keeps what each layer is.
TEST(DenseLayers, AreThoseOfEveryPart) {
  const ModelConfig whole = mixture({{"mlp_only_layers", {1, 2}}});
  const ModelConfig rank = shard_of(whole, {.rank = 1, .ranks = 2});
  EXPECT_EQ(rank.intermediate, 50);
  EXPECT_EQ(rank.experts.intermediate, 18);
  EXPECT_EQ(blocks_of(rank), "EDDE");
  std::string blocks;
  for (int64_t i = 0; i < 3; ++i) {
    const ModelConfig stage = stage_of(whole, i, 3);
    EXPECT_EQ(blocks_of(stage), "EDDE") << "of all stages";
    for (int64_t layer = 0; layer < stage.layers; ++layer)
      blocks += stage.feed_forward(layer) == FeedForward::dense ? 'D' : 'E';
  }
  EXPECT_EQ(blocks, "EDDE");
  expect_error(
      [&] {
        shard_of(mixture({{"mlp_only_layers", {1}}, {"intermediate_size", 101}}), {0, 2});
      },
      {"intermediate_size is 101"});
  EXPECT_EQ(shard_of(mixture({{"intermediate_size", 101}}), {0, 2}).intermediate, 0);
}

}  // namespace
}  // namespace nodewright
