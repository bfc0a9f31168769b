# The shells' completions, in the shells that are there.
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from command import PROGRAM, USAGE, CommandTest, on_device
from option_words import commands, options

SHELLS = ("bash", "zsh", "fish")


class Completion(CommandTest):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = scratch.name
        cls.scripts = {}
        for shell in SHELLS:
            cls.scripts[shell] = os.path.join(cls.folder, "completion." + shell)
            with open(cls.scripts[shell], "w") as file:
                subprocess.run([PROGRAM, "completion", shell], stdout=file, check=True)
        for name in ("models/demo", "models/deep/er", "my models"):
            os.makedirs(os.path.join(cls.folder, "here", name))
        for name in ("models/notes.txt", "prompt.txt", "a:b.txt"):
            with open(os.path.join(cls.folder, "here", name), "w"):
                pass

    def bash(self, line):
        """What the function of the script answers to the line, whose last word is to be completed."""
        words = [part for word in line.split(" ") for part in re.findall(r"[=:]+|[^=:]+", word) or [""]]
        code = 'source "$0" && shift 0; COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _nodewright; printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-u", "-c", code, self.scripts["bash"], *words], capture_output=True, text=True,
                              cwd=os.path.join(self.folder, "here"))
        self.assertEqual((0, ""), (done.returncode, done.stderr), line)
        return [word for word in done.stdout.split("\n") if word]

    def test_bash_completes_commands_options_and_values(self):
        for line, answer in (("nodewright gene", ["generate"]), ("nodewright bench dec", ["decode"]), ("nodewright he", ["help"]),
                             ("nodewright help bench nano", ["nanogpt"]), ("nodewright help ch", ["chat"]),
                             ("nodewright generate --max-t", ["--max-tokens"]), ("nodewright generate --stats --max-t", ["--max-tokens"]),
                             ("nodewright bench decode --adapter", ["--adapter-rank"]), ("nodewright --ver", ["--version"]),
                             ("nodewright generate --mode ex", ["explicit"]), ("nodewright generate --mode=ex", ["explicit"]),
                             ("nodewright generate --mode=", ["explicit", "captured", "eager"]), ("nodewright graph --format h", ["html"]),
                             ("nodewright generate --mode eager --edges f", ["full"]), ("nodewright serve --device c", ["cuda", "cpu"]),
                             ("nodewright completion ", ["bash", "zsh", "fish"]), ("nodewright completion z", ["zsh"]),
                             ("nodewright generate --max-tokens ", []), ("nodewright generate --prompt mod", []),
                             ("nodewright tokenize --mode", ["--model"]), ("nodewright nonsense --m", []), ("nodewright doctor ", [])):
            self.assertEqual(answer, self.bash(line), line)

    def test_bash_completes_paths(self):
        for line, answer in (("nodewright chat mo", ["models"]), ("nodewright chat m", ["models", "my models"]),
                             ("nodewright chat models/", ["models/deep", "models/demo"]), ("nodewright chat --model models/d", ["models/deep", "models/demo"]),
                             ("nodewright chat -m models/dem", ["models/demo"]), ("nodewright run --requests p", ["prompt.txt"]),
                             ("nodewright run --requests=p", ["prompt.txt"]), ("nodewright run --requests a:", ["b.txt"]),
                             ("nodewright report models/n", ["models/notes.txt"]), ("nodewright run --tuning n", ["none"]),
                             ("nodewright run --tuning p", ["prompt.txt"]), ("nodewright run --adapter sq", []),
                             ("nodewright run --adapter sql=models/de", ["models/deep", "models/demo"]), ("nodewright run --adapter=sql=mod", ["models"]),
                             ("nodewright graph --diff prompt.txt", ["prompt.txt"])):
            self.assertEqual(answer, sorted(self.bash(line)), line)

    def test_bash_puts_the_answer_into_the_line(self):
        """A terminal, with Tab typed."""
        child, terminal = pty.fork()
        if child == 0:
            os.chdir(os.path.join(self.folder, "here"))
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], {**os.environ, "PS1": "> ", "TERM": "dumb", "INPUTRC": "/dev/null"})
        shown = b""

        def wait_for(text):
            nonlocal shown
            end = time.time() + 600  # of a shell that hangs
            while text not in shown and time.time() < end:
                if select.select([terminal], [], [], 0.2)[0]:
                    shown += os.read(terminal, 4096)
            self.assertIn(text, shown)
            shown = b""

        try:
            os.write(terminal, b"nodewright() { printf '<%%s>' \"$@\"; }; source %s; echo rea''dy\n" % self.scripts["bash"].encode())
            wait_for(b"ready\r\n")
            os.write(terminal, b"nodewright cha\tmod\t --adapter sql=models/dem\t --mode=eag\t --requests a:\t\n")
            wait_for(b"<chat><models/><--adapter><sql=models/demo/><--mode=eager>")
        finally:
            os.close(terminal)
            os.waitpid(child, 0)

    def test_the_scripts_are_ones_to_their_shells(self):
        for shell in SHELLS:
            if shutil.which(shell):
                done = subprocess.run([shell, "-n", self.scripts[shell]], capture_output=True, text=True)
                self.assertEqual((0, "", ""), (done.returncode, done.stdout, done.stderr), shell)

    def test_fish_completes(self):
        if shutil.which("fish") is None:
            return  # the words are compared with --help below
        for line, answer in (("nodewright gene", ["generate"]), ("nodewright bench dec", ["decode"]), ("nodewright help bench nano", ["nanogpt"]),
                             ("nodewright generate --max-t", ["--max-tokens"]), ("nodewright generate --mode ex", ["explicit"]),
                             ("nodewright generate --mode=ex", ["--mode=explicit"]), ("nodewright chat --model models/d", ["models/deep/", "models/demo/"]),
                             ("nodewright run --adapter sql=models/de", ["sql=models/deep/", "sql=models/demo/"]),
                             ("nodewright run --requests p", ["prompt.txt"]), ("nodewright completion z", ["zsh"])):
            done = subprocess.run(["fish", "--no-config", "-c", "source %s; complete -C '%s'" % (self.scripts["fish"], line)],
                                  capture_output=True, text=True, cwd=os.path.join(self.folder, "here"), env={**os.environ, "HOME": self.folder})
            self.assertEqual((answer, ""), ([word.split("\t")[0] for word in done.stdout.splitlines()], done.stderr), line)

    def test_every_option_of_every_command_is_in_every_script(self):
        with open(self.scripts["zsh"]) as file:
            zsh = dict(re.findall(r"(?ms)^(_nodewright\w*)\(\) \{\n(.*?)^\}", file.read()))
        with open(self.scripts["fish"]) as file:
            fish = file.read()
        count = 0
        for path in commands(self):
            known = options(self, path)
            names = [name for option in known for name in option]
            self.assertEqual(names, self.bash(("nodewright " + path).strip() + " -"), path)
            self.assertEqual(names, re.findall(r"(?m)^    '(?:\([^)]*\)|\*)(--?[\w-]+)[=+]?\[", zsh["_nodewright" + ("_" + path if path else "").replace(" ", "_")]))
            lines = [line for line in fish.splitlines() if '__nodewright_at "%s"\'' % path in line and re.search(" -[ls] ", line)]
            self.assertEqual(names, ["-" * len(kind) + name for line in lines for kind, name in
                                     ((("--" if kind == "l" else "-"), name) for kind, name in re.findall(r" -([ls]) ([\w-]+)", line.partition(" -d ")[0]))])
            count += len(names)
        self.assertGreater(count, 300)

    def test_it_goes_to_a_file_and_knows_its_shells(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script")
            self.assertEqual("", self.succeed("completion", "zsh", "--out", path))
            with open(path) as ours, open(self.scripts["zsh"]) as shown:
                self.assertEqual(shown.read(), ours.read())
        self.assert_refused(USAGE, ["SHELL", "tcsh"], "completion", "tcsh")
        self.assert_refused(USAGE, ["SHELL"], "completion")


if __name__ == "__main__":
    unittest.main()
