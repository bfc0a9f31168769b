# `--pp` as a black box, on two devices of the CPU driver: what it serves is what one device serves, bit by bit, and it
# refuses what stages do not do. The engine: tests/engine/stages/stages_engine_test.cpp. Standard library only.
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import command
from command import DEMO, USAGE, CommandTest
from serving import Server

REQUESTS = [
    {"id": "greedy", "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0},
    {"id": "drawn", "prompt": "There was a dog", "max_tokens": 12, "temperature": 0.9, "seed": 5},
    {"id": "long", "prompt": "The little cat said that it was very glad. " * 20, "max_tokens": 5, "temperature": 0,
     "logprobs": 2},
]


def two(*words):
    return ["--device", "cpu:devices=2", "--pp", "2", *words]


def setUpModule():
    unittest.addModuleCleanup(setattr, command, "DEVICE", command.DEVICE)
    command.DEVICE = "cpu:devices=4"  # of the servers


class Stages(CommandTest):
    def test_requests_get_what_one_device_gives(self):
        lines = "".join(json.dumps(request) + "\n" for request in REQUESTS).encode()
        for more in ([], ["--mode", "captured"], ["--mode", "eager"], ["--speculate", "2"]):
            expected = self.succeed("run", "--model", DEMO, "--device", "cpu", *more, stdin=lines)
            self.assertEqual(len(REQUESTS), expected.count("\n"))
            self.assertEqual(expected, self.succeed("run", "--model", DEMO, *two(*more), stdin=lines), more)

    def test_one_prompt_gets_what_one_device_gives(self):
        words = ["--model", DEMO, "--prompt", "Once upon a time", "--max-tokens", "16", "--greedy"]
        expected = self.succeed("generate", *words, "--device", "cpu")
        self.assertEqual(expected, self.succeed("generate", *words, *two()))
        four = ["--device", "cpu:devices=4", "--pipeline-parallel-size", "4"]
        self.assertEqual(expected, self.succeed("generate", *words, *four))

    def test_what_does_not_fit_together_is_refused(self):
        for words, named in [
            (["run", *two("--tp", "2")], ["--pp and --tp"]),
            (["run", "--device", "cpu:devices=2", "--pp", "3"], ["--pp 3"]),
            (["run", "--device", "cpu:devices=8", "--pp", "5"], ["cut into stages", "4 layers are fewer than 5"]),
            (["generate", "--prompt", "x", *two("--steps-per-launch", "4")], ["--pp 2", "--steps-per-launch"]),
            (["serve", *two("--enable-sleep")], ["--pp and --enable-sleep"]),
            (["serve", *two("--plan-times")], ["--pp and --plan-times"]),
            (["run", *two("--max-adapters", "1")], ["on 2 devices", "no adapters"]),
        ]:
            self.assert_refused(USAGE, named, words[0], "--model", DEMO, *words[1:],
                                stdin=json.dumps(REQUESTS[0]).encode())


    def test_inspect_says_what_each_stage_takes(self):
        def inspected(*words):
            return json.loads(self.succeed("inspect", "--model", DEMO, "--json", *words))

        whole, cut = inspected("--device", "cpu"), inspected("--device", "cpu", "--pp", "2")
        self.assertNotIn("stages", whole)
        first, last = cut["stages"]
        self.assertEqual(whole["layers"], first["layers"] + last["layers"])
        self.assertEqual(whole["kv_bytes_per_token"], first["kv_bytes_per_token"] + last["kv_bytes_per_token"])
        self.assertLess(max(first["device_bytes"], last["device_bytes"]), whole["device_bytes"])
        for one, two in zip(whole["device"]["fits"], cut["device"]["fits"]):
            self.assertGreaterEqual(two["tokens_each"], one["tokens_each"])
        self.assertEqual(cut["stages"], inspected("--device", "none", "--pp", "2")["stages"])
        self.assert_refused(USAGE, ["cut into stages"], "inspect", "--model", DEMO, "--device", "none", "--pp", "5")


class StagedServer(unittest.TestCase):
    def test_answers_are_those_of_one_device(self):
        calls = [{"prompt": "Once upon a time" + " there was" * i, "temperature": 0, "max_tokens": 8} for i in range(3)]

        def texts(server):
            return [server.completions(**call).json["choices"][0]["text"] for call in calls]

        with Server(model=DEMO) as one:
            expected = texts(one)
        with Server("--pp", "2", "--replicas", "2", model=DEMO) as server:
            self.assertEqual(expected, texts(server))
            self.assertEqual(2, len(server.get("/health").json["replicas"]))


if __name__ == "__main__":
    unittest.main()
