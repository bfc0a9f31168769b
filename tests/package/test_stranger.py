#!/usr/bin/env python3
"""Builds the project in tests/package/stranger, copied out of the tree, against the installed package and with the sources
(FetchContent), with g++ and with clang, and runs it on the CPU driver. The program of the second way stays in
build/examples, to be run on a GPU. NODEWRIGHT_BINARY_DIR names the build."""
import pathlib
import shutil
import tempfile
import unittest

import package

CLANG = shutil.which("clang++-16") or "clang++-16"  # which cmake/install_missing.sh installs
EDGES = """\
edge x -> scale: RAW a[0,4000)
edge y -> axpy: RAW b[0,4000)
edge scale -> axpy: RAW a[0,4000)
edge axpy -> shift: RAW b[0,4000)
"""
DUMP = """\
plan stranger: 5 nodes (2 kernels), 4 edges (0 programmatic), 2 buffers, 16000 B read, 20000 B written
buffer a 4000 B activation
buffer b 4000 B activation live-out
node 0 x | memset 1000 x 4 B to 0x3f800000 | >to=a[0,4000) | after nothing
"""


class StrangerTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        shutil.copytree(package.ROOT / "tests/package/stranger", self.folder / "stranger")

    def build(self, **settings):
        return package.build(self.folder / "stranger", self.folder / "build", **settings) / "stranger"

    def check(self, program):
        printed = package.run(program, "cpu", env=package.without_cpu_driver())
        self.assertTrue(printed.startswith(EDGES), printed)
        self.assertIn(DUMP, printed)
        self.assertIn("y[0] = 17,", printed)

    def installed(self):
        return package.install(self.folder / "prefix")

    def test_it_builds_against_the_installed_package(self):
        self.check(self.build(CMAKE_PREFIX_PATH=self.installed(), CMAKE_CXX_COMPILER="g++"))

    def test_it_builds_against_the_installed_package_with_clang(self):
        self.check(self.build(CMAKE_PREFIX_PATH=self.installed(), CMAKE_CXX_COMPILER=CLANG))

    def test_it_builds_with_the_sources_of_the_library_which_leave_its_settings_alone(self):
        program = self.build(NODEWRIGHT_SOURCE=package.ROOT, CMAKE_CXX_COMPILER="g++", CMAKE_CXX_FLAGS="-O0")
        self.check(program)
        settings = (self.folder / "build/CMakeCache.txt").read_text()
        for name in ("BUILD_TESTING", "CLI11_DIR", "GTest_DIR", "ONIG_LIBRARY", "UTF8PROC_LIBRARY"):
            self.assertNotIn(f"\n{name}:", settings)
        self.assertNotIn(":", package.run("cmake", "--install", self.folder / "build", "--prefix", self.folder / "none"
                                          ).replace("-- Install configuration:", ""))  # it installs nothing
        shutil.copy2(program, package.BUILD / "examples/stranger")


if __name__ == "__main__":
    unittest.main()
