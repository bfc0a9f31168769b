#!/usr/bin/env python3
"""Installs the build, takes the first C++ program out of the README, builds it against the package, runs it without a
GPU: what a newcomer does. NODEWRIGHT_BINARY_DIR names the build."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import package

ROOT = pathlib.Path(__file__).resolve().parents[2]
DETAIL = "nodewright/detail/"


def included(header):
    return re.findall(r"^#include <(nodewright/[^>]+)>", header.read_text(), re.M)


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.include = package.install(cls.folder / "prefix") / "include"

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_the_program_in_the_readme_builds_against_the_installed_package_and_runs_without_a_gpu(self):
        program = re.search(r"```cpp\n(.*?)```", (ROOT / "README.md").read_text(), re.S).group(1)
        example = (ROOT / "examples/first_graph.cpp").read_text()
        self.assertEqual(program, example.split("\n", 1)[1])  # without the comment that says what it is
        source = self.folder / "first.cpp"
        source.write_text(program)
        package.build(ROOT / "tests/package", self.folder / "build", SOURCE=source,
                      CMAKE_PREFIX_PATH=self.folder / "prefix", CMAKE_BUILD_TYPE="Release")
        environment = package.without_cpu_driver()
        printed = package.run(self.folder / "build/first_graph", "cpu", env=environment)
        self.assertIn("y[0] = 5", printed)
        self.assertIn("node 2 saxpy", printed)
        driver = self.folder / "prefix/lib/nodewright/libnodewright_cpu_driver.so"
        driver.rename(driver.with_suffix(".away"))  # it ran the installed driver
        gone = subprocess.run([self.folder / "build/first_graph", "cpu"], env=environment, capture_output=True)
        driver.with_suffix(".away").rename(driver)
        self.assertNotEqual(gone.returncode, 0)

    def test_every_installed_header_lies_below_nodewright_and_names_the_others_there(self):
        headers = [path for path in self.include.rglob("*") if path.is_file()]
        self.assertGreater(len(headers), 30)
        for header in headers:
            self.assertEqual(header.relative_to(self.include).parts[0], "nodewright")
            self.assertNotIn('#include "', header.read_text(), header)
            for name in included(header):
                self.assertTrue((self.include / name).is_file(), f"{header} includes {name}")

    def test_the_one_header_includes_every_public_header_and_nothing_is_installed_that_no_public_one_reaches(self):
        names = {str(path.relative_to(self.include)) for path in self.include.rglob("*.h")}
        public = {name for name in names if not name.startswith(DETAIL)}
        one = self.include / "nodewright/nodewright.h"
        needs_the_cuda_runtime = {"nodewright/runtime/cuda_symbol.h"}
        self.assertEqual(public - {"nodewright/nodewright.h"} - needs_the_cuda_runtime, set(included(one)))
        reached, unread = set(), sorted(public)
        while unread:
            name = unread.pop()
            if name not in reached:
                reached.add(name)
                unread += included(self.include / name)
        self.assertEqual(reached, names)

    def test_the_graph_library_has_at_most_fifteen_public_headers(self):
        self.assertLessEqual(len(list((self.include / "nodewright/graph").glob("*.h"))), 15)


if __name__ == "__main__":
    unittest.main()
