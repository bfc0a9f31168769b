// The golden files that tests/reference/tokenization/make_tokenizer_goldens.py wrote, and tokenizer files made up by a
// test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/test_places.h"
#include "text/tokenizer/files/base64.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokens/byte_fallback.h"
#include "text/tokenizer/tokens/byte_level.h"

namespace nodewright {

inline const std::vector<std::string> kFamilies = {"llama3", "gpt2", "qwen", "mixed", "gemma", "fallback"};

inline std::filesystem::path golden_tokenizer(const std::string& family) {
  return test::source_dir() / "tests/golden/tokenizers" / family / "tokenizer.json";
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream stream(path);
  if (!stream) throw std::runtime_error("cannot read " + path.string());
  return nlohmann::json::parse(stream);
}

// The text of a golden case, which has its bytes as base64 where it is not UTF-8.
inline std::string text_of(const nlohmann::json& one) {
  return one.contains("base64") ? from_base64(one["base64"].get<std::string>()).value()
                                : one["text"].get<std::string>();
}

inline nlohmann::json golden_cases(const std::string& family) {
  return read_json(golden_tokenizer(family).parent_path() / "cases.json");
}

// Each text of the cases becomes the ids that its own library gives. Without `has_special` that library makes none of
// the special tokens in a text.
inline void expect_encoded(const Tokenizer& tokenizer, const nlohmann::json& cases, bool has_special = true) {
  for (const auto& one : cases["encode"]) {
    const std::vector<TokenId> plain = one["ids"];
    const std::string text = text_of(one);
    EXPECT_EQ(tokenizer.encode(text), plain) << one;
    if (!has_special) continue;
    const std::vector<TokenId> parsed = one.value("parsed", plain);
    const std::vector<TokenId> whole = one.value("whole", parsed);
    EXPECT_EQ(tokenizer.encode(text, {.parse_special = true}), parsed) << one;
    EXPECT_EQ(tokenizer.encode(text, {.parse_special = true, .add_special_tokens = true}), whole) << one;
  }
}

// The ids of each case become the text that its own library gives, with special tokens and without.
inline void expect_decoded(const Tokenizer& tokenizer, const nlohmann::json& cases) {
  for (const auto& one : cases["decode"]) {
    const std::vector<TokenId> ids = one["ids"];
    EXPECT_EQ(tokenizer.decode(ids, false), one["kept"].get<std::string>()) << one;
    EXPECT_EQ(tokenizer.decode(ids, true), one["skipped"].get<std::string>()) << one;
  }
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

// The smallest useful tokenizer of characters: ids 0 to 255 are <0x00> to <0xFF>, 256 is "<unk>", 257 and 258 "a" and
// "b"; " " becomes U+2581 and back, as for Gemma.
inline nlohmann::json character_tokenizer() {
  nlohmann::json vocab = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[fallback_token_of_byte(static_cast<char>(byte))] = byte;
  vocab["<unk>"] = 256;
  vocab["a"] = 257;
  vocab["b"] = 258;
  const auto replace = [](const char* from, const char* to) {
    return nlohmann::json{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  nlohmann::json decoders = {replace("\u2581", " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", nlohmann::json::array()},
          {"normalizer", replace(" ", "\u2581")},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
          {"model",
           {{"type", "BPE"},
            {"byte_fallback", true},
            {"fuse_unk", true},
            {"unk_token", "<unk>"},
            {"vocab", vocab},
            {"merges", nlohmann::json::array()}}}};
}

inline nlohmann::json added_token(int id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

inline Tokenizer load(const nlohmann::json& file) { return Tokenizer::from_file(TemporaryFile(file.dump()).path()); }

}  // namespace nodewright
