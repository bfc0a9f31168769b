#!/usr/bin/env python3
"""Every link of every tracked Markdown page leads to a file and a heading that are there; the checker finds planted
ones that do not."""
import pathlib
import tempfile
import unittest

import links

ROOT = pathlib.Path(__file__).resolve().parents[2]


class LinksTest(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        pages = links.tracked_pages(ROOT)
        self.assertGreater(len(pages), 25)
        self.assertEqual(links.broken_links(pages, ROOT), [])

    def broken(self, text):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            (root / "page.md").write_text("# A title\n\n## Twice\n\n## Twice\n\n## `code` & more_words\n\n```\n# no title\n```\n")
            (root / "made.md").write_text(text)
            return links.broken_links([root / "made.md"], root)

    def test_planted_links_are_found(self):
        for planted in ("[a](gone.md)", "![a](gone.png)", "[a](page.md#gone)", "[a](#gone)", "[a](page.md#no-title)", "[a]: gone.md",
                        "[a](page.md#twice-2)", '<img src="gone.svg">', "[a](../page.md)", "[a]()", "[a](https://)",
                        "[`a` [b]](gone.md)", "| [a](page.md) | [b](gone.md) |"):
            self.assertEqual(len(self.broken(f"# Made\n\nSome words, {planted}\n" if planted[0:4] != "[a]:" else planted)), 1, planted)

    def test_right_links_are_left_alone(self):
        self.assertEqual(self.broken("# Made\n[a](page.md) [a](page.md#a-title) [a](page.md#twice) [a](page.md#twice-1) [a](#made)\n"
                                     "[a](page.md#code--more_words) [a](https://example.com/x#y) `[a](gone.md)`\n"
                                     "```\n[a](gone.md)\n```\n"), [])

    def test_a_problem_names_its_line(self):
        self.assertEqual(self.broken("# Made\n\n```\n[a](b)\n```\n\n[a](gone.md)\n"), ["made.md:7: gone.md: no such file"])


if __name__ == "__main__":
    unittest.main()
