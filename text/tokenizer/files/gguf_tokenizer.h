// The tokenizer and the chat templates that a GGUF file's metadata holds.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "text/tokenizer/files/token_settings.h"
#include "text/tokenizer/files/tokenizer_file.h"

namespace nodewright {

// Throws Error naming the file and the key: no tokenizer, a kind other than "llama" (SentencePiece's BPE) and "gpt2"
// (BPE of bytes), a way of cutting words that is not known, arrays of different length, a token that appears twice.
TokenizerFile read_gguf_tokenizer(const std::filesystem::path& path);

// The tokens that templates know by name, and nothing else.
TokenSettings read_gguf_token_settings(const std::filesystem::path& path);

// By their names; "default" is the one without a name. Empty: there is none.
std::map<std::string, std::string> read_gguf_templates(const std::filesystem::path& path);

}  // namespace nodewright
