#!/usr/bin/env python3
"""The tables of docs/scale.md are what bench/make_scale_tables.py makes of bench/results today."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))
import make_scale_tables as scale


class ScaleTest(unittest.TestCase):
    def test_the_tables_are_made_of_the_results(self):
        page = pathlib.Path(scale.PAGE).read_text(encoding="utf-8")
        self.assertEqual(page, scale.written(page), "stale: python3 bench/make_scale_tables.py")

    def test_a_changed_table_is_seen(self):
        page = pathlib.Path(scale.PAGE).read_text(encoding="utf-8")
        changed = page.replace("| 1000 | least tokens |", "| 1001 | least tokens |")
        self.assertNotEqual(page, changed)
        self.assertEqual(page, scale.written(changed))


if __name__ == "__main__":
    unittest.main()
