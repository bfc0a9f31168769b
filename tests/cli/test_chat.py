# Conversations as a black box: generate --chat and chat, with templates put beside the demo model, whose tokenizer puts
# token 0 before a text; and tokenize --batch.
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from command import DEMO, DEVICE, PROGRAM, RUN_TIME, USAGE, CommandTest, on_device, run

LENGTH = ("--max-tokens", "12", "--greedy")
EVERY_MESSAGE = "{{ bos_token }}{% for m in messages %}{{ m.content }} {% endfor %}"


class ChatTest(CommandTest):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        for name in ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json"):
            shutil.copy(os.path.join(DEMO, name), self.folder)
        with open(os.path.join(DEMO, "tokenizer.json")) as file:
            added = json.load(file)["added_tokens"]
        self.bos = next(token["content"] for token in added if token["id"] == 0)
        self.write("tokenizer_config.json", json.dumps({"bos_token": self.bos}))

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(text)

    def answer(self, prompt):
        """What the model says after this text, BOS once before it."""
        ids = self.succeed("tokenize", "--model", self.folder, "--text", prompt, "--add-special").strip()
        continued = self.succeed(*on_device("generate", self.folder, "--prompt-ids", ids, *LENGTH)).strip()
        return self.succeed("tokenize", "--model", self.folder, "--decode", continued)[:-1]


class GenerateChat(ChatTest):
    def test_the_template_s_prompt_is_answered_and_bos_stands_once(self):
        self.write("chat_template.jinja", "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}")
        words = on_device("generate", self.folder, "--prompt", "Once upon a time", "--chat", *LENGTH)
        self.assertEqual(self.answer("[user] Once upon a time\n") + "\n", self.succeed(*words))
        self.assertEqual(self.answer("[system] Be kind.\n[user] Once upon a time\n") + "\n",
                         self.succeed(*words, "--system", "Be kind."))

    def test_special_tokens_in_the_message_are_text(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        words = on_device("generate", self.folder, "--prompt", "a " + self.bos + " b", "--chat", *LENGTH)
        self.assertEqual(self.answer("a " + self.bos + " b ") + "\n", self.succeed(*words))

    def test_the_template_may_stand_in_the_tokenizer_s_config(self):
        self.write("tokenizer_config.json", json.dumps({"bos_token": self.bos, "chat_template": EVERY_MESSAGE}))
        words = on_device("generate", self.folder, "--prompt", "Once upon a time", "--chat", *LENGTH)
        self.assertEqual(self.answer("Once upon a time ") + "\n", self.succeed(*words))

    def test_what_is_wrong_is_named(self):
        words = on_device("generate", self.folder, "--prompt", "a", "--chat")
        self.assert_refused(RUN_TIME, ["tokenizer_config.json", "chat_template"], *words)
        self.assert_refused(RUN_TIME, ["chat_template"], *on_device("chat", self.folder))
        for template, named in (("{% include 'x' %}", "{% include %}"), ("{{ 1 | pprint }}", "'pprint'"),
                                ("{{ raise_exception('no ' + messages[0].content) }}", "no a"),
                                ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "too deep"), ("{{", "has no end")):
            self.write("chat_template.jinja", template)
            self.assert_refused(RUN_TIME, ["chat_template.jinja", "line 1", named], *words)
        self.assert_refused(USAGE, ["--system"], *on_device("generate", self.folder, "--prompt", "a", "--system", "b"))
        self.assert_refused(USAGE, ["--chat"], *on_device("generate", self.folder, "--prompt-ids", "1", "--chat"))
        self.assert_refused(USAGE, ["--max-tokens"], *on_device("chat", self.folder, "--max-tokens", "0"))
        self.assert_refused(USAGE, ["--temperature"], *on_device("chat", self.folder, "--temperature", "-1"))


class Chat(ChatTest):
    def chat(self, text, *words):
        return self.succeed(*on_device("chat", self.folder, *LENGTH, *words), stdin=text.encode())

    def test_each_answer_knows_what_was_said_before(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        first = self.answer("Be kind. Once upon a time ")
        second = self.answer("Be kind. Once upon a time " + first + " The cat ")
        found = self.chat("Once upon a time\n \nThe cat\n/exit\nnot read\n", "--system", "Be kind.")
        self.assertEqual(first + "\n" + second + "\n", found)

    def test_a_template_that_writes_the_past_in_another_way_is_followed(self):
        self.write("chat_template.jinja", "{{ bos_token }}{{ messages | length }} {{ messages[-1].content }}")
        self.assertEqual("".join(self.answer(text) + "\n" for text in ("1 The dog", "3 The cat", "5 The dog")),
                         self.chat("The dog\nThe cat\r\nThe dog"))

    def test_it_ends_with_the_input(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        self.assertEqual("", self.chat(""))
        self.assertEqual("", self.chat("/exit\n"))

    def test_a_conversation_that_is_too_long_is_refused_with_both_numbers(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        done = run(*on_device("chat", self.folder, "--max-context", "16"), stdin=b"the cat " * 40 + b"\n")
        self.assertEqual((USAGE, b""), (done.returncode, done.stdout))
        self.assertRegex(done.stderr.decode(), r"\Anodewright: [^\n]* tokens, 16 fit[^\n]*--max-context\n\Z")

    def interrupted(self, text, *words):
        """Standard output after Ctrl-C, which comes once the first byte of an answer is there."""
        with subprocess.Popen([PROGRAM, *on_device("chat", self.folder, "--greedy", *words)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdin.write(text)
            process.stdin.flush()
            found = process.stdout.read(1)
            time.sleep(0.5)  # in the middle of a long answer, or waiting for the next line
            process.send_signal(signal.SIGINT)
            found += process.stdout.read()
            self.assertEqual((0, b""), (process.wait(timeout=60), process.stderr.read()))
        return found

    def test_ctrl_c_ends_it_while_it_waits_for_a_line(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        self.assertEqual(self.answer("The dog ") + "\n", self.interrupted(b"The dog\n", "--max-tokens", "12").decode())

    def test_ctrl_c_ends_it_in_the_middle_of_an_answer(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        self.assertTrue(self.interrupted(b"Once upon a time\n" * 50, "--max-tokens", "100000").endswith(b"\n"))


class Batch(CommandTest):
    def batch(self, lines, *words):
        found = self.succeed("tokenize", "--model", DEMO, "--batch", *words, stdin="\n".join(lines).encode())
        return [json.loads(line) for line in found.splitlines()]

    def test_lines_are_answered_one_by_one(self):
        ids = [int(i) for i in self.succeed("tokenize", "--model", DEMO, "--text", "The dög", "--add-special").split(",")]
        self.assertEqual([{"ids": ids}, {"ids": ids[:1]}],
                         self.batch([json.dumps({"text": "The dög"}), '{"text": ""}'], "--add-special"))
        self.assertEqual([{"text": "The dög"}, {"text": ""}], self.batch([json.dumps({"ids": ids}), '{"ids": []}'],
                                                                        "--skip-special"))
        self.assertEqual([], self.batch([]))

    def test_a_line_that_is_no_question_is_named(self):
        for line, named in ((b"x", "line 1"), (b"{}", "text"), (b'{"text": 1}', "line 1"), (b'{"ids": "a"}', "line 1"),
                            (b'{"ids": [99999999]}', "99999999"), (b'{"text": "a", "x": 1}', "text"),
                            (b'{"text": "\xff"}', "line 1"), (b"[]", "text")):
            self.assert_refused(RUN_TIME, [named], "tokenize", "--model", DEMO, "--batch", stdin=line + b"\n")


if __name__ == "__main__":
    print("nodewright: %s on %s" % (PROGRAM, DEVICE), file=sys.stderr)
    unittest.main()
