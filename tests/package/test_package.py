#!/usr/bin/env python3
"""Installs the build, takes the first C++ program out of the README, builds it against the package, runs it without a
GPU: what a newcomer does. NODEWRIGHT_BINARY_DIR names the build."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["NODEWRIGHT_BINARY_DIR"])


def run(*words, **options):
    done = subprocess.run([str(w) for w in words], text=True, capture_output=True, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class PackageTest(unittest.TestCase):
    def test_the_program_in_the_readme_builds_against_the_installed_package_and_runs_without_a_gpu(self):
        program = re.search(r"```cpp\n(.*?)```", (ROOT / "README.md").read_text(), re.S).group(1)
        example = (ROOT / "examples/first_graph.cpp").read_text()
        self.assertEqual(program, example.split("\n", 1)[1])  # without the comment that says what it is
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            run("cmake", "--install", BUILD, "--prefix", folder / "prefix")
            (folder / "first.cpp").write_text(program)
            run("cmake", "-S", ROOT / "tests/package", "-B", folder / "build", f"-DSOURCE={folder / 'first.cpp'}",
                f"-DCMAKE_PREFIX_PATH={folder / 'prefix'}", "-DCMAKE_BUILD_TYPE=Release")
            run("cmake", "--build", folder / "build")
            environment = {k: v for k, v in os.environ.items() if k != "NODEWRIGHT_CPU_DRIVER"}
            printed = run(folder / "build/first_graph", "cpu", env=environment)
            self.assertIn("y[0] = 5", printed)
            self.assertIn("node 2 saxpy", printed)
            (folder / "prefix/lib/nodewright/libnodewright_cpu_driver.so").unlink()  # it ran the installed driver
            gone = subprocess.run([folder / "build/first_graph", "cpu"], env=environment, capture_output=True)
            self.assertNotEqual(gone.returncode, 0)

    def test_the_headers_installed_are_those_that_the_one_header_reaches(self):
        with tempfile.TemporaryDirectory() as folder:
            run("cmake", "--install", BUILD, "--prefix", folder)
            include = pathlib.Path(folder) / "include/nodewright"
            installed = {str(header.relative_to(include)) for header in include.rglob("*.h")}
            reached, unread = set(), ["nodewright/nodewright.h"]
            while unread:
                header = unread.pop()
                reached.add(header)
                self.assertIn(header, installed)
                names = re.findall(r'^#include "([^"]+)"', (include / header).read_text(), re.M)
                unread += [name for name in names if name not in reached]
            reached.add("runtime/cuda_symbol.h")  # for files that see the CUDA runtime's headers
            self.assertEqual(reached, installed)


if __name__ == "__main__":
    unittest.main()
