# `nodewright bench engine` as a black box. Standard library only.
import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from command import DEMO, DEVICE, USAGE, CommandTest, golden_model

WORDS = ("bench", "engine", "--model", DEMO, "--device", DEVICE)


class BenchEngine(CommandTest):
    def test_the_engine_stands_beside_the_bare_loop(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "engine.json")
            text = self.succeed(*WORDS, "--batch", "2", "--prompt", "3", "--output", "10", "--rounds", "1", "--busy-us",
                                "1000", "--out", path, "--commit", "c0ffee")
            with open(path) as file:
                record = json.load(file)
        self.assertEqual("c0ffee", record["commit"])
        line, = record["lines"]
        self.assertEqual(2, line["batch"])
        for way in ("bare loop", "pipelined", "one at a time", "pipelined, busy", "one at a time, busy"):
            self.assertIn(way, text)
            figures = line[way]
            self.assertLess(0, figures["step_ms"]["min"])
            self.assertLessEqual(figures["median_ms"]["median"], figures["p99_ms"]["median"])
            self.assertLessEqual(0, figures["gap_us"])
        self.assertAlmostEqual(line["over_bare"], line["pipelined"]["step_ms"]["median"] / line["bare loop"]["step_ms"]["median"])
        # A host that is busy for a millisecond after a step cannot do more than one a millisecond.
        self.assertLess(1.0, line["one at a time, busy"]["step_ms"]["min"])

    def test_answers_that_end_before_all_decode_leave_the_bare_loop_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "engine.json")
            text = self.succeed(*WORDS, "--batch", "4", "--prompt", "20", "--output", "8", "--rounds", "1", "--out", path)
            with open(path) as file:
                line, = json.load(file)["lines"]
        self.assertIn("an answer of 8 tokens ended before the last prompt had been read; try a longer --output", text)
        self.assertNotIn("nan", text)
        self.assertEqual({"batch", "bare loop"}, set(line))

    def test_two_chains_stand_beside_one(self):
        odd = golden_model("llama/odd_sizes")
        words = ["bench", "engine", "--model", odd, "--prompt", "3", "--output", "8", "--rounds", "1", "--overlap", "2"]
        two = ["--device", "cpu:devices=2", "--tp", "2"]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "engine.json")
            text = self.succeed(*words, *two, "--batch", "4", "--out", path)
            with open(path) as file:
                line, = json.load(file)["lines"]
        self.assertIn("two chains of 2 rows", text)
        self.assertLess(0, line["chains"]["two_ms"]["min"])
        self.assert_refused(USAGE, ["--batch", "3 rows"], *words, *two, "--batch", "3")
        self.assert_refused(USAGE, ["--overlap", "--tp 2"], *words, "--device", "cpu", "--batch", "4")

    def test_what_cannot_be_served_is_named(self):
        self.assert_refused(USAGE, ["--prompt and --output", "1024"], *WORDS, "--prompt", "1000", "--output", "25")
        self.assert_refused(USAGE, ["--output", "8"], *WORDS, "--output", "7")
        self.assert_refused(USAGE, ["--batch", "0"], *WORDS, "--batch", "0")


if __name__ == "__main__":
    unittest.main()
