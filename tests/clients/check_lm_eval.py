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

TOLERANCE = 1e-3       # lm-eval sums in another order
BATCH_TOLERANCE = 0.3  # steps of other rows round bfloat16 in another order: 0.145 of -10 to -14 was seen
TASKS = os.path.join(HERE, "lm_eval_tasks")


def setUpModule():
    global server
    server = serve("--max-batch", "8")


def evaluate(tasks, *words, **arguments):
    """The results and the samples of each task, by its name."""
    given = {"model": "demo", "base_url": url(server) + "/v1/completions", "tokenizer_backend": "remote", **arguments}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "lm_eval", "--model", "local-completions", "--tasks", ",".join(tasks), "--include_path",
             TASKS, "--model_args", ",".join("%s=%s" % pair for pair in given.items()), "--log_samples", "--output_path",
             folder, *words], cwd=TASKS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400)
        assert done.returncode == 0, done.stdout
        results = json.loads(read(folder, "results_*.json"))["results"]
        samples = {task: [json.loads(line) for line in read(folder, "samples_%s_*.jsonl" % task).splitlines()]
                   for task in tasks}
    return results, samples


def read(folder, pattern):
    """The text of the one file in or below the folder."""
    path, = glob.glob(os.path.join(folder, "**", pattern), recursive=True)
    with open(path) as file:
        return file.read()


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
    @classmethod
    def setUpClass(cls):
        cls.results, cls.samples = evaluate(["demo_story", "demo_next"], tokenized_requests="True", num_concurrent="1")

    def theirs(self, sample):
        return [(float(response[0][0]), str(response[0][1]) == "True") for response in sample["resps"]]

    def test_log_likelihoods_are_those_of_run(self):
        self.assertEqual(6, len(self.samples["demo_story"]))
        right = 0
        for sample in self.samples["demo_story"]:
            doc, asked = sample["doc"], []
            for end in doc["ends"]:
                whole, begin = tokens_of(doc["begin"] + " " + end), tokens_of(doc["begin"])
                self.assertEqual(begin, whole[:len(begin)])
                asked.append((len(begin), whole))
            ours = likelihoods(asked)
            for (our_sum, our_best), (their_sum, their_best) in zip(ours, self.theirs(sample), strict=True):
                self.assertAlmostEqual(our_sum, their_sum, delta=TOLERANCE)
                self.assertEqual(our_best, their_best)
            right += max(range(3), key=lambda i: ours[i][0]) == doc["end"]
        self.assertAlmostEqual(right / 6, self.results["demo_story"]["acc,none"])

    def test_generations_end_before_the_stop_string(self):
        for sample in self.samples["demo_next"]:
            answer = server.completions(prompt=tokens_of(sample["doc"]["begin"]), max_tokens=24, temperature=0,
                                        stop=[".", "<|end_of_text|>"]).json["choices"][0]["text"]
            self.assertEqual(answer, sample["resps"][0][0])
            self.assertNotIn(".", answer)

    def test_several_prompts_in_a_call_and_two_calls_at_once_score_the_same(self):
        _, samples = evaluate(["demo_story"], "--batch_size", "3", tokenized_requests="True", num_concurrent="2")
        for alone, together in zip(self.samples["demo_story"], samples["demo_story"], strict=True):
            self.assertEqual(alone["doc"], together["doc"])
            for (one, _), (other, _) in zip(self.theirs(alone), self.theirs(together), strict=True):
                self.assertAlmostEqual(one, other, delta=BATCH_TOLERANCE)


if __name__ == "__main__":
    unittest.main()
