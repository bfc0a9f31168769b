# README's commands print what README says that they print. `test_readme.py --update` writes what they print now.
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from command import PROGRAM, SOURCE

README = os.path.join(SOURCE, "README.md")
# A block that begins with one command of the build, and its output.
SAMPLE = re.compile(r"```\n(\$ build/nodewright [^\n]+)\n(.*?)```", re.DOTALL)


def printed(command):
    words = command.removeprefix("$ ").replace("build/nodewright", PROGRAM)
    return subprocess.run(["bash", "-c", words], cwd=SOURCE, capture_output=True, text=True, timeout=600, check=True).stdout


class Readme(unittest.TestCase):
    def test_samples_are_what_the_program_prints(self):
        with open(README) as file:
            samples = SAMPLE.findall(file.read())
        self.assertTrue(samples)
        for command, output in samples:
            self.assertIn("--device cpu", command)
            self.assertEqual(output, printed(command), "README.md is stale: tests/cli/help/test_readme.py --update")


if __name__ == "__main__":
    if "--update" in sys.argv:
        with open(README) as file:
            text = file.read()
        with open(README, "w") as file:
            file.write(SAMPLE.sub(lambda sample: "```\n%s\n%s```" % (sample[1], printed(sample[1])), text))
    else:
        unittest.main()
