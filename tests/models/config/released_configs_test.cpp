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
    {"command-r7b", nullptr, 32, 4096, 128, 8, 256000},
    {"deepseek-r1-distill-qwen-1.5b", nullptr, 28, 1536, 128, 2, 151936},
    {"exaone-3.5-2.4b", nullptr, 30, 2560, 80, 8, 102400},
    {"exaone-4.0-1.2b", nullptr, 30, 2048, 64, 8, 102400},
    {"falcon3-3b", nullptr, 22, 3072, 256, 4, 131072},
    {"gemma-2-2b", nullptr, 26, 2304, 256, 4, 256000},
    {"gemma-2-9b", nullptr, 42, 3584, 256, 8, 256000},
    {"gemma-3-1b", nullptr, 26, 1152, 256, 1, 262144},
    {"gemma-3-4b", nullptr, 34, 2560, 256, 4, 262208},
    {"gemma-3-12b", nullptr, 48, 3840, 256, 8, 262208},
    {"granite-3.1-2b", nullptr, 40, 2048, 64, 8, 49155},
    {"granite-3.1-8b", nullptr, 40, 4096, 128, 8, 49155},
    {"llama-3.1-8b", nullptr, 32, 4096, 128, 8, 128256},
    {"llama-3.2-1b", nullptr, 16, 2048, 64, 8, 128256},
    {"llama-3.2-3b", nullptr, 28, 3072, 128, 8, 128256},
    {"ministral-8b", nullptr, 36, 4096, 128, 8, 131072},
    {"mistral-7b-v0.1", nullptr, 32, 4096, 128, 8, 32000},
    {"mistral-7b-v0.3", nullptr, 32, 4096, 128, 8, 32768},
    {"mistral-nemo", nullptr, 40, 5120, 128, 8, 131072},
    {"mixtral-8x7b", nullptr, 32, 4096, 128, 8, 32000},
    {"olmo-2-1b", nullptr, 16, 2048, 128, 16, 100352},
    {"olmo-2-7b", nullptr, 32, 4096, 128, 32, 100352},
    {"olmoe-1b-7b", nullptr, 16, 2048, 128, 16, 50304},
    {"phi-3-mini-128k", nullptr, 32, 3072, 96, 32, 32064},
    {"phi-3-mini-4k", nullptr, 32, 3072, 96, 32, 32064},
    {"phi-4", nullptr, 40, 5120, 128, 10, 100352},
    {"phi-4-mini", nullptr, 32, 3072, 128, 8, 200064},
    {"pythia-1.4b", nullptr, 24, 2048, 128, 16, 50304},
    {"qwen2.5-0.5b", nullptr, 24, 896, 64, 2, 151936},
    {"qwen2.5-1.5b", nullptr, 28, 1536, 128, 2, 151936},
    {"qwen2.5-7b", nullptr, 28, 3584, 128, 4, 152064},
    {"qwen3-0.6b", nullptr, 28, 1024, 128, 8, 151936},
    {"qwen3-30b-a3b", nullptr, 48, 2048, 128, 4, 151936},
    {"qwen3-4b", nullptr, 36, 2560, 128, 8, 151936},
    {"qwen3-8b", nullptr, 36, 4096, 128, 8, 151936},
    {"smollm2-1.7b", nullptr, 24, 2048, 64, 32, 49152},
    {"smollm3-3b", nullptr, 36, 2048, 128, 4, 128256},
    {"stablelm-2-1.6b", nullptr, 24, 2048, 64, 32, 100352},
    {"starcoder2-3b", nullptr, 30, 3072, 128, 2, 49152},
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
