# clang-format has nothing to change: `make format` mends it. Another version than the one below formats otherwise, and
# is not asked.
import os
import re
import subprocess
import sys

VERSION = "14"  # Debian 12's
SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main():
    version = re.search(r"version (\d+)", subprocess.run(["clang-format", "--version"], check=True, capture_output=True,
                                                         text=True).stdout)[1]
    if version != VERSION:
        print("clang-format %s is here, and the sources are formatted by %s: nothing was checked" % (version, VERSION))
        return 0
    files = subprocess.run(["git", "ls-files", "*.h", "*.cpp", "*.cu", "*.cuh", ":!third_party"], cwd=SOURCE, check=True,
                           capture_output=True, text=True).stdout.split()
    files = [file for file in files if os.path.exists(os.path.join(SOURCE, file))]
    if len(files) < 1000:
        sys.exit("format: only %d files" % len(files))
    planted = subprocess.run(["clang-format", "--dry-run", "-Werror", "--assume-filename=planted.cpp"], cwd=SOURCE,
                             input="int  f ( ) ;\n", capture_output=True, text=True)
    if planted.returncode == 0:
        sys.exit("format: a planted line passed")
    wrong = set()
    for first in range(0, len(files), 100):
        checked = subprocess.run(["clang-format", "--dry-run", "-Werror", *files[first:first + 100]], cwd=SOURCE,
                                 capture_output=True, text=True)
        wrong |= set(re.findall(r"^(\S+?):\d+:\d+: error", checked.stderr, re.MULTILINE))
    for file in sorted(wrong):
        print("%s: make format" % file)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
