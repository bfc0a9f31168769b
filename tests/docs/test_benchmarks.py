#!/usr/bin/env python3
"""docs/benchmarks.md and README's table are what bench/make_benchmarks_page.py makes of bench/results today: a changed
figure, a changed page and a report that reads otherwise are noticed."""
import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import make_benchmarks_page as pages
import measurements


class BenchmarksTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name) / "results"
        shutil.copytree(ROOT / "bench/results", self.folder)

    def made(self):
        return pages.page(measurements.Results(self.folder))

    def test_both_pages_are_made_of_the_results_to_the_byte(self):
        readme = pages.README.read_text()
        self.assertEqual((pages.PAGE.read_text(), readme), pages.written(measurements.Results(), readme),
                         "stale: make benchmarks-page")

    def test_the_readme_has_the_table(self):
        self.assertEqual(len(pages.MARKED.findall(pages.README.read_text())), 1)
        table = pages.front(measurements.Results()).splitlines()
        self.assertLessEqual(len(table) - 2, 6)

    def test_each_figure_that_the_readme_gives_as_a_reason_is_on_the_page(self):
        reasons = re.search(r"^## Why\n(.*?)^## ", pages.README.read_text(), re.M | re.S)[1]
        figures = re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?=\s(?:µs|ms|%|times)\b|\s%)", reasons)
        self.assertEqual(len(figures), 4)
        missing = [figure for figure in figures if figure not in re.findall(r"[\d,.]*\d", self.made())]
        self.assertEqual(missing, [])

    def test_another_figure_in_a_file_makes_the_page_stale(self):
        for name, old, new in (("2026-11-25-h100-port.txt", "131.9", "131.8"),
                               ("2026-11-23-h200-overlap.txt", "0.6894 0.7642", "0.6994 0.7642"),
                               ("2026-11-27-h200-nodes.txt", "*.attend              16     20.736", "*.attend              16     21.736")):
            text = (self.folder / name).read_text()
            self.assertEqual(text.count(old), 1, name)
            (self.folder / name).write_text(text.replace(old, new))
            self.assertNotEqual(self.made(), pages.PAGE.read_text(), name)
            (self.folder / name).write_text(text)
        self.assertEqual(self.made(), pages.PAGE.read_text())

    def test_every_json_file_that_the_page_links_to_feeds_it(self):
        linked = sorted(set(re.findall(r"results/(20[\w.-]+\.json)\)", pages.PAGE.read_text())))
        self.assertGreater(len(linked), 12)
        for name in linked:
            data = json.loads((self.folder / name).read_text())
            (self.folder / name).write_text(json.dumps({**data, "commit": "fedcba9"}))
            self.assertIn("fedcba9", self.made(), name)
            (self.folder / name).write_text(json.dumps(data))

    def test_a_report_that_reads_otherwise_is_an_error(self):
        for name, old in (("2026-11-25-h100-port.txt", "  explicit"), ("2026-11-23-h200-overlap.txt", "as a loop 0.6940"),
                          ("2026-11-23-h200-graph-targets-4d7dc59.txt", "at most 0.62"),
                          ("2026-11-27-h100-nodes.txt", "*.rope                16"),
                          ("2026-11-23-h200-peers.txt", "(wanted 2.0)"), ("2026-11-25-h100-first-token.txt", "; median 5.239")):
            text = (self.folder / name).read_text()
            self.assertIn(old, text)
            (self.folder / name).write_text(text.replace(old, "?"))
            with self.assertRaises((ValueError, KeyError), msg=name):
                self.made()
            (self.folder / name).write_text(text)

    def test_a_missed_target_is_told(self):
        path = self.folder / "2026-11-23-h200-graph-targets-4d7dc59.txt"
        path.write_text(path.read_text().replace("0.695 us    at most 0.8", "0.895 us    at most 0.8"))
        row = next(line for line in self.made().splitlines() if line.startswith("| adding a node of a chain"))
        self.assertIn("| **no** |", row)


if __name__ == "__main__":
    unittest.main()
