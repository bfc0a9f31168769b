#include "text/grammar/patterns/code_ranges.h"

#include <algorithm>
#include <string>

#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

constexpr char32_t kLastCodePoint = 0x10ffff;

}  // namespace

CodeRanges normalized(CodeRanges ranges) {
  std::ranges::sort(ranges, {}, &CodeRange::first);
  CodeRanges merged;
  for (const CodeRange& r : ranges)
    if (!merged.empty() && r.first <= merged.back().last + 1)
      merged.back().last = std::max(merged.back().last, r.last);
    else
      merged.push_back(r);
  return merged;
}

CodeRanges all_but(const CodeRanges& ranges) {
  CodeRanges rest;
  char32_t next = 0;
  for (const CodeRange& r : normalized(ranges)) {
    if (r.first > next) rest.push_back({next, r.first - 1});
    next = r.last + 1;
  }
  if (next <= kLastCodePoint) rest.push_back({next, kLastCodePoint});
  return rest;
}

// After Russ Cox, "Regular expression matching in the wild" (2010), UTF-8: a range is cut where the number of bytes
// changes, then until the bytes vary independently.
void append_byte_ranges(CodeRange r, std::vector<ByteRanges>& all) {
  if (r.first > r.last) return;
  if (r.first <= 0xdfff && r.last >= 0xd800) {  // surrogates have no encoding
    if (r.first < 0xd800) append_byte_ranges({r.first, 0xd7ff}, all);
    return append_byte_ranges({0xe000, r.last}, all);
  }
  for (const char32_t end : {0x7fu, 0x7ffu, 0xffffu})
    if (r.first <= end && r.last > end) {
      append_byte_ranges({r.first, end}, all);
      return append_byte_ranges({end + 1, r.last}, all);
    }
  for (int bits = 6; bits <= 18 && r.first > 0x7f; bits += 6) {
    const char32_t low = (1u << bits) - 1;
    if ((r.first & ~low) == (r.last & ~low)) continue;
    if ((r.first & low) != 0) {
      append_byte_ranges({r.first, r.first | low}, all);
      return append_byte_ranges({(r.first | low) + 1, r.last}, all);
    }
    if ((r.last & low) != low) {
      append_byte_ranges({r.first, (r.last & ~low) - 1}, all);
      return append_byte_ranges({r.last & ~low, r.last}, all);
    }
  }
  const std::string first = in_utf8(r.first), last = in_utf8(r.last);
  ByteRanges bytes;
  for (size_t i = 0; i < first.size(); ++i)
    bytes.emplace_back(static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i]));
  all.push_back(std::move(bytes));
}
}  // namespace nodewright
