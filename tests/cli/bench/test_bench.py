# The measurements of the command as a black box. Standard library only.
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from command import DEMO, DEVICE, PROGRAM, SOURCE, USAGE, CommandTest, run

MODES = ("eager", "captured", "explicit")
PLOT = os.path.join(SOURCE, "bench", "plot_decode.py")


class Nanogpt(CommandTest):
    WORDS = ("bench", "nanogpt", "--device", DEVICE)

    def test_the_article_s_tables_are_printed_and_written_with_equal_tokens(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "nanogpt.json")
            text = self.succeed(*self.WORDS, "--samples", "1", "--lengths", "8", "57", "--out", path, "--commit", "c0ffee")
            with open(path) as file:
                record = json.load(file)
        tables = {title: [[cell.strip() for cell in row.strip("|").split("|")] for row in body.strip().split("\n")]
                  for title, body in re.findall(r"^## (.+)\n\n((?:\|.*\n)+)", text, re.MULTILINE)}
        for title, rows in tables.items():
            self.assertEqual({len(rows[0])}, {len(row) for row in rows}, title)

        named = tables["Named configurations"]
        self.assertEqual(["Config", "Prompt Len", "Gen Tokens"], named[0][:3])
        self.assertEqual([["smoke_test", "4", "8"], ["medium_generation", "8", "32"], ["long_generation", "8", "48"],
                          ["heavy_prompt", "32", "16"], ["near_context_limit", "4", "56"]],
                         [row[:3] for row in named[2:]])
        sweep = tables["Generation length sweep (prompt_len=8)"]
        self.assertEqual(["8", "57"], [row[0] for row in sweep[2:]])
        for row in named[2:] + sweep[2:]:
            self.assertEqual("equal", row[-1])
            self.assertTrue(all(re.fullmatch(r"\d+\.\d\dx", cell) for cell in row[-5:-1]), row)
        for title in ("Per-step decode latency summary", "Device time of a step, back to back", "Built once"):
            self.assertEqual([row[0] for row in named[2:]], [row[0] for row in tables[title][2:]])

        self.assertLessEqual({"gpu", "driver", "date", "commit", "command", "model", "samples"}, set(record))
        self.assertEqual("c0ffee", record["commit"])
        self.assertEqual(56769, record["model"]["parameters"])
        self.assertEqual([row[0] for row in named[2:]], [line["config"] for line in record["named"]])
        for line in record["named"] + record["sweep"]:
            self.assertEqual(set(MODES), set(line["modes"]))
            for figures in line["modes"].values():
                for figure in ("step_ms", "end_to_end_ms", "device_step_ms", "build_ms"):
                    spread = figures[figure]
                    self.assertLess(0, spread["min"], figure)
                    self.assertTrue(spread["min"] <= spread["median"] <= spread["max"], figure)

    def test_a_length_beyond_the_context_is_refused_before_anything_is_measured(self):
        self.assert_refused(USAGE, ["58 tokens after a prompt of 8", "2 to 57"], *self.WORDS, "--lengths", "8", "58")
        self.assert_refused(USAGE, ["1 tokens", "2 to 57"], *self.WORDS, "--lengths", "1")


class Prefill(CommandTest):
    WORDS = ("bench", "prefill", "--model", DEMO, "--device", DEVICE)

    def test_every_form_is_timed_beside_the_matrix_rate(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "prefill.json")
            text = self.succeed(*self.WORDS, "--tokens", "1", "16", "--samples", "1", "--out", path, "--commit", "c0ffee")
            with open(path) as file:
                record = json.load(file)
        forms = ["graph", "piecewise", "eager"]
        self.assertEqual([[tokens, form] for tokens in ("1", "16") for form in forms],
                         [line.split()[:2] for line in text.splitlines()[1:]])
        self.assertEqual("c0ffee", record["commit"])
        self.assertEqual(6, len(record["lines"]))
        for line in record["lines"]:
            self.assertLess(0, line["ms"]["median"])
            self.assertAlmostEqual((line["weight_flops"] + line["attention_flops"]) / (line["ms"]["median"] * 1e-3)
                                   / line["product_flops_per_s"]["median"], line["share_of_matrix_rate"])
        # 16 tokens multiply 16 times as often but with the head, and attend to 136 times as many keys.
        one, many = record["lines"][0], record["lines"][3]
        self.assertLess(one["weight_flops"], many["weight_flops"])
        self.assertAlmostEqual(136, many["attention_flops"] / one["attention_flops"])

    def test_forms_and_lengths_that_are_none_are_refused(self):
        self.assert_refused(USAGE, ["whole", "graph, piecewise or eager"], *self.WORDS, "--forms", "whole")
        self.assert_refused(USAGE, ["0", "1 to 8192"], *self.WORDS, "--tokens", "0")


class Decode(CommandTest):
    WORDS = ("bench", "decode", "--model", DEMO, "--device", DEVICE, "--samples", "2", "--steps", "2")

    def test_plots_are_drawn_from_the_files_where_matplotlib_is_installed(self):
        if subprocess.run([sys.executable, "-c", "import matplotlib"], capture_output=True).returncode != 0:
            return  # the plots are for people; the program does not need them
        with tempfile.TemporaryDirectory() as folder:
            batches, contexts, one = (os.path.join(folder, name) for name in ("batches.json", "contexts.json", "one.json"))
            self.succeed(*self.WORDS, "--batch", "1", "2", "--context", "8", "--out", batches)
            self.succeed(*self.WORDS, "--context", "8", "16", "--max-context", "64", "--out", contexts)
            self.succeed(*self.WORDS, "--context", "8", "--out", one)
            done = subprocess.run([sys.executable, PLOT, folder, one], capture_output=True, text=True)
            self.assertEqual(1, done.returncode)
            self.assertIn("no file has several batches", done.stderr)
            self.assertEqual([], [name for name in os.listdir(folder) if name.endswith(".svg")])
            done = subprocess.run([sys.executable, PLOT, folder, batches, contexts, one], capture_output=True, text=True)
            self.assertEqual((0, ""), (done.returncode, done.stderr))
            for name in ("share", "context"):
                with open(os.path.join(folder, "decode-%s.svg" % name)) as file:
                    drawing = file.read()
                self.assertIn("</svg>", drawing)
                self.assertIn(os.path.basename(DEMO), drawing)

    def test_steps_of_one_launch_are_timed_a_step(self):
        lines = {}
        for steps in (["1"], ["4"], ["4", "--until-ended"]):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "decode.json")
                self.succeed(*self.WORDS, "--context", "64", "--steps-per-launch", *steps, "--out", path)
                with open(path) as file:
                    record = json.load(file)
            self.assertEqual((int(steps[0]), len(steps) > 1), (record["steps_per_launch"], record["loop"]))
            lines[len(steps) > 1, steps[0]] = record["lines"][0]
        one, four, loop = lines[False, "1"], lines[False, "4"], lines[True, "4"]
        self.assertAlmostEqual(one["kv_bytes"] * (64 + 1.5) / 64, four["kv_bytes"])
        self.assertEqual(four["kv_bytes"], loop["kv_bytes"])
        self.assertEqual(4 * one["nodes"] + 1, four["nodes"])  # `inputs` once, and `advance` in each step
        self.assertEqual(2, loop["nodes"])
        for line in lines.values():
            self.assertLess(0, line["step_ms"]["median"])
            self.assertLess(0, line["wall_ms"]["median"])


class DecodeSampling(CommandTest):
    WORDS = ("bench", "decode", "--model", DEMO, "--device", DEVICE, "--context", "16", "--samples", "3", "--steps", "2")

    def test_every_setting_stands_beside_the_greedy_steps_of_its_batch(self):
        settings = ["checkpoint", "temperature=100,top_k=200,top_p=0.9", "mask,logprobs=2", "repetition_penalty=1.5"]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "decode.json")
            text = self.succeed(*self.WORDS, "--rows", "1,8", "--sampling", *settings, "--out", path)
            with open(path) as file:
                lines = json.load(file)["lines"]
        settings[0] = "checkpoint(temperature=0.7,top_p=0.95)"  # what models/demo's generation_config.json says
        expected = [(rows, name) for rows in (1, 8) for name in ["greedy", *settings]]
        self.assertEqual(expected, [(line["batch"], line["sampling"]) for line in lines])
        self.assertEqual([(str(rows), name) for rows, name in expected],
                         [(row.split()[0], row.split()[-1]) for row in text.splitlines()[1:]])
        for line in lines:
            over = line["over_greedy_us"]
            self.assertLess(0, line["step_us"]["min"])
            self.assertTrue(over["min"] <= over["median"] <= over["max"], line)
            self.assertEqual(line["sampling"] in settings[2:], line["second_choice"])
            if line["sampling"] == "greedy":
                self.assertEqual((0, 0, 0), (over["min"], over["max"], line["unlike_greedy"]))
        # Eight rows that draw from 200 tokens almost alike do not all find the likeliest; half of the vocabulary is
        # denied, the likeliest token of some row with it.
        self.assertLess(0, lines[7]["unlike_greedy"])
        self.assertLess(0, lines[8]["unlike_greedy"])

    def test_rows_that_are_chosen_again_launch_a_second_graph_a_step(self):
        def launches(*settings):
            done = run(*self.WORDS, "--trace", "--sampling", *settings)
            self.assertEqual(0, done.returncode)
            return done.stderr.decode().count("cuGraphLaunch")
        # Two rounds warm up, three count; each has a step in both slots and the two that are timed.
        steps = 5 * (2 + 2)
        self.assertEqual([steps, 2 * steps, 3 * steps],
                         [launches("greedy"), launches("top_k=5"), launches("presence_penalty=1")])

    def test_settings_that_are_none_are_named(self):
        for words, named in (("top", "'top' is no setting"), ("top_k", "'top_k' has no number"),
                             ("top_k=1.5", "top_k is no whole number"), ("temperature=-1", "temperature of -1"),
                             ("min_p=2", "min_p of 2"), ("top_p=1,top-p=0.5", "two of top_p"), ("", "--sampling: it is empty")):
            self.assert_refused(USAGE, ["--sampling", named], *self.WORDS, "--sampling", words)
        self.assert_refused(USAGE, ["--sampling and --steps-per-launch"], *self.WORDS, "--sampling", "greedy",
                            "--steps-per-launch", "2")


class Modes(CommandTest):
    DECODE = ("bench", "decode", "--model", DEMO, "--device", DEVICE, "--context", "8", "--samples", "1", "--steps", "1")
    ENGINE = ("bench", "engine", "--model", DEMO, "--device", DEVICE, "--batch", "2", "--prompt", "3", "--output", "8",
             "--rounds", "1")

    def calls(self, *words):
        """Whether nodes were added by hand, a stream was captured, a graph was launched; and standard output."""
        done = run(*words, "--trace")
        self.assertEqual(0, done.returncode, done.stderr[-400:])
        trace = done.stderr.decode()
        return [call in trace for call in ("cuGraphAddNode", "cuStreamBeginCapture", "cuGraphLaunch")], done.stdout.decode()

    def test_the_mode_that_is_asked_for_is_the_one_that_is_measured(self):
        for words in (self.DECODE, (*self.DECODE, "--sampling", "top_k=5"), self.ENGINE):
            for mode, expected in (("explicit", [True, False, True]), ("captured", [False, True, True]),
                                   ("eager", [False, False, False])):
                seen, text = self.calls(*words, "--mode", mode)
                self.assertEqual(expected, seen, (words, mode))
                if "decode" in words:
                    head, *rows = (row.split() for row in text.splitlines())
                    self.assertEqual({mode}, {row[head.index("mode")] for row in rows})

    def test_a_measurement_that_has_no_other_mode_says_so(self):
        for bench, named in (("prefill", "--forms"), ("nodes", "no other way")):
            self.assert_refused(USAGE, ["--mode", named], "bench", bench, "--model", DEMO, "--device", DEVICE, "--mode",
                                "captured")
        self.assert_refused(USAGE, ["bogus", "captured"], *self.DECODE, "--modes", "bogus")
        self.assert_refused(USAGE, ["--until-ended and --mode"], *self.DECODE, "--modes", "explicit,captured",
                            "--until-ended", "--steps-per-launch", "4")


class Bench(CommandTest):
    def test_its_measurements_are_listed(self):
        help_text = self.succeed("bench", "--help")
        for measurement in ("decode", "prefill", "nanogpt"):
            self.assertIn(measurement, help_text)


if __name__ == "__main__":
    print("nodewright: %s on %s" % (PROGRAM, DEVICE), file=sys.stderr)
    unittest.main()
