// Lower case is utf8proc's, with the letters that came after its Unicode 15.
#include "text/unicode/character_kinds.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

// Letters whose lower case utf8proc 2.8 does not know. Source: tests/reference/tokenization/unicode_kinds.py.
struct NewerCapital {
  char32_t first, last;
  char32_t lower;  // of the first
};
constexpr NewerCapital kNewerCapitals[] = {
    {0x1C89, 0x1C89, 0x1C8A},    {0xA7CB, 0xA7CB, 0x264},    {0xA7CC, 0xA7CC, 0xA7CD}, {0xA7CE, 0xA7CE, 0xA7CF},
    {0xA7D2, 0xA7D2, 0xA7D3},    {0xA7D4, 0xA7D4, 0xA7D5},   {0xA7DA, 0xA7DA, 0xA7DB}, {0xA7DC, 0xA7DC, 0x19B},
    {0x10D50, 0x10D65, 0x10D70}, {0x16EA0, 0x16EB8, 0x16EBB}};

}  // namespace

bool is_within(std::span<const CodePointRange> ranges, char32_t code_point) {
  const auto found = std::lower_bound(ranges.begin(), ranges.end(), code_point,
                                      [](const CodePointRange& range, char32_t c) { return range.last < c; });
  return found != ranges.end() && found->first <= code_point;
}

void append_lower_case(char32_t code_point, std::string& text) {
  if (code_point == 0x130) {  // I with a dot: the dot stays
    text += "i\xCC\x87";
    return;
  }
  for (const auto& [first, last, lower] : kNewerCapitals) {
    if (code_point >= first && code_point <= last) return append_utf8(lower + (code_point - first), text);
  }
  append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))), text);
}

}  // namespace nodewright
