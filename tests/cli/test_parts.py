# Variables of the chat template in every command that has one, and the parts of answers that `nodewright run` tells:
# calls of tools and thoughts. The demo model with templates beside it.
import json
import sys
import unittest

from command import DEVICE, PROGRAM, USAGE, on_device, run
from test_chat import LENGTH, ChatTest

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}}}
USER = [{"role": "user", "content": "Once upon a time"}]
EVERY_MOOD = "{{ bos_token }}{{ mood }} {{ messages[0].content }} {{ 'yes' if mood is string else 'no' }}"


class TemplateArgs(ChatTest):
    def test_they_reach_the_template_as_json_or_text(self):
        self.write("chat_template.jinja", EVERY_MOOD)
        words = on_device("generate", self.folder, "--prompt", "the cat", "--chat", *LENGTH)
        for value, prompt in (("glad", "glad the cat yes"), ("3", "3 the cat no"), ("true", "True the cat no"),
                              ('"3"', "3 the cat yes"), ("", " the cat yes"), ("a=b", "a=b the cat yes")):
            self.assertEqual(self.answer(prompt) + "\n", self.succeed(*words, "--template-arg", "mood=" + value), value)
        chatted = self.succeed(*on_device("chat", self.folder, *LENGTH, "--template-arg", "mood=sad", "--template-arg", "n=1"),
                               stdin=b"the cat\n")
        self.assertEqual(self.answer("sad the cat yes") + "\n", chatted)

    def test_a_request_has_the_last_word(self):
        self.write("chat_template.jinja", EVERY_MOOD)
        ask = {"messages": [{"role": "user", "content": "the cat"}], "max_tokens": 12, "temperature": 0}
        lines = json.dumps({**ask, "id": 1}) + "\n" + json.dumps({**ask, "id": 2, "chat_template_kwargs": {"mood": "sad"}})
        told = self.succeed(*on_device("run", self.folder, "--template-arg", "mood=glad"), stdin=lines.encode())
        texts = {result["id"]: result["text"] for result in map(json.loads, told.splitlines())}
        self.assertEqual({1: self.answer("glad the cat yes"), 2: self.answer("sad the cat yes")}, texts)

    def test_what_is_none_is_told_before_anything_is_loaded(self):
        self.write("chat_template.jinja", EVERY_MOOD)
        for command in ("generate", "chat", "run", "serve"):
            more = ("--prompt", "a", "--chat") if command == "generate" else ()
            for args, named in ((["mood"], "NAME=VALUE"), (["=a"], "NAME=VALUE"), (["messages=[]"], "messages"),
                                (["a=1", "a=2"], "twice")):
                flags = [word for arg in args for word in ("--template-arg", arg)]
                self.assert_refused(USAGE, ["--template-arg", named], *on_device(command, self.folder, *more, *flags))
        self.assert_refused(USAGE, ["--template-arg", "--chat"],
                            *on_device("generate", self.folder, "--prompt", "a", "--template-arg", "a=1"))
        for option in ("--tool-call-parser", "--reasoning-parser"):
            self.assert_refused(USAGE, [option], *on_device("run", self.folder, option, "other"))


class Parts(ChatTest):
    def results(self, requests, *words, exit_code=0):
        """{id: result}, with the lines of streams under "deltas"."""
        done = run(*on_device("run", self.folder, *words), stdin="\n".join(map(json.dumps, requests)).encode())
        self.assertEqual(exit_code, done.returncode, done.stderr)
        found, deltas = {}, {}
        for line in map(json.loads, done.stdout.splitlines()):
            if "finish_reason" in line:
                found[line["id"]] = {**line, "deltas": deltas.get(line["id"], [])}
            else:
                deltas.setdefault(line["id"], []).append(line)
        return found

    def test_a_call_of_a_tool_is_told_as_structure(self):
        self.write("chat_template.jinja", "{{ bos_token }}{{ messages[0].content }}"
                   "{% if tools %}<tool_call>{{ tools[0].function.name }}{% endif %}")
        ask = {"messages": USER, "tools": [WEATHER], "max_tokens": 64, "temperature": 0, "tool_choice": "required",
               "parallel_tool_calls": False}
        named = {"type": "function", "function": {"name": "weather"}}
        results = self.results([{**ask, "id": "whole"}, {**ask, "id": "stream", "stream": True},
                                {**ask, "id": "named", "tool_choice": named}, {**ask, "id": "none", "tool_choice": "none"}])
        for name, reason in (("whole", "tool_calls"), ("stream", "tool_calls"), ("named", "stop")):
            call, = results[name]["tool_calls"]
            self.assertEqual((reason, "", "function", "weather"),
                             (results[name]["finish_reason"], results[name]["text"], call["type"], call["function"]["name"]))
            self.assertIn(json.loads(call["function"]["arguments"])["city"], ("Rome", "Oslo"))
            self.assertRegex(call["id"], "^call_[0-9a-f]+$")
        streamed = results["stream"]["deltas"]
        self.assertEqual("", "".join(line["delta"] for line in streamed))
        self.assertEqual(results["whole"]["token_ids"][:-1], [id for line in streamed for id in line["token_ids"]][:len(
            results["whole"]["token_ids"]) - 1])
        self.assertNotIn("tool_calls", results["none"])
        self.assertEqual("length", results["none"]["finish_reason"])
        forced = self.results([{**ask, "id": "list"}], "--tool-call-parser", "mistral")["list"]
        self.assertEqual("weather", forced["tool_calls"][0]["function"]["name"])

    def test_what_a_request_says_wrong_about_tools_is_named(self):
        self.write("chat_template.jinja", "{{ bos_token }}{{ messages[0].content }}"
                   "{% if tools %}<tool_call>{{ tools[0].function.name }}{% endif %}")
        ask = {"messages": USER, "tools": [WEATHER], "max_tokens": 4}
        wrong = {"tool_choice": {**ask, "tool_choice": "sometimes"}, "tools": {**ask, "tools": [{"type": "search"}]},
                 "parallel_tool_calls": {**ask, "parallel_tool_calls": 1}, "tool_choice, which needs": {
                     "prompt": "a", "tool_choice": "none"}, "another field": {**ask, "tool_choice": "required", "regex": "a"}}
        results = self.results([{**request, "id": name} for name, request in wrong.items()], exit_code=1)
        for name, result in results.items():
            self.assertEqual("refused", result["finish_reason"])
            self.assertIn(name, result["message"])
        # As before there were parsers: a template that knows no form of calls gets the tools, and the text stays text.
        self.write("chat_template.jinja", "{{ bos_token }}{{ messages[0].content }}{{ tools | length }}")
        self.assertEqual("length", self.results([{**ask, "id": 1}])[1]["finish_reason"])

    def test_an_earlier_call_is_given_to_the_template_as_json(self):
        self.write("chat_template.jinja", "{{ bos_token }}{% for m in messages %}{% for c in m.tool_calls or [] %}"
                   "{{ c.function.arguments.city }}{% endfor %}{{ m.content or '' }}{% endfor %}")
        call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}}
        messages = USER + [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "content": " was hot."}]
        ask = {"messages": messages, "max_tokens": 12, "temperature": 0}
        self.assertEqual(self.answer("Once upon a timeRome was hot."), self.results([{**ask, "id": 1}])[1]["text"])
        call["function"]["arguments"] = "[1"
        self.assertEqual("length", self.results([{**ask, "id": 1}])[1]["finish_reason"])  # an old turn ends no conversation

    def test_thoughts_are_told_apart(self):
        self.write("chat_template.jinja", "{{ bos_token }}{{ messages[0].content }}")
        ask = {"messages": USER, "max_tokens": 12, "temperature": 0}
        requests = [{**ask, "id": "whole"}, {**ask, "id": "stream", "stream": True}, {**ask, "id": "stop", "stop": "no such text"}]
        plain = self.results(requests)
        thought = self.results(requests, "--reasoning-parser", "deepseek_r1")  # there is no </think>: all is thought
        for name in ("whole", "stream", "stop"):
            self.assertEqual((plain[name]["text"].strip(), "", plain[name]["token_ids"]),
                             (thought[name]["reasoning_content"].strip(), thought[name]["text"], thought[name]["token_ids"]))
            self.assertNotIn("reasoning_content", plain[name])
        self.assertEqual(thought["stream"]["reasoning_content"],
                         "".join(line.get("reasoning_delta", "") for line in thought["stream"]["deltas"]))
        qwen = self.results(requests, "--reasoning-parser", "qwen3")
        self.assertEqual(plain["whole"]["text"], qwen["whole"]["text"])
        self.write("chat_template.jinja", "{{ bos_token }}{{ messages[0].content }}<think>\n")
        self.assertEqual("", self.results([ask], "--reasoning-parser", "qwen3")[1]["text"])


if __name__ == "__main__":
    print("nodewright: %s on %s" % (PROGRAM, DEVICE), file=sys.stderr)
    unittest.main()
