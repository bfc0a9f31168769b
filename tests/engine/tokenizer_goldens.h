// The golden files that tests/reference/make_tokenizer_goldens.py wrote, and tokenizer files made up by a test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/byte_level.h"
#include "engine/tokenizer.h"
#include "tests/support/test_places.h"

namespace nodewright {

inline const std::vector<std::string> kFamilies = {"llama3", "gpt2", "qwen", "mixed"};

inline std::filesystem::path golden_tokenizer(const std::string& family) {
  return test::source_dir() / "tests/golden/tokenizers" / family / "tokenizer.json";
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream stream(path);
  if (!stream) throw std::runtime_error("cannot read " + path.string());
  return nlohmann::json::parse(stream);
}

inline nlohmann::json golden_cases(const std::string& family) {
  return read_json(golden_tokenizer(family).parent_path() / "cases.json");
}

// A file in the temporary folder that goes away with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("nodewright-tokenizer-" + std::to_string(::getpid()) + "-" + std::to_string(count++) + ".json");
    std::ofstream(path_, std::ios::binary) << content;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The smallest useful tokenizer: ids 0 to 255 are the bytes, GPT-2's expression, no merges, no added tokens.
inline nlohmann::json byte_tokenizer() {
  nlohmann::json vocab = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[token_of_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", nlohmann::json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
}

inline nlohmann::json added_token(int id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

inline Tokenizer load(const nlohmann::json& file) { return Tokenizer::from_file(TemporaryFile(file.dump()).path()); }

}  // namespace nodewright
