// A tokenizer.model: the ModelProto of SentencePiece, read without its library, as Unigram or BPE.
#pragma once

#include <filesystem>

#include "text/tokenizer/files/tokenizer_file.h"

namespace nodewright {

// Control pieces are special tokens, and so is the unknown piece. Of the files beside it count the tokens
// (token_settings.h), and of tokenizer_config.json "add_bos_token" (true unless it says otherwise, where the model has
// a piece for it), "add_eos_token" and "legacy" (false: the space in front stands at the start of a text only). Throws
// Error naming the file and the thing: unreadable, more than 256 MiB, cut short, a model of characters or words, a
// piece that appears twice.
TokenizerFile read_piece_file(const std::filesystem::path& path);

}  // namespace nodewright
