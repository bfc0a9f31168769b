# `nodewright serve --replicas` as a black box, on two devices of the CPU driver: one server whose answers, probes,
# metrics, adapters, sleep and end are those of one engine. The policy: tests/serve/replicas. Standard library only.
import json
import os
import re
import signal
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import command
from command import DEMO, SOURCE, USAGE, CommandTest, golden_model
from serving import Server

WORDS = ("--replicas", "2", "--numerics", "invariant")
CALLS = [{"prompt": "Once upon a time" + " there was" * (i % 4), "temperature": 0, "max_tokens": 8 + i % 3}
         for i in range(12)]


def setUpModule():
    unittest.addModuleCleanup(setattr, command, "DEVICE", command.DEVICE)
    command.DEVICE = "cpu:devices=2"


def text_of(server, call):
    answer = server.completions(**call)
    assert answer.status == 200, answer.body
    return answer.json["choices"][0]["text"]


class Replicas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(*WORDS, "--served-model-name", "demo", "--enable-sleep", "--kv-events-endpoint",
                            "tcp://127.0.0.1:*", model=DEMO)
        cls.addClassCleanup(cls.server.__exit__)

    def metric(self, name):
        """By engine."""
        text = self.server.get("/metrics").body.decode()
        self.assertEqual(1, text.count("# TYPE %s " % name))
        return {int(engine): float(value) for engine, value in
                re.findall(r'(?m)^%s\{model_name="demo",engine="(\d)"\} (\S+)$' % re.escape(name), text)}

    def test_answers_are_those_of_one_engine_and_both_compute(self):
        with Server("--numerics", "invariant", model=DEMO) as one:
            expected = [text_of(one, call) for call in CALLS]
        with ThreadPoolExecutor(len(CALLS)) as clients:
            self.assertEqual(expected, list(clients.map(lambda call: text_of(self.server, call), CALLS)))
        generated = self.metric("vllm:generation_tokens_total")
        self.assertEqual({0, 1}, set(generated))
        self.assertGreater(min(generated.values()), 0)
        self.assertEqual({0: 0.0}, self.metric("nodewright_requests_queued"))

    def test_probes_and_the_page_tell_of_each(self):
        health = self.server.get("/health")
        self.assertEqual((200, [{"engine": 0, "state": "ready"}, {"engine": 1, "state": "ready"}]),
                         (health.status, health.json["replicas"]))
        self.assertEqual(200, self.server.get("/ready").status)
        live = self.server.get("/live").json
        self.assertEqual([0, 1], [one["engine"] for one in live["replicas"]])
        self.assertTrue(live["model"]["device"].startswith("2 x "), live["model"])

    def test_sleep_and_wake_are_of_all(self):
        slept = self.server.call("POST", "/sleep?level=1")
        self.assertEqual((200, True), (slept.status, slept.json["is_sleeping"]), slept.body)
        self.assertEqual(["asleep", "asleep"], [one["state"] for one in self.server.get("/health").json["replicas"]])
        self.assertEqual(503, self.server.completions(**CALLS[0]).status)
        self.assertEqual(200, self.server.call("POST", "/wake_up").status)
        self.assertFalse(self.server.get("/is_sleeping").json["is_sleeping"])
        self.assertEqual(200, self.server.completions(**CALLS[0]).status)

    def test_each_publishes_kv_events_at_a_place_of_its_own(self):
        places = [m[1] for line in self.server.lines if line for m in [re.search(r"KV events of \S+ at (\S+)", line)] if m]
        self.assertEqual(2, len(set(places)), self.server.lines)


class Ends(unittest.TestCase):
    @staticmethod
    def accepted(server):
        requests = server.get("/live").json["requests"]
        return requests["running"] + requests["waiting"] + sum(requests["ended"].values())

    def test_a_drain_ends_what_is_open_on_both_and_what_waits(self):
        with Server(*WORDS, "--max-batch", "1", "--timeline", "steps.json", "--log", "steps.jsonl", model=DEMO) as server:
            body = {"prompt": "Once", "max_tokens": 30, "ignore_eos": True, "temperature": 0}
            with ThreadPoolExecutor(5) as clients:
                answers = [clients.submit(server.completions, **body, stream=True) for _ in range(5)]
                while self.accepted(server) < 5:
                    pass
                server.process.send_signal(signal.SIGTERM)
                for answer in answers:
                    data = answer.result().data
                    self.assertEqual("[DONE]", data[-1])
                    self.assertEqual("length", json.loads(data[-2])["choices"][0]["finish_reason"])
            self.assertEqual(0, server.process.wait(60))
            names = os.listdir(server.folder.name)
            self.assertLessEqual({"steps.json", "steps.json.1", "steps.jsonl", "steps.jsonl.1"}, set(names))


class Adapters(unittest.TestCase):
    def test_adapters_are_loaded_and_unloaded_on_both(self):
        path = os.path.join(SOURCE, "tests", "golden", "adapters", "llama_all")
        call = {"prompt": [5, 6, 7], "temperature": 0, "max_tokens": 6, "ignore_eos": True, "return_token_ids": True}
        with Server(*WORDS, "--allow-adapter-updates", "--served-model-name", "base",
                    model=golden_model("llama/biases")) as server:
            loaded = server.call("POST", "/v1/load_lora_adapter", {"lora_name": "own", "lora_path": path})
            self.assertEqual(200, loaded.status, loaded.body)
            with ThreadPoolExecutor(8) as clients:
                answers = list(clients.map(lambda model: server.completions(**call, model=model), ["own", "base"] * 8))
            tokens = [answer.json["choices"][0]["token_ids"] for answer in answers]
            self.assertEqual(1, len({tuple(one) for one in tokens[::2]}))
            self.assertNotEqual(tokens[0], tokens[1])
            unloaded = server.call("POST", "/v1/unload_lora_adapter", {"lora_name": "own"})
            self.assertEqual(200, unloaded.status, unloaded.body)
            self.assertEqual(404, server.completions(**call, model="own").status)


class Refusals(CommandTest):
    def test_devices_must_be_as_many_as_replicas(self):
        for device, words in (("cpu", "the CPU driver has 1 device, and --replicas 2 needs 2"),
                              ("cuda:0", "it names 1 device, and --replicas 2 needs 2"),
                              ("cuda:0,0", "device 0 is there twice")):
            self.assert_refused(USAGE, [words], "serve", "--model", DEMO, "--replicas", "2", "--device", device)
        self.assert_refused(USAGE, ["--replicas and --trace"], "serve", "--model", DEMO, "--replicas", "2", "--trace")
        self.assert_refused(USAGE, ["--replicas"], "serve", "--model", DEMO, "--replicas", "0")


if __name__ == "__main__":
    unittest.main()
