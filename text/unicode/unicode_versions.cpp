// The tables were asked from `tokenizers` 0.23.3 itself, code point by code point
// (tests/reference/tokenization/unicode_versions.py).
#include "text/unicode/unicode_versions.h"

#include <algorithm>
#include <array>

#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

enum class Kind { none, letter, number, mark };

struct Range {
  char32_t first, last;
  Kind kind = Kind::none;
};

constexpr auto kNewerMarks = std::to_array<Range>({
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
    {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
    {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
    {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF},
});

constexpr auto kAfterUnicode14 = std::to_array<Range>({
    {0x897, 0x897, Kind::mark},       {0xCF3, 0xCF3, Kind::mark},       {0xECE, 0xECE, Kind::mark},
    {0x1C89, 0x1C8A, Kind::letter},   {0xA7CB, 0xA7CD, Kind::letter},   {0xA7DA, 0xA7DC, Kind::letter},
    {0x105C0, 0x105F3, Kind::letter}, {0x10D40, 0x10D49, Kind::number}, {0x10D4A, 0x10D65, Kind::letter},
    {0x10D69, 0x10D6D, Kind::mark},   {0x10D6F, 0x10D85, Kind::letter}, {0x10EC2, 0x10EC4, Kind::letter},
    {0x10EFC, 0x10EFF, Kind::mark},   {0x1123F, 0x11240, Kind::letter}, {0x11241, 0x11241, Kind::mark},
    {0x11380, 0x11389, Kind::letter}, {0x1138B, 0x1138B, Kind::letter}, {0x1138E, 0x1138E, Kind::letter},
    {0x11390, 0x113B5, Kind::letter}, {0x113B7, 0x113B7, Kind::letter}, {0x113B8, 0x113C0, Kind::mark},
    {0x113C2, 0x113C2, Kind::mark},   {0x113C5, 0x113C5, Kind::mark},   {0x113C7, 0x113CA, Kind::mark},
    {0x113CC, 0x113D0, Kind::mark},   {0x113D1, 0x113D1, Kind::letter}, {0x113D2, 0x113D2, Kind::mark},
    {0x113D3, 0x113D3, Kind::letter}, {0x113E1, 0x113E2, Kind::mark},   {0x116D0, 0x116E3, Kind::number},
    {0x11BC0, 0x11BE0, Kind::letter}, {0x11BF0, 0x11BF9, Kind::number}, {0x11F00, 0x11F01, Kind::mark},
    {0x11F02, 0x11F02, Kind::letter}, {0x11F03, 0x11F03, Kind::mark},   {0x11F04, 0x11F10, Kind::letter},
    {0x11F12, 0x11F33, Kind::letter}, {0x11F34, 0x11F3A, Kind::mark},   {0x11F3E, 0x11F42, Kind::mark},
    {0x11F50, 0x11F59, Kind::number}, {0x11F5A, 0x11F5A, Kind::mark},   {0x1342F, 0x1342F, Kind::letter},
    {0x13440, 0x13440, Kind::mark},   {0x13441, 0x13446, Kind::letter}, {0x13447, 0x13455, Kind::mark},
    {0x13460, 0x143FA, Kind::letter}, {0x16100, 0x1611D, Kind::letter}, {0x1611E, 0x1612F, Kind::mark},
    {0x16130, 0x16139, Kind::number}, {0x16D40, 0x16D6C, Kind::letter}, {0x16D70, 0x16D79, Kind::number},
    {0x18CFF, 0x18CFF, Kind::letter}, {0x1B132, 0x1B132, Kind::letter}, {0x1B155, 0x1B155, Kind::letter},
    {0x1CCF0, 0x1CCF9, Kind::number}, {0x1D2C0, 0x1D2D3, Kind::number}, {0x1DF25, 0x1DF2A, Kind::letter},
    {0x1E030, 0x1E06D, Kind::letter}, {0x1E08F, 0x1E08F, Kind::mark},   {0x1E4D0, 0x1E4EB, Kind::letter},
    {0x1E4EC, 0x1E4EF, Kind::mark},   {0x1E4F0, 0x1E4F9, Kind::number}, {0x1E5D0, 0x1E5ED, Kind::letter},
    {0x1E5EE, 0x1E5EF, Kind::mark},   {0x1E5F0, 0x1E5F0, Kind::letter}, {0x1E5F1, 0x1E5FA, Kind::number},
    {0x2B739, 0x2B739, Kind::letter}, {0x2EBF0, 0x2EE5D, Kind::letter}, {0x31350, 0x323AF, Kind::letter},
});

template <std::size_t n>
const Range* range_of(const std::array<Range, n>& ranges, char32_t code_point) {
  const auto found = std::lower_bound(ranges.begin(), ranges.end(), code_point,
                                      [](const Range& range, char32_t c) { return range.last < c; });
  return found != ranges.end() && found->first <= code_point ? &*found : nullptr;
}

// One that has been there since Unicode 6, of 3 or 4 bytes.
char32_t older_character(Kind kind, bool four_bytes) {
  if (kind == Kind::letter) return four_bytes ? 0x20000 : 0x4E00;
  if (kind == Kind::mark) return four_bytes ? 0x1D167 : 0x20D0;
  return four_bytes ? 0x1D7CE : 0x0E50;
}

}  // namespace

bool is_newer_mark(char32_t code_point) { return range_of(kNewerMarks, code_point) != nullptr; }

std::string with_older_characters(std::string_view text) {
  std::string older;
  older.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = read_utf8(text.substr(at));
    if (step.size >= 3) {  // nothing below U+0800 is new
      if (const Range* range = range_of(kAfterUnicode14, step.code_point)) {
        older += text.substr(done, at - done);
        append_utf8(older_character(range->kind, step.size == 4), older);
        done = at + step.size;
      }
    }
    at += step.size;
  }
  return older += text.substr(done);
}

}  // namespace nodewright
