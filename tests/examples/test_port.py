#!/usr/bin/env python3
"""The port in examples/port: both programs decode the same tokens, the mistake is refused by the one and run by the
other, and the diff stays one that is read in five minutes. NODEWRIGHT_EXAMPLES is the folder of the programs. On the
CPU driver `explicit` alone; with NODEWRIGHT_TEST_DEVICE=cuda:0 both, on the GPU."""
import difflib
import os
import pathlib
import subprocess
import unittest

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "examples/port"
PROGRAMS = pathlib.Path(os.environ["NODEWRIGHT_EXAMPLES"])
DEVICE = os.environ.get("NODEWRIGHT_TEST_DEVICE", "cpu")
LINES = 90  # of each program that the other lacks: what a reader of the diff sees


def run(name, *words):
    done = subprocess.run([PROGRAMS / name, *words], text=True, capture_output=True, timeout=600)
    print(done.stdout, end="")
    return done


def tokens(done):
    return next(line for line in done.stdout.splitlines() if line.startswith("tokens "))


class PortTest(unittest.TestCase):
    def test_the_port_decodes_the_tokens_of_the_host(self):
        done = run("explicit", DEVICE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("all tokens are those of the host", done.stdout)

    @unittest.skipUnless(DEVICE == "cpu", "a GPU chooses the order itself")
    def test_tokens_are_the_same_in_whatever_order_nodes_run_that_nothing_orders(self):
        for order in ("reverse", "seed=1", "seed=2"):
            done = run("explicit", f"cpu:{order}")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_mistake_and_the_lack_of_any_edge_are_refused_by_name(self):
        done = run("explicit", DEVICE, "--mistake")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("cannot add node 'l0.kv'", done.stdout)
        self.assertIn("reads normed[0,2048), and no earlier node writes", done.stdout)
        self.assertIn("'embed' (3: out) and 'l0.norm' (0: in) share x[0,2048) without an order", done.stdout)

    def test_the_programs_differ_in_few_lines(self):
        before, after = ((SOURCES / name).read_text().splitlines() for name in ("captured.cu", "explicit.cu"))
        lines = [line[0] for line in difflib.unified_diff(before, after, n=0, lineterm="") if line[:3] not in ("---", "+++")]
        self.assertLessEqual(lines.count("-"), LINES)
        self.assertLessEqual(lines.count("+"), LINES)


class PortOnGpuTest(unittest.TestCase):
    def test_both_programs_decode_the_same_tokens(self):
        captured, explicit = run("captured"), run("explicit", DEVICE)
        self.assertEqual(captured.returncode, 0, captured.stdout + captured.stderr)
        self.assertEqual(tokens(captured), tokens(explicit))

    def test_capture_runs_the_mistake_and_gives_wrong_tokens(self):
        done = run("captured", "--mistake")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("wrong from token", done.stdout)


if DEVICE == "cpu":
    del PortOnGpuTest

if __name__ == "__main__":
    unittest.main()
