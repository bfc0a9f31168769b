# `nodewright bench graph` as a black box, and the plots of what it writes.
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from command import DEMO, DEVICE, RUN_TIME, SOURCE, USAGE, CommandTest, run

PLOT = os.path.join(SOURCE, "bench", "plot_graph.py")
SMALL = ("bench", "graph", "--device", DEVICE, "--lengths", "1", "12", "--repetitions", "2", "--nodes-a-sample", "24")


def record_of(test, *words):
    """Standard output and the JSON file of a small run."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graph.json")
        text = test.succeed(*words, "--out", path, "--commit", "c0ffee")
        with open(path) as file:
            return text, json.load(file)


def numbers(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [n for item in value for n in numbers(item)]
    return [value] if isinstance(value, float) else []


class Synthetic(CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.text, cls.record = record_of(CommandTest(), *SMALL)

    def test_the_three_tables_have_a_row_for_every_case_and_a_cell_for_every_column(self):
        tables = re.findall(r"^(build|run|change): .*\n(shape .*)\n((?:(?:chain|fork_join) .*\n)+)", self.text, re.MULTILINE)
        self.assertEqual(["build", "run", "change"], [name for name, _, _ in tables])
        for name, heading, rows in tables:
            columns = len(heading.split())
            cases = [row.split() for row in rows.splitlines()]
            self.assertEqual([[shape, width, length] for shape in ("chain", "fork_join") for width in ("tiny", "full")
                              for length in ("1", "12")], [case[:3] for case in cases], name)
            self.assertEqual({columns}, {len(case) for case in cases}, name)

    def test_the_file_says_where_when_and_how_and_holds_what_the_tables_show(self):
        record = self.record
        self.assertEqual("c0ffee", record["commit"])
        self.assertRegex(record["date"], r"^\d{4}-\d\d-\d\d$")
        self.assertIn("bench graph", record["command"])
        for key in ("gpu", "driver", "units", "repetitions", "first_build", "targets"):
            self.assertIn(key, record)
        self.assertEqual(8, len(record["cases"]))
        for case in record["cases"]:
            self.assertEqual(case["shape"] == "chain", "loop" in case["us"])
            for name, spread in case["us"].items():
                self.assertLessEqual(spread["min"], spread["median"], name)
                self.assertLessEqual(spread["median"], spread["max"], name)
                self.assertGreater(spread["min"], 0, name)
            parts = sum(case["us"][part]["min"] for part in ("builder_launch", "builder_finish", "driver_add"))
            self.assertGreaterEqual(case["us"]["build"]["min"] * 1.0001, parts)
        chain = next(c for c in record["cases"] if (c["shape"], c["width"], c["nodes"]) == ("chain", "tiny", 12))
        self.assertEqual((11, 11), (chain["edges"], chain["programmatic_edges"]))
        shown = re.search(r"^run: (?:.*\n){2}(?:chain +tiny +1 .*\n)chain +tiny +12 +(.*)$", self.text, re.MULTILINE)
        self.assertEqual("%.3f" % (chain["us"]["gpu_eager_full"]["median"] / 12), shown.group(1).split()[0])

    def test_a_chain_of_foreign_kernels_stands_beside_ours(self):
        chain = next(c for c in self.record["cases"] if (c["shape"], c["nodes"]) == ("chain", 12))
        shown = re.search(r"^foreign kernels .*\n.*\n(?:chain .*\n)*?chain +tiny +12 +(.*)$", self.text, re.MULTILINE)
        self.assertEqual("%.3f" % (chain["us"]["foreign_launch"]["median"] / 12), shown.group(1).split()[1])
        self.assertEqual("%.2f" % chain["us"]["patch_foreign_one"]["median"], shown.group(1).split()[9])
        self.assertFalse(any("foreign_build" in c["us"] for c in self.record["cases"] if c["shape"] != "chain"))

    def test_products_are_measured_as_kernel_nodes_and_as_child_graphs(self):
        text, record = record_of(self, *SMALL[:4], "--products", "--product-rows", "2", "--product-edge", "16",
                                 "--product-nodes", "3", "--repetitions", "2")
        self.assertEqual([["kernel", "3"], ["child_graph", "3"]],
                         [row.split()[:2] for row in re.findall(r"^(?:kernel|child_graph) .*$", text, re.MULTILINE)])
        self.assertEqual(["kernel", "child graph"], [line["form"] for line in record["products"]])
        for line in record["products"]:
            self.assertTrue(all(line[name]["median"] > 0 for name in ("add_us", "instantiate_us", "launch_us", "gpu_us")))

    def test_a_target_that_was_not_measured_is_not_met(self):
        self.assertEqual(8, len(re.findall(r"not measured (?:us|times) +at most [\d.]+ +-$", self.text, re.MULTILINE)))
        self.assertEqual([(None, False)] * 8, [(t["value"], t["met"]) for t in self.record["targets"]])
        words = ("bench", "graph", "--device", DEVICE, "--lengths", "1", "--shapes", "chain", "--widths", "tiny",
                 "--repetitions", "1", "--nodes-a-sample", "1")
        self.assertEqual(RUN_TIME, run(*words, "--check").returncode)
        self.assertEqual(0, run(*words).returncode)

    def test_the_verdict_of_a_target_follows_from_the_chain_of_a_thousand(self):
        text, record = record_of(self, *SMALL[:4], "--lengths", "1000", "--shapes", "chain", "--widths", "tiny",
                                 "--repetitions", "1", "--nodes-a-sample", "1000")
        us = record["cases"][0]["us"]
        for target, value in zip(record["targets"], (us["build"]["median"] / 1000, us["launch_explicit"]["median"],
                                                     us["gpu_explicit"]["median"] / 1000, us["patch_one"]["median"],
                                                     us["foreign_build"]["median"] / 1000,
                                                     us["patch_foreign_one"]["median"], us["patch_kernel"]["median"],
                                                     us["update_plan"]["median"] /
                                                     us["update_plan_driver"]["median"])):
            self.assertAlmostEqual(value, target["value"])
            self.assertEqual(value <= target["most"], target["met"], target["what"])
            verdict = "met" if target["met"] else "MISSED"
            self.assertRegex(text, r"(?m)^%s +%.3f %s +at most %g +%s$" % (re.escape(target["what"]), value, target["unit"],
                                                                           target["most"], verdict))

    def test_plots_are_drawn_from_the_file_where_matplotlib_is_installed(self):
        if subprocess.run([sys.executable, "-c", "import matplotlib"], capture_output=True).returncode != 0:
            return  # the plots are for people; the program does not need them
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "graph.json")
            with open(path, "w") as file:
                json.dump(self.record, file)
            done = subprocess.run([sys.executable, PLOT, path, folder, "graph-"], capture_output=True, text=True)
            self.assertEqual((0, ""), (done.returncode, done.stderr))
            for name in ("gpu", "build", "patch"):
                with open(os.path.join(folder, "graph-%s.svg" % name)) as file:
                    drawing = file.read()
                self.assertIn("</svg>", drawing)
                self.assertIn(self.record["gpu"], drawing)
                self.assertLess(len(drawing), 120000)


class Model(CommandTest):
    def test_a_model_s_plan_is_timed_in_three_modes_and_its_buckets_are_built(self):
        text, record = record_of(self, "bench", "graph", "--device", DEVICE, "--model", DEMO, "--model-only", "--buckets",
                                 "--reserve", "--most-rows", "2", "--context", "64", "--repetitions", "1")
        self.assertEqual([], record["cases"])
        self.assertEqual(["explicit", "captured", "eager"], list(record["model"]["modes"]))
        self.assertTrue(all(n > 0 for n in numbers(record["model"])))
        self.assertNotIn("instantiate_us", record["model"]["modes"]["eager"])
        graphs = record["buckets"]["graphs"]
        self.assertEqual([(1, 0), (2, 0), (1, 1), (2, 1)], [(g["rows"], g["slot"]) for g in graphs])
        for graph in graphs:
            self.assertEqual(record["model"]["nodes"], graph["nodes"])
            total = sum(graph[part] for part in ("plan_us", "add_us", "instantiate_us", "upload_us"))
            self.assertAlmostEqual(total / graph["nodes"], graph["us_per_node"])
        self.assertGreater(record["buckets"]["reserve_ms"], 0)
        self.assertRegex(text, r"(?m)^one graph of as many nodes .*: \d+\.\d ms$")
        self.assertRegex(text, r"(?m)^4 graphs, %d nodes: " % sum(g["nodes"] for g in graphs))
        worst = next(t for t in record["targets"] if t["what"].endswith("build, instantiate, upload"))
        self.assertAlmostEqual(max(g["us_per_node"] for g in graphs), worst["value"])

    def test_what_needs_a_model_is_refused_without_one(self):
        for option in ("--buckets", "--model-only"):
            self.assert_refused(USAGE, [option, "--model"], "bench", "graph", "--device", DEVICE, option)
        self.assert_refused(USAGE, ["/nowhere"], "bench", "graph", "--device", DEVICE, "--model", "/nowhere")
        self.assert_refused(USAGE, ["--lengths", "0"], "bench", "graph", "--device", DEVICE, "--lengths", "0")


if __name__ == "__main__":
    unittest.main()
