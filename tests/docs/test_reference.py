#!/usr/bin/env python3
"""Every public name has a comment, and the check of that finds names that have none."""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "docs/reference"))
import reference

PLANTED = """// A header with comments, and with names that have none.
#pragma once

// Has comments for some.
struct Half {
  int told = 0;  // in words
  int untold = 0;
  int some = 0;  // is in the struct's comment
  Half(Half&& other) noexcept;

  // Both of these.
  void first();
  void second(int a,
              int b);

  void third();

 private:
  int own = 0;
};

// two: the second.
enum class Both { one, two };  // one: the first

enum class Kind { first };

// one: the first.
enum class Told { one, other };

struct Bare {};

// Says it.
int said();

int unsaid();
"""


class ReferenceTest(unittest.TestCase):
    def names(self, headers):
        with tempfile.TemporaryDirectory() as folder:
            return reference.undocumented(pathlib.Path(folder), headers, html=False)

    def test_every_public_name_has_a_comment(self):
        self.assertEqual(self.names(reference.public_headers()), [])

    def test_names_without_a_comment_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            header = pathlib.Path(folder) / "planted.h"
            header.write_text(PLANTED)
            names = [name.split(": ", 1)[1] for name in self.names([header])]
        self.assertEqual(sorted(names), sorted([
            "variable Half::untold", "function Half::third()", "enum planted.h::Kind", "enumerator Kind::first",
            "enumerator Told::other", "struct Bare", "function planted.h::unsaid()"]))


if __name__ == "__main__":
    unittest.main()
