# Runs the program as a user would, each time in an empty folder, and knows what every refusal must look like.
#   NODEWRIGHT_PROGRAM      the program (default: build/nodewright); a sanitizer's build passes the same tests
#   NODEWRIGHT_TEST_DEVICE  the device of the model commands (default: cpu)
import os
import re
import subprocess
import tempfile
import unittest

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.abspath(os.environ.get("NODEWRIGHT_PROGRAM", os.path.join(SOURCE, "build", "nodewright")))
DEVICE = os.environ.get("NODEWRIGHT_TEST_DEVICE", "cpu")
DEMO = os.path.join(SOURCE, "models", "demo")
GOLDEN = os.path.join(SOURCE, "tests", "golden")

RUN_TIME, USAGE = 1, 2  # exit codes of a failure
TIMEOUT_S = 600         # until a command that hangs is killed; none that passes waits for it


def golden_model(name):
    """`name`: "qwen3/normed_heads"; without a family, one of Llama's."""
    return os.path.join(GOLDEN, name if "/" in name else os.path.join("llama", name))


def without_first_start(stderr):
    """Standard error less what a first start says of the kernels that it compiles."""
    return re.sub(rb"(?m)^nodewright: compiling \d+ kernels?, once[^\n]*\n", b"", stderr)


def run(*words, stdin=b"", stdout=subprocess.PIPE, cwd=None, **environment):
    """The finished process, as if it had found its kernels. Its working folder is an empty one unless `cwd` names another."""
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run([PROGRAM, *words], input=stdin, stdout=stdout, stderr=subprocess.PIPE, cwd=cwd or empty,
                              env={**os.environ, **environment}, timeout=TIMEOUT_S)
    done.stderr = without_first_start(done.stderr)
    return done


def on_device(command, model, *words):
    """The words of a model command on the device under test."""
    return [command, "--model", model, "--device", DEVICE, *words]


class CommandTest(unittest.TestCase):
    def succeed(self, *words, **options):
        """Standard output as text; nothing may stand on stderr."""
        done = run(*words, **options)
        self.assertEqual((0, ""), (done.returncode, done.stderr.decode()), words)
        return done.stdout.decode()

    def assert_refused(self, exit_code, named, *words, **options):
        """One line on stderr that holds each of `named`, nothing on stdout, no file left in the working folder."""
        with tempfile.TemporaryDirectory() as folder:
            done = run(*words, cwd=folder, **options)
            left = os.listdir(folder)
        message = done.stderr.decode(errors="replace")
        self.assertEqual(exit_code, done.returncode, "%s: %s" % (words, message))
        self.assertRegex(message, r"\Anodewright: [^\n]+\n\Z", words)
        for name in named:
            self.assertIn(name, message, words)
        self.assertEqual(b"", done.stdout, words)
        self.assertEqual([], left, words)
        return message
