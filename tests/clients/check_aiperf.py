# aiperf, unmodified, against the server: profiles of both endpoints without an error, whose counts are those that were
# asked for and that the server counted. In the environment of `make check-clients`.
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from served_demo import DEMO, serve, url

REQUESTS, OUTPUT_TOKENS = 6, 8


def setUpModule():
    global server
    server = serve("--max-batch", "4")


def cached_demo(folder):
    """A cache of the hub that holds the demo's tokenizer: offline, aiperf reads no other folder."""
    model = os.path.join(folder, "models--nodewright--demo")
    snapshot = os.path.join(model, "snapshots", "0" * 40)
    os.makedirs(snapshot)
    os.makedirs(os.path.join(model, "refs"))
    with open(os.path.join(model, "refs", "main"), "w") as file:
        file.write("0" * 40)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(os.path.join(DEMO, name), snapshot)
    return folder


def profile(kind, folder, *words):
    """The JSON of its results."""
    program = os.path.join(os.path.dirname(sys.executable), "aiperf")
    done = subprocess.run([program, "profile", "--model", "demo", "--url", url(server), "--endpoint-type", kind, "--tokenizer",
                           "nodewright/demo", "--concurrency", "2", "--request-count", str(REQUESTS), "--isl", "20", "--osl",
                           str(OUTPUT_TOKENS), "--extra-inputs", "ignore_eos:true", "--extra-inputs", "temperature:0", "--ui",
                           "none", "--no-gpu-telemetry", "--random-seed", "1", "--workers-max", "1", "--output-artifact-dir",
                           folder, *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=300, env={**os.environ, "HF_HUB_CACHE": cached_demo(os.path.join(folder, "hub"))})
    assert done.returncode == 0, done.stdout
    results, = glob.glob(os.path.join(folder, "**", "profile_export_aiperf.json"), recursive=True)
    with open(results) as file:
        return json.load(file)


class AiPerf(unittest.TestCase):
    def check(self, kind, *words):
        before = server.gauge("vllm:generation_tokens_total")
        with tempfile.TemporaryDirectory() as folder:
            results = profile(kind, folder, *words)
            with open(os.path.join(folder, "server_metrics_export.json")) as file:
                scraped = file.read()
        self.assertEqual(REQUESTS, results["request_count"]["avg"])
        self.assertFalse(results.get("error_summary"))
        self.assertEqual(OUTPUT_TOKENS, results["output_sequence_length"]["avg"])
        self.assertLessEqual(REQUESTS * OUTPUT_TOKENS, server.gauge("vllm:generation_tokens_total") - before)
        self.assertGreater(results["request_latency"]["avg"], 0)
        for name in ("vllm:num_requests_running", "vllm:time_to_first_token_seconds"):
            self.assertIn(name, scraped)
        return results

    def test_chat_in_streams(self):
        results = self.check("chat", "--streaming", "--use-server-token-count")
        self.assertGreater(results["time_to_first_token"]["avg"], 0)
        self.assertGreater(results["inter_token_latency"]["avg"], 0)

    def test_completions_in_streams(self):
        results = self.check("completions", "--streaming", "--use-server-token-count")
        self.assertGreater(results["time_to_first_token"]["avg"], 0)

    def test_chat_without_streams(self):
        self.check("chat", "--use-server-token-count")


if __name__ == "__main__":
    unittest.main()
