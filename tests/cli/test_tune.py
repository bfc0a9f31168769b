# `nodewright tune` as a black box, and what other commands make of its file.
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from command import DEMO, DEVICE, PROGRAM, RUN_TIME, USAGE, CommandTest, golden_model, on_device, run

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

    # A file as tune would leave it, where the other commands look: found by letting tune write one.
    def places_with_a_tuning(self, scratch):
        folder = os.path.join(scratch, "cache")
        shutil.copytree(os.environ.get("NODEWRIGHT_CACHE", scratch), folder, ignore=shutil.ignore_patterns("tuning", "cache"))
        text = self.succeed(*WORDS, NODEWRIGHT_CACHE=folder)
        self.assertIn("all commands use it", text)
        return {"NODEWRIGHT_CACHE": folder}, os.path.join(folder, "tuning", *os.listdir(os.path.join(folder, "tuning")))

    def test_a_tuning_is_announced_wherever_it_acts_and_taken_away_by_remove(self):
        with tempfile.TemporaryDirectory() as scratch:
            places, path = self.places_with_a_tuning(scratch)
            told = "%s, steps of 1 row" % path
            request = b'{"prompt_ids": [1], "max_tokens": 1}\n'
            done = run(*on_device("run", MODEL, "--stats"), stdin=request, **places)
            self.assertEqual(0, done.returncode)
            self.assertRegex(done.stderr.decode(), r"(?m)^tuning +%s$" % told)
            done = run(*on_device("generate", MODEL, "--prompt-ids", "1", "--max-tokens", "1", "--stats"), **places)
            self.assertRegex(done.stderr.decode(), r"(?m)^tuning +%s$" % told)
            self.assertEqual("nodewright: tuned: %s\n" % told, run(*on_device("graph", MODEL), **places).stderr.decode())
            self.assertRegex(self.succeed(*on_device("inspect", MODEL), **places), r"(?m)^tuning +%s$" % told)
            self.assertIn(os.path.basename(path), self.succeed("doctor", **places))
            self.assertEqual("", self.succeed(*on_device("graph", MODEL, "--tuning", "none", "--out", "f"), **places))
            self.assertRegex(self.succeed(*on_device("tune", MODEL, "--remove"), **places), "removed the tuning .*%s" % path)
            self.assertFalse(os.path.exists(path))
            done = run(*on_device("run", MODEL, "--stats"), stdin=request, **places)
            self.assertRegex(done.stderr.decode(), r"(?m)^tuning +none$")
            self.assertEqual("", run(*on_device("graph", MODEL), **places).stderr.decode())
            self.assertIn("none of your own", self.succeed("doctor", **places))
            self.assertIn("there is no tuning", self.succeed(*on_device("tune", MODEL, "--remove"), **places))

    def test_a_tuning_of_fp8_weights_is_not_that_of_the_same_sizes_in_bf16(self):
        model = golden_model("formats/ct_fp8_channel")
        with tempfile.TemporaryDirectory() as scratch:
            folder = os.path.join(scratch, "cache")
            shutil.copytree(os.environ.get("NODEWRIGHT_CACHE", scratch), folder, ignore=shutil.ignore_patterns("tuning", "cache"))
            places = {"NODEWRIGHT_CACHE": folder}
            self.assertEqual(0, run(*(model if word == MODEL else word for word in WORDS), **places).returncode)
            [name] = os.listdir(os.path.join(folder, "tuning"))
            self.assertRegex(self.succeed(*on_device("inspect", model), **places), "(?m)^tuning +.*%s" % name)
            self.assertRegex(self.succeed(*on_device("tune", model, "--remove"), **places), "removed the tuning for .*, fp8: ")
            self.assertEqual([], os.listdir(os.path.join(folder, "tuning")))

    def test_ctrl_c_and_sigterm_keep_what_is_complete(self):
        for asked, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with tempfile.TemporaryDirectory() as folder:
                out = os.path.join(folder, "tuning.json")
                with subprocess.Popen([PROGRAM, *WORDS[:-4], "--samples", "9", "--steps", "2", "--batch", "1", "2", "--out", out],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                    for line in process.stdout:
                        if line.startswith(b"steps of 1 row"):
                            break
                    process.stdout.readline()  # of the two rows
                    process.send_signal(asked)
                    rest = process.stdout.read().decode()
                    self.assertEqual(code, process.wait(timeout=600), rest)
                with open(out) as file:
                    kept = [step["rows"] for step in json.load(file)["steps"]]
                self.assertEqual([1, 2] if "until it was interrupted" in rest else [1], kept)

    def test_what_cannot_be_tuned_is_named(self):
        self.assert_refused(USAGE, ["embed", "gate_up"], *WORDS[:-6], "--parts", "embed")
        self.assert_refused(USAGE, ["--batch", "0", "1 to 8192"], *WORDS, "--batch", "0")


if __name__ == "__main__":
    print("nodewright: %s on %s" % (PROGRAM, DEVICE), file=sys.stderr)
    unittest.main()
