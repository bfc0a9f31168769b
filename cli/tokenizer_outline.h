// What kind of tokenizer and chat template stand in a checkpoint folder, for `nodewright inspect`: read from the files,
// whether or not text/tokenizer/tokenizer can run them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

namespace nodewright::cli {

struct TokenizerOutline {
  std::string model;          // "BPE", "Unigram of SentencePiece"
  std::string normalizer;     // "NFC"; the parts of a sequence are joined by " + "; empty if there is none
  std::string pre_tokenizer;  // "Split + ByteLevel"
  size_t tokens = 0;          // of the vocabulary
  size_t added_tokens = 0;
};

// Empty without tokenizer.json, tokenizer.model and tekken.json. Throws Error naming the file and what is wrong with
// it.
std::optional<TokenizerOutline> outline_tokenizer(const std::filesystem::path& folder);

// The file that holds the chat template; empty if there is none.
std::string chat_template_file(const std::filesystem::path& folder);

}  // namespace nodewright::cli
