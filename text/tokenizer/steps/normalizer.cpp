// Source: normalizers/{bert,prepend,replace,strip,unicode,utils}.rs of the `tokenizers` library.
#include "text/tokenizer/steps/normalizer.h"

#include <type_traits>
#include <utility>

#include "text/tokenizer/steps/normal_text.h"
#include "text/tokenizer/tokens/byte_level.h"
#include "text/unicode/character_kinds.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

// Calls append(code_point, normal) for each character of `text`.
template <typename Append>
std::string each_character(std::string_view text, Append append) {
  std::string normal;
  normal.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = read_utf8(text);
    append(step.code_point, normal);
    text.remove_prefix(step.size);
  }
  return normal;
}

template <typename Drop>
std::string without(std::string_view text, Drop drop) {
  return each_character(text, [&](char32_t c, std::string& normal) {
    if (!drop(c)) append_utf8(c, normal);
  });
}

std::string in_lower_case(std::string_view text) { return each_character(text, append_lower_case); }

bool is_chinese(char32_t c) {
  static constexpr CodePointRange ranges[] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},
                                              {0x20000, 0x2A6DF}, {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF},
                                              {0x2F800, 0x2FA1F}};
  return is_within(ranges, c);
}

std::string cleaned(std::string_view text) {
  return each_character(text, [](char32_t c, std::string& normal) {
    const bool breaks = c == '\t' || c == '\n' || c == '\r';
    if (c == 0 || c == 0xFFFD || (!breaks && is_control(c))) return;
    append_utf8(breaks || is_white_space(c) ? U' ' : c, normal);
  });
}

std::string step_of(const NormalForm& form, std::string_view text) { return to_normal_form(text, form); }
std::string step_of(const Replacement& replacement, std::string_view text) { return replacement.apply(text); }
std::string step_of(const Prepend& prepend, std::string_view text) {
  return text.empty() ? std::string() : prepend.text + std::string(text);
}

std::string step_of(const StripSpaces& strip, std::string_view text) {
  if (strip.left) text.remove_prefix(white_space_at_start(text));
  if (strip.right) text.remove_suffix(white_space_at_end(text));
  return std::string(text);
}

std::string step_of(const StripAccents&, std::string_view text) { return without(text, is_mark); }
std::string step_of(const Lowercase&, std::string_view text) { return in_lower_case(text); }

// Source: https://github.com/google/sentencepiece, src/builder.cc, BuildNmtNFKCMap.
std::string step_of(const Nmt&, std::string_view text) {
  static constexpr CodePointRange gone[] = {{0x1, 0x8},   {0xB, 0xB},   {0xE, 0x1F},
                                            {0x7F, 0x7F}, {0x8F, 0x8F}, {0x9F, 0x9F}};
  static constexpr CodePointRange spaces[] = {{0x9, 0xA},       {0xC, 0xD},       {0x20, 0x20},
                                              {0x1680, 0x1680}, {0x200B, 0x200F}, {0x2028, 0x2029},
                                              {0x2581, 0x2581}, {0xFEFF, 0xFEFF}, {0xFFFD, 0xFFFD}};
  return each_character(text, [](char32_t c, std::string& normal) {
    if (!is_within(gone, c)) append_utf8(is_within(spaces, c) ? U' ' : c, normal);
  });
}

std::string step_of(const BertText& bert, std::string_view text) {
  std::string normal = bert.clean ? cleaned(text) : std::string(text);
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

std::string step_of(const ByteLetters&, std::string_view text) { return token_of_bytes(text); }
std::string step_of(const CharacterMap& map, std::string_view text) { return map.apply(text); }

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
  std::string normal(text);
  for (const auto& step : steps_) {
    normal = std::visit(
        [&]<typename Step>(const Step& one) {
          if constexpr (std::is_same_v<Step, PieceText>)
            return one.apply(normal, at_start);
          else
            return step_of(one, normal);
        },
        step);
    check_normal_length(normal);
  }
  return normal;
}

}  // namespace nodewright
