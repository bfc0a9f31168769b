// tokenizer.json parsed: the vocabulary and the merges, which are nearly all of it, straight into lists; the rest as
// JSON values. Strict as base/json_file.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer/tokens/token_map.h"

namespace nodewright {

struct TokenizerJson {
  nlohmann::json rest;  // all of the object but the two below, which stand there empty

  // "model", "vocab": an object of ids, or a list of pairs of spelling and score whose ids are their places.
  std::vector<std::pair<std::string, TokenId>> vocab;
  std::vector<double> scores;  // [place in vocab], of a list

  // "model", "merges": "a b" as in older files and those converted from tiktoken, or ["a", "b"].
  std::vector<std::pair<std::string, std::string>> merges;
};

// 16 times the largest released vocabulary (262,144): tables by id are dense.
inline constexpr std::int64_t kLargestTokenId = (1 << 22) - 1;

// Throws Error naming the file and the thing: unreadable, more than 256 MiB, not JSON, a key that appears twice,
// nesting deeper than 64, a malformed entry of the vocabulary or the merges, an id outside 0 to kLargestTokenId.
TokenizerJson parse_tokenizer_json(const std::filesystem::path& path);

}  // namespace nodewright
