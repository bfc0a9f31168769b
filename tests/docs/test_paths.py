#!/usr/bin/env python3
"""Every path that a page or a comment names is there; the checker finds planted ones that are not."""
import pathlib
import subprocess
import unittest

import paths

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Folders that a project has in common with others, as words: `bench/results` of a release, `text/plain`.
MIME = ("text/plain", "text/event-stream", "text/html", "text/css", "text/javascript")
# Records of an earlier tree, in its own words.
HISTORY = ("CHANGELOG.md", "docs/decisions/", "bench/results/", "third_party/")
PLANTED = ("tests/docs/test_", "tests/test_check_includes.py")


class PathsTest(unittest.TestCase):
    maxDiff = None

    def test_every_path_is_there(self):
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
        if listed.returncode:
            self.skipTest("an archive, not a checkout")
        files = [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
        contents = {name: (ROOT / name).read_text() for name in files
                    if name.endswith((".md", *paths.MARK)) and not name.startswith(HISTORY + PLANTED)}
        self.assertGreater(len(contents), 1500)
        broken = [line for line in paths.broken_paths(contents, files) if line.rsplit(" ", 1)[1] not in MIME]
        self.assertEqual(broken, [])

    FILES = ("engine/cache/kv_pool.h", "engine/cache/kv_pool.cpp", "engine/engine.h", "docs/graphs.md", "README.md",
             "tests/graph/patch_test.cpp")

    def broken(self, name, content):
        return paths.broken_paths({name: content}, self.FILES)

    def test_planted_paths_are_found(self):
        for path in ("engine/gone.h", "engine/cache", "engine/cache/gone", "engine/{engine,gone}.h", "engine/*.cu", "docs/gone.md",
                     "engine/cache/kv_pool.cu"):
            expected = [] if path == "engine/cache" else [f"a.md:3: {path}"]
            self.assertEqual(self.broken("a.md", f"# A\n\nSee `{path}`.\n"), expected)
            self.assertEqual(self.broken("a.h", f"int a;\n\nint b;  // see {path}.\n"), [line.replace("a.md", "a.h") for line in expected])

    def test_right_paths_are_left_alone(self):
        for path in ("engine/engine.h", "engine/", "engine/cache/kv_pool", "engine/cache/*.h", "engine/{engine,cache/kv_pool}.h",
                     "graph/patch", "docs/graphs.md:12", "engine/NAME", "tests/graph/patch_test", "models--a--b/engine/gone.h", "https://a.b/engine/gone.h",
                     "../engine/gone.h", "$HOME/engine/gone.h"):
            self.assertEqual([line for line in self.broken("a.md", f"`{path}`") if "graph/patch" not in line], [])
        self.assertEqual(self.broken("a.md", "engine/gone.h\n"), [])      # no code
        self.assertEqual(self.broken("a.h", 'f("engine/gone.h");\n'), [])  # no comment
        self.assertEqual(self.broken("a.py", "# engine/engine.h:3\n#include\n"), [])


if __name__ == "__main__":
    unittest.main()
