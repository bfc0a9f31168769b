// Files of LoRA adapters: what is read of them, and that whatever is wrong is one line that names it.
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "models/adapters/lora_adapter.h"
#include "models/adapters/merged_adapters.h"
#include "tests/support/error_text.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

constexpr int64_t kMostRank = 16;

std::filesystem::path golden_adapter(const std::string& name) {
  return test::source_dir() / "tests/golden/adapters" / name;
}
ModelConfig base_config(const std::string& base = "llama/biases") {
  return read_model_config(test::source_dir() / "tests/golden" / base);
}

class AdapterFiles : public testing::Test {
 protected:
  AdapterFiles() { reset(); }

  void reset(const std::string& adapter = "llama_all") {
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
      std::filesystem::copy_file(golden_adapter(adapter) / file, folder() / file,
                                 std::filesystem::copy_options::overwrite_existing);
  }
  const std::filesystem::path& folder() const { return scratch_.path(); }
  std::filesystem::path config_file() const { return folder() / "adapter_config.json"; }
  std::filesystem::path tensors_file() const { return folder() / "adapter_model.safetensors"; }
  void set(const std::string& key, const nlohmann::json& value) {
    nlohmann::json config = nlohmann::json::parse(read_text(config_file()));
    config[key] = value;
    write_text(config_file(), config.dump());
  }
  // Every occurrence, by words of as many bytes.
  void replace(const std::string& from, const std::string& to) {
    ASSERT_EQ(from.size(), to.size());
    std::string bytes = read_text(tensors_file());
    size_t at = 0, found = 0;
    for (; (at = bytes.find(from, at)) != std::string::npos; ++found) bytes.replace(at, from.size(), to);
    ASSERT_GT(found, 0u) << from;
    write_text(tensors_file(), bytes);
  }
  // All of both files is looked at.
  std::string problem(const ModelConfig& config = base_config()) const {
    return error_of([&] {
      LoraAdapter::open(folder(), config, kMostRank);
      MergedAdapters(std::vector<std::filesystem::path>{folder()}, config);
    });
  }
  // One line that names the file, or none.
  void expect_one_line(const std::string& text, const std::string& what) const {
    EXPECT_EQ(text.find('\n'), std::string::npos) << what << ": " << text;
    EXPECT_NE(text.find(folder().string()), std::string::npos) << what << ": " << text;
    EXPECT_LT(text.size(), 700u) << what;
  }

  ScratchFolder scratch_;
};

TEST_F(AdapterFiles, AreRefusedWhereTheModelIsAGgufFile) {
  const std::string text = problem(base_config("gguf/llama/model.gguf"));
  expect_one_line(text, "GGUF");
  expect_words(text, {"GGUF file", "Hugging Face layout"});
}

TEST_F(AdapterFiles, AreReadAsPeftMeansThem) {
  const LoraAdapter all = LoraAdapter::open(golden_adapter("llama_all"), base_config(), kMostRank);
  EXPECT_EQ(all.modules().size(), 14u);
  EXPECT_EQ(all.rank(), 8);
  const AdapterModule &q = *all.find("layers.1.self_attn.q_proj"), &v = *all.find("layers.0.self_attn.v_proj"),
                      &down = *all.find("layers.1.mlp.down_proj"), &other = *all.find("layers.0.mlp.down_proj");
  EXPECT_EQ(q.rank, 2);
  EXPECT_DOUBLE_EQ(q.scale, 6.0 / 2);
  EXPECT_EQ(v.rank, 4);
  EXPECT_DOUBLE_EQ(v.scale, 3.0 / 4);
  EXPECT_EQ(down.rank, 8);
  EXPECT_DOUBLE_EQ(down.scale, 6.0 / 8);
  EXPECT_EQ(other.rank, 4);

  const LoraAdapter root = LoraAdapter::open(golden_adapter("llama_root"), base_config(), kMostRank);
  EXPECT_EQ(root.modules().size(), 6u);
  EXPECT_FLOAT_EQ(static_cast<float>(root.find("layers.0.mlp.up_proj")->scale), 5 / std::sqrt(8.0f));
  const LoraAdapter layer = LoraAdapter::open(golden_adapter("llama_layer"), base_config(), kMostRank);
  EXPECT_EQ(layer.find("layers.0.self_attn.k_proj"), nullptr);
  EXPECT_NE(layer.find("layers.1.self_attn.k_proj"), nullptr);
}

// A key of adapter_config.json, what it is set to, and words of the line that says so.
struct WrongKey {
  const char* key;
  nlohmann::json value;
  const char* words;
};

TEST_F(AdapterFiles, WhatAConfigurationMayNotSayIsNamed) {
  const std::vector<WrongKey> wrong = {
      {"peft_type", "LOHA", "peft_type is 'LOHA', expected LORA"},
      {"peft_type", 3, "peft_type is '3', expected text"},
      {"use_dora", true, "use_dora is 'true', which is not supported"},
      {"lora_bias", true, "lora_bias is 'true', which is not supported"},
      {"modules_to_save", {"lm_head"}, "modules_to_save is"},
      {"trainable_token_indices", {1}, "trainable_token_indices is"},
      {"alora_invocation_tokens", {1}, "alora_invocation_tokens is"},
      {"layer_replication", {{0, 1}}, "layer_replication is"},
      {"target_parameters", {"x"}, "target_parameters is"},
      {"use_qalora", true, "use_qalora is"},
      {"init_lora_weights", "pissa", "init_lora_weights is 'pissa', and such an adapter belongs to weights"},
      {"init_lora_weights", "pissa_niter_16", "init_lora_weights is 'pissa_niter_16'"},
      {"init_lora_weights", "olora", "init_lora_weights is 'olora'"},
      {"init_lora_weights", "corda", "init_lora_weights is 'corda'"},
      {"bias", "all", "bias is 'all', expected none"},
      {"bias", "lora_only", "bias is 'lora_only', expected none"},
      {"r", 0, "r is 0, expected 1 to"},
      {"r", -4, "r is -4, expected 1 to"},
      {"r", 1 << 20, "r is 1048576, expected 1 to"},
      {"r", "4", "r is '\"4\"', expected an integer"},
      {"r", 4.5, "r is '4.5', expected an integer"},
      {"r", 3, "expected shape [3, 100], found [4, 100]"},
      {"r", 17, "expected shape [17, 100], found [4, 100]"},
      {"lora_alpha", "x", "lora_alpha is"},
      {"lora_alpha", 1e300, "lora_alpha is 1e+300, expected"},
      {"lora_alpha", {1}, "lora_alpha is"},
      {"use_rslora", 1, "use_rslora is '1', expected true or false"},
      {"fan_in_fan_out", "no", "fan_in_fan_out is"},
      {"target_modules", nullptr, "target_modules is missing or empty"},
      {"target_modules", nlohmann::json::array(), "target_modules is missing or empty"},
      {"target_modules", {1, 2}, "target_modules is"},
      {"target_modules", 7, "target_modules is"},
      {"target_modules", "(", "target_modules is '(', no regular expression"},
      {"target_modules", "(a)\\1", "no regular expression that is understood here"},
      {"target_modules", "(a)\\18446744073709551610", "with a number of more than 6 digits"},
      {"target_modules", std::string(600, 'a'), "has 600 characters, expected at most 512"},
      {"target_modules", {"q_proj"}, "does not name its module"},
      {"target_modules", ".*q_proj", "does not name its module"},
      {"target_modules", {"nothing"}, "does not name its module"},
      {"exclude_modules", {"q_proj"}, "does not name its module"},
      {"exclude_modules", "[", "exclude_modules is '[', no regular expression"},
      {"rank_pattern", {{"q_proj", 0}}, "rank_pattern.q_proj is 0, expected 1 to"},
      {"rank_pattern", {{"q_proj", "2"}}, "rank_pattern.q_proj is"},
      {"rank_pattern", {{"(", 2}}, "no regular expression"},
      {"rank_pattern", {{"q_proj", 2}, {".*_proj", 4}}, "rank_pattern gives"},
      {"rank_pattern", {1}, "rank_pattern is"},
      {"alpha_pattern", {{"q_proj", "x"}}, "alpha_pattern.q_proj is"},
      {"alpha_pattern", {{"q_proj", 2}, {".*q_proj", 4}}, "alpha_pattern gives"},
      {"layers_to_transform", {0}, "does not name its module"},
      {"layers_to_transform", "0", "layers_to_transform is"},
      {"layers_to_transform", {7}, "does not name its module"},
      {"layers_to_transform", {0.5}, "layers_to_transform is"},
      {"layers_to_transform", -1, "layers_to_transform is"},  // PEFT takes it for no layer
      {"layers_to_transform", {-1}, "layers_to_transform is"},
  };
  for (const WrongKey& one : wrong) {
    reset();
    set(one.key, one.value);
    const std::string text = problem();
    expect_one_line(text, one.key);
    expect_words(text, {one.words});
  }
}

TEST_F(AdapterFiles, ARankAboveTheMostIsRefusedWithWhatToTry) {
  const std::string text = error_of([&] { LoraAdapter::open(folder(), base_config(), 4); });
  expect_words(
      text, {"the rank of 'model.layers.1.mlp.down_proj' is 8, and at most 4 is allowed", "try: --max-adapter-rank 8"});
}

TEST_F(AdapterFiles, WhatTensorsMayNotBeIsNamed) {
  struct WrongTensor {
    const char *from, *to, *words;
  };
  const WrongTensor wrong[] = {
      {"layers.1.mlp.up_proj", "layers.7.mlp.up_proj", "the model's layers have no such matrix"},
      {"layers.1.mlp.up_proj", "layers.1.mlp.up_pro_", "the model's layers have no such matrix"},
      {"base_model.model.model.layers.0.mlp", "base_model.other.model.layers.0.mlp", "does not begin with"},
      {"up_proj.lora_A.weight", "up_proj.lora_C.weight", "ends neither with .lora_A.weight nor with .lora_B.weight"},
      {"up_proj.lora_A.weight", "up_proj.lora_B.weighs", "ends neither with"},
      {"lora_A", "lora_B", "twice"},
      {"F32", "I32", "its dtype is I32, supported are BF16, F16 and F32"},
  };
  for (const WrongTensor& one : wrong) {
    reset();
    replace(one.from, one.to);
    const std::string text = problem();
    expect_one_line(text, one.to);
    if (one.words != std::string_view("twice")) expect_words(text, {one.words});
  }
  // An adapter of another model: another width, other modules.
  reset("granite");
  ModelConfig wider = base_config("granite/multipliers");
  wider.intermediate = 104;
  expect_words(problem(wider), {"expected shape", "check that the adapter was made for this model"});
  reset("phi3");
  expect_words(problem(), {"gate_up_proj.lora_A.weight", "no such matrix"});
}

TEST_F(AdapterFiles, AMissingHalfIsNamed) {
  reset("llama_layer");
  set("target_modules", {"o_proj", "down_proj", "k_proj", "v_proj"});
  expect_words(problem(), {"adapter_config.json names 'model.layers.1.self_attn.v_proj', and its lora_A is missing"});
  std::filesystem::remove(tensors_file());
  expect_words(problem(), {"it holds no adapter_model.safetensors", "check the path"});
  write_text(folder() / "adapter_model.bin", "x");
  expect_words(problem(), {"save the adapter again with safe_serialization=True"});
  std::filesystem::remove(config_file());
  expect_words(problem(), {"adapter_config.json", "No such file"});
}

TEST_F(AdapterFiles, ValuesThatAreNotFiniteAreRefused) {
  std::string bytes = read_text(tensors_file());
  const float wrong = std::numeric_limits<float>::infinity();
  bytes.replace(bytes.size() - sizeof(wrong), sizeof(wrong), reinterpret_cast<const char*>(&wrong), sizeof(wrong));
  write_text(tensors_file(), bytes);
  expect_words(problem(), {"is inf, expected a finite number"});
}

// Bytes changed, cut off and put in, in both files: a line, or an adapter.
TEST_F(AdapterFiles, AHundredMutationsAreOneLineOrHarmless) {
  std::mt19937_64 draw(34);
  int refused = 0;
  for (int i = 0; i < 120; ++i) {
    reset(i % 3 == 0 ? "llama_root" : "llama_all");
    const std::filesystem::path file = i % 2 == 0 ? config_file() : tensors_file();
    std::string bytes = read_text(file);
    const size_t reach = i % 2 == 0 ? bytes.size() : std::min<size_t>(bytes.size(), 3000), at = draw() % reach;
    switch (draw() % 4) {
      case 0:
        bytes[at] = static_cast<char>(draw() % 256);
        break;
      case 1:
        bytes.resize(at);
        break;
      case 2:
        bytes.insert(at, 1, static_cast<char>(draw() % 256));
        break;
      default:
        bytes.erase(at, 1 + draw() % 9);
        break;
    }
    write_text(file, bytes);
    const std::string text = problem();
    if (text.empty()) continue;
    ++refused;
    expect_one_line(text, "mutation " + std::to_string(i));
  }
  EXPECT_GT(refused, 70);
}

}  // namespace
}  // namespace nodewright
