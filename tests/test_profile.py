"""The profile of a test run names a slow test, inside a shard or by itself."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROFILE = Path(__file__).with_name("profile.py")


def shard(**seconds: float) -> str:
    tests = [{"name": name, "time": f"{time}s"} for name, time in seconds.items()]
    return json.dumps({"testsuites": [{"name": "Suite", "testsuite": tests}]})


class Profile(unittest.TestCase):
    def profile(self, *rows: str) -> str:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "phases").write_text("build 61\nbuild with sanitizers 7\n")
            (folder / "graph_tests.0.json").write_text(shard(Quick=0.01, Slow=93.5))
            (folder / "graph_tests.1.json").write_text(shard(Other=2))
            (folder / "ctest.xml").write_text(
                "<testsuite><testcase name='graph_tests.0' time='94'/><testcase name='python.slow' time='40'/></testsuite>")
            return subprocess.run([sys.executable, PROFILE, folder, *rows], check=True, capture_output=True,
                                  text=True).stdout

    def test_names_the_slow_tests_in_order_and_no_shard(self) -> None:
        lines = self.profile().splitlines()
        self.assertEqual([line.split(None, 2)[2] for line in lines[3:]],
                         ["graph_tests.0: Suite.Slow", "python.slow", "graph_tests.1: Suite.Other", "graph_tests.0: Suite.Quick"])

    def test_has_the_phases_with_their_seconds(self) -> None:
        self.assertEqual([line.split() for line in self.profile().splitlines()[:2]],
                         [["61", "s", "build"], ["7", "s", "build", "with", "sanitizers"]])

    def test_prints_no_more_than_the_rows_asked_for(self) -> None:
        self.assertEqual(len(self.profile("1").splitlines()), 4)


if __name__ == "__main__":
    unittest.main()
