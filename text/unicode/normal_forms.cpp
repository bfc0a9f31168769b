// Three steps: decompose each character, sort each run of combining marks, compose. utf8proc does the first and the
// last; its own sort takes quadratic time on a long run of marks, so that one is ours.
#include "text/unicode/normal_forms.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "runtime/error.h"
#include "text/unicode/character_kinds.h"
#include "text/unicode/unicode_versions.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

constexpr int kLongestDecomposition = 18;  // code points; that of U+FDFA, the longest

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

int combining_class(utf8proc_int32_t code_point) {
  if (is_newer_mark(static_cast<char32_t>(code_point))) return 0;
  return utf8proc_get_property(code_point)->combining_class;
}

// Compatibility decompositions that came after Unicode 9 (tests/reference/tokenization/unicode_kinds.py compares all
// code points).
bool decomposes_since_later(char32_t code_point) {
  static constexpr CodePointRange ranges[] = {{0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xAB69, 0xAB69},
                                              {0x10781, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA},
                                              {0x1E030, 0x1E06D}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};
  return code_point == kNewerComposite || is_within(ranges, code_point);
}

std::vector<utf8proc_int32_t> decompose(std::string_view text, bool compatible) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatible ? static_cast<int>(UTF8PROC_COMPAT) : 0));
  std::vector<utf8proc_int32_t> code_points;
  code_points.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = read_utf8(text);
    text.remove_prefix(step.size);
    if (decomposes_since_later(step.code_point)) {
      code_points.push_back(static_cast<utf8proc_int32_t>(step.code_point));
      continue;
    }
    std::array<utf8proc_int32_t, kLongestDecomposition> parts{};
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(step.code_point), parts.data(),
                                               parts.size(), options, &boundary);
    if (count < 0 || count > kLongestDecomposition) {
      throw Error({.doing = "normalize text",
                   .object = "code point " + std::to_string(static_cast<std::uint32_t>(step.code_point)),
                   .detail = count < 0 ? utf8proc_errmsg(count) : "its decomposition is too long"});
    }
    code_points.insert(code_points.end(), parts.begin(), parts.begin() + count);
  }
  return code_points;
}

void sort_marks(std::vector<utf8proc_int32_t>& code_points) {
  const auto is_starter = [](utf8proc_int32_t c) { return combining_class(c) == 0; };
  auto run = code_points.begin();
  while (run != code_points.end()) {
    run = std::find_if_not(run, code_points.end(), is_starter);
    const auto end = std::find_if(run, code_points.end(), is_starter);
    std::stable_sort(run, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    run = end;
  }
}

// What composes with nothing before it in Unicode 9; utf8proc would look past it, or compose it.
bool starts_anew(utf8proc_int32_t code_point) {
  const auto c = static_cast<char32_t>(code_point);
  return c == kNewerCompositeEnd || is_newer_mark(c);
}

void append_composed(std::span<utf8proc_int32_t> code_points, std::string& normal) {
  const auto size = utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()),
                                             static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (size < 0) throw Error({.doing = "normalize text", .detail = utf8proc_errmsg(size)});
  for (utf8proc_ssize_t i = 0; i < size; ++i) append_utf8(static_cast<char32_t>(code_points[i]), normal);
}

}  // namespace

std::string to_normal_form(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  auto code_points = decompose(text, form == NormalForm::nfkc || form == NormalForm::nfkd);
  sort_marks(code_points);
  std::string normal;
  normal.reserve(text.size());
  if (form == NormalForm::nfd || form == NormalForm::nfkd) {
    for (const auto code_point : code_points) append_utf8(static_cast<char32_t>(code_point), normal);
    return normal;
  }
  for (auto begin = code_points.begin(); begin != code_points.end();) {
    const auto end = std::find_if(begin + 1, code_points.end(), starts_anew);
    append_composed({begin, end}, normal);
    begin = end;
  }
  return normal;
}

}  // namespace nodewright
