# `--log` and `nodewright report` as a black box. Standard library only.
import json
import os
import re
import tempfile
import unittest
import xml.etree.ElementTree

from command import DEMO, RUN_TIME, USAGE, CommandTest, on_device, run

HEAD = {"log": "nodewright steps", "device": "a <device>", "model": "m", "date": "2026-11-25", "max_batch": 8,
        "step_tokens": 64, "buckets": [1, 8, 64], "pages": 20}


def step(number, rows, bucket, prompt=0, us=100.0, run="graph", waiting=0, free=10, **more):
    return {"step": number, "prompt_tokens": prompt, "decode_rows": rows - prompt, "bucket": bucket,
            "padding": bucket - rows, "run": run, "us": us, "waiting": waiting, "admitted": 1, "free_pages": free, **more}


# Ten decode steps of 8 rows in their own bucket, five of 5 rows in it, two prompts in 64, one step that had no graph.
STEPS = ([step(i + 1, 8, 8) for i in range(10)] + [step(i + 11, 5, 8, us=90.0, waiting=3) for i in range(5)] +
         [step(16, 60, 64, prompt=60, us=700.0), step(17, 64, 64, prompt=62, us=800.0, free=2, drafts=1)] +
         [step(18, 100, 100, us=5000.0, run="eager", reason="more rows than the largest bucket has, 64")])


def written(folder, steps, head=HEAD, end="\n"):
    path = os.path.join(folder, "steps.jsonl")
    with open(path, "w") as file:
        file.write("\n".join(json.dumps(line) for line in [head, *steps]) + end)
    return path


class Report(CommandTest):
    def report(self, steps, *words, **options):
        with tempfile.TemporaryDirectory() as folder:
            return self.succeed("report", written(folder, steps, **options), *words)

    def test_hits_padding_and_times_of_each_kind_are_counted(self):
        rows = {line[:13].strip(): line[13:].split() for line in self.report(STEPS).splitlines()}
        words = lambda text: text.split()
        # 80 + 25 + 100 rows of 120 + 100 that were computed.
        self.assertEqual(words("16 62.5 % 31.2 % 6.2 % 12.8 6.8 % 100.0 5000.0 5000.0"), rows["decode"])
        self.assertEqual(words("2 50.0 % 50.0 % 0.0 % 62.0 3.1 % 700.0 800.0 800.0"), rows["with prompts"])
        self.assertEqual(words("18 61.1 % 33.3 % 5.6 % 18.3 5.5 % 100.0 5000.0 5000.0"), rows["all"])
        self.assertEqual(words("15 66.7 % 33.3 % 0.0 % 7.0 12.5 % 100.0 100.0 100.0"), rows["8"])

    def test_reasons_queue_pages_and_tokens_are_told(self):
        text = self.report(STEPS)
        self.assertIn("no graph: 1 steps, more rows than the largest bucket has, 64", text)
        self.assertIn("122 of prompts and 207 rows that decode in 0.008 s of steps, 1 of them drafts", text)
        self.assertIn("0.8 requests in the mean, 3 at most; 2 of 20 pages free at least", text)
        self.assertRegex(text, r"(?m)^4 to 7 +5 #+$")

    def test_buckets_are_suggested_that_pad_least_of_so_many(self):
        # Rows 5, 8, 60, 64 and 100: of three sizes the best join 5 with 8 and 60 with 64.
        self.assertIn("8,64,100 pad 19 rows", self.report(STEPS))
        self.assertIn("as many would have padded 19: --buckets 8,64,100", self.report(STEPS))
        self.assertIn("4 would have padded 4: --buckets 5,8,64,100", self.report(STEPS, "--count", "4"))
        self.assertIn("as many would have padded 0: --buckets 5,8,60,64,100",
                      self.report(STEPS + [step(19, 5, 6), step(20, 8, 9)], "--count", "9"))
        # The largest of the log's own stays, though these steps did not need it.
        self.assertIn("2 would have padded 15: --buckets 8,64", self.report(STEPS[:15], "--count", "2"))
        self.assertIn("2 would have padded 15: --buckets 8,64", self.report(STEPS[:15]))

    def test_a_plot_is_an_svg_with_a_dot_for_each_step(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "steps.svg")
            self.succeed("report", written(folder, STEPS), "--plot", path)
            drawing = xml.etree.ElementTree.parse(path).getroot()
            many = [step(i + 1, 1, 1, us=9999.0 if i == 12345 else 5.0) for i in range(20000)]
            self.succeed("report", written(folder, many), "--plot", path)
            of_many = xml.etree.ElementTree.parse(path).getroot()
        tag = "{http://www.w3.org/2000/svg}%s"
        self.assertEqual(3 * len(STEPS), len(drawing.findall(tag % "circle")))
        self.assertTrue(any("a <device>" in (text.text or "") for text in drawing.findall(tag % "text")))
        # A long log is drawn in part, with the step that took longest at the panel's upper edge.
        circles = of_many.findall(tag % "circle")
        self.assertLess(len(circles), 3 * 3001)
        self.assertIn("50.0", {circle.get("cy") for circle in circles})

    def test_a_log_without_steps_is_no_failure_and_half_a_line_is_left_out(self):
        self.assertIn("0 steps of m", self.report([]))
        self.assertIn("17 steps of m", self.report(STEPS, end=""))

    def test_what_is_no_log_is_named_with_its_line(self):
        with tempfile.TemporaryDirectory() as folder:
            for steps, named in (([{"step": 1}], ["line 2", "run"]), ([step(1, 9, 8)], ["line 2", "contradict"]),
                                 ([step(1, 8, 8), step(2, 8, 8, run="magic")], ["line 3", "magic"])):
                self.assert_refused(RUN_TIME, named, "report", written(folder, steps))
            self.assert_refused(RUN_TIME, ["line 1", "device"], "report", written(folder, [], head={}))
            self.assert_refused(RUN_TIME, ["it is a folder"], "report", folder)
            self.assert_refused(RUN_TIME, ["No such file"], "report", os.path.join(folder, "none"))
            self.assert_refused(USAGE, ["--plot", "no folder"], "report", written(folder, []), "--plot", "/nowhere/x.svg")
        self.assert_refused(RUN_TIME, ["line 1", "no JSON object"], "report", os.path.join(DEMO, "config.json"))
        self.assert_refused(USAGE, ["LOG"], "report")


class Log(CommandTest):
    REQUESTS = b"".join(b'{"prompt_ids": [%d, 2, 3, 4, 5], "max_tokens": 6, "ignore_eos": true}\n' % i for i in range(5))

    def run_with(self, path, *words):
        return run(*on_device("run", DEMO, "--max-batch", "2", "--chunk", "4", "--buckets", "1,4", "--log", path, *words),
                   stdin=self.REQUESTS)

    def test_every_step_of_run_is_a_line_as_stats_counts_them(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "steps.jsonl")
            done = self.run_with(path, "--stats")
            self.assertEqual(0, done.returncode, done.stderr)
            with open(path) as file:
                head, *steps = [json.loads(line) for line in file]
            text = self.succeed("report", path)
        counted = re.search(r"(?m)^steps +(\d+) \((\d+) with prompts, .*; (\d+) padded rows", done.stderr.decode())
        self.assertEqual([int(number) for number in counted.groups()],
                         [len(steps), sum(step["prompt_tokens"] > 0 for step in steps), sum(step["padding"] for step in steps)])
        self.assertEqual((2, 4, [1, 4], "demo"),
                         (head["max_batch"], head["step_tokens"], head["buckets"], head["model"]))
        self.assertEqual(list(range(1, len(steps) + 1)), [step["step"] for step in steps])
        self.assertEqual(25, sum(step["prompt_tokens"] for step in steps))
        self.assertEqual({"graph"}, {step["run"] for step in steps})
        self.assertIn("%d steps of demo" % len(steps), text)

    def test_a_log_that_cannot_be_written_costs_no_result(self):
        done = self.run_with("/dev/full")
        self.assertEqual(0, done.returncode)
        self.assertEqual(5, len(done.stdout.splitlines()))
        told, counted = done.stderr.decode().splitlines()
        self.assertEqual("nodewright: cannot write the log '/dev/full': No space left on device; requests go on without it", told)
        steps = 1 + int(re.search(r"(?m)^steps +(\d+)", self.run_with("/dev/null", "--stats").stderr.decode()).group(1))
        self.assertEqual("nodewright: %d lines are missing in the log '/dev/full': No space left on device" % steps, counted)

    def test_a_log_that_cannot_be_opened_is_refused(self):
        self.assert_refused(USAGE, ["--log", "/nowhere/steps.jsonl"], *on_device("run", DEMO, "--log", "/nowhere/steps.jsonl"),
                            stdin=self.REQUESTS)
        model = os.path.join(DEMO, "config.json")
        self.assert_refused(USAGE, ["--log", "not written over"], *on_device("run", DEMO, "--log", model))


if __name__ == "__main__":
    unittest.main()
