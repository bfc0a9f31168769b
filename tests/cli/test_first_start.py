# The first start with a model: it says that it compiles, once, and what is not kept; cut short, it leaves nothing behind.
import glob
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from command import PROGRAM, CommandTest, golden_model, on_device

MODEL = golden_model("odd_sizes")
LOGITS = on_device("logits", MODEL, "--prompt-ids", "1", "--out", "/dev/null")
COMPILES = r"nodewright: compiling \d+ kernels, once; the next start finds them in %s\n"


def started(*words, **environment):
    return subprocess.run([PROGRAM, *words], stdin=subprocess.DEVNULL, capture_output=True, env={**os.environ, **environment}, timeout=600)


class FirstStart(CommandTest):
    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.folder = holder.name
        cls.first = started(*LOGITS, NODEWRIGHT_CACHE=cls.folder)

    def test_it_is_told_once_and_the_next_one_is_silent(self):
        folder, first = self.folder, self.first
        second = started(*LOGITS, NODEWRIGHT_CACHE=folder)
        self.assertEqual((0, b""), (first.returncode, first.stdout))
        self.assertRegex(first.stderr.decode(), r"\A%s\Z" % (COMPILES % folder))
        self.assertEqual((0, b"", b""), (second.returncode, second.stdout, second.stderr))

    def test_a_cache_that_cannot_be_written_is_told_once(self):
        done = started(*LOGITS, NODEWRIGHT_CACHE="/proc/nowhere")
        self.assertEqual((0, b""), (done.returncode, done.stdout))
        self.assertRegex(done.stderr.decode(), r"\A%snodewright: what is compiled is not kept, [^\n]*/proc/nowhere[^\n]*NODEWRIGHT_CACHE[^\n]*\n\Z"
                         % (COMPILES % "/proc/nowhere"))

    def test_a_cache_whose_files_cannot_be_written_is_told_once(self):
        done = started(*LOGITS, NODEWRIGHT_CACHE="/proc/self")  # a folder, and nobody makes a file in it
        self.assertEqual((0, b""), (done.returncode, done.stdout))
        self.assertRegex(done.stderr.decode(), r"\A%snodewright: what is compiled is not kept, [^\n]*cannot create /proc/self/[^\n]*\n\Z"
                         % (COMPILES % "/proc/self"))

    def test_images_that_others_may_write_are_not_used_and_that_is_told_once(self):
        with tempfile.TemporaryDirectory() as holder:
            folder = os.path.join(holder, "cache")
            shutil.copytree(self.folder, folder)
            images = sorted(glob.glob(os.path.join(folder, "*.image")))
            for image in images[:2]:
                os.chmod(image, 0o666)
            done, mended = (started(*LOGITS, NODEWRIGHT_CACHE=folder) for _ in range(2))
            os.chmod(folder, 0o777)
            open_to_all = started(*LOGITS, NODEWRIGHT_CACHE=folder)
        self.assertGreater(len(images), 2)
        self.assertEqual((0, b""), (done.returncode, done.stdout))
        self.assertRegex(done.stderr.decode(), r"\Anodewright: compiled kernels on disk are not used[^\n]*others may write %s/[^\n]*\.image "
                         r"of user \d+[^\n]*0666\nnodewright: compiling 2 kernels, once[^\n]*\n\Z" % folder)
        self.assertEqual((0, b"", b""), (mended.returncode, mended.stdout, mended.stderr))
        self.assertRegex(open_to_all.stderr.decode(), r"(?s)\Anodewright: compiled kernels on disk are not used[^\n]*%s of user \d+[^\n]*0777\n"
                         r".*what is compiled is not kept, [^\n]*0777" % folder)

    def test_a_signal_during_the_only_compilation_leaves_no_folder(self):
        for asked in (signal.SIGINT, signal.SIGTERM):
            with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
                with subprocess.Popen([PROGRAM, "inspect", "--model", MODEL, "--device", "cpu"], stdout=subprocess.DEVNULL,
                                      env={**os.environ, "NODEWRIGHT_CACHE": cache, "TMPDIR": folder}) as process:
                    while process.poll() is None and not glob.glob(os.path.join(folder, "*", "kernels_src")):
                        time.sleep(0.002)
                    process.send_signal(asked)
                    self.assertEqual(-asked, process.wait(timeout=600))
                self.assertEqual([], os.listdir(folder))

    def test_cut_short_it_leaves_nothing_behind_and_tells_what_becomes_of_requests(self):
        request = b'{"prompt_ids": [1], "max_tokens": 1}\n'
        for words, text, asked, code in ((on_device("run", MODEL), request * 2, signal.SIGTERM, 143), (LOGITS, b"", signal.SIGINT, 130)):
            with tempfile.TemporaryDirectory() as folder:
                places = {"NODEWRIGHT_CACHE": os.path.join(folder, "cache"), "TMPDIR": folder}
                with subprocess.Popen([PROGRAM, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      env={**os.environ, **places}) as process:
                    process.stdin.write(text)
                    process.stdin.close()
                    self.assertRegex(process.stderr.readline().decode(), COMPILES % places["NODEWRIGHT_CACHE"])
                    process.send_signal(asked)
                    results = [json.loads(line)["finish_reason"] for line in process.stdout.read().splitlines()]
                    self.assertEqual(code, process.wait(timeout=600), process.stderr.read())
                self.assertEqual(["cancelled"] * text.count(b"\n"), results)
                self.assertEqual(["cache"], os.listdir(folder))


if __name__ == "__main__":
    unittest.main()
