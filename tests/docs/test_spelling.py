#!/usr/bin/env python3
"""codespell, which `make test` installs, finds no misspelling in what we wrote: pages, sources and scripts. It finds a
planted one."""
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
IGNORED = [
    "inout", "kown",           # InOut<T>, kOwn
    "crate",                   # a package of Rust
    "nd", "lod", "nin",        # Unicode's class Nd, a load, the end of a line and "in" in a literal
    "temprature", "genrate",   # misspelled on purpose: what "did you mean" is tested with
]
# Sources of others, goldens, what commands printed, and texts of models.
LEFT_OUT = ["third_party", "tests/golden", "tests/fuzz/corpus", "bench/results", "models/demo", "demo"]
SUFFIXES = {".md", ".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".js", ".css", ".html", ".cmake", ".txt", ".in", ""}


def misspellings(paths):
    command = ["codespell", "--ignore-words-list", ",".join(IGNORED), *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.splitlines()


def our_files():
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--",
                             *(f":!{folder}" for folder in LEFT_OUT)], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [pathlib.Path(name) for name in listed.split("\0") if name]
    return [path for path in files if path.suffix in SUFFIXES and (ROOT / path).exists()]


class SpellingTest(unittest.TestCase):
    def test_codespell_is_there(self):
        self.assertTrue(shutil.which("codespell"), "cmake/install_missing.sh spell")

    def test_nothing_is_misspelled(self):
        files = our_files()
        self.assertGreater(len(files), 300)
        self.assertEqual(misspellings(files), [])

    def test_a_planted_misspelling_is_found(self):
        wrong = "rec" + "ieve"
        for name, text in (("page.md", f"The engine may {wrong} more.\n"), ("source.cpp", f"// The pages that we {wrong}.\n"),
                           ("script.py", f"# {wrong}\n")):
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / name
                path.write_text(text)
                found = misspellings([path])
                self.assertEqual(len(found), 1, found)
                self.assertIn(f"{wrong} ==> ", found[0])

    def test_no_misspelling_hides_behind_the_words_that_are_left_out(self):
        self.assertEqual(len(IGNORED), len(set(IGNORED)))
        text = "\n".join((ROOT / path).read_text(errors="replace") for path in our_files() if path.name != "test_spelling.py").lower()
        self.assertEqual([word for word in IGNORED if word not in text], [])


if __name__ == "__main__":
    unittest.main()
