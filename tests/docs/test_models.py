#!/usr/bin/env python3
"""The table of docs/models.md is what bench/make_models_table.py makes of the parity table and the results, and names
every architecture that the loader reads, and no other."""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))
import make_models_table as models


class ModelsTest(unittest.TestCase):
    def test_the_table_is_made_of_the_results(self):
        page = pathlib.Path(models.PAGE).read_text()
        begin, end = page.index(models.BEGIN) + len(models.BEGIN), page.index(models.END)
        self.assertEqual(page[begin:end], models.table(), "stale: python3 bench/make_models_table.py")

    def test_it_has_each_architecture_of_the_loader(self):
        source = (ROOT / "models/config/architectures.cpp").read_text()
        read = set(re.findall(r'\{"(\w+)", read_', source))
        named = {name for row in models.FAMILIES for name in row[0].split(", ")}
        self.assertEqual(named, read)
        self.assertGreater(len(read), 15)


if __name__ == "__main__":
    unittest.main()
