// The Split and ByteLevel pre-tokenizers of the `tokenizers` library, on raw bytes: mapping bytes to letters is left
// out, because it changes no boundary once the expressions have run.
#include "engine/pre_tokenizer.h"

#include <utility>

namespace nodewright {
namespace {

// Source: tokenizers/src/pre_tokenizers/byte_level.rs, after gpt-2/src/encoder.py.
constexpr const char* kGpt2Expression = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace

PreTokenizer::PreTokenizer(const PreTokenizerForm& form, const std::string& file)
    : add_prefix_space_(form.add_prefix_space) {
  for (const auto& pattern : form.splits) splits_.emplace_back(pattern, file);
  if (form.use_regex) byte_level_.emplace_back(kGpt2Expression, file);
}

void PreTokenizer::for_each_word(std::string_view text, const std::function<void(std::string_view)>& use) const {
  std::vector<std::string_view> pieces{text};
  for (const Regex& split : splits_) {
    std::vector<std::string_view> smaller;
    for (const auto piece : pieces) split.append_isolated(piece, smaller);
    pieces = std::move(smaller);
  }

  std::string prefixed;
  std::vector<std::string_view> words;
  for (auto piece : pieces) {
    if (piece.empty()) continue;
    if (add_prefix_space_ && piece.front() != ' ') {
      prefixed.assign(1, ' ').append(piece);
      piece = prefixed;
    }
    words.clear();
    if (byte_level_.empty()) {
      words.push_back(piece);
    } else {
      byte_level_.front().append_isolated(piece, words);
    }
    for (const auto word : words) use(word);
  }
}

}  // namespace nodewright
