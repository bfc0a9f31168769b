# `nodewright serve --replicas 2` with clients that share all that a server shares between its threads: automata of
# expressions and schemas, caches, the tokenizer, templates, metrics, the queue. Under the thread sanitizer
# (`make check-sanitizers`) a race ends the server; without it, what each structure asks for must come. Standard library
# only.
import http.client
import json
import os
import re
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import command
from command import DEMO
from serving import Server

ROUNDS = int(os.environ.get("NODEWRIGHT_THREAD_ROUNDS", "1"))
CLIENTS = 8


def setUpModule():
    unittest.addModuleCleanup(setattr, command, "DEVICE", command.DEVICE)
    command.DEVICE = "cpu:devices=2"


def expressions(round_):
    """What a round's calls ask for: each of them comes to both engines, and is new to both."""
    return [r"[A-Za-z ,.'!?-]{5,%d}" % (40 + round_), r"(?:[a-z ]?){30}(?:[a-z ]*a[a-z ]{3}|[a-z ]*e[a-z ]{4})z{%d}" % (2 + round_)]


class Threads(unittest.TestCase):
    def setUp(self):
        self.server = Server("--replicas", "2", "--max-num-seqs", "4", model=DEMO)
        self.addCleanup(self.server.__exit__)

    def structured(self, k, round_):
        pattern = expressions(round_)[k % 2]
        answer = self.server.completions(prompt="Once upon a time %d" % k, max_tokens=30, temperature=1, n=2,
                                         guided_regex=pattern, stop=["zzzzz"], bad_words=["not"], logprobs=2)
        self.assertEqual(200, answer.status, answer.body)
        for choice in answer.json["choices"]:
            if choice["finish_reason"] == "stop":
                self.assertIsNotNone(re.fullmatch(pattern, choice["text"]), choice)

    def schema(self, k, round_):
        answer = self.server.completions(prompt="{", max_tokens=60, temperature=1, guided_json={
            "type": "object", "properties": {"name": {"enum": ["a%d" % round_, "b", "c"]}, "n": {"type": "integer"}},
            "required": ["name"], "additionalProperties": False})
        self.assertEqual(200, answer.status, answer.body)
        choice = answer.json["choices"][0]
        if choice["finish_reason"] == "stop":
            self.assertIn(json.loads(choice["text"])["name"], ["a%d" % round_, "b", "c"])

    def chat_that_leaves(self, k, round_):
        connection, response = self.server.begin("/v1/chat/completions", stream=True, max_tokens=200, ignore_eos=True,
                                                 messages=[{"role": "user", "content": "word " * (k + round_ + 1)}])
        self.assertEqual(200, response.status)
        response.readline()
        connection.close()

    def looks(self, k, round_):
        for path in ("/metrics", "/health", "/ready", "/live", "/v1/models"):
            self.assertEqual(200, self.server.get(path).status, path)
        asked = {"prompt": "There was a %d" % k, "add_special_tokens": False}
        tokens = self.server.call("POST", "/tokenize", asked).json["tokens"]
        self.assertEqual("There was a %d" % k,
                         self.server.call("POST", "/detokenize", {"tokens": tokens}).json["prompt"].lstrip())

    def test_share_nothing_that_one_of_them_changes(self):
        with ThreadPoolExecutor(CLIENTS) as clients:
            for round_ in range(ROUNDS):
                jobs = [clients.submit(act, k, round_) for k in range(CLIENTS)
                        for act in (self.structured, self.schema, self.chat_that_leaves, self.looks)]
                try:
                    for job in jobs:
                        job.result()
                except (OSError, http.client.HTTPException):  # the sanitizer has ended the server
                    self.server.stop()
                    self.fail("\n".join(self.server.lines))
        self.assertEqual(0, self.server.stop(), self.server.lines)
        self.assertEqual([], [line for line in self.server.lines if line and "ThreadSanitizer" in line])


if __name__ == "__main__":
    unittest.main()
