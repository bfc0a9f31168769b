# `nodewright bench serve` as a black box. Standard library only.
import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from command import DEMO, DEVICE, USAGE, CommandTest, run

WORDS = ("bench", "serve", "--device", DEVICE)
MODEL = (*WORDS, "--model", DEMO)
TAILS = ("first_token_ms", "between_tokens_ms", "request_ms", "idle_us")


class BenchServe(CommandTest):
    def record(self, *words):
        """Standard output, and the JSON file."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "serve.json")
            text = self.succeed(*(WORDS if "--model" in words else MODEL), *words, "--out", path, "--commit", "c0ffee")
            with open(path) as file:
                return text, json.load(file)

    def assert_tail(self, tail):
        self.assertTrue(0 <= tail["median"] <= tail["p99"] <= tail["max"], tail)

    def test_requests_in_a_closed_loop_are_counted_and_timed_for_each_sampling(self):
        text, record = self.record("--concurrency", "3", "--requests", "7", "--prompt-tokens", "5", "--output-tokens",
                                   "4", "--sampling", "greedy", "temperature=1,top_k=5", "logprobs=1", "--rounds", "2")
        self.assertLessEqual({"gpu", "driver", "date", "commit", "command", "model"}, set(record))
        self.assertEqual((3, 3), (record["concurrency"], record["max_batch"]))
        self.assertEqual(["greedy", "temperature=1,top_k=5", "logprobs=1"],
                         [line["sampling"] for line in record["lines"]])
        for line in record["lines"]:
            self.assertEqual((14, 70, 56), (line["requests"], line["prompt_tokens"], line["output_tokens"]))
            for name in TAILS:
                self.assert_tail(line[name])
            # Four tokens: one first wait and three gaps, no longer together than the request.
            self.assertLessEqual(line["first_token_ms"]["median"], line["request_ms"]["max"])
            self.assertLess(0, line["between_tokens_ms"]["median"])
            self.assertAlmostEqual(line["output_tokens"] / line["seconds"], line["tokens_per_s"])
            self.assertAlmostEqual(line["prompt_tokens"] / line["seconds"], line["prompt_tokens_per_s"])
            self.assertIn("%.1f tokens/s" % line["tokens_per_s"], text)
            # No more than three at once: seven need three turns of four steps or more.
            self.assertLessEqual(2 * 3 * 3, line["steps"])

    def test_arrivals_spread_over_the_time_that_their_rate_says(self):
        _, record = self.record("--rate", "40", "--requests", "20", "--prompt-tokens", "2-4,8:0.5", "--output-tokens", "1-3")
        line, = record["lines"]
        self.assertEqual(40, record["rate"])
        self.assertTrue(40 <= line["prompt_tokens"] <= 160 and 20 <= line["output_tokens"] <= 60, line)
        # Twenty gaps of 25 ms in the mean: less than a quarter of it happens once in a million seeds.
        self.assertLess(0.125, line["seconds"])

    def test_a_prompt_that_arrives_beside_decoders_is_compared_with_itself_alone(self):
        text, record = self.record("--decoders", "2", "--prompt-tokens", "40,80", "--chunk", "8", "--rounds", "2",
                                   "--sampling", "checkpoint")
        self.assertEqual([40, 80], [line["prompt_tokens"] for line in record["lines"]])
        self.assertEqual(3, record["max_batch"])
        for line in record["lines"]:
            self.assertEqual(2, line["decoders"])
            for name in ("between_tokens_before_ms", "between_tokens_ms", "full_step_ms"):
                self.assert_tail(line[name])
            # The longest of all rounds is one of the gaps.
            self.assertAlmostEqual(line["between_tokens_ms"]["max"], line["worst_gap_ms"]["max"])
            self.assertLess(0, line["full_step_ms"]["median"])
            self.assertAlmostEqual(line["worst_gap_ms"]["median"] / line["full_step_ms"]["median"],
                                   line["worst_gap_over_full_step"])
            self.assertIn("%.2f times a full step" % line["worst_gap_over_full_step"], text)
            self.assertAlmostEqual(line["prompt_tokens_per_s"]["median"] / line["prompt_tokens_per_s_alone"]["median"],
                                   line["share_of_alone"])
            self.assertIn("%.1f alone" % line["prompt_tokens_per_s_alone"]["median"], text)

    def steps_of(self, *words):
        """The figures, and the steps of the log."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "steps.jsonl")
            _, record = self.record(*words, "--log", path)
            with open(path) as file:
                return record["lines"], [json.loads(line) for line in file][1:]

    def test_its_log_holds_the_steps_that_the_figures_are_of_and_no_warm_up(self):
        (line,), steps = self.steps_of("--concurrency", "2", "--requests", "5", "--prompt-tokens", "5", "--output-tokens", "4", "--rounds", "2")
        self.assertEqual(line["steps"], len(steps))
        self.assertEqual(line["prompt_tokens"], sum(step["prompt_tokens"] for step in steps))
        _, steps = self.steps_of("--decoders", "2", "--prompt-tokens", "40", "--rounds", "2")
        own = 16  # of a decoder
        self.assertEqual(2 * (40 + 40 + 2 * own), sum(step["prompt_tokens"] for step in steps))

    def test_the_model_is_named_by_its_folder_with_and_without_a_slash_behind_it(self):
        for folder in (DEMO, DEMO + "/"):
            _, record = self.record("--model", folder, "--concurrency", "1", "--requests", "1", "--prompt-tokens", "2", "--output-tokens", "2")
            self.assertEqual("demo", record["model"])

    def test_the_mode_is_obeyed(self):
        for mode, launched in (("eager", False), ("explicit", True)):
            done = run(*MODEL, "--concurrency", "1", "--requests", "1", "--prompt-tokens", "2", "--output-tokens", "2",
                       "--mode", mode, "--trace")
            self.assertEqual(0, done.returncode)
            self.assertEqual(launched, b"cuGraphLaunch" in done.stderr, mode)

    def test_what_cannot_be_served_is_named(self):
        self.assert_refused(USAGE, ["--rate", "--concurrency", "--decoders"], *MODEL)
        self.assert_refused(USAGE, ["one of --rate"], *MODEL, "--rate", "1", "--decoders", "2")
        self.assert_refused(USAGE, ["--rate", "0 requests"], *MODEL, "--rate", "0")
        self.assert_refused(USAGE, ["--buckets and --max-batch"], *MODEL, "--rate", "1", "--buckets", "2")
        self.assert_refused(USAGE, ["--decoders and --requests"], *MODEL, "--decoders", "2", "--requests", "3")
        self.assert_refused(USAGE, ["--decoders and --max-batch"], *MODEL, "--decoders", "2", "--max-batch", "2")
        self.assert_refused(USAGE, ["--prompt-tokens and --output-tokens", "1024"], *MODEL, "--rate", "1",
                            "--prompt-tokens", "1000", "--output-tokens", "25")
        for words in ("", "x", "1,", "5-2", "0", "3:0", "3:x", "1-x", "9999999999"):
            self.assert_refused(USAGE, ["--prompt-tokens", "100-2000" if words else "it is empty"], *MODEL, "--rate", "1", "--prompt-tokens", words)


if __name__ == "__main__":
    unittest.main()
