#!/usr/bin/env python3
"""Asks `tokenizers` which Unicode its tables are, and prints the two tables of text/unicode/unicode_versions.cpp.

Newer marks: where its NFC does not move a character that Python's does (their combining class came after Unicode 9).
After Unicode 14: letters, numbers and marks of its Oniguruma that Python 3.11, which has Unicode 14, does not know.
Run with Python 3.11 (written with tokenizers 0.23.3); marks after Unicode 14 are asked by number, not by Python.
"""

import sys
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

CHARACTERS = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
MARKS_AFTER_14 = [0x10EFD, 0x10EFE, 0x10EFF, 0x11F41, 0x11F42, 0x1E08F, 0x1E4EC, 0x1E4ED, 0x1E4EE, 0x1E4EF]


def ranges(code_points):
    found = []
    for c in sorted(code_points):
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def matched(pattern):
    text = "".join(CHARACTERS)
    left = set()
    for _, (begin, end) in pre_tokenizers.Split(Regex(pattern), behavior="removed").pre_tokenize_str(text):
        left.update(range(begin, end))
    return {ord(c) for i, c in enumerate(CHARACTERS) if i not in left}


def main():
    if unicodedata.unidata_version != "14.0.0":
        sys.exit(f"this Python has Unicode {unicodedata.unidata_version}, not 14: use Python 3.11")
    nfc = normalizers.NFC()
    marks = [ord(c) for c in CHARACTERS if unicodedata.combining(c) and any(
        nfc.normalize_str(text) != unicodedata.normalize("NFC", text) for text in ("a" + c + "\u0334", "a\u0345" + c))]
    print("newer marks:", ", ".join(f"{{0x{a:X}, 0x{b:X}}}" for a, b in ranges(marks + MARKS_AFTER_14)))
    newer = []
    for letter, kind in (("L", "letter"), ("N", "number"), ("M", "mark")):
        ours = {ord(c) for c in CHARACTERS if unicodedata.category(c).startswith(letter)}
        newer += [(a, b, kind) for a, b in ranges(matched(rf"\p{{{letter}}}") - ours)]
    print("after Unicode 14:", ", ".join(f"{{0x{a:X}, 0x{b:X}, Kind::{kind}}}" for a, b, kind in sorted(newer)))
    decompositions = [c for c in CHARACTERS if nfc.normalize_str(unicodedata.normalize("NFD", c)) != unicodedata.normalize("NFC", c)]
    print("composites that its NFC does not compose:", decompositions)


if __name__ == "__main__":
    main()
