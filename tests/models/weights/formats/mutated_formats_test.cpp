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

// Reads a file of one format as it is, at -1, then changed ones until `broken` of them were refused.
template <class Read>
void expect_refusals(int broken, const std::string& name, const Read& read) {
  read(-1);
  int refused = 0;
  for (int i = 0; refused < broken && i < 40 * broken; ++i) {
    try {
      read(i);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_EQ(refused, broken) << name;
}

void read_changed_formats(int broken) {
  for (const std::string& name : test::formats_and_experts()) {
    const test::EditedFormat edited(name);
    const std::string weights = read_text(edited.file()), config = read_text(edited.path() / "config.json");
    const nlohmann::json expected = test::expected_matrices(edited.path());
    uint64_t header = 0;
    std::memcpy(&header, weights.data(), sizeof header);
    std::mt19937 random(7);
    expect_refusals(broken, name, [&](int i) {
      const bool in_config = i >= 0 && i % 2 == 0;
      write_text(edited.path() / "config.json", in_config ? changed(config, config.size(), random) : config);
      write_text(edited.file(), in_config || i < 0 ? weights : changed(weights, header + 8, random));
      const Checkpoint checkpoint = Checkpoint::open(edited.path());
      for (const auto& [matrix, about] : expected.items()) {
        const TensorInfo& tensor = checkpoint.require(matrix, about.at("shape").get<std::vector<int64_t>>());
        if (tensor.encoded != nullptr) test::decoded(tensor, 100);
      }
    });
  }
}

void read_changed_gguf(int broken) {
  size_t models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() / "tests/golden/gguf")) {
    if (!std::filesystem::exists(entry.path() / "model.gguf")) continue;
    ++models;
    const std::string whole = read_text(entry.path() / "model.gguf");
    const GgufModel model = GgufModel::open(entry.path() / "model.gguf");
    const uint64_t header = std::ranges::min(model.tensors(), {}, &GgufTensor::offset).offset;
    const nlohmann::json expected = test::expected_matrices(entry.path());
    std::mt19937 random(8);
    const ScratchFolder folder;
    expect_refusals(broken, entry.path().filename(), [&](int i) {
      const std::filesystem::path file = folder.write("model.gguf", i < 0 ? whole : changed(whole, header, random));
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
  EXPECT_GE(models, 12u);
}

TEST(ChangedFormats, AreReadOrRefused) { read_changed_formats(10); }

TEST(ChangedFormats, OfGgufAreReadOrRefused) { read_changed_gguf(10); }

TEST(ChangedFormatsSweep, OfEveryFormatAreReadOrRefused) { read_changed_formats(100); }

TEST(ChangedFormatsSweep, OfGgufAreReadOrRefused) { read_changed_gguf(100); }

}  // namespace
}  // namespace nodewright
