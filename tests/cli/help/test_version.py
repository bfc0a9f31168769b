# What --version says of the program and the machine, and where its commit comes from.
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from command import SOURCE, CommandTest, run


class Version(CommandTest):
    def test_it_has_a_line_each_for_version_commit_driver_and_cuda(self):
        lines = self.succeed("--version").splitlines()
        with open(os.path.join(SOURCE, "CMakeLists.txt")) as file:
            version = re.search(r"project\(nodewright VERSION (\S+)", file.read()).group(1)
        self.assertEqual("nodewright " + version, lines[0])
        told = dict(re.split(" +", line, maxsplit=1) for line in lines[1:])
        self.assertRegex(told["commit"], r"\A([0-9a-f]{8,}(-dirty)?|unknown)\Z")
        self.assertRegex(told["driver"], r"\A(no NVIDIA driver|for CUDA \d+\.\d+|cannot be used: .+)\Z")
        self.assertEqual(told["driver"].startswith("for CUDA"), "device" in told)
        self.assertRegex(told["CUDA"], r"\Aheaders of \d+\.\d+, (NVRTC \d+\.\d+ \(.+\)|no NVRTC .+)\Z")
        self.assertEqual(self.succeed("--version"), self.succeed("-V"))

    def test_what_the_machine_lacks_is_said_and_is_no_failure(self):
        self.assertIn(", no NVRTC (nodewright doctor lists the places)\n", self.succeed("-V", NODEWRIGHT_NVRTC="/nowhere"))

    def test_a_library_that_is_no_driver_is_not_called_one(self):
        compiler = shutil.which("g++") or shutil.which("c++")
        if compiler is None:
            return  # a machine that only runs
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([compiler, "-shared", "-fPIC", "-x", "c++", "-", "-o", os.path.join(folder, "libcuda.so.1")], check=True,
                           input=b'extern "C" int cuDriverGetVersion(int* version) { *version = 12040; return 0; }')
            done = run("--version", LD_LIBRARY_PATH=folder)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("driver  cannot be used: it lacks cuGetProcAddress_v2; driver is for CUDA 12.4", done.stdout.decode())


class Commit(unittest.TestCase):
    """cmake/BuildCommit.cmake."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = os.path.join(scratch.name, "sources")
        self.made = os.path.join(scratch.name, "build_commit.cpp")
        os.mkdir(self.folder)

    def git(self, *words, folder=None):
        names = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        return subprocess.run(["git", *names, *words], cwd=folder or self.folder, check=True, capture_output=True, text=True).stdout.strip()

    def write(self, text, name="a.txt"):
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(text)

    def commit(self, *settings):
        """What build_commit() returns in a build of the folder."""
        subprocess.run([shutil.which("cmake"), "-DSOURCE=" + self.folder, "-DOUTPUT=" + self.made, *settings, "-P",
                        os.path.join(SOURCE, "cmake", "BuildCommit.cmake")], check=True)
        with open(self.made) as file:
            return re.search(r'return "([^"]*)";', file.read()).group(1)

    def begin(self):
        self.git("init", "--quiet")
        self.write("one")
        self.git("add", "a.txt")
        self.git("commit", "--quiet", "--message", "One")
        return self.git("rev-parse", "--short=8", "HEAD")

    def test_it_is_the_head_and_says_whether_a_tracked_file_differs(self):
        head = self.begin()
        self.assertEqual(head, self.commit())
        self.write("not tracked", "b.txt")
        self.assertEqual(head, self.commit())
        self.write("two")
        self.assertEqual(head + "-dirty", self.commit())
        self.git("commit", "--quiet", "--all", "--message", "Two")
        self.assertEqual(self.git("rev-parse", "--short=8", "HEAD"), self.commit())
        self.assertNotEqual(head, self.commit())

    def test_a_file_that_is_right_is_left_as_it_is(self):
        self.begin()
        self.commit()
        os.utime(self.made, (1, 1))
        self.commit()
        self.assertEqual(1, os.stat(self.made).st_mtime)

    def test_sources_without_a_repository_and_a_machine_without_git_build(self):
        self.assertEqual("unknown", self.commit())
        self.git("init", "--quiet", folder=os.path.dirname(self.folder))  # somebody else's, around the unpacked sources
        self.assertEqual("unknown", self.commit())
        self.git("init", "--quiet")
        self.assertEqual("unknown", self.commit())  # no commit yet
        self.begin()
        self.assertNotEqual("unknown", self.commit())
        self.assertEqual("unknown", self.commit("-DCMAKE_IGNORE_PATH=/bin;/usr/bin;" + os.path.dirname(shutil.which("git"))))


if __name__ == "__main__":
    unittest.main()
