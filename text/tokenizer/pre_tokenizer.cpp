// The Split and ByteLevel pre-tokenizers of the `tokenizers` library, on raw bytes: mapping bytes to letters is left
// out, because it changes no boundary once the expressions have run.
#include "text/tokenizer/pre_tokenizer.h"

#include <utility>

namespace nodewright {
namespace {

// Source: tokenizers/src/pre_tokenizers/byte_level.rs, after gpt-2/src/encoder.py.
constexpr const char* kGpt2Expression = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace

PreTokenizer::PreTokenizer(const PreTokenizerForm& form, const std::string& file)
    : add_prefix_space_(form.add_prefix_space) {
  for (const auto& [pattern, behavior] : form.splits) splits_.push_back({Regex(pattern, file), behavior});
  if (form.use_regex) byte_level_.push_back({Regex(kGpt2Expression, file), SplitBehavior::isolated});
}

// Source: NormalizedString::split of the `tokenizers` library.
void PreTokenizer::append_words(const Split& split, std::string_view text, std::vector<std::string_view>& words) {
  std::vector<Regex::Piece> pieces;
  split.regex.append_pieces(text, pieces);
  const std::size_t first = words.size();
  bool after_match = false;
  for (const auto& [piece, is_match] : pieces) {
    const bool merges = split.behavior == SplitBehavior::merged_with_previous && is_match && !after_match;
    if (merges && words.size() > first) {
      words.back() = {words.back().data(), words.back().size() + piece.size()};
    } else {
      words.push_back(piece);
    }
    after_match = is_match;
  }
}

void PreTokenizer::for_each_word(std::string_view text, const std::function<void(std::string_view)>& use) const {
  std::vector<std::string_view> pieces{text};
  for (const Split& split : splits_) {
    std::vector<std::string_view> smaller;
    for (const auto piece : pieces) append_words(split, piece, smaller);
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
      append_words(byte_level_.front(), piece, words);
    }
    for (const auto word : words) use(word);
  }
}

}  // namespace nodewright
