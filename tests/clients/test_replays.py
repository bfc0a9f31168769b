# What benchmarks send and how they read the answer, replayed over HTTP: their bodies, and their rules line by line, so
# that an answer that would break one of them fails here. Read in the clients' sources, 2026-11. Standard library only.
import json
import unittest

from served_demo import STORY, serve

TOKENS = 10


def setUpModule():
    global server
    server = serve()


def whole(path, **body):
    """The text of the same call without a stream."""
    choice = server.call("POST", path, body).json["choices"][0]
    return choice["text"] if path.endswith("/v1/completions") else choice["message"]["content"]


class Replay(unittest.TestCase):
    COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"

    def stream(self, path, body):
        """The open response of a stream; its lines are the caller's to read."""
        connection, response = server.begin(path, **body)
        self.addCleanup(connection.close)
        self.addCleanup(response.close)
        self.assertEqual(200, response.status)
        return response


class VllmBench(Replay):
    """vllm bench serve: the first event with choices is the first token, every further one a token more."""

    def read(self, path, body):
        text, events, usage, buffer = "", 0, None, ""
        response = self.stream(path, body)
        while block := response.read1(97):  # events are cut anywhere
            buffer += block.decode()
            while "\n\n" in buffer:
                message, buffer = buffer.split("\n\n", 1)
                message = message.strip()
                if not message or message.startswith(":"):
                    self.fail("not an event: %r" % message)
                data = message.removeprefix("data: ")
                if data == "[DONE]":
                    continue
                chunk = json.loads(data)
                if choices := chunk.get("choices"):
                    content = choices[0].get("text") if path == self.COMPLETIONS else choices[0]["delta"].get("content")
                    text, events = text + (content or ""), events + 1
                elif found := chunk.get("usage"):
                    usage = found["completion_tokens"]
        self.assertEqual("", buffer)
        return text, events, usage

    def test_completions(self):
        body = {"model": "demo", "prompt": STORY, "repetition_penalty": 1.0, "max_tokens": TOKENS, "logprobs": None,
                "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True, "temperature": 0.0}
        text = whole(self.COMPLETIONS, prompt=STORY, max_tokens=TOKENS, temperature=0, ignore_eos=True)
        self.assertEqual((text, TOKENS, TOKENS), self.read(self.COMPLETIONS, body))

    def test_chat(self):
        messages = [{"role": "user", "content": [{"type": "text", "text": STORY}]}]
        body = {"model": "demo", "messages": messages, "max_completion_tokens": TOKENS, "stream": True,
                "stream_options": {"include_usage": True}, "ignore_eos": True, "temperature": 0.0}
        text = whole(self.CHAT, messages=messages, max_tokens=TOKENS, temperature=0, ignore_eos=True)
        self.assertEqual((text, TOKENS, TOKENS), self.read(self.CHAT, body))


class SglangBench(Replay):
    """sglang.bench_serving: the model is the first of /v1/models; each line but [DONE] has a choice with a text."""

    def read(self, path, body, content):
        text, events = "", 0
        for line in self.stream(path, body):
            line = line.strip()
            if not line:
                continue
            data = line.decode().removeprefix("data: ")
            if data == "[DONE]":
                continue
            chunk = json.loads(data)
            piece = content(chunk["choices"][0])
            if piece:
                text, events = text + piece, events + 1
            self.assertIsNone((chunk.get("usage") or {}).get("completion_tokens"))  # not asked for
        return text, events

    def test_completions_and_chat(self):
        model = server.get("/v1/models").json["data"][0]["id"]
        common = {"model": model, "temperature": 0.0, "stream": True, "ignore_eos": True}
        text = whole(self.COMPLETIONS, prompt=STORY, max_tokens=TOKENS, temperature=0, ignore_eos=True)
        self.assertEqual((text, TOKENS), self.read(
            self.COMPLETIONS, {**common, "prompt": STORY, "best_of": 1, "max_tokens": TOKENS},
            lambda choice: choice["text"]))
        self.assertEqual((text, TOKENS), self.read(
            self.CHAT, {**common, "messages": [{"role": "user", "content": STORY}], "max_completion_tokens": TOKENS},
            lambda choice: choice["delta"].get("content", "")))


class Guidellm(Replay):
    """guidellm: /health must be 200, chat by default, a usage in every chunk; an error event fails the request."""

    def test_chat(self):
        self.assertEqual(200, server.get("/health").status)
        model = server.get("/v1/models").json["data"][0]["id"]
        messages = [{"role": "user", "content": [{"type": "text", "text": STORY}]}]
        body = {"model": model, "messages": messages, "stream": True, "stop": None, "ignore_eos": True, "temperature": 0,
                "max_completion_tokens": TOKENS, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
        text, iterations, usage, done = "", 0, {}, False
        for line in self.stream(self.CHAT, body):
            line = line.decode().strip()
            if not line:
                continue
            self.assertTrue(line.startswith("data:"), line)
            data = line[len("data:"):].strip()
            if data == "[DONE]":
                done = True
                continue
            chunk = json.loads(data)
            self.assertNotIn("error", chunk)
            self.assertGreaterEqual(chunk["usage"]["completion_tokens"], usage.get("completion_tokens", 0))
            usage = chunk["usage"]
            if chunk["choices"] and (piece := chunk["choices"][0]["delta"].get("content")):
                text, iterations = text + piece, iterations + 1
        expected = whole(self.CHAT, messages=messages, max_tokens=TOKENS, temperature=0, ignore_eos=True)
        self.assertEqual((expected, TOKENS, True), (text, iterations, done))
        self.assertEqual((TOKENS, 5), (usage["completion_tokens"], usage["prompt_tokens"]))


class Llmperf(Replay):
    """llmperf: each line is a token, JSON with a choice; "content" is a string where it is there."""

    def test_chat(self):
        body = {"model": "demo", "stream": True, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True,
                "messages": [{"role": "system", "content": ""}, {"role": "user", "content": STORY}]}
        text, tokens = "", 0
        for chunk in self.stream(self.CHAT, body):
            chunk = chunk.strip()
            if not chunk:
                continue
            chunk = chunk[len("data: "):]
            if chunk == b"[DONE]":
                continue
            tokens += 1
            data = json.loads(chunk)
            self.assertNotIn("error", data)
            delta = data["choices"][0]["delta"]
            if delta.get("content", None):
                text += delta["content"]
        expected = whole(self.CHAT, messages=body["messages"], max_tokens=TOKENS, temperature=0, ignore_eos=True)
        self.assertEqual((expected, TOKENS), (text, tokens))


class Aiperf(Replay):
    """aiperf: chunks of another object are dropped; usage always asked for; what the names of /metrics are."""

    def test_objects_of_chunks(self):
        for path, name, fields in ((self.COMPLETIONS, "text_completion", {"prompt": STORY}),
                                   (self.CHAT, "chat.completion.chunk", {"messages": [{"role": "user", "content": STORY}]})):
            body = {**fields, "model": "demo", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": TOKENS}
            chunks = server.call("POST", path, body).chunks
            self.assertEqual({name}, {chunk["object"] for chunk in chunks})
            self.assertEqual([], chunks[-1]["choices"])
            self.assertLessEqual(1, chunks[-1]["usage"]["completion_tokens"])


class LmEval(Replay):
    """lm-eval's log likelihoods and its remote tokenizer."""

    def test_an_echoed_prompt(self):
        body = {"model": "demo", "prompt": [[0, 5, 6, 7, 8], [0, 9, 10]], "temperature": 0, "max_tokens": 1, "logprobs": 1,
                "seed": 1234, "echo": True}
        answer = server.completions(**body).json
        for choice, prompt in zip(sorted(answer["choices"], key=lambda one: one["index"]), body["prompt"], strict=True):
            logprobs = choice["logprobs"]
            self.assertEqual(len(prompt) + 1, len(logprobs["token_logprobs"]))
            for own, token, top in zip(logprobs["token_logprobs"][1:-1], logprobs["tokens"][1:-1],
                                       logprobs["top_logprobs"][1:-1]):
                self.assertLess(own, 0)
                self.assertEqual(own, top[token])
                self.assertLessEqual(own, max(top.values()))

    def test_the_remote_tokenizer(self):
        info = server.get("/tokenizer_info").json
        self.assertTrue(info["eos_token"])
        told = server.call("POST", "/tokenize", {"prompt": STORY, "add_special_tokens": False}).json
        self.assertEqual(STORY, server.call("POST", "/detokenize", {"tokens": told["tokens"]}).json["prompt"])


if __name__ == "__main__":
    unittest.main()
