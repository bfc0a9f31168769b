# `nodewright tune` as a black box, and what other commands make of its file.
import json
import os
import shutil
import sys
import tempfile
import unittest

from command import DEMO, DEVICE, PROGRAM, RUN_TIME, USAGE, CommandTest, golden_model, on_device

MODEL = golden_model("odd_sizes")
WORDS = ("tune", "--model", MODEL, "--device", DEVICE, "--context", "16", "--parts", "out", "--samples", "1", "--steps", "1")


class Tune(CommandTest):
    def test_a_file_is_written_and_used_where_its_model_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tuning.json")
            text = self.succeed(*WORDS, "--out", path)
            self.assertIn("written to " + path, text)
            self.assertIn("out.matvec.threads", text)
            with open(path) as file:
                tuning = json.load(file)
            self.assertEqual([1], [step["rows"] for step in tuning["steps"]])
            tuning["steps"][0]["out.matvec"] = {"threads": 96}
            with open(path, "w") as file:
                json.dump(tuning, file)
            plan = json.loads(self.succeed(*on_device("graph", MODEL, "--format", "json", "--tuning", path)))
            out = next(node for node in plan["nodes"] if node["name"] == "l0.out")
            self.assertEqual(96, out["block"][0])
            self.assert_refused(USAGE, [path, "a model of", "--tuning none"], *on_device("graph", DEMO, "--tuning", path))
            tuning["device"] = "another"
            with open(path, "w") as file:
                json.dump(tuning, file)
            self.assert_refused(USAGE, [path, "the device 'another'"], *on_device("graph", MODEL, "--tuning", path))
            self.assert_refused(USAGE, ["--tuning and --numerics"],
                                *on_device("graph", MODEL, "--tuning", path, "--numerics", "invariant"))
            self.assert_refused(USAGE, ["none.json"], *on_device("graph", MODEL, "--tuning", os.path.join(folder, "none.json")))

    def test_without_a_name_the_file_is_where_other_commands_look(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = os.path.join(scratch, "cache")  # with the kernels that are there: they take a minute
            shutil.copytree(os.environ.get("NODEWRIGHT_CACHE", scratch), folder, ignore=shutil.ignore_patterns("tuning", "cache"))
            places = {"NODEWRIGHT_CACHE": folder}
            self.succeed(*WORDS, **places)
            self.succeed(*WORDS, "--batch", "2", **places)
            [name] = os.listdir(os.path.join(folder, "tuning"))
            path = os.path.join(folder, "tuning", name)
            with open(path) as file:
                tuning = json.load(file)
            self.assertEqual([1, 2], [step["rows"] for step in tuning["steps"]])
            with open(path, "w") as file:
                file.write("{")
            self.assert_refused(RUN_TIME, [path, "JSON"], *on_device("graph", MODEL), **places)
            self.succeed(*on_device("graph", MODEL, "--tuning", "none"), **places)

    def test_what_cannot_be_tuned_is_named(self):
        self.assert_refused(USAGE, ["embed", "gate_up"], *WORDS[:-6], "--parts", "embed")
        self.assert_refused(USAGE, ["--batch", "0", "1 to 8192"], *WORDS, "--batch", "0")


if __name__ == "__main__":
    print("nodewright: %s on %s" % (PROGRAM, DEVICE), file=sys.stderr)
    unittest.main()
