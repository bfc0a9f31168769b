#!/usr/bin/env python3
"""Writes text/unicode/character_ranges.cpp: the kinds of characters that `tokenizers` knows, asked from the library itself.

Its components use the tables of several crates, of several versions of Unicode: each table here is what one component
makes of each code point. Run: python3 tests/reference/tokenization/unicode_kinds.py (written with tokenizers 0.23.3).
"""

import pathlib

import tokenizers
from tokenizers import normalizers, pre_tokenizers

OUT = pathlib.Path(__file__).resolve().parents[3] / "text" / "unicode" / "character_ranges.cpp"
CODE_POINTS = [c for c in range(1, 0x110000) if not 0xD800 <= c <= 0xDFFF]

HEAD = f"""// Written by tests/reference/tokenization/unicode_kinds.py from what `tokenizers` {tokenizers.__version__} makes of each
// code point. First and last code point of each range, in order.
#include "text/unicode/character_kinds.h"

namespace nodewright {{
"""


def splits(pre_tokenizer, parts):
    return lambda c: len(pre_tokenizer.pre_tokenize_str("a" + chr(c) + "a")) == parts


def removes(normalizer):
    return lambda c: normalizer.normalize_str("a" + chr(c) + "b") == "ab"


def bert(**flags):
    return normalizers.BertNormalizer(**{"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False, **flags})


KINDS = {
    "number": splits(pre_tokenizers.Digits(individual_digits=True), 3),
    "punctuation": splits(pre_tokenizers.Punctuation(), 3),
    "word": splits(pre_tokenizers.Whitespace(), 1),
    "mark": removes(normalizers.StripAccents()),
    "nonspacing_mark": removes(bert(strip_accents=True)),
    "control": removes(bert(clean_text=True)),
}


def ranges_of(holds):
    ranges = []
    for c in CODE_POINTS:
        if not holds(c):
            continue
        if ranges and ranges[-1][1] == c - 1:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    return ranges


def main():
    text = HEAD
    for name, holds in KINDS.items():
        words = [f"{{0x{first:X}, 0x{last:X}}}," for first, last in ranges_of(holds)]
        text += f"\nbool is_{name}(char32_t code_point) {{\n  static constexpr CodePointRange ranges[] = {{\n"
        line = "     "
        for word in words:
            if len(line) + 1 + len(word) > 120:
                text += line + "\n"
                line = "     "
            line += " " + word
        text += line + "\n  };\n  return is_within(ranges, code_point);\n}\n"
    OUT.write_text(text + "\n}  // namespace nodewright\n")
    print(OUT)


if __name__ == "__main__":
    main()
