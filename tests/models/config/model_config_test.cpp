// config.json and generation_config.json: both spellings, defaults, and everything that is refused by name.
#include "models/config/model_config.h"

#include <numeric>

#include "tests/models/checkpoint_files.h"

namespace nodewright {
namespace {

using nlohmann::json;

ModelConfig read_text(const std::string& text, const std::string& generation = {}) {
  const ScratchFolder folder;
  folder.write("config.json", text);
  if (!generation.empty()) folder.write("generation_config.json", generation);
  return read_model_config(folder.path());
}

// The released Llama-3.2-1B, in the spelling it was released in.
json released() {
  return json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 128000,
    "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
    "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256})");
}

ModelConfig with(const json& changes) {
  json config = released();
  config.update(changes);
  return read_text(config.dump());
}

void expect_refused(const json& changes, std::initializer_list<std::string_view> words) {
  expect_error([&] { with(changes); }, words);
  expect_error([&] { with(changes); }, {"cannot read the model configuration", "config.json"});
}

void expect_llama_rope(const RopeConfig& rope) {
  EXPECT_EQ(rope.type, RopeType::llama3);
  EXPECT_EQ(rope.theta, 5e5);
  EXPECT_EQ(rope.factor, 32);
  EXPECT_EQ(rope.low, 1);
  EXPECT_EQ(rope.high, 4);
  EXPECT_EQ(rope.original, 8192);
}

TEST(ModelConfig, ReadsAReleasedLlama) {
  const ModelConfig c = read_text(released().dump());
  EXPECT_EQ(c.architecture, "LlamaForCausalLM");
  EXPECT_EQ(c.hidden, 2048);
  EXPECT_EQ(c.layers, 16);
  EXPECT_EQ(c.heads, 32);
  EXPECT_EQ(c.kv_heads, 8);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.intermediate, 8192);
  EXPECT_EQ(c.vocab, 128256);
  EXPECT_EQ(c.max_position, 131072);
  EXPECT_EQ(c.eps, 1e-5f);
  EXPECT_TRUE(c.tied);
  EXPECT_EQ(c.bos, 128000);
  EXPECT_EQ(c.eos, std::vector<int64_t>{128001});
  EXPECT_FALSE(c.pad);
  EXPECT_EQ(c.dtype, "bfloat16");
  EXPECT_EQ(c.qkv_width(), 3072);
  expect_llama_rope(c.rope);
}

TEST(ModelConfig, ReadsTheNewSpellingsAlike) {
  json config = released();
  config["rope_parameters"] = config["rope_scaling"];
  config["rope_parameters"]["rope_theta"] = config["rope_theta"];
  config["dtype"] = config["torch_dtype"];
  for (const char* old : {"rope_scaling", "rope_theta", "torch_dtype"}) config.erase(old);
  const ModelConfig c = read_text(config.dump());
  expect_llama_rope(c.rope);
  EXPECT_EQ(c.dtype, "bfloat16");
}

TEST(ModelConfig, ReadsTheOlderKeyTypeAndTheLinearScaling) {
  const ModelConfig c = with({{"rope_scaling", {{"type", "linear"}, {"factor", 8}}}, {"rope_theta", 10000}});
  EXPECT_EQ(c.rope.type, RopeType::linear);
  EXPECT_EQ(c.rope.factor, 8);
  EXPECT_EQ(c.rope.theta, 10000);
  EXPECT_EQ(with({{"rope_scaling", nullptr}}).rope.type, RopeType::plain);
  EXPECT_EQ(with({{"rope_scaling", json::object()}}).rope.theta, 5e5);
  EXPECT_EQ(with({{"rope_scaling", {{"rope_type", "default"}}}}).rope.type, RopeType::plain);
}

TEST(ModelConfig, FillsInTheDefaultsOfTransformers) {
  const ModelConfig c = read_text(R"({"architectures": ["LlamaForCausalLM"]})");
  EXPECT_EQ(c.hidden, 4096);
  EXPECT_EQ(c.layers, 32);
  EXPECT_EQ(c.heads, 32);
  EXPECT_EQ(c.kv_heads, 32);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.intermediate, 11008);
  EXPECT_EQ(c.vocab, 32000);
  EXPECT_EQ(c.max_position, 2048);
  EXPECT_EQ(c.eps, 1e-6f);
  EXPECT_FALSE(c.tied);
  EXPECT_EQ(c.rope.type, RopeType::plain);
  EXPECT_EQ(c.rope.theta, 10000);
  EXPECT_EQ(c.bos, 1);
  EXPECT_EQ(c.eos, std::vector<int64_t>{2});
  EXPECT_FALSE(c.pad);
  EXPECT_EQ(c.dtype, "");
  EXPECT_FALSE(c.generation.temperature);
}

TEST(ModelConfig, TakesNullForTheOptionalNumbers) {
  const ModelConfig c = with({{"head_dim", nullptr},
                              {"num_key_value_heads", nullptr},
                              {"eos_token_id", nullptr},
                              {"bos_token_id", nullptr},
                              {"pad_token_id", -1},
                              {"quantization_config", nullptr}});
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.kv_heads, 32);
  EXPECT_TRUE(c.eos.empty());
  EXPECT_FALSE(c.bos);
  EXPECT_FALSE(c.pad);
}

TEST(ModelConfig, TakesAWholeNumberWrittenAsAFraction) {
  const ModelConfig c = with({{"hidden_size", 2048.0}, {"eos_token_id", {128001.0, 128009}}, {"bos_token_id", 1e2}});
  EXPECT_EQ(c.hidden, 2048);
  EXPECT_EQ(c.eos, (std::vector<int64_t>{128001, 128009}));
  EXPECT_EQ(c.bos, 100);
  expect_refused({{"hidden_size", 2048.5}}, {"hidden_size is '2048.5', expected an integer"});
  expect_refused({{"num_hidden_layers", 0.0}}, {"num_hidden_layers is 0"});
  expect_refused({{"num_hidden_layers", 1e300}}, {"num_hidden_layers", "expected an integer"});
}

TEST(ModelConfig, KnowsTheContextThatScalingMakes) {
  const auto of = [](const json& scaling, int64_t max = 32768) {
    return with({{"max_position_embeddings", max}, {"rope_scaling", scaling}});
  };
  const json pairs = std::vector<double>(32, 1.5);
  const ModelConfig yarn = of({{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}});
  EXPECT_EQ(yarn.max_position, 131072);
  EXPECT_EQ(yarn.longest_context(), 131072);
  EXPECT_EQ(
      of({{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}}, 131072).max_position,
      131072);  // released with the number that scaling makes
  EXPECT_EQ(of({{"rope_type", "linear"}, {"factor", 2.0}}).max_position, 65536);
  EXPECT_EQ(of({{"rope_type", "linear"}, {"factor", 0.5}}).max_position, 32768);
  EXPECT_EQ(with(json::object()).max_position, 131072);  // Llama-3.2's own, beyond the original 8192
  EXPECT_EQ(with({{"max_position_embeddings", 8192}}).max_position, 262144);
  const ModelConfig dynamic = of({{"rope_type", "dynamic"}, {"factor", 4.0}});
  EXPECT_EQ(dynamic.max_position, 32768);  // frequencies are others beyond
  EXPECT_EQ(dynamic.longest_context(), 131072);
  const ModelConfig longrope =
      of({{"rope_type", "longrope"}, {"factor", 4.0}, {"short_factor", pairs}, {"long_factor", pairs}});
  EXPECT_EQ(longrope.max_position, 32768);
  EXPECT_EQ(longrope.longest_context(), 131072);
  EXPECT_EQ(of({{"rope_type", "default"}}).longest_context(), 32768);
}

TEST(ModelConfig, TakesSamplingDefaultsAndEosFromTheGenerationConfig) {
  const ModelConfig c = read_text(released().dump(), R"({"bos_token_id": 128000, "do_sample": true,
      "eos_token_id": [128001, 128008, 128009], "temperature": 0.6, "top_p": 0.9, "top_k": 50})");
  EXPECT_EQ(c.eos, (std::vector<int64_t>{128001, 128008, 128009}));
  EXPECT_EQ(c.generation.sample, true);
  EXPECT_EQ(c.generation.temperature, 0.6);
  EXPECT_EQ(c.generation.top_p, 0.9);
  EXPECT_EQ(c.generation.top_k, 50);
  EXPECT_EQ(read_text(released().dump(), "{}").eos, std::vector<int64_t>{128001});
  for (const char* silent : {R"({"eos_token_id": null})", R"({"eos_token_id": []})", R"({"eos_token_id": -1})"})
    EXPECT_EQ(read_text(released().dump(), silent).eos, std::vector<int64_t>{128001}) << silent;
  EXPECT_EQ(read_text(released().dump(), R"({"eos_token_id": [7, 128001]})").eos, (std::vector<int64_t>{7, 128001}));
  EXPECT_EQ(read_text(released().dump(), R"({"eos_token_id": 7})").eos, (std::vector<int64_t>{7, 128001}));
  EXPECT_EQ(read_text(released().dump(), R"({"eos_token_id": [7, 7]})").eos, (std::vector<int64_t>{7, 128001}));
  json many = released();  // as many steps, not as many for each of them
  std::vector<int64_t> all(200'000);
  std::iota(all.begin(), all.end(), 0);
  many["eos_token_id"] = all;
  many["vocab_size"] = all.size();
  EXPECT_EQ(read_text(many.dump(), R"({"eos_token_id": 7})").eos.size(), all.size());
  json unsaid = released();
  unsaid.erase("eos_token_id");
  EXPECT_EQ(read_text(unsaid.dump(), R"({"eos_token_id": 7})").eos, std::vector<int64_t>{7});  // no Llama's 2
  EXPECT_EQ(read_text(unsaid.dump(), R"({"eos_token_id": null})").eos, std::vector<int64_t>{2});
  for (const char* all : {R"({"top_k": 0})", R"({"top_k": -1})"})
    EXPECT_EQ(read_text(released().dump(), all).generation.top_k, 0) << all;
  expect_error([] { read_text(released().dump(), R"({"top_k": -2})"); }, {"top_k is -2"});
  EXPECT_EQ(read_text(released().dump(), R"({"top_p": 0})").generation.top_p, 0);
  expect_error([] { read_text(released().dump(), R"({"temperature": -1})"); },
               {"generation_config.json", "temperature is -1"});
  expect_error([] { read_text(released().dump(), R"({"top_p": 1.5})"); }, {"top_p is 1.5"});
  expect_error([] { read_text(released().dump(), R"({"top_k": 1.5})"); }, {"top_k is '1.5', expected an integer"});
  expect_error([] { read_text(released().dump(), "[]"); }, {"generation_config.json", "expected a JSON object"});
}

TEST(ModelConfig, RefusesAnEndThatTheVocabularyDoesNotHave) {
  expect_refused({{"eos_token_id", {7, 128256}}}, {"eos_token_id has 128256", "vocab_size, 128256"});
  expect_error([] { read_text(released().dump(), R"({"eos_token_id": [7, 200000]})"); },
               {"generation_config.json", "eos_token_id has 200000", "vocab_size, 128256"});
  EXPECT_EQ(read_text(released().dump(), R"({"eos_token_id": 128255})").eos.front(), 128255);
}

TEST(ModelConfig, TakesPenaltiesAndTokensThatAreNeverChosenFromTheGenerationConfig) {
  const GenerationDefaults g = read_text(released().dump(), R"({"min_p": 0.05, "repetition_penalty": 1.1,
      "suppress_tokens": [7, 8], "bad_words_ids": [[9], [10, 11]], "min_new_tokens": 3})")
                                   .generation;
  EXPECT_EQ(g.min_p, 0.05);
  EXPECT_EQ(g.repetition_penalty, 1.1);
  EXPECT_EQ(g.suppress_tokens, (std::vector<int64_t>{7, 8}));
  EXPECT_EQ(g.bad_words_ids, (std::vector<std::vector<int64_t>>{{9}, {10, 11}}));
  EXPECT_EQ(g.min_new_tokens, 3);
  EXPECT_TRUE(g.ignored.empty());
  expect_error([] { read_text(released().dump(), R"({"repetition_penalty": 0})"); }, {"repetition_penalty is 0"});
  expect_error([] { read_text(released().dump(), R"({"min_p": 2})"); }, {"min_p is 2"});
  for (const char* words : {"7", "[7]", "[[]]", "[[-1]]", "[[\"a\"]]"})
    expect_error([&] { read_text(released().dump(), std::string(R"({"bad_words_ids": )") + words + "}"); },
                 {"bad_words_ids is", "token ids"});
}

TEST(ModelConfig, RefusesTokensToDenyThatTheVocabularyDoesNotHaveOrARowDoesNotHold) {
  const auto refused = [](const nlohmann::json& generation, std::initializer_list<std::string_view> words) {
    expect_error([&] { read_text(released().dump(), generation.dump()); }, words);
  };
  refused({{"suppress_tokens", {7, 128256}}}, {"generation_config.json", "suppress_tokens has 128256", "vocab_size"});
  refused({{"bad_words_ids", {{1}, {2, 200000}}}}, {"bad_words_ids has 200000", "vocab_size, 128256"});
  std::vector<int> many(200);
  std::iota(many.begin(), many.end(), 0);
  const nlohmann::json words(100, nlohmann::json::array({5}));
  refused({{"suppress_tokens", many}, {"bad_words_ids", words}},
          {"suppress_tokens has 200", "bad_words_ids 100", "256"});
}

TEST(ModelConfig, ATokenThatIsSuppressedTwiceIsSuppressed) {
  EXPECT_EQ(read_text(released().dump(), R"({"suppress_tokens": [8, 7, 8]})").generation.suppress_tokens,
            (std::vector<int64_t>{8, 7}));
}

TEST(ModelConfig, NamesWhatTheGenerationConfigAsksForAndNobodyDoes) {
  const auto ignored = [](const char* generation) {
    return read_text(released().dump(), generation).generation.ignored;
  };
  EXPECT_EQ(ignored(R"({"typical_p": 0.9, "num_beams": 4, "begin_suppress_tokens": [220, 50256], "made_up": "x",
                   "min_length": 20})"),
            (std::vector<std::string>{"begin_suppress_tokens [220,50256]", "made_up \"x\"", "min_length 20",
                                      "num_beams 4", "typical_p 0.9"}));
  // As transformers writes a file with all of its defaults.
  EXPECT_EQ(ignored(R"({"typical_p": 1.0, "num_beams": 1, "no_repeat_ngram_size": 0, "force_words_ids": null,
      "encoder_repetition_penalty": 1.0, "diversity_penalty": 0.0, "guidance_scale": null, "sequence_bias": {},
      "max_length": 20, "min_length": 0, "max_new_tokens": 2048, "use_cache": true, "cache_implementation": "hybrid",
      "transformers_version": "4.50.0", "pad_token_id": 0, "epsilon_cutoff": 0.0, "forced_eos_token_id": null})"),
            std::vector<std::string>{});
}

TEST(ModelConfig, RefusesOtherArchitecturesAndListsTheSupported) {
  expect_refused({{"architectures", {"MambaForCausalLM"}}},
                 {"architecture 'MambaForCausalLM' is not supported",
                  "supported architectures: LlamaForCausalLM, MistralForCausalLM,", "Cohere2ForCausalLM"});
  expect_refused({{"architectures", {"Qwen2MoeForCausalLM"}}}, {"shared experts are not supported"});
  expect_refused({{"architectures", {"LlavaForConditionalGeneration"}}}, {"vision towers are not supported"});
  expect_refused({{"architectures", {"LlamaForSequenceClassification"}}}, {"LlamaForSequenceClassification"});
  expect_refused({{"architectures", nullptr}}, {"architectures is missing"});
  for (const json& list : {json("LlamaForCausalLM"), json::array(), json{"a", "b"}, json{1}})
    expect_refused({{"architectures", list}}, {"expected a list of one name"});
}

TEST(ModelConfig, RefusesWhatWouldChangeTheArithmetic) {
  expect_refused({{"hidden_act", "gelu"}}, {"hidden_act is 'gelu'"});
  expect_refused({{"partial_rotary_factor", 0.02}}, {"partial_rotary_factor is 0.02: 1 of head_dim, 64"});
  expect_refused({{"rope_scaling", {{"rope_type", "mrope"}, {"factor", 4.0}}}},
                 {"rope_type is 'mrope'", "default, linear, dynamic, llama3, yarn, longrope"});
}

TEST(ModelConfig, RefusesIncompleteOrImpossibleRopeParameters) {
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"}) {
    json rope = released()["rope_scaling"];
    rope.erase(key);
    expect_refused({{"rope_scaling", rope}}, {"rope type 'llama3' needs " + std::string(key)});
    for (const json& value : {json(0), json(-1), json(1e300), json("8"), json(true)}) {
      rope[key] = value;
      expect_refused({{"rope_scaling", rope}}, {"rope_scaling." + std::string(key)});
    }
  }
  json rope = released()["rope_scaling"];
  rope["high_freq_factor"] = 1.0;
  expect_refused({{"rope_scaling", rope}}, {"high_freq_factor is 1", "low_freq_factor, 1"});
  expect_refused({{"rope_theta", 0}}, {"rope_theta is 0"});
  expect_refused({{"rope_theta", "5e5"}}, {"rope_theta"});
  // In range one by one, and together beyond what a float32 frequency holds.
  expect_refused({{"rope_theta", 1e-300}}, {"rope_theta, 1e-300", "inf"});
  expect_refused({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 1e-300}}}}, {"rotary parameters", "inf"});
  expect_refused({{"rope_scaling", "llama3"}}, {"rope_scaling is '\"llama3\"', expected an object"});
  expect_refused({{"rope_scaling", {{"rope_type", 3}}}}, {"rope_scaling.rope_type is '3', expected text"});
  rope = released()["rope_scaling"];
  rope.erase("original_max_position_embeddings");
  EXPECT_EQ(with({{"rope_scaling", rope}}).rope.original, 131072);
}

TEST(ModelConfig, RefusesHeadsThatDoNotDivideAndOddHeads) {
  expect_refused({{"num_key_value_heads", 5}}, {"num_attention_heads is 32", "num_key_value_heads, 5"});
  expect_refused({{"num_key_value_heads", 64}}, {"num_key_value_heads, 64"});
  expect_refused({{"head_dim", 63}}, {"head_dim is 63, expected an even number"});
  expect_refused({{"head_dim", nullptr}, {"hidden_size", 2050}}, {"hidden_size is 2050", "num_attention_heads, 32"});
  expect_refused({{"bos_token_id", 128256}}, {"bos_token_id is 128256", "vocab_size, 128256"});
}

TEST(ModelConfig, RefusesSizesThatAreNotBelievable) {
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
                          "intermediate_size", "vocab_size", "max_position_embeddings"}) {
    for (const json& value : {json(0), json(-1), json(INT64_MIN), json(INT64_MAX), json(UINT64_MAX)})
      expect_refused({{key, value}}, {std::string(key) + " is " + value.dump(), "expected 1 to"});
    for (const json& value : {json("7"), json(2.5), json(true), json::array({1}), json::object()})
      expect_refused({{key, value}}, {std::string(key) + " is '", "expected an integer"});
  }
  expect_refused({{"rms_norm_eps", -1e-5}}, {"rms_norm_eps is -1e-05"});
  expect_refused({{"rms_norm_eps", "1e-5"}}, {"rms_norm_eps", "expected a number"});
  expect_refused({{"tie_word_embeddings", 1}}, {"tie_word_embeddings is '1', expected true or false"});
  expect_refused({{"torch_dtype", 16}}, {"torch_dtype is '16', expected text"});
  expect_refused({{"eos_token_id", "</s>"}}, {"eos_token_id", "a list of integers"});
  expect_refused({{"eos_token_id", {1, 2.5}}}, {"eos_token_id", "expected an integer"});
  expect_refused({{"bos_token_id", {1, 2}}}, {"bos_token_id has 2 token ids, expected one"});
}

TEST(ModelConfig, RefusesFilesThatAreMissingOrNotJson) {
  const ScratchFolder folder;
  expect_error([&] { read_model_config(folder.path()); }, {"config.json", "No such file"});
  expect_error([&] { read_model_config(folder.path() / "absent"); }, {"absent/config.json"});
  for (const char* text : {"", "{", "not json", "{} {}", "{\"a\": NaN}", "{\"a\": 1e999}", "{\"\xff\": 1}", "{'a': 1}"})
    expect_error([&] { read_text(text); }, {"cannot read the model configuration", "config.json", "not valid JSON"});
  expect_error([] { read_text(released().dump() + std::string("\0}", 2)); }, {"not valid JSON", "is zero"});
  for (const char* text : {"[]", "3", "null", "\"LlamaForCausalLM\""})
    expect_error([&] { read_text(text); }, {"expected a JSON object"});
  expect_error([] { read_text(R"({"vocab_size": 1, "vocab_size": 2})"); }, {"the key 'vocab_size' appears twice"});
}

std::vector<std::string> faults_of(const json& changes, const std::string& generation = {}) {
  const ScratchFolder folder;
  json config = released();
  config.update(changes);
  folder.write("config.json", config.dump());
  if (!generation.empty()) folder.write("generation_config.json", generation);
  std::vector<std::string> lines;
  for (const Error& fault : model_config_faults(folder.path())) lines.emplace_back(fault.what());
  return lines;
}

TEST(ModelConfig, TellsEveryFaultOfBothFilesInTheOrderOfReading) {
  const std::vector<std::string> lines = faults_of({{"hidden_act", "relu"},
                                                    {"num_hidden_layers", 0},
                                                    {"vocab_size", "many"},
                                                    {"rope_scaling", {{"rope_type", "mrope"}, {"factor", 2}}}},
                                                   R"({"temperature": -1, "top_p": 0.5, "bad_words_ids": [3]})");
  const std::vector<std::string> named = {"hidden_act is 'relu'", "num_hidden_layers is 0", "vocab_size is '\"many\"'",
                                          "rope_type is 'mrope'", "temperature is -1",      "bad_words_ids is '[3]'"};
  ASSERT_EQ(lines.size(), named.size());
  for (size_t i = 0; i < named.size(); ++i)
    expect_words(lines[i], {named[i], i < 4 ? "/config.json" : "generation_config.json"});
}

TEST(ModelConfig, TellsNoFaultThatMayFollowFromAnother) {
  EXPECT_TRUE(faults_of(json::object(), "{}").empty());
  const std::vector<std::string> one = faults_of({{"num_attention_heads", 7}});  // not a multiple of 8
  ASSERT_EQ(one.size(), 1u);
  expect_words(one[0], {"num_attention_heads is 7"});
  const std::vector<std::string> other = faults_of({{"num_attention_heads", 7}, {"vocab_size", -1}});
  ASSERT_EQ(other.size(), 1u);
  expect_words(other[0], {"vocab_size is -1"});
}

TEST(ModelConfig, RefusesDeepNestingAndHugeFiles) {
  constexpr size_t kDepth = 1'000'000;
  expect_error([] { read_text(R"({"a": )" + std::string(kDepth, '[')); }, {"deeper than 64"});
  std::string objects;
  for (size_t i = 0; i < 100; ++i) objects += R"({"a":)";
  expect_error([&] { read_text(objects); }, {"deeper than 64"});
  expect_error([] { read_text(std::string((16 << 20) + 1, ' ')); }, {"16777217 bytes"});
}

}  // namespace
}  // namespace nodewright
