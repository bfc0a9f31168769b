# `nodewright serve --enable-sleep` as a black box: memory that is freed and taken again, answers that stay the same,
# and what becomes of calls that are open, come meanwhile, or end the process.
import json
import os
import re
import signal
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from serving import END_S, Answer, Server

CALL = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 24, "return_token_ids": True}
LONG = {**CALL, "max_tokens": 300, "ignore_eos": True, "stream": True}


def resident_kib(server):
    with open("/proc/%d/status" % server.process.pid, encoding="utf-8") as status:
        return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1])


class Sleep(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--enable-sleep")
        cls.addClassCleanup(cls.server.__exit__)

    def sleep(self, query="", expected=200):
        return self.posted("/sleep" + query, expected)

    def wake(self, query="", expected=200):
        return self.posted("/wake_up" + query, expected)

    def posted(self, target, expected):
        answer = self.server.call("POST", target)
        self.assertEqual(expected, answer.status, answer.body)
        return answer.json

    def is_sleeping(self):
        answer = self.server.get("/is_sleeping")
        self.assertEqual(200, answer.status)
        self.assertEqual({"is_sleeping"}, set(answer.json))
        return answer.json["is_sleeping"]

    def state(self):
        """The one state of vllm:engine_sleep_state that is 1."""
        text = self.server.get("/metrics").body.decode()
        states = dict(re.findall(r'(?m)^vllm:engine_sleep_state\{.*sleep_state="(\w+)"\} (\d)$', text))
        self.assertEqual({"awake", "weights_offloaded", "discard_all"}, set(states))
        self.assertEqual(["0", "0", "1"], sorted(states.values()))
        return max(states, key=states.get)

    def tokens(self):
        answer = self.server.completions(**CALL)
        self.assertEqual(200, answer.status, answer.body)
        return answer.json["choices"][0]["token_ids"]

    def assert_asleep(self, level):
        self.assertTrue(self.is_sleeping())
        self.assertEqual({1: "weights_offloaded", 2: "discard_all"}[level], self.state())
        self.assertEqual((200, 503), (self.server.get("/health").status, self.server.get("/ready").status))
        for answer in (self.server.completions(**CALL), self.server.chat(messages=[{"role": "user", "content": "Hi"}])):
            self.assertEqual((503, "ServiceUnavailableError"), (answer.status, answer.error["type"]))
            self.assertIn("/wake_up", answer.error["message"])
            self.assertTrue(answer.headers["Retry-After"])
        self.assertEqual(200, self.server.call("POST", "/tokenize", {"prompt": "Hi"}).status)
        self.assertEqual("asleep", self.server.get("/live").json["state"])
        self.assertEqual(0, self.server.gauge("nodewright_memory_bytes"))
        self.assertEqual(0, self.server.gauge("nodewright_cached_pages"))

    def assert_awake(self):
        self.assertFalse(self.is_sleeping())
        self.assertEqual("awake", self.state())
        self.assertEqual(200, self.server.get("/ready").status)

    def test_both_levels_free_the_memory_and_wake_to_the_same_answers(self):
        expected = self.tokens()
        memory, pages = self.server.gauge("nodewright_memory_bytes"), self.server.get("/live").json["pages"]["all"]
        for level, query in ((1, ""), (1, "?level=1&mode=wait"), (2, "?level=2&mode=abort")):
            self.assert_awake()
            slept = self.sleep(query)
            self.assertEqual((True, level), (slept["is_sleeping"], slept["level"]))
            self.assertEqual(slept["freed_bytes"], slept["free_bytes"]["after"] - slept["free_bytes"]["before"])
            self.assertGreaterEqual(slept["freed_bytes"], 0.9 * memory)
            self.assert_asleep(level)
            self.assertEqual(0, self.sleep("?level=1")["freed_bytes"])
            self.assert_asleep(level)
            woken = self.wake()
            self.assertEqual((False, 0), (woken["is_sleeping"], woken["level"]))
            self.assertEqual(-slept["freed_bytes"], woken["freed_bytes"])
            self.assertEqual(0, self.wake()["freed_bytes"])
            self.assert_awake()
            self.assertEqual(expected, self.tokens())
            self.assertEqual(memory, self.server.gauge("nodewright_memory_bytes"))
            self.assertEqual(pages, self.server.get("/live").json["pages"]["all"])

    def test_it_sleeps_deeper_and_wakes_in_two_parts_as_vllm_s_clients_ask(self):
        expected = self.tokens()
        self.sleep()
        self.sleep("?level=2")
        self.assert_asleep(2)
        self.assertLess(self.wake("?tags=weights")["freed_bytes"], 0)
        self.assertTrue(self.is_sleeping())
        self.assertEqual(503, self.server.completions(**CALL).status)
        self.wake("?tags=kv_cache")
        self.assert_awake()
        self.assertEqual(expected, self.tokens())

    def test_what_cannot_be_is_refused_by_name_and_changes_nothing(self):
        for target, param in (("/sleep?level=0", "level"), ("/sleep?level=3", "level"), ("/sleep?level=", "level"),
                              ("/sleep?mode=keep", "mode"), ("/wake_up?tags=graphs", "tags")):
            error = self.posted(target, 400)["error"]
            self.assertEqual((param, "BadRequestError"), (error["param"], error["type"]))
        for method, path in (("GET", "/sleep"), ("GET", "/wake_up"), ("POST", "/is_sleeping")):
            self.assertEqual(405, self.server.call(method, path).status)
        self.assert_awake()

    def begun(self):
        connection, response = self.server.begin("/v1/completions", **LONG)
        self.addCleanup(connection.close)
        self.addCleanup(response.close)
        return response.readline() + response.readline(), response

    def rest(self, first, response):
        answer = Answer(response)
        answer.body = first + answer.body
        return answer

    def test_an_open_stream_ends_whole_before_it_sleeps(self):
        first, response = self.begun()
        told = []
        sleeper = threading.Thread(target=lambda: told.append(self.server.call("POST", "/sleep")))
        sleeper.start()
        self.server.until(lambda: self.server.get("/ready").status == 503)
        self.assertFalse(self.is_sleeping())
        self.assertEqual(503, self.server.completions(**CALL).status)
        chunks = self.rest(first, response).chunks
        self.assertEqual((300, "length"), (len(chunks), chunks[-1]["choices"][0]["finish_reason"]))
        sleeper.join()
        self.assertEqual(200, told[0].status, told[0].body)
        self.assert_asleep(1)
        self.wake()

    def test_an_abort_ends_an_open_stream_with_an_error(self):
        first, response = self.begun()
        self.sleep("?mode=abort")
        data = self.rest(first, response).data
        self.assertEqual("[DONE]", data[-1])
        error = json.loads(data[-2])["error"]
        self.assertEqual((503, "the engine is put to sleep"), (error["code"], error["message"]))
        self.assertLess(len(data), 300)
        self.assert_asleep(1)
        self.wake()

    def test_a_wake_calls_a_waiting_sleep_off(self):
        first, response = self.begun()
        told = []
        sleeper = threading.Thread(target=lambda: told.append(self.server.call("POST", "/sleep")))
        sleeper.start()
        self.server.until(lambda: self.server.get("/ready").status == 503)
        self.wake()
        sleeper.join()
        self.assertEqual((409, "ConflictError"), (told[0].status, told[0].error["type"]))
        self.assert_awake()
        self.assertEqual(300, len(self.rest(first, response).chunks))

    def test_a_hundred_times_leave_memory_as_it_was(self):
        expected = self.tokens()
        for i in range(4):
            self.sleep("?level=%d" % (1 + i % 2))
            free, resident = self.wake()["free_bytes"]["after"], resident_kib(self.server)
        for i in range(100):
            self.sleep("?level=%d" % (1 + i % 2))
            self.assertEqual(free, self.wake()["free_bytes"]["after"])
        self.assertEqual(expected, self.tokens())
        self.assertLess(resident_kib(self.server) - resident, 32 << 10)


class Ends(unittest.TestCase):
    def test_sigterm_ends_a_server_that_sleeps(self):
        for query in ("", "?level=2"):
            with Server("--enable-sleep-mode", "--api-key", "k") as server:
                for path in ("/sleep", "/wake_up"):
                    self.assertEqual(401, server.call("POST", path).status)
                self.assertEqual(401, server.get("/is_sleeping").status)
                self.assertEqual(200, server.call("POST", "/sleep" + query, headers={"X-Api-Key": "k"}).status)
                self.assertEqual(0, server.stop())

    def test_sigterm_ends_a_sleep_that_waits_and_lets_a_stream_end(self):
        with Server("--enable-sleep") as server:
            connection, response = server.begin("/v1/completions", **LONG)
            self.addCleanup(connection.close)
            told = []
            sleeper = threading.Thread(target=lambda: told.append(server.call("POST", "/sleep")))
            sleeper.start()
            server.until(lambda: server.get("/ready").status == 503)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(300, len(Answer(response).chunks))
            sleeper.join()
            self.assertEqual(503, told[0].status, told[0].body)
            self.assertEqual(0, server.process.wait(timeout=END_S))


class Without(unittest.TestCase):
    def test_without_the_option_there_is_no_sleep(self):
        with Server() as server:
            for method, path in (("POST", "/sleep"), ("POST", "/wake_up"), ("GET", "/is_sleeping")):
                self.assertEqual(404, server.call(method, path).status)
            self.assertIn('sleep_state="awake"} 1', server.get("/metrics").body.decode())


if __name__ == "__main__":
    unittest.main()
