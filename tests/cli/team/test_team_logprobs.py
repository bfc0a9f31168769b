# Log probabilities of prompts on several devices as a black box: `serve --tp 2` on the CPU driver tells those of one
# device within rounding, of a model whose norms go over the heads of both devices, too. The engine:
# tests/engine/ranks/team_logprobs_test.cpp. Standard library only.
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import command
from command import golden_model
from serving import Server

PROMPTS = [[5, 6, 7], [3 * i % 131 for i in range(1, 41)]]
CLOSE = 0.2  # one device multiplies in tiles, ranks by rows


def setUpModule():
    unittest.addModuleCleanup(setattr, command, "DEVICE", command.DEVICE)
    command.DEVICE = "cpu:devices=2"


def told(model, *words):
    """The scores of each prompt, by token: its own and the likeliest."""
    call = {"temperature": 0, "max_tokens": 2, "ignore_eos": True, "prompt_logprobs": 3}
    with Server("--numerics", "invariant", *words, model=golden_model(model)) as server:
        answers = [server.completions(prompt=prompt, **call) for prompt in PROMPTS]
    return [answer.json["choices"][0]["prompt_logprobs"] for answer in answers]


class PromptLogprobs(unittest.TestCase):
    def test_are_those_of_one_device(self):
        for model in ("llama/odd_sizes", "olmo2/wide_norms"):
            one, two = told(model), told(model, "--tp", "2")
            for prompt, alone, shared in zip(PROMPTS, one, two):
                self.assertEqual((len(prompt), len(prompt)), (len(alone), len(shared)))
                self.assertIsNone(shared[0])
                for token, expected, found in zip(prompt[1:], alone[1:], shared[1:]):
                    self.assertIn(str(token), found)
                    self.assertLessEqual(3, len(found))
                    for key in expected.keys() & found.keys():
                        self.assertAlmostEqual(expected[key]["logprob"], found[key]["logprob"], delta=CLOSE)
            self.assertNotEqual(one, two, "compared with itself?")


if __name__ == "__main__":
    unittest.main()
