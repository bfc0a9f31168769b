# `nodewright serve` with LoRA adapters as a black box: adapters as models, loaded and unloaded while it serves, and
# refusals in vLLM's words.
import os
import re
import shutil
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from command import SOURCE, golden_model
from serving import Server

ADAPTERS = os.path.join(SOURCE, "tests", "golden", "adapters")
BASE = golden_model("llama/biases")
CALL = {"prompt": [5, 6, 7], "temperature": 0, "max_tokens": 6, "ignore_eos": True, "return_token_ids": True}


def folder(name):
    return os.path.join(ADAPTERS, name)


class Adapters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--allow-adapter-updates", "--adapter", "first=" + folder("llama_all"), "--max-adapters", "2",
                            "--served-model-name", "base", "--numerics", "invariant", model=BASE)
        cls.addClassCleanup(cls.server.__exit__)

    def tokens(self, **fields):
        answer = self.server.completions(**{**CALL, **fields})
        self.assertEqual(200, answer.status, answer.body)
        return answer.json["choices"][0]["token_ids"]

    def load(self, name, path, status=200):
        answer = self.server.call("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path})
        self.assertEqual(status, answer.status, answer.body)
        return answer

    def unload(self, name, status=200):
        answer = self.server.call("POST", "/v1/unload_lora_adapter", {"lora_name": name})
        self.assertEqual(status, answer.status, answer.body)
        return answer

    def models(self):
        return {one["id"]: one for one in self.server.get("/v1/models").json["data"]}

    def test_a_model_is_the_base_or_an_adapter(self):
        models = self.models()
        self.assertIsNone(models["base"]["parent"])
        self.assertEqual(("base", folder("llama_all")), (models["first"]["parent"], models["first"]["root"]))
        base, first = self.tokens(), self.tokens(model="first")
        self.assertNotEqual(base, first)
        self.assertEqual(base, self.tokens(model="base"))
        self.assertEqual(first, self.tokens(model="base", lora_path="first"))
        self.assertEqual(first, self.tokens(adapter="first"))
        self.assertEqual("first", self.server.completions(**CALL, model="first").json["model"])
        for fields, status, words in (({"model": "other"}, 404, "this server has base, first"),
                                      ({"lora_path": "other"}, 404, "no adapter"), ({"lora_path": 3}, 400, "lora_path")):
            answer = self.server.completions(**CALL, **fields)
            self.assertEqual(status, answer.status)
            self.assertIn(words, answer.error["message"])

    def test_adapters_come_and_go_while_others_decode(self):
        base, first = self.tokens(), self.tokens(model="first")
        wrong, running = [], threading.Event()

        def decode():
            while not running.is_set():
                for model, expected in (("base", base), ("first", first)):
                    if self.tokens(model=model) != expected:
                        wrong.append(model)

        threads = [threading.Thread(target=decode) for _ in range(2)]
        for thread in threads:
            thread.start()
        seen = set()
        for name in ("llama_root", "llama_layer", "llama_linear", "llama_root"):
            answer = self.load("other", folder(name))
            self.assertEqual(b"Success: LoRA adapter 'other' added successfully.", answer.body)
            self.assertEqual("base", self.models()["other"]["parent"])
            seen.add(tuple(self.tokens(model="other")))
            answer = self.unload("other")
            self.assertEqual(b"Success: LoRA adapter 'other' removed successfully.", answer.body)
            self.assertNotIn("other", self.models())
            self.assertEqual(404, self.server.completions(**CALL, model="other").status)
        running.set()
        for thread in threads:
            thread.join()
        self.assertEqual([], wrong)
        self.assertEqual(3, len(seen))

    def test_more_adapters_than_slots_take_turns(self):
        for name in ("llama_root", "llama_layer", "llama_linear"):
            self.load(name, folder(name))
        expected = {name: self.tokens(model=name) for name in ("first", "llama_root", "llama_layer", "llama_linear")}
        for name in reversed(expected):
            self.assertEqual(expected[name], self.tokens(model=name), name)
        for name in ("llama_root", "llama_layer", "llama_linear"):
            self.unload(name)

    def test_refusals_are_those_of_vllm(self):
        self.assertIn("already been loaded", self.load("first", folder("llama_root"), 400).error["message"])
        self.assertIn("name of the model", self.load("base", folder("llama_root"), 400).error["message"])
        self.assertIn("must be provided", self.load("", folder("llama_root"), 400).error["message"])
        missing = self.load("other", "/nowhere", 404).error
        self.assertEqual(("NotFoundError", 404), (missing["type"], missing["code"]))
        self.assertIn("No adapter found for /nowhere", missing["message"])
        self.assertIn("no such matrix", self.load("other", folder("phi3"), 400).error["message"])
        self.assertIn("cannot be found", self.unload("other", 404).error["message"])
        self.assertEqual(400, self.server.call("POST", "/v1/unload_lora_adapter", {}).status)
        self.assertEqual(405, self.server.get("/v1/load_lora_adapter").status)
        with tempfile.TemporaryDirectory() as broken:
            shutil.copytree(folder("llama_root"), broken, dirs_exist_ok=True)
            with open(os.path.join(broken, "adapter_model.safetensors"), "r+b") as file:
                file.truncate(5000)
            self.assertIn("adapter_model.safetensors", self.load("other", broken, 400).error["message"])

    def test_the_gauge_names_adapters(self):
        self.tokens(model="first")
        text = self.server.get("/metrics").body.decode()
        self.assertRegex(text, r'(?m)^vllm:lora_requests_info\{[^}]*max_lora="2",running_lora_adapters="[^"]*",'
                               r'waiting_lora_adapters="[^"]*"\} \d')
        self.assertRegex(text, r'(?m)^nodewright_memory_bytes\{[^}]*use="adapters"\} [1-9]')

    def test_a_long_name_is_refused(self):
        for name, named in (("n" * 300, "at most 255 bytes, and this one has 300"), ("a\x1bb", "control characters")):
            self.assertIn(named, self.load(name, folder("llama_root"), 400).error["message"])


class Gate(unittest.TestCase):
    def test_without_the_option_there_is_no_way_to_change_adapters(self):
        with Server(model=BASE) as server:
            for path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
                self.assertEqual(404, server.call("POST", path, {"lora_name": "x", "lora_path": "y"}).status)
            self.assertNotIn("lora_requests_info", server.get("/metrics").body.decode())
            self.assertEqual(404, server.completions(**CALL, adapter="x").status)

    def test_more_adapters_than_the_limit_are_refused_before_they_are_read(self):
        with tempfile.TemporaryDirectory() as empty:
            open(os.path.join(empty, "adapter_config.json"), "w").close()  # to read it would say that this is no JSON
            for words, place, named in (
                    (("--max-loaded-adapters", "2"), 1, "2 LoRA adapters are loaded, as many as --max-cpu-loras allows"),
                    (("--adapter-memory", "1"), 0, "--adapter-memory allows 1 B in all")):
                with Server("--allow-adapter-updates", "--max-adapters", "1", *words, "--adapter",
                            "first=" + folder("llama_all"), "--served-model-name", "base", model=BASE) as server:
                    def load(name, path):
                        return server.call("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": path})
                    for i in range(place):
                        self.assertEqual(200, load("more%d" % i, folder("llama_root")).status)
                    refused = load("last", empty)
                    self.assertEqual(400, refused.status, refused.body)
                    self.assertIn(named, refused.error["message"])
                    if place:
                        self.assertEqual(200, server.call("POST", "/v1/unload_lora_adapter", {"lora_name": "more0"}).status)
                        failed = load("last", empty)
                        self.assertIn("adapter_config.json", failed.error["message"])
                        self.assertEqual(200, load("last", folder("llama_root")).status)  # the failed one holds no place


if __name__ == "__main__":
    unittest.main()
