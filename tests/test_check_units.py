#!/usr/bin/env python3
"""tests/check_units.py names a source that compiles only among others, and leaves a right one alone."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = sys.argv.pop(1)


class CheckUnitsTest(unittest.TestCase):
    def check(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
            file.write(text)
            file.flush()
            return subprocess.run([sys.executable, str(ROOT / "tests/check_units.py"), BUILD, file.name], capture_output=True, text=True)

    def test_a_missing_include_is_named(self):
        done = self.check("std::string word() { return {}; }\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("std::string", done.stdout)
        self.assertIn("1 with complaints", done.stdout)

    def test_a_warning_is_an_error(self):
        self.assertEqual(self.check("int f() { int unused = 1; return 2; }\n").returncode, 1)

    def test_a_right_source_is_left_alone(self):
        done = self.check("#include <string>\nstd::string word() { return {}; }\n")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_source_has_its_own_definitions(self):
        done = subprocess.run([sys.executable, str(ROOT / "tests/check_units.py"), BUILD, "tests/runtime/driver_forms_test.cpp"],
                              capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "1 sources alone, 0 with complaints\n"))


if __name__ == "__main__":
    unittest.main()
