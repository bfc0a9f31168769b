# LoRA adapters of one model on several devices as a black box: `--tp 2` on the CPU driver, of `run`, `generate` and
# `serve`, two replicas of two, and an engine that sleeps with them. Standard library only.
import json
import os
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import command
from command import SOURCE, CommandTest, golden_model, on_device, run
from serving import Server

ADAPTERS = os.path.join(SOURCE, "tests", "golden", "adapters")
BASE = golden_model("llama/biases")
FIRST, SECOND = os.path.join(ADAPTERS, "llama_all"), os.path.join(ADAPTERS, "llama_root")
NAMES = ["", "first", "second"]
CALL = {"prompt": [5, 6, 7], "temperature": 0, "max_tokens": 6, "ignore_eos": True, "return_token_ids": True}


def setUpModule():
    unittest.addModuleCleanup(setattr, command, "DEVICE", command.DEVICE)
    command.DEVICE = "cpu:devices=4"


class Run(CommandTest):
    def tokens(self, *words):
        requests = [{"id": name, "prompt_ids": [5, 6, 7], "max_tokens": 6, "ignore_eos": True,
                     **({"adapter": name} if name else {})} for name in NAMES]
        done = run(*on_device("run", BASE, "--greedy", "--numerics", "invariant", "--adapter", "first=" + FIRST,
                              "--adapter", "second=" + SECOND, *words),
                   stdin="".join(json.dumps(request) + "\n" for request in requests).encode())
        self.assertEqual((0, ""), (done.returncode, done.stderr.decode()))
        results = {result["id"]: result["token_ids"] for result in map(json.loads, done.stdout.decode().splitlines())}
        return [results[name] for name in NAMES]

    def test_each_request_has_its_adapter_as_on_one_device(self):
        shared = self.tokens("--tp", "2")
        self.assertEqual(3, len({tuple(tokens) for tokens in shared}))
        self.assertEqual(self.tokens("--max-batch", "1"), shared)
        generated = self.succeed(*on_device("generate", BASE, "--tp", "2", "--prompt-ids", "5,6,7", "--greedy",
                                            "--max-tokens", "6", "--ignore-eos", "--numerics", "invariant",
                                            "--adapter", "first=" + FIRST))
        self.assertEqual(shared[1], [int(token) for token in generated.replace(",", " ").split()])

    def test_an_adapter_of_another_model_is_refused_by_name(self):
        words = on_device("run", BASE, "--tp", "2", "--adapter", "other=" + os.path.join(ADAPTERS, "phi3"))
        self.assert_refused(1, ["adapter_model.safetensors"], *words)


class Serve(unittest.TestCase):
    def test_adapters_come_and_go_on_two_replicas_of_two(self):
        with Server("--tp", "2", "--replicas", "2", "--numerics", "invariant", "--allow-adapter-updates",
                    "--served-model-name", "base", model=BASE) as server:
            loaded = server.call("POST", "/v1/load_lora_adapter", {"lora_name": "own", "lora_path": FIRST})
            self.assertEqual(200, loaded.status, loaded.body)
            with ThreadPoolExecutor(8) as clients:
                answers = list(clients.map(lambda model: server.completions(**CALL, model=model), ["own", "base"] * 8))
            tokens = [answer.json["choices"][0]["token_ids"] for answer in answers]
            self.assertEqual(1, len({tuple(one) for one in tokens[::2]}))
            self.assertEqual(1, len({tuple(one) for one in tokens[1::2]}))
            self.assertNotEqual(tokens[0], tokens[1])
            unloaded = server.call("POST", "/v1/unload_lora_adapter", {"lora_name": "own"})
            self.assertEqual(200, unloaded.status, unloaded.body)
            self.assertEqual(404, server.completions(**CALL, model="own").status)

    def test_an_engine_of_two_devices_sleeps_with_its_adapters(self):
        with Server("--tp", "2", "--numerics", "invariant", "--enable-sleep", "--adapter", "own=" + FIRST,
                    "--served-model-name", "base", model=BASE) as server:
            tokens = lambda: [server.completions(**CALL, model=model).json["choices"][0]["token_ids"]
                              for model in ("own", "base")]
            expected = tokens()
            for level in (1, 2):
                slept = server.call("POST", "/sleep?level=%d" % level)
                self.assertEqual((200, True), (slept.status, slept.json["is_sleeping"]), slept.body)
                self.assertGreater(slept.json["freed_bytes"], 0)
                self.assertEqual(503, server.completions(**CALL).status)
                self.assertEqual(200, server.call("POST", "/wake_up").status)
                self.assertEqual(expected, tokens())


if __name__ == "__main__":
    unittest.main()
