// Quantized checkpoints with random bytes of their headers changed: read, or refused by an Error, and nothing else.
#include <algorithm>
#include <random>

#include "base/gguf_file.h"
#include "models/config/model_config.h"
#include "tests/models/weights/formats/format_golden.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright {
namespace {

// Up to four bytes below `end` become others.
std::string changed(std::string bytes, size_t end, std::mt19937& random) {
  for (unsigned i = random() % 4 + 1; i > 0; --i) {
    const size_t at = random() % std::min(end, bytes.size());
    bytes[at] = random() % 2 ? static_cast<char>(random()) : static_cast<char>(bytes[at] ^ (1 << random() % 8));
  }
  if (random() % 8 == 0) bytes.resize(random() % bytes.size());
  return bytes;
}

struct Counts {
  int refused = 0, read = 0;
};

template <class Read>
void count(Counts& counts, const Read& read) {
  try {
    read();
    ++counts.read;
  } catch (const Error&) {
    ++counts.refused;
  }
}

TEST(ChangedFormats, AreReadOrRefused) {
  for (const char* name : {"fp8_block", "ct_int4_zeros", "ct_mixed", "ct_ordered", "modelopt_nvfp4", "gptq", "awq"}) {
    const std::string weights = read_text(test::format_folder(name) / "model.safetensors"),
                      config = read_text(test::format_folder(name) / "config.json");
    uint64_t header = 0;
    std::memcpy(&header, weights.data(), sizeof header);
    std::mt19937 random(7);
    Counts counts;
    const test::EditedFormat edited(name);
    for (int i = 0; i < 60; ++i) {
      const bool in_config = i % 2 == 0;
      write_text(edited.path() / "config.json", in_config ? changed(config, config.size(), random) : config);
      write_text(edited.file(), in_config ? weights : changed(weights, header + 8, random));
      count(counts, [&] {
        const Checkpoint checkpoint = Checkpoint::open(edited.path());
        const nlohmann::json expected = test::expected_matrices(edited.path());
        for (const auto& [matrix, about] : expected.items()) {
          const TensorInfo& tensor = checkpoint.require(matrix, about.at("shape").get<std::vector<int64_t>>());
          if (tensor.encoded != nullptr) test::decoded(tensor, 100);
        }
      });
    }
    EXPECT_GT(counts.refused, 10) << name;
    EXPECT_GT(counts.read, 0) << name;
  }
}

TEST(ChangedFormats, OfGgufAreReadOrRefused) {
  for (const char* name : {"qwen3", "mixtral", "gemma3"}) {
    const std::filesystem::path golden = test::source_dir() / "tests/golden/gguf" / name;
    const std::string whole = read_text(golden / "model.gguf");
    const GgufModel model = GgufModel::open(golden / "model.gguf");
    const uint64_t header = std::ranges::min(model.tensors(), {}, &GgufTensor::offset).offset;
    const nlohmann::json expected = test::expected_matrices(golden);
    std::mt19937 random(8);
    Counts counts;
    const ScratchFolder folder;
    for (int i = 0; i < 100; ++i) {
      const std::filesystem::path file = folder.write("model.gguf", changed(whole, header, random));
      count(counts, [&] {
        read_model_config(file);
        const Checkpoint checkpoint = Checkpoint::open(file);
        for (const auto& [matrix, about] : expected.items()) {
          const TensorInfo& tensor =
              checkpoint.require(about.at("stored").get<std::string>(), about.at("shape").get<std::vector<int64_t>>());
          if (tensor.encoded != nullptr) test::decoded(tensor, 100);
        }
        Tokenizer::from_folder(file);
      });
    }
    EXPECT_GT(counts.refused, 10) << name;
    EXPECT_GT(counts.read, 0) << name;
  }
}

}  // namespace
}  // namespace nodewright
