# lm-eval, unmodified, against the server: the log likelihoods that it computes are those of `nodewright run`. In the
# environment of `make check-clients`; the task lies in lm_eval_tasks, and the tokenizer is the server's.
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

from served_demo import DEMO, HERE, PROGRAM, on_device, run, serve, url

TOLERANCE = 1e-3  # lm-eval sums in another order
TASKS = os.path.join(HERE, "lm_eval_tasks")


def setUpModule():
    global server
    server = serve("--max-batch", "8")


def evaluate(tasks, folder, *words, model="local-completions", **arguments):
    """The results and the samples of each task."""
    given = {"model": "demo", "base_url": url(server) + "/v1/completions", "tokenizer_backend": "remote", **arguments}
    done = subprocess.run([sys.executable, "-m", "lm_eval", "--model", model, "--tasks", tasks, "--include_path", TASKS,
                           "--model_args", ",".join("%s=%s" % pair for pair in given.items()), "--log_samples",
                           "--output_path", folder, *words], cwd=TASKS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=400)
    assert done.returncode == 0, done.stdout
    results, = glob.glob(os.path.join(folder, "**", "results_*.json"), recursive=True)
    samples, = glob.glob(os.path.join(folder, "**", "samples_*.jsonl"), recursive=True)
    with open(results) as file, open(samples) as lines:
        return json.load(file)["results"][tasks], [json.loads(line) for line in lines]


def tokens_of(text):
    return server.call("POST", "/tokenize", {"prompt": text, "add_special_tokens": False}).json["tokens"]


def likelihoods(pairs):
    """Of each (context, continuation): the sum of the log probabilities, and whether each token is the likeliest, by
    `nodewright run`, one request at a time."""
    found = []
    with subprocess.Popen([PROGRAM, *on_device("run", DEMO, "--max-batch", "8", "--max-context", "1024")],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        for context, ids in pairs:
            process.stdin.write(json.dumps({"prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 1}) + "\n")
            process.stdin.flush()
            scored = json.loads(process.stdout.readline())["prompt_logprobs"][context - 1:]
            found.append((sum(one["logprob"] for one in scored), all(one["top"][0][0] == one["id"] for one in scored)))
        process.stdin.close()
    return found


class LmEval(unittest.TestCase):
    def test_log_likelihoods_are_those_of_run(self):
        with tempfile.TemporaryDirectory() as folder:
            results, samples = evaluate("demo_story", folder, tokenized_requests="True", num_concurrent="1")
        self.assertEqual(6, len(samples))
        expected_right = 0
        for sample in samples:
            doc, asked = sample["doc"], []
            for end in doc["ends"]:
                whole, begin = tokens_of(doc["begin"] + " " + end), tokens_of(doc["begin"])
                self.assertEqual(begin, whole[:len(begin)])
                asked.append((len(begin), whole))
            ours = likelihoods(asked)
            theirs = [(float(response[0][0]), str(response[0][1]) == "True") for response in sample["resps"]]
            for (our_sum, our_best), (their_sum, their_best) in zip(ours, theirs, strict=True):
                self.assertAlmostEqual(our_sum, their_sum, delta=TOLERANCE)
                self.assertEqual(our_best, their_best)
            expected_right += max(range(3), key=lambda i: ours[i][0]) == doc["end"]
        self.assertAlmostEqual(expected_right / 6, results["acc,none"])


if __name__ == "__main__":
    unittest.main()
