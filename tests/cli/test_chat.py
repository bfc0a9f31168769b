# Conversations as a black box: generate --chat and chat, with templates put beside the demo model, whose tokenizer puts
# token 0 before a text; and tokenize --batch.
import json
import os
import re
import select
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

    def test_a_message_that_is_too_long_is_told_with_both_numbers_and_the_conversation_goes_on(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        done = run(*on_device("chat", self.folder, *LENGTH, "--max-context", "32"),
                   stdin=b"The dog\n/reset\n" + b"the cat " * 40 + b"\nThe dog\n")
        self.assertEqual((1, self.answer("The dog ") + "\n" + self.answer("The dog ") + "\n"),
                         (done.returncode, done.stdout.decode()))
        self.assertRegex(done.stderr.decode(), r"\Anodewright: [^\n]* tokens, 32 fit[^\n]*--max-context\n\Z")

    def test_a_full_context_leaves_the_oldest_turns_out_and_says_which(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        words = on_device("chat", self.folder, *LENGTH, "--max-context", "48", "--system", "Be kind.")
        lines = ["Once upon a time", "The cat sat", "The dog ran", "The bird sang"]
        done = run(*words, stdin="\n".join(lines).encode())
        left_out = re.findall(r'nodewright: the context of 48 tokens is full: the oldest (turn is|\d turns are) left out, '
                              r'from "([^"]*)" on', done.stderr.decode())
        self.assertEqual((0, len(done.stderr.splitlines())), (done.returncode, len(left_out)))
        self.assertEqual(lines[0], left_out[0][1])
        # The last answer is that to a conversation that begins with the first turn that was not left out.
        first = sum(1 if count == "turn is" else int(count[0]) for count, _ in left_out)
        answers = done.stdout.decode().split("\n")
        told = " ".join(["Be kind."] + [part for turn in range(first, 3) for part in (lines[turn], answers[turn])] + lines[3:])
        self.assertEqual(self.answer(told + " "), answers[3])

    def test_a_turn_computes_what_is_new_and_finds_the_rest_in_the_cache(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        done = run(*on_device("chat", self.folder, *LENGTH, "--stats"), stdin=b"once upon a time " * 40 + b"\nThe cat\n")
        turns = [tuple(map(int, turn)) for turn in re.findall(
            r"(?m)^prompt +(\d+) tokens, (\d+) found in the cache and (\d+) computed$", done.stderr.decode())]
        self.assertEqual(2, len(turns))
        self.assertEqual((0, turns[0][0]), turns[0][1:])
        # Whole pages of 64 tokens of the first prompt and its answer.
        self.assertGreater(turns[1][1], turns[0][0] + 12 - 64 - 1)
        self.assertLess(turns[1][2], 64 + 24)
        self.assertEqual(2, len(re.findall(r"(?m)^first +token after [\d.]+ ms", done.stderr.decode())))
        self.assertEqual(2, len(re.findall(r"(?m)^decode +11 tokens, [\d.]+ tokens/s", done.stderr.decode())))
        without = run(*on_device("chat", self.folder, *LENGTH, "--stats", "--no-prefix-cache"),
                      stdin=b"once upon a time " * 40 + b"\nThe cat\n")
        self.assertEqual(done.stdout, without.stdout)
        self.assertEqual(2, without.stderr.count(b" 0 found in the cache"))

    def test_commands_are_obeyed_and_words_with_a_slash_are_not(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        done = run(*on_device("chat", self.folder, *LENGTH), stdin=b"/stats\nThe dog\n/reset\n/help\n/stats\n/nonsense\nThe dog\n"
                                                                   b"/tmp/x is\n/exit\nnot read\n")
        self.assertEqual(0, done.returncode)
        answers = done.stdout.decode().split("\n")
        self.assertEqual([self.answer("The dog ")] * 2, answers[:2])
        self.assertEqual(self.answer("The dog " + answers[1] + " /tmp/x is "), answers[2])
        self.assertEqual([""], answers[3:])
        for told in (r"no answer yet", r"/help +these lines", r"all +1 answers of 12 tokens", r"there is no command /nonsense"):
            self.assertRegex(done.stderr.decode(), told)

    def test_a_message_may_have_several_lines(self):
        self.write("chat_template.jinja", "{{ bos_token }}{{ messages[-1].content }}")
        self.assertEqual(self.answer("The dog\n ran and") + "\n" + self.answer("The\ncat") + "\n",
                         self.chat('"""\nThe dog\n ran and\n"""\nThe\\\ncat\n'))

    def test_the_options_of_the_choice_hold_for_every_answer(self):
        self.write("chat_template.jinja", "{{ bos_token }}{{ messages[-1].content }}")
        text = self.answer("The dog")
        stop = text.split()[3]
        self.assertEqual((text[:text.index(stop)] + "\n") * 2, self.chat("The dog\nThe dog\n", "--stop", stop))
        self.assertEqual("yes\nyes\n", self.chat("The dog\nThe cat\n", "--regex", "yes"))

    def answering(self, text, *words):
        """The process, once the first byte of an answer is there, and that byte."""
        process = subprocess.Popen([PROGRAM, *on_device("chat", self.folder, "--greedy", *words)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write(text)
        process.stdin.flush()
        return process, process.stdout.read(1)

    def test_ctrl_c_ends_it_while_it_waits_for_a_line(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        process, found = self.answering(b"The dog\n", "--max-tokens", "12")
        with process:
            found += process.stdout.readline()
            time.sleep(0.5)  # it waits for the next line
            process.send_signal(signal.SIGINT)
            found += process.stdout.read()
            self.assertEqual((0, b""), (process.wait(timeout=600), process.stderr.read()))
        self.assertEqual(self.answer("The dog ") + "\n", found.decode())

    def test_ctrl_c_ends_an_answer_and_the_conversation_goes_on(self):
        self.write("chat_template.jinja", "{{ bos_token }}{{ messages[-1].content }}")
        process, found = self.answering(b"Once upon a time\n", "--max-tokens", "100000", "--logit-bias", "1=-100", "--stats")
        with process:
            process.send_signal(signal.SIGINT)
            found += process.stdout.readline()
            process.stdin.write(b"The dog\n")
            process.stdin.flush()
            found += process.stdout.read(1)
            process.send_signal(signal.SIGTERM)
            found += process.stdout.read()
            self.assertEqual(128 + signal.SIGTERM, process.wait(timeout=600))
            self.assertEqual(2, process.stderr.read().count(b"cancelled: interrupted"))
        self.assertEqual(2, found.count(b"\n"))


class Demo(CommandTest):
    def test_the_demo_tells_a_story_in_turns(self):
        words = on_device("chat", DEMO, *LENGTH)
        first, second = self.succeed(*words, stdin=b"Once upon a time\nThe cat was\n").splitlines()
        told = "Once upon a time " + first.strip() + " The cat was"
        self.assertEqual(told + second, self.succeed(*on_device("generate", DEMO, "--prompt", told, *LENGTH))[:-1])


class Terminal(ChatTest):
    """A person at a terminal: what is typed is edited by a library, and comes back."""

    def setUp(self):
        super().setUp()
        self.write("chat_template.jinja", "{{ bos_token }}{{ messages[-1].content }}")

    def test_lines_can_be_edited_and_come_back_and_the_first_line_says_how_to_leave(self):
        master, slave = os.openpty()
        process = subprocess.Popen([PROGRAM, *on_device("chat", self.folder, *LENGTH)], stdin=slave, stdout=slave,
                                   stderr=subprocess.PIPE, env={**os.environ, "TERM": "xterm"}, start_new_session=True)
        os.close(slave)
        self.addCleanup(process.kill)
        shown, passed = b"", 0

        def until(text):
            nonlocal shown, passed
            while text not in shown[passed:]:
                self.assertTrue(select.select([master], [], [], 20)[0], (text, shown))
                shown += os.read(master, 4096)
            passed = shown.index(text, passed) + len(text)

        def type_at_prompt(keys):
            until(b"> ")
            time.sleep(0.5)  # the prompt stands there a moment before the keys are the library's
            os.write(master, keys)

        with process:
            type_at_prompt(b"The dgo\x1b[D\x1b[D\x7f\x05\x7fg\n")  # left, left, rub out the d; to the end, g for o
            until(self.answer("The gg").encode()[:8])
            type_at_prompt(b"\x1b[A\n")  # the same again
            until(self.answer("The gg").encode()[:8])
            type_at_prompt(b"\x04")
            self.assertEqual(0, process.wait(timeout=600))
            self.assertRegex(process.stderr.read().decode(), r"\A[^\n]*/help[^\n]*/exit or Ctrl-D leaves\.\n")
        os.close(master)


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
