// Sets of characters as ranges of code points, and the bytes that spell them in UTF-8.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace nodewright {

struct CodeRange {
  char32_t first, last;
};
using CodeRanges = std::vector<CodeRange>;

// In order, without overlaps.
CodeRanges normalized(CodeRanges ranges);
// The characters that are in none of them.
CodeRanges all_but(const CodeRanges& ranges);

// One byte range for each byte of the characters of a range, whose encodings differ in nothing else.
using ByteRanges = std::vector<std::pair<uint8_t, uint8_t>>;

// Appends to `all` what spells the characters of `range`, all together; surrogates, which have no encoding, left out.
void append_byte_ranges(CodeRange range, std::vector<ByteRanges>& all);

}  // namespace nodewright
