# `nodewright bench load` and the progress bar as black boxes. Standard library only.
import json
import os
import pty
import re
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from command import DEMO, DEVICE, PROGRAM, RUN_TIME, USAGE, CommandTest, run
from test_inspect import LLAMA_1B, count, tensors_of, write_hollow_checkpoint

# One layer of Llama-3.2-1B's shapes with a small vocabulary: 131 MB, more than are pinned at a time.
ONE_LAYER = {**LLAMA_1B, "num_hidden_layers": 1, "vocab_size": 1024, "bos_token_id": 1, "eos_token_id": 2}


def run_on_terminal(*words):
    """(exit code, what a terminal on stderr shows)"""
    child, terminal = pty.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.execv(PROGRAM, [PROGRAM, *words])
    shown = b""
    while True:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown.decode()


class BenchLoad(CommandTest):
    WORDS = ("bench", "load", "--device", DEVICE)

    def test_the_load_is_shown_and_written_as_a_share_of_the_link(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "load.json")
            text = self.succeed(*self.WORDS, "--model", DEMO, "--samples", "3", "--out", path, "--commit", "c0ffee")
            with open(path) as file:
                record = json.load(file)
        self.assertRegex(text, r"\Alink   [\d.]+ [MG]B/s .*\(median of 3, .*\)\n"
                               r"load   3\.94 MB in \d+\.\d\d ms: [\d.]+ [MG]B/s, \d+\.\d % of the link \(.*\)\n"
                               r"first  \d+\.\d\d ms, for 3\.94 MB of files\n\Z")
        self.assertLessEqual({"gpu", "driver", "date", "commit", "command", "model", "samples"}, set(record))
        self.assertEqual("c0ffee", record["commit"])
        self.assertEqual(2 * sum(count(shape) for _, shape in tensors_of(DEMO).values()), record["file_bytes"])
        self.assertLessEqual(record["file_bytes"], record["device_bytes"])
        for figure in ("link_bytes_per_s", "load_ms", "load_bytes_per_s"):
            spread = record[figure]
            self.assertTrue(0 < spread["min"] <= spread["median"] <= spread["max"], figure)
        median = record["device_bytes"] / record["load_ms"]["median"] * 1e3
        self.assertAlmostEqual(1, record["load_bytes_per_s"]["median"] / median, places=6)
        share = record["load_bytes_per_s"]["median"] / record["link_bytes_per_s"]["median"]
        self.assertAlmostEqual(1, record["share_of_link"] / share, places=6)

    def test_every_form_of_the_upload_loads_a_model(self):
        with tempfile.TemporaryDirectory() as folder:
            write_hollow_checkpoint(folder, ONE_LAYER)
            for chunk, chunks, readers in ((1, 2, 1), (1, 64, 16), (64, 2, 3)):
                self.succeed(*self.WORDS, "--model", folder, "--samples", "1", "--chunk-mib", str(chunk), "--chunks",
                             str(chunks), "--readers", str(readers))

    def test_bad_words_are_named(self):
        self.assert_refused(USAGE, ["--model"], *self.WORDS)
        self.assert_refused(USAGE, ["/nonexistent"], *self.WORDS, "--model", "/nonexistent")
        for option, value in (("--samples", "0"), ("--chunks", "1"), ("--readers", "0"), ("--chunk-mib", "0")):
            self.assert_refused(USAGE, [option, value], *self.WORDS, "--model", DEMO, option, value)


class Bar(CommandTest):
    def test_a_terminal_sees_bytes_and_their_rate_and_nothing_is_left_of_it(self):
        with tempfile.TemporaryDirectory() as folder:
            write_hollow_checkpoint(folder, ONE_LAYER)
            words = ("bench", "load", "--device", DEVICE, "--model", folder, "--samples", "1")
            code, shown = run_on_terminal(*words)
            self.assertEqual(b"", run(*words).stderr)
        self.assertEqual(0, code, shown)
        bars = re.findall(r"\r\x1b\[Kloading \S+ \[([#.]+)\] ([\d.]+ MB) of ([\d.]+ MB), ([\d.]+ [MGT]B)/s", shown)
        self.assertLess(3, len(bars), shown)
        self.assertEqual({("126 MB", "126 MB")}, {bar[1:3] for bar in bars if "." not in bar[0]})
        self.assertTrue(shown.endswith("\r\x1b[K"), shown[-100:])


if __name__ == "__main__":
    print("nodewright: %s on %s" % (PROGRAM, DEVICE), file=sys.stderr)
    unittest.main()
