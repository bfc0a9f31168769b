// config.json of Qwen3, Gemma-3, GPT-2 and GPT-NeoX: as released and as transformers 5 writes it, the defaults of each
// family's configuration class, and what is refused by name.
#include "models/config/model_config.h"
#include "models/network/network.h"
#include "tests/models/checkpoint_files.h"

namespace nodewright {
namespace {

using nlohmann::json;

ModelConfig read(const json& config) {
  const ScratchFolder folder;
  folder.write("config.json", config.dump());
  return read_model_config(folder.path());
}

ModelConfig changed(json config, const json& changes) {
  config.update(changes);
  return read(config);
}

void expect_refused(const json& config, const json& changes, std::initializer_list<std::string_view> words) {
  expect_error([&] { changed(config, changes); }, words);
}

json released_qwen3() {  // Qwen/Qwen3-0.6B
  return json::parse(R"({
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02,
    "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
    "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false,
    "vocab_size": 151936})");
}

json released_gemma3() {  // google/gemma-3-1b-pt
  return json::parse(R"({
    "architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": [1, 106],
    "final_logit_softcapping": null, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152,
    "initializer_range": 0.02, "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
    "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1, "pad_token_id": 0,
    "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": null,
    "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
    "transformers_version": "4.50.0.dev0", "use_cache": true, "vocab_size": 262144})");
}

json released_gpt2() {  // openai-community/gpt2
  return json::parse(R"({
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
    "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
    "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
    "summary_type": "cls_index", "summary_use_proj": true, "vocab_size": 50257})");
}

// ---- Qwen3 -------------------------------------------------------------------------------------------------------

TEST(Qwen3Config, IsReadAsReleased) {
  const ModelConfig c = read(released_qwen3());
  EXPECT_EQ(c.hidden, 1024);
  EXPECT_EQ(c.head_dim, 128);  // not hidden / heads
  EXPECT_EQ(c.query_width(), 2048);
  EXPECT_EQ(c.kv_heads, 8);
  EXPECT_EQ(c.max_position, 40960);
  EXPECT_EQ(c.norm, Norm::rms);
  EXPECT_EQ(c.head_norm, HeadNorm::head);
  EXPECT_TRUE(c.tied);
  EXPECT_TRUE(c.gated);
  EXPECT_EQ(c.biases, Biases{});
  EXPECT_FALSE(has_post_norms(network_of(c)) || c.learned_positions);
  EXPECT_EQ(c.activation, Activation::silu);
  EXPECT_FALSE(c.query_scale);
  EXPECT_EQ(c.embedding_scale, 1);
  EXPECT_EQ(c.rope.theta, 1e6);
  EXPECT_EQ(c.eos, std::vector<int64_t>{151645});
  for (int64_t l = 0; l < 28; ++l) EXPECT_EQ(c.window_of(l), 0) << l;
}

TEST(Qwen3Config, IsReadInTheNewSpellingAlike) {
  json config = released_qwen3();
  for (const char* old : {"rope_theta", "rope_scaling", "torch_dtype"}) config.erase(old);
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5000000}};  // Qwen3-4B-2507's
  config["layer_types"] = std::vector<std::string>(28, "full_attention");
  config["dtype"] = "bfloat16";
  const ModelConfig c = read(config);
  EXPECT_EQ(c.rope.theta, 5e6);
  EXPECT_EQ(c.dtype, "bfloat16");
  EXPECT_EQ(c.window_of(27), 0);
}

TEST(Qwen3Config, TakesTheDefaultsOfItsClass) {
  const ModelConfig c = read({{"architectures", {"Qwen3ForCausalLM"}}});
  EXPECT_EQ(c.hidden, 4096);
  EXPECT_EQ(c.layers, 32);
  EXPECT_EQ(c.heads, 32);
  EXPECT_EQ(c.kv_heads, 32);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.intermediate, 22016);
  EXPECT_EQ(c.vocab, 151936);
  EXPECT_EQ(c.max_position, 32768);
  EXPECT_EQ(c.eps, 1e-6f);
  EXPECT_EQ(c.rope.theta, 1e4);
  EXPECT_FALSE(c.tied || c.bos || c.pad);
  EXPECT_TRUE(c.eos.empty());
  EXPECT_EQ(changed(released_qwen3(), {{"head_dim", nullptr}}).head_dim, 128);
  EXPECT_EQ(changed(released_qwen3(), {{"num_key_value_heads", nullptr}}).kv_heads, 16);
}

TEST(Qwen3Config, GivesTheLastLayersAWindowWhereAskedTo) {
  const json window = {{"use_sliding_window", true}, {"sliding_window", 100}, {"max_window_layers", 26}};
  const ModelConfig c = changed(released_qwen3(), window);
  EXPECT_EQ(c.window_of(25), 0);
  EXPECT_EQ(c.window_of(26), 100);
  EXPECT_EQ(c.window_of(27), 100);
  EXPECT_EQ(c.window_of_all(), 0);
  json types(28, "full_attention");
  types[3] = "sliding_attention";
  expect_refused(released_qwen3(), {{"layer_types", types}}, {"layer_types holds 'sliding_attention'"});
  json everywhere = window;
  everywhere["max_window_layers"] = 0;
  EXPECT_EQ(changed(released_qwen3(), everywhere).window_of_all(), 100);
  json with_types = window;
  with_types["layer_types"] = types;
  EXPECT_EQ(changed(released_qwen3(), with_types).window_of(3), 100);
  EXPECT_EQ(changed(released_qwen3(), with_types).window_of(27), 0);
}

TEST(Qwen3Config, IsRefusedWhereItsArithmeticWouldDiffer) {
  expect_refused(released_qwen3(), {{"hidden_act", "gelu"}}, {"hidden_act is 'gelu', only 'silu' is supported"});
  expect_refused(released_qwen3(), {{"num_experts", 128}}, {"num_experts is '128', this architecture is no mixture"});
  expect_refused(released_qwen3(), {{"rope_scaling", {{"rope_type", "yarn"}}}}, {"'yarn' needs factor"});
  expect_refused(released_qwen3(), {{"rope_parameters", {{"full_attention", {{"rope_theta", 1e6}}}}}},
                 {"rope_parameters.full_attention is an object"});
  expect_refused(released_qwen3(), {{"layer_types", {"full_attention"}}},
                 {"layer_types", "num_hidden_layers names, 28"});
}

// ---- Gemma-3 -----------------------------------------------------------------------------------------------------

TEST(Gemma3Config, IsReadAsReleased) {
  const ModelConfig c = read(released_gemma3());
  EXPECT_EQ(c.norm, Norm::rms_one_plus);
  EXPECT_EQ(c.head_norm, HeadNorm::head);
  EXPECT_TRUE(has_post_norms(network_of(c)) && c.gated);
  EXPECT_EQ(c.biases, Biases{});
  EXPECT_FALSE(c.learned_positions);
  EXPECT_TRUE(c.tied);  // the file does not say
  EXPECT_EQ(c.activation, Activation::gelu_tanh);
  EXPECT_EQ(c.embedding_scale, 34.0f);  // 33.94 as bf16
  EXPECT_EQ(c.query_scale, 0.0625);
  EXPECT_EQ(c.rope.theta, 1e6);
  EXPECT_EQ(c.rope.type, RopeType::plain);
  ASSERT_TRUE(c.local_rope);
  EXPECT_EQ(c.local_rope->theta, 1e4);
  EXPECT_EQ(c.eos, (std::vector<int64_t>{1, 106}));
  EXPECT_EQ(c.pad, 0);
  for (int64_t l = 0; l < 26; ++l) EXPECT_EQ(c.window_of(l), l % 6 == 5 ? 0 : 512) << l;
}

TEST(Gemma3Config, IsReadInTheNewSpellingAlike) {
  json config = released_gemma3();
  for (const char* old : {"rope_theta", "rope_scaling", "rope_local_base_freq", "sliding_window_pattern"})
    config.erase(old);
  config["rope_parameters"] = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 2e6}}},
                               {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 3e4}}}};
  json types(26, "sliding_attention");
  types[0] = types[7] = "full_attention";
  config["layer_types"] = types;
  const ModelConfig c = read(config);
  EXPECT_EQ(c.rope.type, RopeType::linear);
  EXPECT_EQ(c.rope.factor, 8);
  EXPECT_EQ(c.rope.theta, 2e6);
  EXPECT_EQ(c.local_rope->type, RopeType::plain);
  EXPECT_EQ(c.local_rope->theta, 3e4);
  EXPECT_EQ(c.window_of(0), 0);
  EXPECT_EQ(c.window_of(5), 512);
  EXPECT_EQ(c.window_of(7), 0);
}

TEST(Gemma3Config, ScalesTheRotationOfGlobalLayersOnly) {
  const ModelConfig c = changed(released_gemma3(), {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}});
  EXPECT_EQ(c.rope.type, RopeType::linear);
  EXPECT_EQ(c.rope.theta, 1e6);
  EXPECT_EQ(c.local_rope->type, RopeType::plain);
  EXPECT_EQ(changed(released_gemma3(), {{"rope_local_base_freq", 5e3}}).local_rope->theta, 5e3);
}

TEST(Gemma3Config, TakesTheDefaultsOfItsClass) {
  const ModelConfig c = read({{"architectures", {"Gemma3ForCausalLM"}}});
  EXPECT_EQ(c.hidden, 2304);
  EXPECT_EQ(c.layers, 26);
  EXPECT_EQ(c.heads, 8);
  EXPECT_EQ(c.kv_heads, 4);
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_EQ(c.intermediate, 9216);
  EXPECT_EQ(c.vocab, 262208);
  EXPECT_EQ(c.max_position, 131072);
  EXPECT_EQ(c.embedding_scale, 48);
  EXPECT_EQ(c.query_scale, 0.0625);
  EXPECT_EQ(c.window_of(0), 4096);
  EXPECT_EQ(c.window_of(5), 0);
  EXPECT_TRUE(c.tied);
  EXPECT_EQ(c.bos, 2);
  EXPECT_EQ(c.eos, std::vector<int64_t>{1});
  EXPECT_EQ(c.pad, 0);
  EXPECT_EQ(c.rope.theta, 1e6);
  EXPECT_EQ(c.local_rope->theta, 1e4);
}

TEST(Gemma3Config, HonoursEveryKeyOfItsOwn) {
  EXPECT_EQ(changed(released_gemma3(), {{"query_pre_attn_scalar", 64}}).query_scale, 0.125);
  EXPECT_EQ(changed(released_gemma3(), {{"sliding_window", 16}}).window_of(1), 16);
  EXPECT_EQ(changed(released_gemma3(), {{"sliding_window_pattern", 2}}).window_of(1), 0);
  EXPECT_EQ(changed(released_gemma3(), {{"sliding_window_pattern", 2}}).window_of(5), 0);
  EXPECT_EQ(changed(released_gemma3(), {{"sliding_window_pattern", 2}}).window_of(6), 512);
  EXPECT_FALSE(changed(released_gemma3(), {{"tie_word_embeddings", false}}).tied);
  EXPECT_EQ(changed(released_gemma3(), {{"eos_token_id", 7}}).eos, std::vector<int64_t>{7});
  EXPECT_EQ(changed(released_gemma3(), {{"hidden_size", 96}}).embedding_scale, 9.8125f);  // 9.798 as bf16
}

TEST(Gemma3Config, IsRefusedWhereItsArithmeticWouldDiffer) {
  const json base = released_gemma3();
  expect_refused(base, {{"attn_logit_softcapping", 50.0}}, {"attn_logit_softcapping is '50.0', capped scores"});
  expect_refused(base, {{"final_logit_softcapping", 30.0}}, {"final_logit_softcapping is '30.0'"});
  expect_refused(base, {{"attention_bias", true}}, {"attention_bias is true"});
  expect_refused(base, {{"use_bidirectional_attention", true}}, {"use_bidirectional_attention is true", "causal"});
  expect_refused(base, {{"hidden_activation", "silu"}}, {"hidden_activation is 'silu', only 'gelu_pytorch_tanh'"});
  expect_refused(base, {{"architectures", {"Gemma3ForConditionalGeneration"}}}, {"text_config is missing"});
  expect_refused(base, {{"layer_types", json(26, "chunked_attention")}}, {"layer_types holds '\"chunked_attention\"'"});
  expect_refused(base, {{"layer_types", "sliding_attention"}}, {"expected a list of num_hidden_layers names, 26"});
  expect_refused(base, {{"rope_parameters", {{"rope_theta", 1e6}}}},
                 {"rope_parameters.rope_theta", "each kind of layer"});
  for (const json& value : {json(0), json(-1), json(2.5), json("16")})
    for (const char* key : {"sliding_window", "sliding_window_pattern"}) expect_refused(base, {{key, value}}, {key});
  expect_refused(base, {{"query_pre_attn_scalar", 0}}, {"query_pre_attn_scalar is 0"});
  expect_refused(base, {{"rope_local_base_freq", -1}}, {"rope_local_base_freq is -1"});
  expect_refused(base, {{"rope_scaling", {{"rope_type", "linear"}}}}, {"rope type 'linear' needs factor"});
}

// ---- GPT-2 -------------------------------------------------------------------------------------------------------

TEST(Gpt2Config, IsReadAsReleased) {
  const ModelConfig c = read(released_gpt2());
  EXPECT_EQ(c.hidden, 768);
  EXPECT_EQ(c.layers, 12);
  EXPECT_EQ(c.heads, 12);
  EXPECT_EQ(c.kv_heads, 12);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.intermediate, 3072);
  EXPECT_EQ(c.vocab, 50257);
  EXPECT_EQ(c.max_position, 1024);
  EXPECT_EQ(c.eps, 1e-5f);
  EXPECT_EQ(c.norm, Norm::layer);
  EXPECT_EQ(c.biases, (Biases{.qkv = true, .out = true, .gate_up = true, .down = true}));
  EXPECT_TRUE(c.learned_positions && c.tied);
  EXPECT_EQ(c.head_norm, HeadNorm::none);
  EXPECT_FALSE(c.gated || has_post_norms(network_of(c)) || c.query_scale);
  EXPECT_EQ(c.activation, Activation::gelu_tanh);
  EXPECT_EQ(c.bos, 50256);
  EXPECT_EQ(c.eos, std::vector<int64_t>{50256});
  EXPECT_EQ(c.window_of(11), 0);
}

TEST(Gpt2Config, TakesTheDefaultsOfItsClass) {
  const ModelConfig c = read({{"architectures", {"GPT2LMHeadModel"}}});
  EXPECT_EQ(c.hidden, 768);
  EXPECT_EQ(c.layers, 12);
  EXPECT_EQ(c.heads, 12);
  EXPECT_EQ(c.intermediate, 3072);
  EXPECT_EQ(c.vocab, 50257);
  EXPECT_EQ(c.max_position, 1024);
  EXPECT_EQ(c.eps, 1e-5f);
  EXPECT_TRUE(c.tied);
  EXPECT_EQ(c.eos, std::vector<int64_t>{50256});
}

TEST(Gpt2Config, HonoursEveryKeyOfItsOwn) {
  const auto with = [](const json& changes) { return changed(released_gpt2(), changes); };
  EXPECT_EQ(with({{"activation_function", "gelu"}}).activation, Activation::gelu_erf);  // nanoGPT's
  EXPECT_EQ(with({{"activation_function", "gelu_pytorch_tanh"}}).activation, Activation::gelu_tanh);
  EXPECT_EQ(with({{"n_inner", 100}}).intermediate, 100);
  EXPECT_EQ(with({{"n_inner", nullptr}}).intermediate, 3072);
  EXPECT_EQ(with({{"n_head", 16}}).head_dim, 48);
  EXPECT_EQ(with({{"n_positions", 77}}).max_position, 77);
  EXPECT_EQ(with({{"layer_norm_epsilon", 1e-3}}).eps, 1e-3f);
  EXPECT_EQ(with({{"scale_attn_weights", false}}).query_scale, 1);
  EXPECT_FALSE(with({{"tie_word_embeddings", false}}).tied);
  const ModelConfig c = read({{"architectures", {"GPT2LMHeadModel"}},
                              {"hidden_size", 96},
                              {"num_hidden_layers", 3},
                              {"num_attention_heads", 2},
                              {"max_position_embeddings", 40}});
  EXPECT_EQ(c.hidden, 96);
  EXPECT_EQ(c.layers, 3);
  EXPECT_EQ(c.heads, 2);
  EXPECT_EQ(c.max_position, 40);
}

TEST(Gpt2Config, IsRefusedWhereItsArithmeticWouldDiffer) {
  const json base = released_gpt2();
  expect_refused(base, {{"activation_function", "relu"}}, {"activation_function is 'relu'", "gelu_new"});
  expect_refused(base, {{"scale_attn_by_inverse_layer_idx", true}}, {"scale_attn_by_inverse_layer_idx is true"});
  expect_refused(base, {{"add_cross_attention", true}}, {"add_cross_attention is true"});
  expect_refused(base, {{"n_head", 7}}, {"n_embd is 768, expected a multiple of n_head, 7"});
  expect_refused(base, {{"n_head", 256}}, {"head_dim is 3, expected an even number"});
  for (const char* key : {"n_embd", "n_head", "n_layer", "n_positions", "n_inner"})
    for (const json& value : {json(0), json(-1), json(UINT64_MAX), json("7"), json(2.5)})
      expect_refused(base, {{key, value}}, {key});
}

// ---- GPT-NeoX ----------------------------------------------------------------------------------------------------

TEST(GptNeoXConfig, HasAsManyKeyHeadsAsHeadsWhateverTheFileSays) {
  const ModelConfig c = read({{"architectures", {"GPTNeoXForCausalLM"}}, {"num_key_value_heads", 8}});
  EXPECT_EQ(c.heads, 64);
  EXPECT_EQ(c.kv_heads, 64);
}

}  // namespace
}  // namespace nodewright
