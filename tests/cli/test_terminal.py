# What a model, a checkpoint, a path or a template says drives no terminal: no control byte but newline and tab reaches one,
# nor a line on stderr; a pipe gets a model's text byte by byte.
import fcntl
import json
import os
import pty
import re
import struct
import termios
import shutil
import subprocess
import tempfile
import unittest

from command import DEMO, PROGRAM, CommandTest, on_device, run

EVIL = "\x1b]0;owned\x07\x9b2J\u202e\x7f"


def on_terminal(*words, columns=0):
    """What a terminal gets on stdout and stderr, where line breaks arrive as the terminal's own."""
    own, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = bytearray()
    while True:
        try:
            part = os.read(own, 65536)
        except OSError:  # it has ended
            break
        if not part:
            break
        shown += part
    os.close(own)
    return process.wait(), bytes(shown)


class Terminal(CommandTest):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = os.path.join(holder.name, "model")
        shutil.copytree(DEMO, self.folder)

    def change(self, name, change):
        path = os.path.join(self.folder, name)
        with open(path) as file:
            content = json.load(file)
        change(content)
        with open(path, "w") as file:
            json.dump(content, file)

    def speak_evil(self):
        """Each word of the vocabulary ends in what drives a terminal."""
        def spell(content):
            model = content["model"]
            added = {one["content"] for one in content["added_tokens"]}
            letters = {chr(c) for c in range(256)}
            evil = "".join({"\x1b": "\u011b", "\x07": "\u0107", "\x7f": "\u0121"}.get(c, c) for c in "\x1b]0;owned\x07\x7f")
            model["vocab"] = {token if token in added or len(token) < 2 or token in letters else token + evil + str(id): id
                              for token, id in model["vocab"].items()}
            model["merges"] = []
        self.change("tokenizer.json", spell)

    def assert_harmless(self, shown, words=""):
        for byte in b"\x1b\x07\x7f\x00\x08":
            self.assertNotIn(bytes([byte]), shown, words)
        self.assertNotIn("\x9b".encode(), shown, words)
        self.assertNotIn("\u202e".encode(), shown, words)

    def test_a_bar_of_progress_stays_on_its_line(self):
        for columns, bar in ((0, 30), (120, 30), (60, None), (40, None), (24, None), (12, 0)):
            code, shown = on_terminal(*on_device("generate", self.folder, "--prompt", "One day", "--max-tokens", "1"), columns=columns)
            self.assertEqual(0, code, shown)
            drawn = [part.partition(b"\r")[0].partition(b"\n")[0].decode() for part in shown.split(b"\r\x1b[K")[1:]]
            bars = [line for line in drawn if line.startswith(("load", "build"))]
            self.assertTrue(bars, shown)
            self.assertLess(max(map(len, bars)), columns or 80, bars)
            widths = {len(width) for line in bars for width in re.findall(r"\[([#.]*)\]", line)}
            if bar is not None and columns != 0:
                self.assertEqual({bar} if bar else set(), widths, bars)

    def test_a_model_s_text(self):
        self.speak_evil()
        words = on_device("generate", self.folder, "-p", "Once", "-n", "6", "--greedy")
        piped = run(*words)
        self.assertEqual(0, piped.returncode, piped.stderr)
        self.assertIn(b"\x1b]0;owned\x07\x7f", piped.stdout)
        code, shown = on_terminal(*words)
        self.assertEqual(0, code, shown)
        self.assert_harmless(shown.replace(b"\r\x1b[K", b""))  # the progress bar's own
        self.assertIn(b"\\x1b]0;owned\\x07\\x7f", shown)
        ids = on_device("generate", self.folder, "-p", "Once", "-n", "6", "--greedy")
        decoded = on_terminal("tokenize", "--model", self.folder, "--decode", "300,301,302")[1]
        self.assert_harmless(decoded, ids)

    def test_names_of_a_checkpoint(self):
        for key, value in (("hidden_act", EVIL + "silu"), ("architectures", [EVIL]), ("model_type", EVIL), ("torch_dtype", EVIL)):
            original = os.path.join(DEMO, "config.json")
            shutil.copy(original, self.folder)
            self.change("config.json", lambda config: config.update({key: value}))
            for command in ("inspect", "generate"):
                more = ("-p", "a", "--max-tokens", "2") if command == "generate" else ()
                words = (command, "--model", self.folder, *more, "--device", "cpu")
                done = run(*words)
                self.assert_harmless(done.stdout + done.stderr, words)
                self.assert_harmless(on_terminal(*words)[1].replace(b"\r\x1b[K", b""), words)

    def test_an_error_of_a_template(self):
        with open(os.path.join(self.folder, "chat_template.jinja"), "w") as file:
            file.write("{{ raise_exception('%s') }}" % EVIL)
        done = run(*on_device("generate", self.folder, "-p", "a", "--chat"))
        self.assertIn(b"\\x1b]0;owned\\x07", done.stderr)
        self.assert_harmless(done.stderr)

    def test_a_path(self):
        evil = os.path.join(os.path.dirname(self.folder), "e\x1b[31m\x9bl\nvil")
        shutil.copytree(DEMO, evil)
        for model in (evil, evil + "-gone"):
            for words in (("inspect", "--model", model, "--device", "cpu"), ("generate", "--model", model, "-p", "a", "--prompt-file", "\x1b")):
                done = run(*words)
                self.assert_harmless(done.stdout + done.stderr, words)

    def test_what_a_server_says_of_its_model(self):
        evil = os.path.join(os.path.dirname(self.folder), "e\x1b[31mvil")
        shutil.copytree(DEMO, evil)
        with subprocess.Popen([PROGRAM, "serve", *on_device("serve", evil)[1:], "--port", "0", "--max-context", "64"],
                              stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
            said = b""
            for line in process.stderr:
                said += line
                if b"ready: " in line:
                    break
            process.terminate()
            said += process.stderr.read()
        self.assertIn(b"e\\x1b[31mvil", said)
        self.assert_harmless(said)


if __name__ == "__main__":
    unittest.main()
