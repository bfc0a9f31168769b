#!/usr/bin/env python3
"""bench/gpu_gate.py on programs whose times are planted: a slower one is named, an equal one with outliers is not."""
import json
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

GATE = pathlib.Path(__file__).resolve().parents[2] / "bench/gpu_gate.py"
PROGRAM = """#!{python}
import itertools, json, sys
words = sys.argv[1:]
values = lambda name: [int(w) for w in itertools.takewhile(lambda w: w[0] != "-", words[words.index(name) + 1:])]
assert words[:2] == ["bench", "decode"] and words[words.index("--load-format") + 1] == "dummy"
assert json.load(open(words[words.index("--model") + 1] + "/config.json"))["model_type"] == "llama"
counter = {counter!r}
turn = sum(1 for _ in open(counter))
open(counter, "a").write("x\\n")
{body}
lines = [dict(batch=r, context=c, step_ms=dict(median=ms(turn, r))) for r in values("--batch") for c in values("--context")]
json.dump(dict(gpu="planted", lines=lines), open(words[words.index("--out") + 1], "w"))
"""


class GateTest(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)

    def program(self, name, body):
        path, counter = self.folder / name, self.folder / f"{name}.turns"
        counter.write_text("")
        path.write_text(PROGRAM.format(python=sys.executable, counter=str(counter), body=body))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    def run_gate(self, before, now, *more):
        return subprocess.run([sys.executable, str(GATE), "--before", self.program("before", before), "--now", self.program("now", now),
                               "--models", "llama-3.2-1b", "--rows", "1", "8", "--out", str(self.folder / "out"), *more],
                              capture_output=True, text=True)

    def test_a_slower_median_fails_and_is_named(self):
        done = self.run_gate("ms = lambda turn, rows: 1.0", "ms = lambda turn, rows: 1.03 if rows == 8 else 1.01")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual([line.split()[1] for line in done.stdout.splitlines() if line.endswith("slower")], ["8"])
        self.assertIn("1 of 2 steps", done.stderr)
        written = json.loads((self.folder / "out/gate.json").read_text())
        self.assertEqual([(line["rows"], line["is_slower"], len(line["now_ms"])) for line in written["lines"]], [(1, False, 5), (8, True, 5)])

    def test_outliers_do_not_fail(self):
        done = self.run_gate("ms = lambda turn, rows: 1.0", "ms = lambda turn, rows: 9.0 if turn in (0, 3) else 1.0")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_programs_take_turns(self):
        done = self.run_gate("ms = lambda turn, rows: 1.0", "ms = lambda turn, rows: 1.0", "--turns", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.folder / "before.turns").read_text(), "x\n" * 3)

    def test_a_program_that_fails_is_named(self):
        done = self.run_gate("ms = lambda turn, rows: 1.0", "sys.exit('no device here')")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no device here", done.stderr)
        self.assertIn("now bench decode", done.stderr)

    def test_an_unknown_model_is_refused(self):
        done = subprocess.run([sys.executable, str(GATE), "--before", "a", "--now", "b", "--out", "c", "--models", "gone"],
                              capture_output=True, text=True)
        self.assertIn("'gone' is neither a folder nor one of", done.stderr)


if __name__ == "__main__":
    unittest.main()
