// Source: normalizers/{bert,prepend,replace,strip,unicode,utils}.rs of the `tokenizers` library.
#include "text/tokenizer/steps/normalizer.h"

#include <type_traits>
#include <utility>

#include "text/tokenizer/steps/marked_normal_form.h"
#include "text/tokenizer/tokens/byte_level.h"
#include "text/tokenizer/tokens/normal_text.h"
#include "text/unicode/character_kinds.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

// Calls append(code_point, normal) for each character of `text`.
template <typename Append>
MarkedText each_character(const MarkedText& text, Append append) {
  MarkedWriter to(text);
  std::string normal;
  while (!to.rest().empty()) {
    const Utf8Step step = read_utf8(to.rest());
    normal.clear();
    append(step.code_point, normal);
    to.replace(step.size, normal);
  }
  return to.take();
}

template <typename Drop>
MarkedText without(const MarkedText& text, Drop drop) {
  return each_character(text, [&](char32_t c, std::string& normal) {
    if (!drop(c)) append_utf8(c, normal);
  });
}

MarkedText in_lower_case(const MarkedText& text) { return each_character(text, append_lower_case); }

bool is_chinese(char32_t c) {
  static constexpr CodePointRange ranges[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                              {0x20000, 0x2A6DF}, {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF},
                                              {0x2F800, 0x2FA1F}};
  return is_within(ranges, c);
}

MarkedText cleaned(const MarkedText& text) {
  return each_character(text, [](char32_t c, std::string& normal) {
    const bool breaks = c == '\t' || c == '\n' || c == '\r';
    if (c == 0 || c == 0xFFFD || (!breaks && is_control(c))) return;
    append_utf8(breaks || is_white_space(c) ? U' ' : c, normal);
  });
}

MarkedText step_of(const NormalForm& form, const MarkedText& text) { return to_normal_form(text, form); }

// A match over a barrier stays as it is.
MarkedText step_of(const Replacement& replacement, const MarkedText& text) {
  MarkedWriter to(text);
  const auto replace = [&](std::size_t size) {
    if (text.has_barrier_within(to.done(), to.done() + size))
      to.keep(size);
    else
      to.replace(size, replacement.to);
  };
  if (replacement.pattern) {
    std::vector<Regex::Piece> pieces;
    replacement.pattern->append_pieces(text.text, pieces);
    for (const auto& [piece, is_match] : pieces) is_match ? replace(piece.size()) : to.keep(piece.size());
    return to.take();
  }
  for (std::size_t at = text.text.find(replacement.from); at != std::string::npos;
       at = text.text.find(replacement.from, to.done())) {
    to.keep(at - to.done());
    replace(replacement.from.size());
  }
  to.keep(to.rest().size());
  return to.take();
}

MarkedText step_of(const Prepend& prepend, const MarkedText& text) {
  MarkedWriter to(text);
  if (!text.text.empty()) to.insert(prepend.text);
  to.keep(text.text.size());
  return to.take();
}

MarkedText step_of(const StripSpaces& strip, const MarkedText& text) {
  MarkedWriter to(text);
  if (strip.left) to.drop(white_space_at_start(text.text));
  const std::size_t right = strip.right ? white_space_at_end(to.rest()) : 0;
  to.keep(to.rest().size() - right);
  return to.take();
}

MarkedText step_of(const StripAccents&, const MarkedText& text) { return without(text, is_mark); }
MarkedText step_of(const Lowercase&, const MarkedText& text) { return in_lower_case(text); }

// Source: https://github.com/google/sentencepiece, src/builder.cc, BuildNmtNFKCMap.
MarkedText step_of(const Nmt&, const MarkedText& text) {
  static constexpr CodePointRange gone[] = {{0x1, 0x8},   {0xB, 0xB},   {0xE, 0x1F},
                                            {0x7F, 0x7F}, {0x8F, 0x8F}, {0x9F, 0x9F}};
  static constexpr CodePointRange spaces[] = {{0x9, 0xA},       {0xC, 0xD},       {0x20, 0x20},
                                              {0x1680, 0x1680}, {0x200B, 0x200F}, {0x2028, 0x2029},
                                              {0x2581, 0x2581}, {0xFEFF, 0xFEFF}, {0xFFFD, 0xFFFD}};
  return each_character(text, [](char32_t c, std::string& normal) {
    if (!is_within(gone, c)) append_utf8(is_within(spaces, c) ? U' ' : c, normal);
  });
}

MarkedText step_of(const BertText& bert, const MarkedText& text) {
  MarkedText normal = bert.clean ? cleaned(text) : text;
  if (bert.separate_chinese) {
    normal = each_character(normal, [](char32_t c, std::string& to) {
      const bool chinese = is_chinese(c);
      if (chinese) to += ' ';
      append_utf8(c, to);
      if (chinese) to += ' ';
    });
  }
  if (bert.strip_accents) normal = without(to_normal_form(normal, NormalForm::nfd), is_nonspacing_mark);
  return bert.lowercase ? in_lower_case(normal) : normal;
}

MarkedText step_of(const ByteLetters&, const MarkedText& text) {
  MarkedWriter to(text);
  while (!to.rest().empty()) to.replace(1, token_of_bytes(to.rest().substr(0, 1)));
  return to.take();
}

MarkedText step_of(const CharacterMap& map, const MarkedText& text) { return map.apply(text); }

}  // namespace

std::string Replacement::apply(std::string_view text) const {
  if (!pattern) return replace_all(text, from, to);
  std::vector<Regex::Piece> pieces;
  pattern->append_pieces(text, pieces);
  std::string replaced;
  for (const auto& [piece, is_match] : pieces) {
    replaced += is_match ? std::string_view(to) : piece;
    check_normal_length(replaced);
  }
  return replaced;
}

std::string Normalizer::apply(std::string_view text, bool at_start) const {
  return apply(MarkedText{std::string(text), {}}, at_start).text;
}

MarkedText Normalizer::apply(MarkedText text, bool at_start) const {
  for (const auto& step : steps_) {
    text = std::visit(
        [&]<typename Step>(const Step& one) {
          if constexpr (std::is_same_v<Step, PieceText>)
            return one.apply(text, at_start);
          else
            return step_of(one, text);
        },
        step);
    check_normal_length(text.text);
  }
  return text;
}

std::optional<std::size_t> Normalizer::shrinks() const {
  // A letter of mathematics has four bytes and becomes one; composing makes three of the nine of a Hangul syllable.
  constexpr std::size_t kNormalForms = 12;
  std::size_t all = 1;
  for (const NormalizerStep& step : steps_) {
    if (std::holds_alternative<Prepend>(step) || std::holds_alternative<ByteLetters>(step)) continue;
    const auto* replacement = std::get_if<Replacement>(&step);
    if (std::holds_alternative<NormalForm>(step))
      all *= kNormalForms;
    else if (replacement != nullptr && !replacement->pattern && !replacement->to.empty())
      all *= (replacement->from.size() + replacement->to.size() - 1) / replacement->to.size();
    else
      return std::nullopt;
  }
  return all;
}

}  // namespace nodewright
