// What a checkpoint is in numbers, and what of it fits: against what loading really takes.
#include "models/weights/model_summary.h"

#include "models/kv_cache.h"
#include "models/weights/weights.h"
#include "runtime/device_selection.h"
#include "tests/models/checkpoint_files.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

const TensorShare* find(const std::vector<TensorShare>& shares, std::string_view name) {
  for (const TensorShare& share : shares)
    if (share.name == name) return &share;
  return nullptr;
}

TEST(ModelSummary, SaysWhatLoadingTakes) {
  const OpenedDevice opened = open_device("cpu");
  Stream stream(*opened.device, "test");
  for (const char* name :
       {"llama/odd_sizes", "llama/one_kv_head", "llama/unaligned", "qwen3_moe/normed", "qwen3_moe/every_second"}) {
    const auto folder = test::source_dir() / "tests/golden" / name;
    const ModelConfig config = read_model_config(folder);
    const Checkpoint checkpoint = Checkpoint::open(folder);
    const ModelSummary summary = summarize(checkpoint, config);
    const DecoderWeights weights = DecoderWeights::load(*opened.device, stream, checkpoint, config);
    EXPECT_EQ(summary.device_bytes, weights.bytes()) << name;
    EXPECT_EQ(summary.bytes_per_token, weights.bytes_per_token()) << name;
    EXPECT_EQ(summary.total.tensors, checkpoint.tensors().size()) << name;
    const KvCache cache(*opened.device, config, 3);
    EXPECT_EQ(summary.kv_bytes_per_token * 3 * kPageTokens, cache.bytes()) << name;
    EXPECT_EQ(find(summary.kinds, "head") != nullptr, !config.tied) << name;
    EXPECT_EQ(find(summary.kinds, "other"), nullptr) << name;
  }
}

TEST(ModelSummary, LeavesOutTensorsThatLoadingDoesNotRead) {
  const ScratchFolder folder;
  folder.write("config.json", R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 2, "num_hidden_layers": 0})");
  // No layer at all is refused, so that the smallest model has one.
  expect_error([&] { read_model_config(folder.path()); }, {"num_hidden_layers"});
  ModelConfig c;
  c.names = llama_names();
  c.hidden = 2;
  c.layers = c.heads = c.kv_heads = 1;
  c.head_dim = 2;
  c.intermediate = 3;
  c.vocab = 5;
  c.max_position = 100;
  c.tied = true;
  const auto f32 = [](int64_t n) { return std::string(static_cast<size_t>(n) * 4, '\0'); };
  const auto f16 = [](int64_t n) { return std::string(static_cast<size_t>(n) * 2, '\0'); };
  const std::string l = "model.layers.0.";
  folder.write("model.safetensors", test::safetensors_of({{"model.embed_tokens.weight", "F16", {5, 2}, f16(10)},
                                                          {l + "input_layernorm.weight", "F32", {2}, f32(2)},
                                                          {l + "self_attn.q_proj.weight", "F32", {2, 2}, f32(4)},
                                                          {l + "self_attn.k_proj.weight", "F32", {2, 2}, f32(4)},
                                                          {l + "self_attn.v_proj.weight", "F32", {2, 2}, f32(4)},
                                                          {l + "self_attn.o_proj.weight", "F32", {2, 2}, f32(4)},
                                                          {l + "self_attn.rotary_emb.inv_freq", "F32", {1}, f32(1)},
                                                          {l + "post_attention_layernorm.weight", "F32", {2}, f32(2)},
                                                          {l + "mlp.gate_proj.weight", "F32", {3, 2}, f32(6)},
                                                          {l + "mlp.up_proj.weight", "F32", {3, 2}, f32(6)},
                                                          {l + "mlp.down_proj.weight", "F32", {2, 3}, f32(6)},
                                                          {"model.norm.weight", "F32", {2}, f32(2)},
                                                          {"lm_head.weight", "F32", {5, 2}, f32(10)}}));
  const ModelSummary summary = summarize(Checkpoint::open(folder.path()), c);
  EXPECT_EQ(summary.total.tensors, 11u);
  EXPECT_EQ(summary.total.parameters, 10u + 16 + 18 + 6);
  EXPECT_EQ(summary.total.bytes, 20u + 4 * 40);
  ASSERT_EQ(summary.dtypes.size(), 2u);
  EXPECT_EQ(find(summary.dtypes, "F16")->parameters, 10u);
  EXPECT_EQ(find(summary.dtypes, "F32")->bytes, 160u);
  std::vector<std::string> kinds;
  for (const TensorShare& kind : summary.kinds) kinds.push_back(kind.name);
  EXPECT_EQ(kinds, (std::vector<std::string>{"embedding", "attention", "feed-forward", "norms"}));
  EXPECT_EQ(find(summary.kinds, "norms")->parameters, 6u);
  EXPECT_EQ(find(summary.kinds, "attention")->tensors, 4u);
}

TEST(ContextFit, GivesEachSequenceWholePagesOfWhatTheWeightsLeave) {
  ModelSummary summary;
  summary.device_bytes = 1000;
  summary.bytes_per_token = 900;
  summary.kv_bytes_per_token = 10;
  ModelConfig config;
  config.max_position = 100'000;
  const uint64_t page = 10 * static_cast<uint64_t>(kPageTokens);
  const auto tokens = [&](uint64_t free, int64_t sequences) {
    return context_fit(summary, config, free, sequences, 0).tokens;
  };
  EXPECT_EQ(tokens(1000 + 3 * page, 1), 3 * kPageTokens);
  EXPECT_EQ(tokens(1000 + 3 * page - 1, 1), 2 * kPageTokens);
  EXPECT_EQ(tokens(1000 + 15 * page, 8), kPageTokens);
  EXPECT_EQ(tokens(1000 + 16 * page, 8), 2 * kPageTokens);
  EXPECT_EQ(tokens(1000 + 7 * page, 8), 0);
  EXPECT_EQ(tokens(1000, 1), 0);
  EXPECT_EQ(tokens(999, 1), 0);  // not even the weights
  EXPECT_EQ(tokens(0, 64), 0);
  config.max_position = 100;  // no multiple of a page
  EXPECT_EQ(tokens(1000 + 50 * page, 1), 100);
  const ContextFit fit = context_fit(summary, config, 1000 + 50 * page, 8, 0);
  EXPECT_EQ(fit.tokens, 100);
  EXPECT_EQ(fit.short_bytes, 900u);
  EXPECT_EQ(fit.filled_bytes, 900u + 8 * 100 * 10);
}

TEST(ContextFit, CountsForLayersWithAWindowThePagesThatASequenceHoldsThere) {
  ModelSummary summary;
  summary.device_bytes = 1000;
  summary.bytes_per_token = 900;
  summary.kv_bytes_per_token = 10;
  summary.windowed_kv_bytes_per_token = 8;
  ModelConfig config;
  config.max_position = 100'000;
  config.window = 70;
  constexpr int64_t kHeld = 3;
  const uint64_t page = kPageTokens;  // of a byte a token
  const auto fit = [&](uint64_t free, int64_t sequences) {
    return context_fit(summary, config, 1000 + free, sequences, kHeld);
  };
  EXPECT_EQ(fit(2 * 10 * page, 1).tokens, 2 * kPageTokens);
  EXPECT_EQ(fit(3 * 10 * page + 2 * page - 1, 1).tokens, 3 * kPageTokens);
  EXPECT_EQ(fit(3 * 10 * page + 5 * 2 * page, 1).tokens, 8 * kPageTokens);
  EXPECT_EQ(fit(4 * (3 * 10 * page + 5 * 2 * page), 4).tokens, 8 * kPageTokens);
  EXPECT_EQ(fit(3 * 10 * page + 5 * 2 * page, 1).filled_bytes, 900u + 8 * page * 2 + 70 * 8);
  EXPECT_EQ(fit(10 * page, 1).filled_bytes, 900u + page * 2 + page * 8);
  summary.windowed_kv_bytes_per_token = 10;  // all layers
  EXPECT_EQ(fit(3 * 10 * page, 1).tokens, 100'000);
  EXPECT_EQ(fit(3 * 10 * page - 1, 1).tokens, 2 * kPageTokens);
}

}  // namespace
}  // namespace nodewright
