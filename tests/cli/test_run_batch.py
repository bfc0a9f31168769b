# nodewright run with the lines of OpenAI's batch files: answers are those of the server, and a bad line is its own alone.
import json
import os
import re
import unittest

from command import DEMO, RUN_TIME, CommandTest, on_device, run
from serving import Server

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 6, "temperature": 0}
STORY = {"prompt": "Once upon a time", "max_tokens": 6, "temperature": 0}


def line_of(custom_id, url, body, **more):
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body, **more}


def without_ids(body):
    return {name: value for name, value in body.items() if name not in ("id", "created")}


class Batch(CommandTest):
    def results(self, lines, *words, unserved=0):
        """By custom_id, null for what has none. Texts are sent as they are."""
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        done = run(*on_device("run", DEMO, *words), stdin=text.encode())
        told = done.stderr.decode()
        self.assertEqual(RUN_TIME if unserved else 0, done.returncode, told)
        self.assertEqual(bool(unserved), "cannot serve '%d of %d requests'" % (unserved, len(lines)) in told, told)
        found = [json.loads(one) for one in done.stdout.decode().splitlines()]
        self.assertEqual(len(lines), len(found))
        for one in found:
            self.assertEqual(["id", "custom_id", "response", "error"], list(one))
            self.assertRegex(one["id"], r"\Abatch_req_[0-9a-f]{32}\Z")
            self.assertNotEqual(one["response"] is None, one["error"] is None, one)
        self.assertEqual(len(found), len({one["id"] for one in found}))
        return {one["custom_id"]: one for one in found}

    def body(self, result, status=200):
        self.assertEqual(status, result["response"]["status_code"], result)
        self.assertTrue(result["response"]["request_id"])
        return result["response"]["body"]

    def test_answers_are_those_of_the_server(self):
        bodies = {"chat": (CHAT, HELLO), "two": (CHAT, {**HELLO, "n": 2, "logprobs": True, "top_logprobs": 2, "seed": 3, "temperature": 1}),
                  "text": (COMPLETIONS, STORY), "list": (COMPLETIONS, {**STORY, "prompt": ["One day", "The dog"], "n": 2, "echo": True, "logprobs": 1}),
                  "stop": (COMPLETIONS, {**STORY, "max_tokens": 30, "stop": ["girl"]}), "ids": (COMPLETIONS, {**STORY, "prompt": [13, 413]}),
                  "regex": (CHAT, {**HELLO, "structured_outputs": {"regex": "(yes|no)"}}), "named": (CHAT, {**HELLO, "model": "demo"}),
                  "default": (COMPLETIONS, {"prompt": "Once upon a time", "temperature": 0})}
        same = ("--numerics", "invariant")  # the lines go through the steps together, the calls one by one
        results = self.results([line_of(name, url, body) for name, (url, body) in bodies.items()], *same)
        with Server(*same) as server:
            for name, (url, body) in bodies.items():
                expected = server.call("POST", url, body).json
                found = self.body(results[name])
                for usage in (expected["usage"], found["usage"]):
                    usage.pop("prompt_tokens_details", None)  # what the cache had depends on what came before
                self.assertEqual(without_ids(expected), without_ids(found), name)
        self.assertEqual([0, 1, 2, 3], [choice["index"] for choice in self.body(results["list"])["choices"]])
        self.assertEqual("length", self.body(results["chat"])["choices"][0]["finish_reason"])

    def test_a_bad_line_has_its_error_and_the_others_their_answers(self):
        lines = [line_of("good", CHAT, HELLO), line_of("good", CHAT, HELLO), line_of("url", "/v1/embeddings", HELLO),
                 line_of("method", CHAT, HELLO, method="GET"), {"custom_id": "no-url", "method": "POST", "body": HELLO},
                 {"custom_id": "no-body", "method": "POST", "url": CHAT}, line_of("list", CHAT, [1]), line_of("last", COMPLETIONS, STORY)]
        found = self.results([line for line in lines if line["custom_id"] != "good"] + lines[:1], unserved=5)
        for name, said in (("url", "url is \"/v1/embeddings\", expected /v1/chat/completions or /v1/completions"), ("method", "method is \"GET\", expected POST"),
                           ("no-url", "the line has no url"), ("no-body", "the line has no body"), ("list", "body is [1], expected an object")):
            self.assertEqual((None, {"code": "invalid_line", "message": said}), (found[name]["response"], found[name]["error"]))
        self.body(found["good"])
        self.body(found["last"])

    def test_names_are_texts_and_come_once(self):
        for custom_id, said in ((None, "the line has no custom_id"), ("", "custom_id is \"\", expected a text"), (7, "custom_id is 7, expected a text")):
            found = self.results([line_of(custom_id, CHAT, HELLO), line_of("b", CHAT, HELLO)], unserved=1)
            self.assertEqual(said, found[None]["error"]["message"])
            self.body(found["b"])
        no_name = {name: value for name, value in line_of("a", CHAT, HELLO).items() if name != "custom_id"}
        self.assertEqual("the line has no custom_id", self.results([no_name], unserved=1)[None]["error"]["message"])
        done = run(*on_device("run", DEMO), stdin=(json.dumps(line_of("a", CHAT, HELLO)) + "\n").encode() * 2)
        first, second = sorted((json.loads(one) for one in done.stdout.decode().splitlines()), key=lambda one: one["error"] is not None)
        self.assertEqual(("a", "a", "custom_id \"a\" has come before"), (first["custom_id"], second["custom_id"], second["error"]["message"]))
        self.body(first)

    def test_a_line_that_is_no_json_is_one_of_the_batch(self):
        found = self.results([line_of("a", CHAT, HELLO), '{"custom_id": "b", "method"', line_of("c", CHAT, HELLO)], unserved=1)
        self.assertRegex(found[None]["error"]["message"], r"\Ait is no JSON: ")
        found = self.results(['{"custom_id": "b", "method": "POST", "body": {]}}', line_of("c", CHAT, HELLO)], unserved=1)
        self.assertRegex(found[None]["error"]["message"], r"\Ait is no JSON: ")
        self.body(found["c"])

    def test_what_the_interface_refuses_is_its_answer(self):
        lines = [line_of("field", CHAT, {**HELLO, "temperature": -1}), line_of("model", CHAT, {**HELLO, "model": "gpt-4o"}),
                 line_of("none", CHAT, {"max_tokens": 3}), line_of("stream", CHAT, {**HELLO, "stream": True}),
                 line_of("long", COMPLETIONS, {**STORY, "max_tokens": 100000}), line_of("good", CHAT, HELLO)]
        found = self.results(lines, unserved=5)
        with Server() as server:
            for line in lines[:3]:
                answer = server.call("POST", line["url"], line["body"])
                self.assertEqual((answer.status, answer.json), (found[line["custom_id"]]["response"]["status_code"],
                                                                found[line["custom_id"]]["response"]["body"]))
        self.assertEqual("stream", self.body(found["stream"], 400)["error"]["param"])
        self.assertIn("max_tokens", self.body(found["long"], 400)["error"]["message"])
        self.body(found["good"])

    def test_the_model_may_have_other_names_and_numbers_stay_as_they_are_written(self):
        names = ("--served-model-name", "gpt-4o")
        found = self.results([line_of("a", CHAT, {**HELLO, "model": "gpt-4o"})], *names)
        self.assertEqual("gpt-4o", self.body(found["a"])["model"])
        found = self.results([line_of("a", COMPLETIONS, {**STORY, "temperature": 0.0, "seed": 12345678901234567890123})], unserved=1)
        self.assertIn("12345678901234567890123", self.body(found["a"], 400)["error"]["message"])

    def test_lines_of_both_forms_are_served_together(self):
        plain = {"id": "plain", "prompt": "Once upon a time", "max_tokens": 6, "temperature": 0}
        done = run(*on_device("run", DEMO), stdin="".join(json.dumps(one) + "\n" for one in (line_of("a", COMPLETIONS, STORY), plain)).encode())
        self.assertEqual(0, done.returncode, done.stderr)
        found = {one.get("custom_id", one["id"]): one for one in map(json.loads, done.stdout.decode().splitlines())}
        self.assertEqual(found["plain"]["text"], self.body(found["a"])["choices"][0]["text"])


if __name__ == "__main__":
    unittest.main()
