# Conversations as a black box: generate --chat and chat, with templates put beside the demo model, whose tokenizer puts
# token 0 before a text; and tokenize --batch.
import fcntl
import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
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


    def test_a_text_that_an_instruct_model_would_answer_is_continued_with_a_word_of_it(self):
        words = on_device("generate", self.folder, "--prompt", "The dog", *LENGTH)
        told = b"nodewright: the prompt is continued as raw text; --chat answers it by the model's chat template\n"
        for template, expected in ((None, b""), (EVERY_MESSAGE, b""), ("{{", b""),
                                   ("<user>{{ messages[0].content }}</user>", told)):
            if template is not None:
                self.write("chat_template.jinja", template)
            done = run(*words)
            self.assertEqual((0, expected), (done.returncode, done.stderr))
        self.assertEqual(b"", run(*words, "--chat").stderr)


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

    def test_the_demo_tells_its_stories_on_from_the_tokens_of_the_turn_before(self):
        done = run(*on_device("chat", DEMO, "--max-tokens", "80", "--greedy", "--stats"),
                   stdin=b"Once upon a time\nThen she\n")
        self.assertTrue(done.stdout.startswith(b", "), done.stdout)  # no blank before it, which the next prompt would have
        found = re.findall(r"(?m)^prompt +(\d+) tokens, (\d+) found in the cache", done.stderr.decode())
        self.assertEqual("64", found[1][1], done.stderr)  # a page of the first prompt and its answer

    def test_commands_are_obeyed_and_words_with_a_slash_are_not(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        done = run(*on_device("chat", self.folder, *LENGTH), stdin=b"/stats\nThe dog\n/reset\n/help\n/stats\n/nonsense\nThe dog\n"
                                                                   b"/tmp/x is\n/exit\nnot read\n")
        self.assertEqual(1, done.returncode)  # for /nonsense
        answers = done.stdout.decode().split("\n")
        self.assertEqual([self.answer("The dog ")] * 2, answers[:2])
        self.assertEqual(self.answer("The dog " + answers[1] + " /tmp/x is "), answers[2])
        self.assertEqual([""], answers[3:])
        for told in (r"no answer yet", r"/help +these lines", r"all +1 answer of 12 tokens", r"cannot use /nonsense: there is no such command[^\n]*//nonsense"):
            self.assertRegex(done.stderr.decode(), told)

    def test_no_line_that_begins_with_a_slash_and_a_word_reaches_the_model(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        for line, named in (("/stats now", "/stats: it takes no words, and 'now'"), ("/clear all", "'all'"), ("/EXIT now", "/exit: it takes"),
                            ("/help me", "'me'"), ("/unknown", "/help"), ("/unknown words after it", "there is no such command"),
                            ("/Stat", "/stats"), ("/systems Be kind.", "/system"), ("/set-temperature 1", "no such command"), ("/", "/help")):
            done = run(*on_device("chat", self.folder, *LENGTH), stdin=line.encode() + b"\n")
            self.assertEqual((1, b""), (done.returncode, done.stdout), line)
            self.assertRegex(done.stderr.decode(), r"\Anodewright: cannot use /[^\n]+\n\Z")
            self.assertIn(named, done.stderr.decode())
            self.assertIn("/%s to send it" % line.split()[0].lower(), done.stderr.decode())
        self.assertEqual("", self.chat("/EXIT\nThe dog\n"))
        self.assertEqual(self.answer("Be kind. The dog ") + "\n", self.chat("/SYSTEM Be kind.\nThe dog\n"))
        self.assertEqual(self.answer("Be\nkind. The dog ") + "\n", self.chat("/system Be\\\nkind.\nThe dog\n"))

    def test_a_text_may_begin_with_a_slash(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        for typed, sent in (("//stats", "/stats"), (" /stats now", " /stats now"), ("//tmp/x is", "//tmp/x is"), ("// a dog", "// a dog"),
                            ("/ a dog", "/ a dog"), ('"""\n/stats\n"""', "/stats"), ("/tmp/x is", "/tmp/x is"), ("//", "/")):
            self.assertEqual(self.answer(sent + " ") + "\n", self.chat(typed + "\n"), typed)

    def test_a_conversation_is_saved_and_goes_on_where_it_was_loaded(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        saved = os.path.join(self.folder, "talk.json")
        whole = self.chat("The dog\nThe cat\n", "--system", "Be kind.")
        first = run(*on_device("chat", self.folder, *LENGTH, "--system", "Be kind."), stdin=b"The dog\n/save %s\n" % saved.encode())
        self.assertEqual((0, b"saved 1 turn in %s\n" % saved.encode()), (first.returncode, first.stderr))
        with open(saved) as file:
            messages = json.load(file)["messages"]
        self.assertEqual(["system", "user", "assistant"], [one["role"] for one in messages])
        second = run(*on_device("chat", self.folder, *LENGTH), stdin=b"/load %s\nThe cat\n/save %s\n" % ((saved.encode(),) * 2))
        self.assertEqual((0, whole), (second.returncode, (first.stdout + second.stdout).decode()))

    def test_a_file_that_holds_no_conversation_is_neither_loaded_nor_written_over(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        user, answer = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
        texts = (("notes", "parse error"), ("{}", "no list of messages"), (json.dumps({"messages": [user]}), "no answer"),
                            (json.dumps({"messages": [answer, user]}), "message 1"), (json.dumps({"messages": [user, user]}), "message 2"),
                            (json.dumps({"messages": [{"role": "user"}]}), "message 1 has no content"),
                            (json.dumps({"messages": [{"role": "user", "content": ["a"]}, answer]}), "message 1"))
        for i, (text, _) in enumerate(texts):
            self.write("notes%d" % i, text)
        names = [os.path.join(self.folder, "notes%d" % i) for i in range(len(texts))]
        done = run(*on_device("chat", self.folder, *LENGTH), stdin="".join("/load %s\n/save %s\n" % (name, name) for name in names).encode())
        lines = done.stderr.decode().splitlines()
        self.assertEqual((1, 2 * len(texts)), (done.returncode, len(lines)), lines)
        for i, (text, named) in enumerate(texts):
            self.assertRegex(lines[2 * i], r"\Anodewright: cannot load [^\n]*%s" % named)
            self.assertRegex(lines[2 * i + 1], r"\Anodewright: cannot save [^\n]*notes%d" % i)
            with open(names[i]) as file:
                self.assertEqual(text, file.read())

    def test_the_system_s_message_and_settings_change_between_answers(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        done = run(*on_device("chat", self.folder, *LENGTH), stdin=b"/system Be kind.\nThe dog\n/clear\n/set max_tokens 3\nThe dog\n"
                   b'/system ""\n/set --max-tokens default\n/clear\nThe dog\n/set\n/bye\n')
        answers = done.stdout.decode().split("\n")
        kind = self.answer("Be kind. The dog ")
        self.assertEqual((0, [kind, self.answer("The dog "), ""]), (done.returncode, [answers[0], *answers[2:]]))
        self.assertTrue(answers[1] and kind.startswith(answers[1]) and len(answers[1]) < len(kind), answers)
        self.assertRegex(done.stderr.decode(), r"(?m)^temperature +0$")
        self.assertRegex(done.stderr.decode(), r"(?m)^max_tokens +12$")

    def test_settings_that_cannot_be_are_named(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        all_wrong = (("temprature 1", "try: temperature"), ("temperature hot", "'hot' is not a number"), ("temperature", "no value"),
                     ("top_p 2", "top-p"), ("max_tokens 0", "less than 1"), ("top_k -1", "not a whole number"))
        done = run(*on_device("chat", self.folder, *LENGTH), stdin="".join("/set %s\n" % words for words, _ in all_wrong).encode())
        lines = done.stderr.decode().splitlines()
        self.assertEqual((1, len(all_wrong)), (done.returncode, len(lines)), lines)
        for line, (_, named) in zip(lines, all_wrong):
            self.assertRegex(line, r"\Anodewright: cannot [^\n]*%s" % named)

    def test_an_answer_is_given_again_in_place_of_the_last(self):
        self.write("chat_template.jinja", EVERY_MESSAGE)
        saved = os.path.join(self.folder, "talk.json")
        done = run(*on_device("chat", self.folder, "--max-tokens", "12", "--temperature", "1.5", "--seed", "1"),
                   stdin=b"/regenerate\nThe dog\n/regenerate\n/save %s\n" % saved.encode())
        first, second, end = done.stdout.decode().split("\n")
        self.assertEqual((1, ""), (done.returncode, end))  # there was nothing to regenerate at first
        self.assertNotEqual(first, second)
        with open(saved) as file:
            self.assertEqual(["The dog", second], [one["content"] for one in json.load(file)["messages"]])

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


class AtTerminal:
    """nodewright chat at a pseudo-terminal: what a person types, and what the screen shows."""

    def __init__(self, test, *words, columns=200, notes=False, **environment):
        self.test, self.shown, self.passed = test, b"", 0
        self.master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.process = subprocess.Popen([PROGRAM, *on_device("chat", test.folder, *words)], stdin=slave, stdout=slave,
                                        stderr=slave if notes else subprocess.PIPE, start_new_session=True, preexec_fn=self.own_terminal,
                                        env={**os.environ, "TERM": "xterm", "NO_COLOR": "1", "NODEWRIGHT_CHAT_HISTORY": "",
                                             **environment})
        os.close(slave)
        test.addCleanup(os.close, self.master)
        if not notes:
            test.addCleanup(self.process.stderr.close)
        test.addCleanup(self.process.wait)
        test.addCleanup(self.process.kill)

    @staticmethod
    def own_terminal():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C is a signal

    def until(self, text):
        """Waits for it, and returns what was shown before it since the last time."""
        while text not in self.shown[self.passed:]:
            self.test.assertTrue(select.select([self.master], [], [], 600)[0], (text, self.shown))
            self.shown += os.read(self.master, 4096)
        start, self.passed = self.passed, self.shown.index(text, self.passed) + len(text)
        return self.shown[start:self.passed - len(text)]

    def at_prompt(self, keys):
        self.until(b"> ")
        time.sleep(0.5)  # the prompt stands there a moment before the keys are the library's
        self.keys(keys)

    def keys(self, keys):
        os.write(self.master, keys)

    def ends(self):
        return self.process.wait(timeout=600)


class Terminal(ChatTest):
    """A person at a terminal: what is typed is edited by a library, and comes back."""

    def setUp(self):
        super().setUp()
        self.write("chat_template.jinja", "{{ bos_token }}{{ messages[-1].content }}")
        self.saved = os.path.join(self.folder, "talk.json")

    def at(self, *words, **more):
        return AtTerminal(self, *(words or LENGTH), **more)

    def said(self):
        with open(self.saved) as file:
            return [one["content"] for one in json.load(file)["messages"] if one["role"] == "user"]

    def save_and_leave(self, screen):
        screen.at_prompt(b"/save %s\r" % self.saved.encode())
        screen.at_prompt(b"\x04")
        self.assertEqual(0, screen.ends())
        return self.said()

    def test_lines_can_be_edited_and_come_back_and_the_first_line_says_how_to_leave(self):
        screen = self.at()
        screen.at_prompt(b"The dgo\x1b[D\x1b[D\x7f\x05\x7fg\n")  # left, left, rub out the d; to the end, g for o
        screen.until(self.answer("The gg").encode()[:8])
        screen.at_prompt(b"\x1b[A\n")  # the same again
        screen.until(self.answer("The gg").encode()[:8])
        self.assertEqual(["The gg"] * 2, self.save_and_leave(screen))
        self.assertRegex(screen.process.stderr.read().decode(), r"\A[^\n]*/help[^\n]*/exit or Ctrl-D leaves\.\n")

    def test_a_pasted_text_is_one_message_short_or_long(self):
        screen = self.at()
        long = "\n".join("line %d" % i for i in range(100))
        screen.at_prompt(b"say \x1b[200~def f():\r\treturn 1\r\r  f()\r\x1b[201~ now\r")
        screen.at_prompt(b"\x1b[200~" + long.replace("\n", "\r").encode() + b"\x1b[201~")
        screen.until(b"[pasted text 1: 100 lines]")
        screen.keys(b" end\r")
        self.assertEqual(["say def f():\n\treturn 1\n\n  f() now", long + " end"], self.save_and_leave(screen))

    def test_ctrl_c_takes_back_a_line_and_the_next_one_leaves(self):
        screen = self.at()
        screen.at_prompt(b"half a li")
        screen.until(b"half a li")
        screen.keys(b"\x03")
        screen.at_prompt(b"The dog\r")
        self.assertEqual(["The dog"], self.save_and_leave(screen))
        screen = self.at()
        screen.at_prompt(b"half")
        screen.until(b"half")
        screen.keys(b"\x03")
        screen.at_prompt(b"\x03")
        self.assertEqual(0, screen.ends())

    def test_one_ctrl_c_behind_an_answer_does_not_leave(self):
        screen = self.at()
        screen.at_prompt(b"The dog\r")
        screen.at_prompt(b"\x03")
        screen.at_prompt(b"The cat\r")
        screen.at_prompt(b"\x03")
        self.assertEqual(["The dog", "The cat"], self.save_and_leave(screen))

    def test_letters_beyond_ascii_are_whole_without_a_locale(self):
        screen = self.at(*LENGTH, LC_ALL="C", LANG="")
        screen.at_prompt("café 日本x".encode() + b"\x7f\x7f\r")
        self.assertEqual(["café 日"], self.save_and_leave(screen))

    def test_what_was_typed_comes_back_in_the_next_session_and_nobody_else_may_read_it(self):
        history = os.path.join(self.folder, "state", "typed")
        screen = self.at(*LENGTH, NODEWRIGHT_CHAT_HISTORY=history)
        screen.at_prompt(b"The dog\x1b\rran\r")
        screen.at_prompt(b"\x04")
        self.assertEqual((0, 0o600, 0o700), (screen.ends(), os.stat(history).st_mode & 0o777,
                                            os.stat(os.path.dirname(history)).st_mode & 0o777))
        screen = self.at(*LENGTH, NODEWRIGHT_CHAT_HISTORY=history)
        screen.at_prompt(b"\x1b[A fast\r")
        self.assertEqual(["The dog\nran fast"], self.save_and_leave(screen))

    def test_the_file_of_what_was_typed_is_bounded(self):
        history = os.path.join(self.folder, "typed")
        with open(history, "w") as file:
            file.write("".join(json.dumps("line %d" % i) + "\n" for i in range(5000)) + "no JSON\n")
        screen = self.at(*LENGTH, NODEWRIGHT_CHAT_HISTORY=history)
        screen.at_prompt(b"\x1b[A\r")
        self.assertEqual(["line 4999"], self.save_and_leave(screen))
        with open(history) as file:
            lines = file.read().splitlines()
        self.assertEqual((1001, 0o600), (len(lines), os.stat(history).st_mode & 0o777))  # /save is the newest

    def test_tab_completes_commands_settings_and_files(self):
        screen = self.at()
        screen.at_prompt(b"/sy\t")
        screen.until(b"stem ")
        screen.keys(b"Be kind.\r")
        screen.at_prompt(b"/set max_t\t5\r")
        screen.at_prompt(b"The dog\r")
        with open(self.saved, "w") as file:
            file.write('{"messages": []}')
        screen.at_prompt(b"/save %s/talk.j\t\r" % self.folder.encode())
        screen.at_prompt(b"\x04")
        self.assertEqual((0, ["The dog"]), (screen.ends(), self.said()))
        with open(self.saved) as file:
            self.assertEqual({"role": "system", "content": "Be kind."}, json.load(file)["messages"][0])

    def test_keys_during_an_answer_do_not_show_in_it_and_are_the_next_line(self):
        screen = self.at("--greedy", "--max-tokens", "200", "--logit-bias", "1=-100")
        screen.at_prompt(b"The dog\r")
        screen.until(b"The dog\r\n")
        screen.until(b" ")  # the answer has begun
        screen.keys(b"ZQZQ\x1b[A\x1b[B")
        self.assertNotIn(b"ZQZQ", screen.until(b"> "))
        screen.until(b"ZQZQ")
        screen.keys(b"\x15The cat\r")
        self.assertEqual(["The dog", "The cat"], self.save_and_leave(screen))

    def stop_and_go_on(self, screen):
        """As Ctrl-Z and fg: a shell reads lines from the terminal in between."""
        for name, wanted in (("SIGSTOP", "T"), ("SIGCONT", "")):
            screen.process.send_signal(getattr(signal, name))
            while wanted:
                with open("/proc/%d/stat" % screen.process.pid) as file:
                    if file.read().rpartition(")")[2].split()[0] == wanted:
                        break
                time.sleep(0.01)
            if wanted:
                modes = termios.tcgetattr(screen.master)
                modes[3] |= termios.ICANON | termios.ECHO
                termios.tcsetattr(screen.master, termios.TCSANOW, modes)
        time.sleep(0.5)

    def test_a_line_goes_on_where_the_program_was_stopped(self):
        screen = self.at()
        screen.at_prompt(b"half a line")
        screen.until(b"half a line")
        self.stop_and_go_on(screen)
        screen.keys(b"\x15The cat\x7f\x7fr\r")
        self.assertEqual(["The cr"], self.save_and_leave(screen))

    def test_keys_stay_quiet_in_an_answer_that_was_stopped(self):
        screen = self.at("--greedy", "--max-tokens", "900", "--logit-bias", "1=-100")
        screen.at_prompt(b"The dog\r")
        screen.until(b"The dog\r\n")
        screen.until(b" ")  # the answer has begun
        self.stop_and_go_on(screen)
        screen.keys(b"ZQZQ")
        time.sleep(0.5)
        while select.select([screen.master], [], [], 0)[0]:
            screen.shown += os.read(screen.master, 4096)
        self.assertNotIn(b"ZQZQ", screen.shown)
        screen.keys(b"\x03")
        screen.until(b"> ")
        time.sleep(0.5)
        screen.keys(b"\x15\x04")
        self.assertEqual(0, screen.ends())

    def test_no_word_of_an_answer_is_broken_at_the_edge(self):
        words = ("--greedy", "--max-tokens", "150", "--logit-bias", "1=-100")
        answer = self.succeed(*on_device("chat", self.folder, *words), stdin=b"The dog\n")
        self.assertGreater(len(answer), 400)
        for columns in (40, 23):
            screen = self.at(*words, columns=columns)
            screen.at_prompt(b"The dog\r")
            screen.until(b"The dog\r\n")
            lines = screen_of(screen.until(b"> ").decode(), columns)
            self.assertEqual(answer.split(), [word for line in lines for word in line.split()])
            self.assertGreater(len(lines), len(answer) // columns)
            self.assertEqual([], [line for line in lines[1:] if line.startswith(" ")])
            time.sleep(0.5)
            screen.keys(b"\x04")
            self.assertEqual(0, screen.ends())
        screen = self.at(*words, columns=40, TERM="dumb")
        screen.at_prompt(b"The dog\r")
        screen.until(b"The dog\r\n")
        self.assertNotIn(b"\x1b", screen.until(b"> "))

    def test_no_word_of_a_note_is_broken_at_the_edge(self):
        help_text = run(*on_device("chat", self.folder), stdin=b"/help\n").stderr.decode()
        screen = self.at(columns=40, notes=True)
        screen.at_prompt(b"/help\r")
        screen.until(b"/help\r\n")
        lines = screen_of(screen.until(b"\r\n> ").decode(), 40)
        self.assertEqual(help_text.split(), [word for line in lines for word in line.split()])
        screen.keys(b"/exit\r")
        self.assertEqual(0, screen.ends())

    def test_the_prompt_has_a_color_of_its_own_unless_nobody_wants_it(self):
        for color, environment in ((True, {"NO_COLOR": ""}), (False, {}), (False, {"NO_COLOR": "", "TERM": "dumb"})):
            screen = self.at(**environment)
            screen.until(b">")
            time.sleep(0.5)  # until the keys are the library's
            self.assertEqual(color, b"\x1b[1;32m>" in screen.shown, screen.shown)
            screen.keys(b"\x04")
            self.assertEqual(0, screen.ends())

    def test_a_message_that_is_interrupted_before_its_answer_counts_as_not_said(self):
        screen = self.at("--greedy", "--max-tokens", "100000", "--logit-bias", "0=100", "--logit-bias", "1=-100")  # no text
        screen.at_prompt(b"The cat\r")
        screen.until(b"The cat\r\n")
        screen.keys(b"\x03")
        self.assertEqual([], self.save_and_leave(screen))
        self.assertIn(b"counts as not said", screen.process.stderr.read())

    def test_what_was_set_is_confirmed_and_listed_with_whose_it_is(self):
        self.write("generation_config.json", json.dumps({"do_sample": True, "temperature": 0.5, "eos_token_id": 1}))
        screen = self.at("--max-tokens", "12")
        for line in (b"/system Be kind.\r", b"/set top_k 40\r", b"/set\r", b"/clear\r"):
            screen.at_prompt(line)
        screen.at_prompt(b"\x04")
        self.assertEqual(0, screen.ends())
        told = screen.process.stderr.read().decode()
        for line in (r"temperature +0\.5 \(the checkpoint's\)", r"top_p +1 \(usual\)", r"top_k +40", "the conversation begins anew"):
            self.assertRegex(told, "(?m)^%s$" % line)
        self.assertEqual(2, told.count("set, for the answers from now on"))


def screen_of(shown, columns):
    """The lines that a terminal of so many columns shows."""
    lines, column = [[]], 0
    for code, text in re.findall(r"\x1b\[(\d*[A-Za-z])|([^\x1b])", shown.replace("\r\r\n", "\r\n")):
        if code == "K":
            del lines[-1][column:]
        elif code:
            column = min(column + int(code[:-1]), columns - 1)
        elif text == "\r":
            column = 0
        elif text == "\n":
            lines.append([" "] * column)
        else:
            if column == columns:
                lines.append([])
                column = 0
            lines[-1][column:column + 1] = [text]
            column += 1
    return ["".join(line).rstrip() for line in lines]


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
