// Whether the config.json of a released model is read or, if not, which feature is named: a row for each file of
// tests/golden/configs. A family that is added flips its rows.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "models/config/model_config.h"
#include "runtime/error.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

struct ReleasedConfig {
  const char* name;
  const char* refusal;  // a part of the message; null: it is read
  int64_t layers = 0, hidden = 0, head_dim = 0, kv_heads = 0, vocab = 0;
};

constexpr ReleasedConfig kReleasedConfigs[] = {
    {"command-r7b", "architecture 'Cohere2ForCausalLM' is not supported"},
    {"deepseek-r1-distill-qwen-1.5b", "architecture 'Qwen2ForCausalLM' is not supported"},
    {"exaone-3.5-2.4b", "architecture 'ExaoneForCausalLM' is not supported"},
    {"exaone-4.0-1.2b", "architecture 'Exaone4ForCausalLM' is not supported"},
    {"falcon3-3b", nullptr, 22, 3072, 256, 4, 131072},
    {"gemma-2-2b", "architecture 'Gemma2ForCausalLM' is not supported"},
    {"gemma-2-9b", "architecture 'Gemma2ForCausalLM' is not supported"},
    {"gemma-3-1b", nullptr, 26, 1152, 256, 1, 262144},
    {"gemma-3-4b", "vision towers are not supported"},
    {"gemma-3-12b", "vision towers are not supported"},
    {"granite-3.1-2b", "architecture 'GraniteForCausalLM' is not supported"},
    {"granite-3.1-8b", "architecture 'GraniteForCausalLM' is not supported"},
    {"llama-3.1-8b", nullptr, 32, 4096, 128, 8, 128256},
    {"llama-3.2-1b", nullptr, 16, 2048, 64, 8, 128256},
    {"ministral-8b", "architecture 'MistralForCausalLM' is not supported"},
    {"mistral-7b-v0.1", "architecture 'MistralForCausalLM' is not supported"},
    {"mistral-7b-v0.3", "architecture 'MistralForCausalLM' is not supported"},
    {"mistral-nemo", "architecture 'MistralForCausalLM' is not supported"},
    {"mixtral-8x7b", "mixtures of experts are not supported"},
    {"olmo-2-1b", "architecture 'Olmo2ForCausalLM' is not supported"},
    {"olmo-2-7b", "architecture 'Olmo2ForCausalLM' is not supported"},
    {"olmoe-1b-7b", "architecture 'OlmoeForCausalLM' is not supported"},
    {"phi-3-mini-128k", "architecture 'Phi3ForCausalLM' is not supported"},
    {"phi-3-mini-4k", "architecture 'Phi3ForCausalLM' is not supported"},
    {"phi-4", "architecture 'Phi3ForCausalLM' is not supported"},
    {"phi-4-mini", "architecture 'Phi3ForCausalLM' is not supported"},
    {"pythia-1.4b", "architecture 'GPTNeoXForCausalLM' is not supported"},
    {"qwen2.5-0.5b", "architecture 'Qwen2ForCausalLM' is not supported"},
    {"qwen2.5-1.5b", "architecture 'Qwen2ForCausalLM' is not supported"},
    {"qwen2.5-7b", "architecture 'Qwen2ForCausalLM' is not supported"},
    {"qwen3-0.6b", nullptr, 28, 1024, 128, 8, 151936},
    {"qwen3-30b-a3b", "mixtures of experts are not supported"},
    {"qwen3-4b", nullptr, 36, 2560, 128, 8, 151936},
    {"qwen3-8b", nullptr, 36, 4096, 128, 8, 151936},
    {"smollm2-1.7b", nullptr, 24, 2048, 64, 32, 49152},
    {"smollm3-3b", "architecture 'SmolLM3ForCausalLM' is not supported"},
    {"stablelm-2-1.6b", "architecture 'StableLmForCausalLM' is not supported"},
    {"starcoder2-3b", "architecture 'Starcoder2ForCausalLM' is not supported"},
};

std::filesystem::path released_configs() { return test::source_dir() / "tests/golden/configs"; }

ModelConfig read_released(const std::string& name) {
  const ScratchFolder folder;
  folder.write("config.json", nodewright::read_text(released_configs() / (name + ".json")));
  return read_model_config(folder.path());
}

TEST(ReleasedConfigs, AreReadOrTheFeatureThatStopsThemIsNamed) {
  for (const ReleasedConfig& row : kReleasedConfigs) {
    SCOPED_TRACE(row.name);
    try {
      const ModelConfig c = read_released(row.name);
      ASSERT_EQ(row.refusal, nullptr) << "it is read now: give its row the sizes";
      EXPECT_EQ(c.layers, row.layers);
      EXPECT_EQ(c.hidden, row.hidden);
      EXPECT_EQ(c.head_dim, row.head_dim);
      EXPECT_EQ(c.kv_heads, row.kv_heads);
      EXPECT_EQ(c.vocab, row.vocab);
    } catch (const Error& error) {
      if (row.refusal == nullptr)
        ADD_FAILURE() << error.what();
      else
        EXPECT_NE(std::string(error.what()).find(row.refusal), std::string::npos) << error.what();
    }
  }
}

TEST(ReleasedConfigs, EachFileHasARow) {
  std::set<std::string> rows, files;
  for (const ReleasedConfig& row : kReleasedConfigs) EXPECT_TRUE(rows.insert(row.name).second) << row.name;
  for (const auto& file : std::filesystem::directory_iterator(released_configs()))
    if (file.path().extension() == ".json") files.insert(file.path().stem().string());
  EXPECT_EQ(rows, files);
}

}  // namespace
}  // namespace nodewright
