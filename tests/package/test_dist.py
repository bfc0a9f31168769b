#!/usr/bin/env python3
"""Unpacks what `make dist` makes into an empty folder, and there runs the demo on the CPU driver and builds a program
against the package. NODEWRIGHT_BINARY_DIR names the build."""
import os
import pathlib
import tempfile
import unittest

import package

EXPECTED = ("bin/nodewright", "lib/libnodewright_graph.a", "lib/libnodewright_runtime.a",
            "lib/nodewright/libnodewright_cpu_driver.so", "include/nodewright/nodewright.h",
            "lib/cmake/nodewright/nodewrightConfig.cmake", "share/nodewright/LICENSE",
            "share/bash-completion/completions/nodewright", "share/zsh/site-functions/_nodewright",
            "share/fish/vendor_completions.d/nodewright.fish", "share/man/man1/nodewright.1",
            "share/nodewright/models/demo/model.safetensors", "share/nodewright/licenses/libonig-dev")


class DistTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        made = package.run(package.ROOT / "cmake/make_dist.sh", package.BUILD).split(":")[0]
        cls.archive = pathlib.Path(package.ROOT / made)
        package.run("tar", "-xf", cls.archive, "-C", cls.scratch.name)
        (cls.root,) = pathlib.Path(cls.scratch.name).iterdir()
        cls.environment = {"PATH": "/usr/bin:/bin", "HOME": cls.scratch.name,
                           "NODEWRIGHT_CACHE": os.environ["NODEWRIGHT_CACHE"]}

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_it_is_named_after_the_version_and_holds_all_parts(self):
        version = package.setting("CMAKE_PROJECT_VERSION")
        self.assertEqual(self.archive.name, f"nodewright-{version}-{os.uname().machine}.tar.gz")
        self.assertEqual(self.root.name, self.archive.name.removesuffix(".tar.gz"))
        self.assertEqual([path for path in EXPECTED if not (self.root / path).is_file()], [])
        tunings = {path.name for path in (package.ROOT / "models/tuning").glob("*.json")}
        self.assertEqual({path.name for path in (self.root / "share/nodewright/tuning").iterdir()}, tunings)

    def test_no_file_names_the_folders_it_was_built_in(self):
        folders = (str(package.ROOT).encode(), str(package.BUILD).encode())
        texts = [path for path in self.root.rglob("*") if path.suffix in (".cmake", ".h", ".json")]
        self.assertGreater(len(texts), 50)
        self.assertEqual([path for path in texts if any(folder in path.read_bytes() for folder in folders)], [])
        linked = package.run("ldd", self.root / "bin/nodewright", env=self.environment)
        self.assertNotIn(str(package.ROOT), linked)
        self.assertNotIn("not found", linked)

    def test_the_completions_and_the_manual_page_are_those_of_its_program(self):
        for words, path in ((("completion", "bash"), "share/bash-completion/completions/nodewright"),
                            (("completion", "zsh"), "share/zsh/site-functions/_nodewright"),
                            (("completion", "fish"), "share/fish/vendor_completions.d/nodewright.fish"),
                            (("man",), "share/man/man1/nodewright.1")):
            self.assertEqual((self.root / path).read_text(),
                             package.run("bin/nodewright", *words, cwd=self.root, env=self.environment))

    def test_the_demo_runs_without_a_gpu(self):
        story = package.run("bin/nodewright", "generate", "--model", "share/nodewright/models/demo", "--prompt",
                            "Once upon a time", "--max-tokens", "8", "--greedy", "--device", "cpu", cwd=self.root,
                            env=self.environment)
        self.assertGreater(len(story.split()), 4)

    def test_a_program_builds_against_it(self):
        folder = pathlib.Path(self.scratch.name) / "consumer"
        package.build(package.ROOT / "tests/package", folder, SOURCE=package.ROOT / "examples/first_graph.cpp",
                      CMAKE_PREFIX_PATH=self.root)
        self.assertIn("y[0] = 5", package.run(folder / "first_graph", "cpu", env=self.environment))


if __name__ == "__main__":
    unittest.main()
