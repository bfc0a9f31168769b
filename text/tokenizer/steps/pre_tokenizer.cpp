// Source: pre_tokenizers/ and NormalizedString::split of the `tokenizers` library. Bytes stay raw as long as no later
// step looks at their letters: mapping them changes no boundary once the expressions have run.
#include "text/tokenizer/steps/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "text/tokenizer/tokens/byte_level.h"
#include "text/tokenizer/tokens/normal_text.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

using Scratch = PreTokenizer::Scratch;

// Source: tokenizers/src/pre_tokenizers/byte_level.rs, after gpt-2/src/encoder.py.
constexpr const char* kGpt2Expression = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Each character of the kind is a match.
template <typename Is>
void append_characters_of(std::string_view text, Is is, std::vector<Regex::Piece>& pieces) {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = read_utf8(text.substr(at));
    if (is(step.code_point)) {
      if (done < at) pieces.push_back({text.substr(done, at - done)});
      pieces.push_back({text.substr(at, step.size), true});
      done = at + step.size;
    }
    at += step.size;
  }
  if (done < text.size()) pieces.push_back({text.substr(done)});
}

void append_matches(const SplitStep& step, std::string_view text, std::vector<Regex::Piece>& pieces) {
  if (const auto* regex = std::get_if<Regex>(&step.pattern)) {
    regex->append_pieces(text, pieces);
  } else if (const auto* kind = std::get_if<bool (*)(char32_t)>(&step.pattern)) {
    append_characters_of(text, *kind, pieces);
  } else {
    const char32_t character = std::get<char32_t>(step.pattern);
    append_characters_of(
        text, [&](char32_t c) { return c == character; }, pieces);
  }
  if (!step.invert) return;
  for (auto& piece : pieces) piece.is_match = !piece.is_match;
}

// Joins pieces to words. They are neighbours in the text, so that joined they are a part of it.
void join_pieces(SplitBehavior behavior, std::vector<Regex::Piece>& pieces) {
  std::vector<Regex::Piece> words;
  bool after_match = false;
  const auto join = [&](bool joins, const Regex::Piece& piece) {
    if (joins && !words.empty()) {
      auto& last = words.back().text;
      last = {std::min(last.data(), piece.text.data()), last.size() + piece.text.size()};
    } else {
      words.push_back(piece);
    }
    after_match = piece.is_match;
  };
  switch (behavior) {
    case SplitBehavior::isolated:
      return;
    case SplitBehavior::removed:
      std::erase_if(pieces, [](const auto& piece) { return piece.is_match; });
      return;
    case SplitBehavior::merged_with_previous:
      for (const auto& piece : pieces) join(piece.is_match && !after_match, piece);
      break;
    case SplitBehavior::merged_with_next:
      for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) join(piece->is_match && !after_match, *piece);
      std::reverse(words.begin(), words.end());
      break;
    case SplitBehavior::contiguous:
      for (const auto& piece : pieces) join(piece.is_match == after_match, piece);
      break;
  }
  pieces = std::move(words);
}

void append_words(const SplitStep& step, const Scratch::Word& word, Scratch& scratch) {
  auto& pieces = scratch.pieces;
  pieces.clear();
  append_matches(step, word.text, pieces);
  join_pieces(step.behavior, pieces);
  for (const auto& piece : pieces) {
    if (!piece.text.empty())
      scratch.cut.push_back({piece.text, word.at_start && piece.text.data() == word.text.data()});
  }
}

}  // namespace

void PreTokenizer::add(PreTokenizerStep step) {
  if (const auto* byte_level = std::get_if<ByteLevelStep>(&step)) {
    if (byte_level->use_regex) gpt2_ = {Regex(kGpt2Expression, "GPT-2's expression")};
    if (has_byte_level_) only_cuts_behind_ = false;  // letters of letters
    has_byte_level_ = true;
    byte_level_ = steps_.size();
  } else if (has_byte_level_ && std::holds_alternative<MetaspaceStep>(step)) {
    only_cuts_behind_ = false;
  }
  steps_.push_back(std::move(step));
}

bool PreTokenizer::drops_text() const {
  return std::ranges::any_of(steps_, [](const PreTokenizerStep& step) {
    const auto* split = std::get_if<SplitStep>(&step);
    return split != nullptr && split->behavior == SplitBehavior::removed;
  });
}

void PreTokenizer::cut(const SplitStep& step, const Word& word, Scratch& scratch) const {
  append_words(step, word, scratch);
}

void PreTokenizer::cut(const MetaspaceStep& step, const Word& word, Scratch& scratch) const {
  std::string text = replace_all(word.text, " ", step.replacement);
  const bool wants =
      step.prefix == MetaspaceStep::Prefix::always || (step.prefix == MetaspaceStep::Prefix::first && word.at_start);
  if (wants && !text.starts_with(step.replacement)) text.insert(0, step.replacement);
  const Word changed{scratch.changed.emplace_back(std::move(text)), word.at_start};
  if (!step.split) {
    scratch.cut.push_back(changed);
    return;
  }
  append_words({read_utf8(step.replacement).code_point, SplitBehavior::merged_with_next}, changed, scratch);
}

void PreTokenizer::cut(const ByteLevelStep& step, const Word& word, Scratch& scratch) const {
  Word prefixed = word;
  if (step.add_prefix_space && !word.text.starts_with(' '))
    prefixed.text = scratch.changed.emplace_back(" ").append(word.text);
  const std::size_t first = scratch.cut.size();
  if (step.use_regex) {
    append_words(gpt2_, prefixed, scratch);
  } else {
    scratch.cut.push_back(prefixed);
  }
  if (raw_bytes_ && byte_level_ + 1 == steps_.size()) return;
  for (std::size_t i = first; i < scratch.cut.size(); ++i)
    scratch.cut[i].text = scratch.changed.emplace_back(token_of_bytes(scratch.cut[i].text));
}

void PreTokenizer::cut(const FixedLengthStep& step, const Word& word, Scratch& scratch) const {
  std::size_t begin = 0, at = 0;
  for (std::size_t characters = 1; at < word.text.size(); ++characters) {
    at += read_utf8(word.text.substr(at)).size;
    if (characters % step.length != 0 && at < word.text.size()) continue;
    scratch.cut.push_back({word.text.substr(begin, at - begin), word.at_start && begin == 0});
    begin = at;
  }
}

void PreTokenizer::for_each_word(std::string_view text, bool at_start, Scratch& scratch,
                                 const std::function<void(std::string_view)>& use) const {
  if (text.empty()) return;
  scratch.words.assign(1, {text, at_start});
  scratch.changed.clear();
  for (const auto& step : steps_) {
    scratch.cut.clear();
    for (const auto& word : scratch.words) std::visit([&](const auto& one) { cut(one, word, scratch); }, step);
    std::swap(scratch.words, scratch.cut);
  }
  const bool spelled = raw_bytes_ && byte_level_ + 1 < steps_.size();
  for (const auto& word : scratch.words) {
    if (spelled) {
      use(decoded_bytes(word.text));
    } else {
      use(word.text);
    }
  }
}

}  // namespace nodewright
