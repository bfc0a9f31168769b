#!/usr/bin/env python3
"""The tables of docs/models.md and docs/adapters.md are what bench/make_models_table.py makes of the parity table and the
results; the first names every architecture that the loader reads, and no other."""
import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))
import make_models_table as models


def read(page):
    return (ROOT / page).read_text()


class ModelsTest(unittest.TestCase):
    def test_the_tables_are_made_of_the_results(self):
        for page in models.PAGES:
            self.assertEqual(read(page), models.written(page, read(page)), "stale: python3 bench/make_models_table.py")

    def test_another_figure_in_a_file_makes_its_table_stale(self):
        for page, kind, place in (
                ("docs/models.md", "families", ("models", "qwen3-4b", "lines", 0, "step_ms")),
                ("docs/models.md", "families", ("models", "qwen3-4b", "lines", 2, "step_ms")),
                ("docs/models.md", "tuned", ("models", "granite-3.1-2b", "lines", 1, "step_ms")),
                ("docs/models.md", "mixtures", ("models", "olmoe-1b-7b", "lines", 0, "step_ms")),
                ("docs/models.md", "mixtures", ("models", "qwen3-30b-a3b", "lines", 1, "step_ms")),
                ("docs/models.md", "mixtures", ("peers", "qwen3-30b-a3b", 1, "step_ms", "torch.cuda.graph")),
                ("docs/adapters.md", "adapters", ("lines", 1, "step_ms")),
                ("docs/adapters.md", "adapters", ("no_row_has_one", "lines", 1, "step_ms")),
                ("docs/adapters.md", "adapter-gap", ("forms", 2, "rounds", 0, "loads"))):
            with tempfile.TemporaryDirectory() as scratch:
                folder = pathlib.Path(scratch) / "results"
                shutil.copytree(ROOT / "bench/results", folder)
                name, found = models.newest(kind, folder)
                line = found
                for key in place:
                    line = line[key]
                line["largest_ms" if "rounds" in place else "median"] *= 1.2
                (folder / name).write_text(json.dumps(found))
                self.assertNotEqual(read(page), models.written(page, read(page), folder), place)

    def test_a_page_without_one_of_its_marks_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "docs/models.md has marks of the tables .*'mixture'"):
            models.written("docs/models.md", read("docs/models.md").replace(" mixture -->", " mixtures -->"))

    def test_it_has_each_architecture_of_the_loader(self):
        source = read("models/config/architectures.cpp")
        known = set(re.findall(r'\{"(\w+)", read_', source))
        named = {name for row in models.FAMILIES for name in row[0].split(", ")}
        self.assertEqual(named, known)
        self.assertGreater(len(known), 15)

    def test_it_has_each_quant_method_of_the_loader(self):
        source = read("models/weights/formats/weight_format.cpp")
        known = re.findall(r'\{"([\w/-]+)", read_', source)
        self.assertEqual(sorted(method for row in models.FORMATS for method in row[1]), sorted(known))
        self.assertGreater(len(known), 8)

    def test_it_has_each_type_of_block_that_is_decoded(self):
        source = read("models/weights/formats/gguf_blocks.cpp")
        decoded = re.findall(r'\{"(\w+)", \w+,', source[source.index("kDecoders"):])
        self.assertEqual(sorted(models.gguf_types()), sorted([*decoded, "F32", "F16", "BF16"]))
        self.assertGreater(len(decoded), 12)


if __name__ == "__main__":
    unittest.main()
