#!/usr/bin/env python3
"""Where the time of a test run went: profile.py FOLDER [ROWS], with FOLDER as `make test` writes it: `phases`, ctest's own
report `ctest.xml`, and one GoogleTest report `*.json` a shard. Prints the phases, and the slowest tests whichever process
ran them."""

import json
import sys
import xml.etree.ElementTree
from pathlib import Path


def phases(folder: Path) -> list[tuple[str, float]]:
    path = folder / "phases"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(name, float(seconds)) for name, seconds in (line.rsplit(" ", 1) for line in lines)]


def tests_of_shard(path: Path) -> list[tuple[str, float]]:
    """Every test of a GoogleTest report, with its seconds."""
    return [
        (f"{path.stem}: {suite['name']}.{test['name']}", float(test["time"].removesuffix("s")))
        for suite in json.loads(path.read_text())["testsuites"]
        for test in suite["testsuite"]
    ]


def tests(folder: Path) -> list[tuple[str, float]]:
    """Every test and its seconds, slowest first. A shard counts by its tests, not as a whole."""
    shards = {path.stem: path for path in folder.glob("*.json")}
    found = [test for path in shards.values() for test in tests_of_shard(path)]
    if (folder / "ctest.xml").exists():
        for case in xml.etree.ElementTree.parse(folder / "ctest.xml").iter("testcase"):
            if case.get("name") not in shards:
                found.append((case.get("name"), float(case.get("time", 0))))
    return sorted(found, key=lambda test: -test[1])


def main() -> None:
    folder, rows = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 15
    for name, seconds in phases(folder):
        print(f"{seconds:8.0f} s  {name}")
    found = tests(folder)
    print(f"The slowest of {len(found)} tests:")
    for name, seconds in found[:rows]:
        print(f"{seconds:8.1f} s  {name}")


if __name__ == "__main__":
    main()
