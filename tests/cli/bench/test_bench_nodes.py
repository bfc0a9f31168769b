# `nodewright bench nodes` as a black box, the timeline's format, and the comparison with ncu on tables that were made up.
import contextlib
import copy
import csv
import io
import json
import math
import os
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from command import DEMO, PROGRAM, RUN_TIME, SOURCE, USAGE, CommandTest, on_device

sys.path.insert(0, os.path.join(SOURCE, "tests", "reference"))
sys.path.insert(0, os.path.join(SOURCE, "bench"))
import check_node_timer  # noqa: E402
import check_trace  # noqa: E402

FEW = ["--context", "6", "--samples", "2", "--launches", "1"]


class BenchNodes(CommandTest):
    def test_every_node_of_the_plan_is_timed_in_tables_json_and_timeline(self):
        plan = json.loads(self.succeed(*on_device("graph", DEMO, "--format", "json")))
        with tempfile.TemporaryDirectory() as folder:
            out, timeline = os.path.join(folder, "t.json"), os.path.join(folder, "trace.json")
            blocks = os.path.join(folder, "blocks.csv")
            text = self.succeed(*["bench", "nodes", "--model", DEMO, "--device", "cpu", *FEW, "--out", out,
                                  "--timeline", timeline, "--blocks", blocks])
            with open(blocks) as file:
                ran = list(csv.DictReader(file))
            with open(out) as file:
                timings = json.load(file)
            with open(timeline) as file:
                trace = json.load(file)
            page = self.succeed(*on_device("graph", DEMO, "--format", "html", "--timings", out))
        self.assertIn("<html", page)
        for words in ("*.qkv", "logits", "sum of node times", "plain step"):
            self.assertIn(words, text)
        self.assertEqual([node["name"] for node in plan["nodes"]], [node["name"] for node in timings["nodes"]])
        kinds = {node["name"]: node["kind"] for node in plan["nodes"]}
        for node in timings["nodes"]:
            self.assertEqual(kinds[node["name"]] != "kernel", node["bracketed"], node["name"])
            self.assertGreaterEqual(node["time_us"], 0)
        self.assertAlmostEqual(timings["sum_us"], sum(node["time_us"] for node in timings["nodes"]))
        self.assertEqual(len(plan["nodes"]), len(timings["critical_path"]), "a decode step is a chain")
        for node in plan["nodes"]:
            of_node = [row for row in ran if row["node"] == node["name"]]
            self.assertEqual(len(of_node), math.prod(node["grid"]) if node["kind"] == "kernel" else 0, node["name"])
            for row in of_node:
                self.assertLessEqual(0, float(row["start_us"]))
                self.assertLessEqual(float(row["start_us"]), float(row["waited_us"] or row["start_us"]))
                self.assertLessEqual(float(row["waited_us"] or row["start_us"]), float(row["end_us"]))
        self.assertEqual([], check_trace.problems_of(trace))
        slices = [event["name"] for event in trace["traceEvents"] if event["ph"] == "X" and event["cat"] != "layer"]
        self.assertEqual(sorted(kinds), sorted(slices))

    def test_times_are_shown_with_the_plan_that_was_timed_and_no_other(self):
        for bucket in ("1", "8"):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "t.json")
                page = [*on_device("graph", DEMO, "--bucket", bucket, "--format", "html"), "--timings", path]
                self.succeed("bench", "nodes", "--model", DEMO, "--device", "cpu", "--bucket", bucket, *FEW, "--out", path)
                self.assertIn("<html", self.succeed(*page))  # of the same context, without being told
                for words in (["--edges", "serial"], ["--max-context", "512"]):
                    self.assert_refused(RUN_TIME, [path, "with hash", "has hash"], *page, *words)

    def test_a_prompt_takes_a_context_that_holds_it(self):
        words = ["bench", "nodes", "--model", DEMO, "--device", "cpu:checked", "--samples", "1", "--launches", "1",
                 "--max-context", "3"]
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "t.json")
            self.succeed(*words, "--prompt", "3", "--out", out)
            with open(out) as file:
                timings = json.load(file)
        self.assertEqual((3, 3), (timings["prompt"], timings["max_context"]))
        self.assertLess(0, timings["sum_us"])
        for longer in ("--prompt", "--context"):
            self.assert_refused(USAGE, ["4 tokens are needed", "--max-context is 3"], *words, longer, "4")


class Timeline(unittest.TestCase):
    GOOD = {"displayTimeUnit": "ns", "traceEvents": [
        {"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": "p"}},
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "nodes"}},
        {"name": "a", "cat": "kernel", "ph": "X", "ts": 0.0, "dur": 2.0, "pid": 1, "tid": 1, "args": {}},
        {"name": "b", "cat": "kernel", "ph": "X", "ts": 2.0, "dur": 1.0, "pid": 1, "tid": 1, "args": {}}]}

    def test_a_good_one_has_no_problems_and_each_planted_one_is_named(self):
        self.assertEqual([], check_trace.problems_of(self.GOOD))
        for spoil, words in ((lambda t: t.pop("traceEvents"), "traceEvents"),
                             (lambda t: t["traceEvents"][3].update(ts=1.5), "a ends after b has begun"),
                             (lambda t: t["traceEvents"][2].update(dur=-1), "no ts and dur"),
                             (lambda t: t["traceEvents"][2].update(ph="B"), "phase 'B'"),
                             (lambda t: t["traceEvents"][2].pop("tid"), "no pid or tid"),
                             (lambda t: t["traceEvents"].pop(1), "has no name"),
                             (lambda t: t["traceEvents"].__delitem__(slice(2, 4)), "no slices")):
            trace = copy.deepcopy(self.GOOD)
            spoil(trace)
            self.assertIn(words, "\n".join(check_trace.problems_of(trace)))


class Comparison(unittest.TestCase):
    STEP = ["embed", "norm_project", "attend"]
    KERNELS = ("logits", "*.gate_up", "*.down", "*.qkv", "*.attend")

    def quietly(self, function, *arguments):
        with contextlib.redirect_stdout(io.StringIO()):
            return function(*arguments)

    def test_ncu_tables_are_read_in_the_order_of_the_launches(self):
        text = ('==PROF== noise\n"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
                '"0","embed","gpu__time_duration.sum","ns","1,500"\n'
                '"1","attend(Attend)","gpu__time_duration.sum","us","2.5"\n')
        self.assertEqual([("embed", 1.5), ("attend", 2.5)], check_node_timer.read_ncu(text))
        with self.assertRaises(ValueError):
            check_node_timer.read_ncu("==ERROR== no permission")

    def test_only_whole_steps_count(self):
        names = ["attend", *self.STEP, "read_stream", *self.STEP, "embed", "norm_project"]
        rows = [(name, float(at)) for at, name in enumerate(names)]
        self.assertEqual([[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]], check_node_timer.steps_in(rows, self.STEP))

    def test_ncu_skips_the_prompt_and_sees_the_last_steps(self):
        words = check_node_timer.eager_run(PROGRAM, DEMO, 60)
        trace = check_node_timer.run([*words, "--device", "cpu", "--trace"], "bench decode").stderr
        plan = json.loads(check_node_timer.run([PROGRAM, *on_device("graph", DEMO, "--format", "json")], "graph").stdout)
        kernels = sum(node["kind"] == "kernel" for node in plan["nodes"])
        functions = re.findall(r" cuLaunchKernelEx\(\w+, (\w+)", trace)
        skipped = check_node_timer.launches_before_the_end(trace, kernels)
        self.assertGreater(skipped, 0)
        seen = [(function, 1.0) for function in functions[skipped:]]
        self.assertEqual(5, len(check_node_timer.steps_in(seen, functions[-kernels:])))
        self.assertEqual(0, check_node_timer.launches_before_the_end("1 cuLaunchKernelEx(", kernels))

    def test_a_kernel_that_is_off_by_more_than_a_tenth_is_a_miss(self):
        profiled = {name: 10.0 for name in self.KERNELS}
        timed = {"span_us": dict.fromkeys(profiled, 9.2), "time_us": dict.fromkeys(profiled, 10.9)}
        self.assertEqual([], self.quietly(check_node_timer.compare, timed, profiled, "span"))
        self.assertEqual([], self.quietly(check_node_timer.compare, timed, profiled, "time"))
        timed["span_us"]["*.down"] = 8.9
        problems = self.quietly(check_node_timer.compare, timed, profiled, "span")
        self.assertEqual(1, len(problems))
        self.assertIn("*.down", problems[0])
        for member in timed.values():
            member["sample"] = 10.0
        profiled["sample"] = 10.0  # five others agree: the one beyond is named, and is no miss
        self.assertEqual([], self.quietly(check_node_timer.compare, timed, profiled, "span"))

    def test_times_that_do_not_add_up_and_a_slow_twin_are_misses(self):
        good = {"sum_us": 98.0, "step_us": 100.0, "plain_step_us": 95.0}
        self.assertEqual([], self.quietly(check_node_timer.check_totals, good))
        self.assertEqual(1, len(self.quietly(check_node_timer.check_totals, {**good, "sum_us": 94.0})))
        self.assertEqual(1, len(self.quietly(check_node_timer.check_totals, {**good, "plain_step_us": 80.0})))


if __name__ == "__main__":
    unittest.main()
