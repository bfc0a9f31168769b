#!/usr/bin/env python3
"""docs/cookbook.md shows what examples/cookbook.cpp compiles and runs: each recipe's snippet is the program's, and has 15
lines at most. `test_cookbook.py --write` puts the program's snippets into the page."""
import pathlib
import re
import sys
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/cookbook.md"
BLOCK = re.compile(r"^## (.*?)\n(.*?)```cpp\n(.*?)```", re.M | re.S)


def recipes():
    text = (ROOT / "examples/cookbook.cpp").read_text()
    found = re.findall(r"^ *// Recipe: (.*?)\n(.*?)^ *// End\.", text, re.M | re.S)
    return {name: textwrap.dedent(code) for name, code in found}


class CookbookTest(unittest.TestCase):
    def test_the_page_shows_the_snippets_of_the_program(self):
        self.assertEqual({title: code for title, _, code in BLOCK.findall(PAGE.read_text())}, recipes())

    def test_a_snippet_is_short(self):
        for name, code in recipes().items():
            self.assertLessEqual(code.count("\n"), 15, name)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        code = recipes()
        PAGE.write_text(BLOCK.sub(lambda m: f"## {m[1]}\n{m[2]}```cpp\n{code[m[1]]}```", PAGE.read_text()))
    else:
        unittest.main()
