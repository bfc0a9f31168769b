# `--overlap 2` as a black box, on two devices of the CPU driver: steps in two lanes give what steps of a lane's size
# give, bit by bit. The engine: tests/engine/ranks/team_lanes_engine_test.cpp. Standard library only.
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from command import CommandTest, golden_model

MODEL = golden_model("llama/odd_sizes")
REQUESTS = [{"id": str(number), "prompt_ids": [(7 * number + 3 * place) % 1000 for place in range(length)],
             "max_tokens": 4, "temperature": 0.8 * (number % 2), "seed": 5, "logprobs": 2, "ignore_eos": True}
            for number, length in enumerate([1, 40, 97, 150])]


class Overlap(CommandTest):
    def served(self, rows, *words):
        lines = "".join(json.dumps(request) + "\n" for request in REQUESTS).encode()
        return self.succeed("run", "--model", MODEL, "--device", "cpu:devices=2", "--tp", "2", "--buckets", str(rows),
                            "--step-tokens", str(rows), *words, stdin=lines)

    def test_lanes_give_what_steps_of_their_size_give(self):
        expected = self.served(48)
        self.assertEqual(len(REQUESTS), expected.count("\n"))
        self.assertEqual(expected, self.served(96, "--overlap", "2"))

    def test_a_short_prompt_is_one_lane(self):
        words = ["generate", "--model", MODEL, "--device", "cpu:devices=2", "--tp", "2", "--prompt-ids", "5,6,7",
                 "--greedy", "--max-tokens", "3", "--ignore-eos"]
        self.assertEqual(self.succeed(*words), self.succeed(*words, "--overlap", "2"))


if __name__ == "__main__":
    unittest.main()
