# The manual page: what roff makes of it, and that it has everything.
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from command import SOURCE, CommandTest
from option_words import commands, options


class Man(CommandTest):
    def setUp(self):
        self.page = self.succeed("man")

    def sections(self):
        """The text of each command, by its path, without the marks of roff."""
        plain = re.sub(r"\\f.", "", self.page).replace("\\-", "-").replace("\\&", "").replace("\\(aq", "'").replace("\\(ti", "~").replace("\\e", "\\")
        whole = plain.partition(".SH COMMANDS\n")[2].partition(".SH EXIT")[0]
        found = {}
        for head, text in re.findall(r"(?ms)^\.SS nodewright ([^\n]*)\n(.*?)(?=^\.SS |\Z)", whole):
            found[head.partition(" [")[0].removesuffix(" COMMAND")] = text
        return found, plain

    def test_every_option_of_every_command_is_in_it(self):
        sections, plain = self.sections()
        paths = commands(self)
        self.assertEqual(sorted(path for path in paths if path), sorted(sections))
        for path in paths:
            text = sections[path] if path else plain.partition(".SH OPTIONS\n")[2].partition(".SH COMMANDS")[0]
            heads = [re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", re.split(r" (?!-)", line)[0]) for line in re.findall(r"(?m)^\.TP\n(-[^\n]*)", text)]
            self.assertEqual([names for names in options(self, path) if not path or names[0] != "-h"], heads, path)
        self.assertIn("\n.TP\n-m, --model DIR\nHugging Face checkpoint folder", sections["chat"])
        self.assertIn("\n.TP\n--mode explicit|captured|eager\n", sections["run"])
        self.assertIn("\nnodewright serve --model DIR --adapter sql=DIR/sql\n", sections["serve"])

    def test_it_has_the_variables_and_the_exit_codes_of_the_page(self):
        with open(os.path.join(SOURCE, "docs", "command.md")) as file:
            page = file.read()
        users = page.partition("## Environment variables")[2].partition("For tests:")[0]
        variables = [name for line in re.findall(r"(?m)^\| (`[^|]*) \|", users) for name in re.findall(r"`(\w+)`", line)]
        told = re.findall(r"(?m)^\.TP\n\\fB(\w+)\\fR", self.page.partition(".SH ENVIRONMENT")[2].partition(".SH FILES")[0])
        self.assertGreater(len(variables), 8)
        self.assertEqual(variables, told)
        codes = re.findall(r"(?m)^\| ([\d, ]+) \|", page.partition("## Exit codes")[2].partition("## Signals")[0])
        self.assertEqual(codes, re.findall(r"(?m)^\.TP\n\\fB([\d, ]+)\\fR", self.page.partition(".SH EXIT STATUS")[2].partition(".SH ENV")[0]))

    def test_groff_has_no_warning(self):
        if shutil.which("groff") is None:
            return  # the requests are checked below
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=self.page.encode(), capture_output=True)
        self.assertEqual((0, ""), (done.returncode, done.stderr.decode()))
        shown = re.sub(r"\x1b\[\d*m|.\x08", "", done.stdout.decode())
        for text in ("NODEWRIGHT(1)", "-m, --model DIR", "--adapter, --lora-modules NAME=DIR ...", "'Once upon a time'"):
            self.assertIn(text, shown)

    def test_lines_are_text_or_requests_of_man(self):
        self.assertTrue(self.page.isascii())
        for line in self.page.splitlines():
            if line.startswith((".", "'")):
                self.assertRegex(line, r'\A\.(\\"|TH|SH|SS|TP\Z|PP\Z|B|br\Z|nf\Z|fi\Z)')
            self.assertNotRegex(line, r"\\(?![-fe&(\x22])")

    def test_it_goes_to_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual("", self.succeed("man", "--out", os.path.join(folder, "nodewright.1")))
            with open(os.path.join(folder, "nodewright.1")) as file:
                self.assertEqual(self.page, file.read())


if __name__ == "__main__":
    unittest.main()
