# `nodewright serve` as a black box: what calls answer, byte by byte where clients look at bytes, and that the tokens are
# those of `nodewright run`. test_serve_ends.py starts and stops servers. Standard library only.
import json
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from command import DEMO, PROGRAM, on_device
from serving import Server

PROMPT = "Once upon a time"
GREEDY = {"prompt": PROMPT, "temperature": 0}
MOST = 8  # --max-requests
ORIGIN = "http://page.test"


def setUpModule():
    global server
    server = Server("--served-model-name", "demo", "story", "--max-requests", str(MOST), "--max-body", "1",
                    "--cors-origin", ORIGIN, "--speculate", "0")
    unittest.addModuleCleanup(server.__exit__)


def text_of(chunks, index=0):
    return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"] if choice["index"] == index)


def said(chunks, index=0):
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]
                   if choice["index"] == index)


class AsRun(unittest.TestCase):
    """The same requests, served and run."""

    LINES = (  # of run; the body of /v1/completions has the same fields
        {**GREEDY, "max_tokens": 12},
        {**GREEDY, "max_tokens": 12, "logprobs": 3},
        {**GREEDY, "max_tokens": 60, "stop": ["girl", "dog"]},
        {**GREEDY, "max_tokens": 12, "repetition_penalty": 1.3, "logit_bias": {"13": -100}},
        {**GREEDY, "max_tokens": 16, "regex": "( [a-z]+)*[.]"},
        {"prompt": PROMPT, "max_tokens": 12, "temperature": 0.9, "top_k": 40, "top_p": 0.9, "seed": 7},
        {**GREEDY, "prompt": [0, 5, 6, 7, 300, 400], "max_tokens": 1, "prompt_logprobs": 2})

    @classmethod
    def setUpClass(cls):
        """One after another, as they are served: how many rows a step has decides its last bits."""
        words = on_device("run", DEMO, "--max-batch", "8", "--max-context", "1024")
        with subprocess.Popen([PROGRAM, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True) as process:
            cls.results = []
            for line in cls.LINES:
                process.stdin.write(json.dumps(line) + "\n")
                process.stdin.flush()
                cls.results.append(json.loads(process.stdout.readline()))
            process.stdin.close()

    def served(self, line, **more):
        body = {("structured_outputs" if name == "regex" else name): ({"regex": value} if name == "regex" else value)
                for name, value in line.items()}
        return server.completions(**body, **more)

    def test_texts_tokens_reasons_and_usage_are_those_of_run_whole_and_in_a_stream(self):
        for i, line in enumerate(self.LINES):
            result = self.results[i]
            answer = self.served(line, return_token_ids=True).json
            choice = answer["choices"][0]
            expected = (result["token_ids"], result["text"], result["finish_reason"])
            self.assertEqual(expected, (choice["token_ids"], choice["text"], choice["finish_reason"]), line)
            self.assertEqual(len(result["token_ids"]), answer["usage"]["completion_tokens"])
            self.assertEqual(result["usage"]["prompt_tokens"], answer["usage"]["prompt_tokens"])
            if "prompt_logprobs" in line:
                continue
            chunks = self.served(line, return_token_ids=True, stream=True).chunks
            ids = [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]]
            self.assertEqual(expected, (ids, text_of(chunks), chunks[-1]["choices"][0]["finish_reason"]), line)

    def test_the_stop_string_is_told(self):
        choice = self.served(self.LINES[2]).json["choices"][0]
        self.assertEqual(("stop", self.results[2]["stop_reason"]), (choice["finish_reason"], choice["stop_reason"]))

    def test_log_probabilities_have_the_shape_of_completions(self):
        for answer in (self.served(self.LINES[1]).json["choices"][0]["logprobs"],
                       self.joined(self.served(self.LINES[1], stream=True).chunks)):
            expected = self.results[1]["logprobs"]
            self.assertEqual([one["logprob"] for one in expected], answer["token_logprobs"])
            self.assertEqual(self.results[1]["text"], "".join(answer["tokens"]))
            text = ""
            for token, offset, top, one in zip(answer["tokens"], answer["text_offset"], answer["top_logprobs"], expected):
                self.assertEqual(len(text), offset)
                self.assertIn(token, top)
                self.assertEqual({logprob for _, logprob in one["top"]} | {one["logprob"]}, set(top.values()))
                text += token

    def joined(self, chunks):
        parts = [chunk["choices"][0]["logprobs"] for chunk in chunks]
        return {name: [one for part in parts for one in part[name]] for name in parts[0]}

    def test_log_probabilities_of_an_echoed_prompt_are_run_s_prompt_logprobs(self):
        line = self.LINES[6]
        body = {"prompt": line["prompt"], "temperature": 0, "echo": True, "logprobs": 1}
        expected = [one["logprob"] for one in self.results[6]["prompt_logprobs"]]
        whole = server.completions(**body, max_tokens=1).json["choices"][0]["logprobs"]
        self.assertEqual([None, *expected], whole["token_logprobs"][:-1])
        self.assertIsNone(whole["top_logprobs"][0])
        alone = server.completions(**body, max_tokens=0).json["choices"][0]["logprobs"]
        self.assertEqual([None, *expected], alone["token_logprobs"])
        named = server.completions(**line).json["choices"][0]["prompt_logprobs"]
        self.assertEqual([None, *expected], [one and next(iter(one.values()))["logprob"] for one in named])

    def test_chat_s_log_probabilities_spell_the_text_in_bytes(self):
        answer = server.chat(messages=[{"role": "user", "content": PROMPT}], temperature=0, max_tokens=12, logprobs=True,
                             top_logprobs=3).json["choices"][0]
        content = answer["logprobs"]["content"]
        self.assertEqual(answer["message"]["content"], bytes(byte for one in content for byte in one["bytes"]).decode())
        self.assertEqual([one["logprob"] for one in self.results[1]["logprobs"]], [one["logprob"] for one in content])
        self.assertEqual([3] * 12, [len(one["top_logprobs"]) for one in content])


class Streams(unittest.TestCase):
    def test_each_token_has_an_event_of_the_same_call_and_the_last_is_done(self):
        answer = server.completions(**GREEDY, max_tokens=12, stream=True)
        chunks = answer.chunks
        self.assertEqual(12, len(chunks))
        self.assertEqual({"text_completion"}, {chunk["object"] for chunk in chunks})
        self.assertEqual(1, len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}))
        self.assertEqual([None] * 11 + ["length"], [chunk["choices"][0]["finish_reason"] for chunk in chunks])
        self.assertTrue(all("usage" not in chunk for chunk in chunks))
        self.assertEqual("chunked", answer.headers["Transfer-Encoding"])
        self.assertEqual(("no-cache", "no"), (answer.headers["Cache-Control"], answer.headers["X-Accel-Buffering"]))

    def test_the_role_comes_with_the_first_token_of_a_chat(self):
        chunks = server.chat(messages=[{"role": "user", "content": PROMPT}], temperature=0, max_tokens=5, stream=True).chunks
        self.assertEqual({"chat.completion.chunk"}, {chunk["object"] for chunk in chunks})
        first, *others = (chunk["choices"][0]["delta"] for chunk in chunks)
        self.assertEqual("assistant", first["role"])
        self.assertTrue(first["content"])
        self.assertTrue(all("role" not in delta for delta in others))
        self.assertEqual("length", chunks[-1]["choices"][0]["finish_reason"])

    def test_usage_comes_as_it_was_asked_for(self):
        def usages(**options):
            return [(len(chunk["choices"]), chunk.get("usage", "absent")) for chunk in
                    server.completions(**GREEDY, max_tokens=3, stream=True, stream_options=options).chunks]
        self.assertEqual([(1, "absent")] * 3, usages(include_usage=False, continuous_usage_stats=True))
        asked = usages(include_usage=True)
        self.assertEqual([(1, None)] * 3, asked[:-1])
        self.assertEqual((0, 5, 3, 8), (asked[-1][0], asked[-1][1]["prompt_tokens"], asked[-1][1]["completion_tokens"],
                                        asked[-1][1]["total_tokens"]))
        always = usages(include_usage=True, continuous_usage_stats=True)
        self.assertEqual([1, 2, 3, 3], [usage["completion_tokens"] for _, usage in always])

    def test_a_prompt_that_was_seen_is_found_in_the_cache(self):
        prompt = "The cat sat on the mat and then it was very happy. " * 8
        first, second = (server.completions(prompt=prompt, temperature=0, max_tokens=2).json["usage"] for _ in range(2))
        self.assertEqual(0, first["prompt_tokens_details"]["cached_tokens"])
        self.assertGreaterEqual(second["prompt_tokens_details"]["cached_tokens"], 64)


class Choices(unittest.TestCase):
    def test_several_prompts_and_outputs_are_numbered_prompt_by_prompt(self):
        prompts = [PROMPT, "One day", "The cat"]
        body = {"prompt": prompts, "n": 2, "temperature": 0, "max_tokens": 6, "echo": True}
        choices = server.completions(**body).json["choices"]
        self.assertEqual(list(range(6)), [choice["index"] for choice in choices])
        texts = [choice["text"] for choice in choices]
        for index, text in enumerate(texts):
            self.assertTrue(text.startswith(prompts[index // 2]), text)
            self.assertEqual(texts[index ^ 1], text)
        chunks = server.completions(**body, stream=True).chunks
        self.assertEqual(texts, [text_of(chunks, index) for index in range(6)])
        ids = server.completions(prompt=[[0, 5, 6], [0, 7]], max_tokens=1).json
        self.assertEqual((2, 5), (len(ids["choices"]), ids["usage"]["prompt_tokens"]))

    def test_outputs_with_a_seed_differ_and_come_again(self):
        body = {"messages": [{"role": "user", "content": PROMPT}], "n": 4, "seed": 3, "temperature": 1, "max_tokens": 10}
        first, second = (server.chat(**body).json for _ in range(2))
        texts = [choice["message"]["content"] for choice in first["choices"]]
        self.assertEqual(4, len(set(texts)))
        self.assertEqual(texts, [choice["message"]["content"] for choice in second["choices"]])
        chunks = server.chat(**body, stream=True).chunks
        self.assertEqual(texts, [said(chunks, index) for index in range(4)])


class Endpoints(unittest.TestCase):
    def test_each_name_is_served_and_told_in_answers(self):
        self.assertEqual(["demo", "story"], [model["id"] for model in server.get("/v1/models").json["data"]])
        for name in ("demo", "story"):
            self.assertEqual(name, server.completions(**GREEDY, model=name, max_tokens=1).json["model"])
        self.assertEqual("demo", server.completions(**GREEDY, max_tokens=1).json["model"])

    def test_a_text_becomes_tokens_and_text_again(self):
        told = server.call("POST", "/tokenize", {"prompt": PROMPT}).json
        self.assertEqual((told["count"], 1024), (len(told["tokens"]), told["max_model_len"]))
        self.assertTrue(server.call("POST", "/detokenize", {"tokens": told["tokens"]}).json["prompt"].endswith(PROMPT))
        self.assertEqual("<|end_of_text|>", server.get("/tokenizer_info").json["eos_token"])
        rendered = server.call("POST", "/v1/completions/render", GREEDY).json
        self.assertEqual(told["tokens"], (rendered[0] if isinstance(rendered, list) else rendered)["token_ids"])
        self.assertRegex(server.get("/version").json["version"], r"^\d+\.\d+")

    def test_head_is_get_without_a_body(self):
        answer = server.call("HEAD", "/health")
        self.assertEqual((200, b""), (answer.status, answer.body))

    def test_one_connection_carries_calls_and_streams_one_after_another(self):
        connection = server.connection()
        self.addCleanup(connection.close)
        texts = set()
        for stream in (False, True, False):
            answer = server.call("POST", "/v1/completions", {**GREEDY, "max_tokens": 4, "stream": stream},
                                 connection=connection)
            texts.add(text_of(answer.chunks) if stream else answer.json["choices"][0]["text"])
            self.assertIsNotNone(connection.sock)
        self.assertEqual(1, len(texts))

    def test_the_id_of_a_request_comes_back(self):
        for path, body, status in (("/health", None, 200), ("/v1/completions", {**GREEDY, "max_tokens": 1}, 200),
                                   ("/v1/completions", {**GREEDY, "stream": True, "max_tokens": 1}, 200),
                                   ("/v1/completions", {}, 400), ("/nowhere", None, 404)):
            answer = server.call("POST" if body is not None else "GET", path, body, {"X-Request-Id": "me-17"})
            self.assertEqual((status, "me-17"), (answer.status, answer.headers["x-request-id"]))
        self.assertEqual("cmpl-me-18", server.call("POST", "/v1/completions", {**GREEDY, "max_tokens": 1},
                                                   {"x-request-id": "me-18"}).json["id"])
        own = {server.get("/health").headers["x-request-id"] for _ in range(3)}
        self.assertEqual(3, len(own))
        self.assertNotIn("two words", server.get("/health", **{"x-request-id": "two words"}).headers["x-request-id"])

    def test_pages_of_one_origin_may_call(self):
        asked = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST",
                 "Access-Control-Request-Headers": "authorization,content-type"}
        allowed = server.call("OPTIONS", "/v1/chat/completions", headers=asked)
        self.assertEqual((204, ORIGIN), (allowed.status, allowed.headers["Access-Control-Allow-Origin"]))
        self.assertIn("POST", allowed.headers["Access-Control-Allow-Methods"])
        self.assertIn("authorization", allowed.headers["Access-Control-Allow-Headers"].lower())
        answer = server.call("POST", "/v1/completions", {**GREEDY, "max_tokens": 1}, {"Origin": ORIGIN})
        self.assertEqual(ORIGIN, answer.headers["Access-Control-Allow-Origin"])
        other = server.get("/health", Origin="http://other.test")
        self.assertEqual((403, None), (other.status, other.headers["Access-Control-Allow-Origin"]))
        self.assertIn("--cors-origin http://other.test", other.error["message"])
        large = {"Content-Length": str(1 << 40), "Origin": ORIGIN}
        for path, headers, status in (("/v1/completions", large, 413), ("/nowhere", {"Origin": ORIGIN}, 404)):
            connection = server.connection()
            self.addCleanup(connection.close)
            connection.request("POST", path, headers=headers)
            answer = connection.getresponse()
            self.assertEqual((status, ORIGIN, "nosniff"), (answer.status, answer.headers["Access-Control-Allow-Origin"],
                                                           answer.headers["X-Content-Type-Options"]))


class Errors(unittest.TestCase):
    def assert_error(self, answer, status, kind, param=None, *named):
        self.assertEqual(status, answer.status, answer.body)
        error = answer.error
        self.assertEqual({"message", "type", "param", "code"}, set(error))
        self.assertEqual((kind, param, status), (error["type"], error["param"], error["code"]))
        for name in named:
            self.assertIn(name, error["message"])

    def test_what_is_wrong_with_a_field_is_told_with_its_name(self):
        for fields, param, named in (
                ({"temperature": -1}, "temperature", "-1"), ({"max_tokens": 5000}, "max_tokens", "1024"),
                ({"n": 0}, "n", "0"), ({"logprobs": 21}, "logprobs", "21"), ({"suffix": "x"}, "suffix", "suffix"),
                ({"best_of": 3}, "best_of", "best_of"), ({"prompt": [2048]}, "prompt", "2048"), ({"prompt": 5}, "prompt", "5"),
                ({"stop": 5}, "stop", "5"), ({"stream_options": {}}, "stream_options", "stream"),
                ({"prompt": "a " * 1100}, "prompt", "1024"), ({"logit_bias": {"9999": 1}}, "logit_bias", "9999"),
                ({"structured_outputs": {"json": {"type": "integer", "multipleOf": 3}}}, "structured_outputs", "multipleOf")):
            self.assert_error(server.completions(**{**GREEDY, **fields}), 400, "BadRequestError", param, named)
            self.assert_error(server.completions(**{**GREEDY, "stream": True, **fields})
                              if "stream_options" not in fields else server.completions(**GREEDY, **fields),
                              400, "BadRequestError", param)
        self.assert_error(server.chat(messages=[]), 400, "BadRequestError", "messages")
        self.assert_error(server.chat(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
                          400, "BadRequestError", "messages", "image_url")

    def test_a_body_that_is_no_json_is_told_where(self):
        for body, named in ((b"", "JSON"), (b"{", "JSON"), (b"[]", "object"), (b'{"n":1,"n":2}', "twice"),
                            (b'{"prompt":"\xff"}', "JSON")):
            answer = server.call("POST", "/v1/completions", body)
            self.assertEqual((400, "BadRequestError"), (answer.status, answer.error["type"]), body)
            self.assertIn(named, answer.error["message"])

    def test_another_model_path_or_method_is_refused(self):
        self.assert_error(server.completions(**GREEDY, model="gpt"), 404, "NotFoundError", "model", "gpt", "demo, story")
        self.assert_error(server.get("/v1/nothing"), 404, "NotFoundError", None, "/v1/nothing")
        answer = server.get("/v1/completions")
        self.assert_error(answer, 405, "BadRequestError", None, "POST", "GET")
        self.assertEqual("POST", answer.headers["Allow"])

    def test_a_body_that_is_too_large_is_refused_before_it_is_read(self):
        connection = server.connection()
        self.addCleanup(connection.close)
        connection.putrequest("POST", "/v1/completions")
        connection.putheader("Content-Length", str((1 << 20) + 1))
        connection.endheaders()
        response = connection.getresponse()
        self.assertEqual(413, response.status)
        self.assertEqual(413, json.loads(response.read())["error"]["code"])

    def test_more_outputs_than_there_may_be_are_told_to_try_again(self):
        connection, response = server.begin("/v1/completions", **GREEDY, stream=True, n=3, max_tokens=900, ignore_eos=True)
        response.readline()
        server.until(lambda: server.gauge("vllm:num_requests_running") == 3)
        answer = server.completions(**GREEDY, n=MOST, max_tokens=1)
        self.assert_error(answer, 429, "RateLimitError")
        self.assertRegex(answer.headers["Retry-After"], r"^\d+$")
        response.close()
        connection.close()
        server.until(lambda: server.gauge("vllm:num_requests_running") == 0)
        self.assertEqual(MOST, len(server.completions(**GREEDY, n=MOST, max_tokens=1).json["choices"]))

    def test_more_outputs_than_there_can_ever_be_are_refused(self):
        answer = server.completions(**GREEDY, n=MOST + 1, max_tokens=1)
        self.assert_error(answer, 400, "BadRequestError")
        self.assertIn("--max-requests", answer.json["error"]["message"])


class HangUp(unittest.TestCase):
    def test_a_client_that_hangs_up_frees_its_place_and_its_pages(self):
        before = server.gauge("vllm:kv_cache_usage_perc")
        for path, fields in (("/v1/completions", GREEDY), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})):
            cancelled = self.aborted()
            connection, response = server.begin(path, **fields, stream=True, n=3, max_tokens=900, ignore_eos=True)
            response.readline()
            server.until(lambda: server.gauge("vllm:num_requests_running") == 3)
            self.assertGreater(server.gauge("vllm:kv_cache_usage_perc"), before)
            response.close()
            connection.close()
            server.until(lambda: server.gauge("vllm:num_requests_running") == 0)
            self.assertEqual(before, server.gauge("vllm:kv_cache_usage_perc"))
            self.assertEqual(3, self.aborted() - cancelled)  # long before their 900 tokens

    def test_so_does_one_that_waits_for_a_whole_answer(self):
        cancelled = self.aborted()
        connection = server.connection()
        connection.request("POST", "/v1/completions", json.dumps({**GREEDY, "max_tokens": 900, "ignore_eos": True}),
                           {"Content-Type": "application/json"})
        server.until(lambda: server.gauge("vllm:num_requests_running") == 1)
        connection.close()
        server.until(lambda: server.gauge("vllm:num_requests_running") == 0)
        self.assertEqual(1, self.aborted() - cancelled)

    def aborted(self):
        text = server.get("/metrics").body.decode()
        return int(float(re.search(r'vllm:request_success_total\{[^}]*finished_reason="abort"[^}]*\} (\S+)', text)[1]))


if __name__ == "__main__":
    unittest.main()
