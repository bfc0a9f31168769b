#!/usr/bin/env python3
# Plants violations of the layout rules and expects check_includes.py to name each, and nothing else.
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_includes


def including(*targets):
    return "// A file.\n#pragma once\n" + "".join('#include "%s"\n' % target for target in targets)


class Includes(unittest.TestCase):
    def assert_rejected(self, path, target):
        found = check_includes.check_file(path, including(target))
        self.assertEqual(1, len(found), found)
        self.assertIn(path, found[0])
        self.assertIn(target, found[0])

    def assert_allowed(self, path, *targets):
        self.assertEqual([], check_includes.check_file(path, including(*targets)))

    def test_each_folder_may_include_itself_and_those_below(self):
        self.assert_allowed("runtime/a.h", "runtime/b.h", "kernels_src/args.h")
        self.assert_allowed("graph/a.h", "graph/b.h", "runtime/b.h", "kernels_src/args.h")
        self.assert_allowed("base/a.cpp", "base/b.h", "runtime/error.h")
        self.assert_allowed("text/chat/a.cpp", "text/unicode/b.h", "base/b.h", "runtime/error.h")
        self.assert_allowed("models/plan/a.cpp", "models/config/b.h", "base/b.h", "graph/b.h", "runtime/b.h",
                            "kernels_src/attend.h")
        self.assert_allowed("engine/a.cpp", "engine/cache/b.h", "text/b.h", "models/b.h", "base/b.h", "graph/b.h",
                            "runtime/b.h")
        self.assert_allowed("cli/main.cpp", "cli/run/b.h", "engine/b.h", "text/b.h", "base/b.h", "runtime/b.h")
        self.assert_allowed("tests/graph/a_test.cpp", "tests/support/b.h", "engine/b.h", "graph/b.h")

    def test_an_include_upwards_is_rejected(self):
        for path, target in (("runtime/a.h", "graph/b.h"), ("graph/a.cpp", "models/b.h"), ("models/a.h", "engine/b.h"),
                             ("runtime/a.cpp", "engine/b.h"), ("engine/a.h", "cli/b.h"), ("graph/a.h", "tests/b.h"),
                             ("base/a.h", "text/b.h"), ("base/a.h", "models/b.h"), ("text/a.h", "engine/b.h"),
                             ("models/config/a.h", "engine/cache/b.h"), ("engine/device/a.cpp", "cli/run/b.h")):
            self.assert_rejected(path, target)

    def test_text_and_models_do_not_include_each_other(self):
        self.assert_rejected("text/tokenizer/a.h", "models/config/b.h")
        self.assert_rejected("models/weights/a.cpp", "text/tokenizer/b.h")

    def test_the_graph_library_includes_no_base(self):
        self.assert_rejected("graph/a.cpp", "base/b.h")
        self.assert_rejected("runtime/a.cpp", "text/b.h")

    def test_base_and_text_see_of_runtime_the_error_alone(self):
        for path in ("base/a.cpp", "text/chat/a.cpp"):
            for target in ("runtime/host/parallel.h", "runtime/error.cpp", "graph/b.h", "kernels_src/norm.h"):
                self.assert_rejected(path, target)

    def test_top_folders_do_not_include_each_other(self):
        self.assert_allowed("cli/bench.cpp", "bench/b.h", "examples/nanogpt/c.h")  # the command that runs the measurement
        self.assert_allowed("examples/nanogpt/a.cpp", "bench/b.h", "graph/node.h")
        self.assert_rejected("cli/bench.cpp", "examples/a.h")
        self.assert_rejected("bench/a.cpp", "examples/nanogpt/c.h")
        self.assert_rejected("bench/a.cpp", "cli/b.h")
        self.assert_rejected("examples/a.cpp", "bench/b.h")
        self.assert_rejected("bench/a.cpp", "tests/support/b.h")

    def test_kernels_include_kernels_only(self):
        self.assert_allowed("kernels_src/x.cu", "kernels_src/x.h", "kernels_src/device/dialect.cuh")
        self.assert_rejected("kernels_src/x.cu", "runtime/error.h")
        self.assert_rejected("kernels_src/x.h", "graph/node.h")

    def test_only_the_dialect_includes_the_emulation(self):
        self.assert_allowed("kernels_src/device/dialect.cuh", "cpu_driver/emulation.h")
        self.assert_rejected("kernels_src/device/matvec.cuh", "cpu_driver/emulation.h")

    def test_the_cpu_driver_and_the_library_share_a_contract_and_nothing_else(self):
        self.assert_allowed("runtime/driver.cpp", "runtime/calls/cpu_driver_api.h")
        self.assert_allowed("cpu_driver/blocks/fiber.cpp", "cpu_driver/blocks/fiber.h", *check_includes.CONTRACT)
        self.assert_allowed("cpu_driver/kernel_abi.h", "cpu_driver/emulation.h", "kernels_src/args.h")
        self.assert_allowed("tests/cpu_driver/a_test.cpp", "cpu_driver/blocks/fiber.h")
        self.assert_rejected("runtime/driver.cpp", "cpu_driver/blocks/fiber.h")
        self.assert_rejected("engine/a.cpp", "cpu_driver/work/worker_pool.h")
        self.assert_rejected("cli/a.cpp", "cpu_driver/driver_state.h")
        self.assert_rejected("cpu_driver/a.cpp", "runtime/error.h")
        self.assert_rejected("cpu_driver/a.cpp", "graph/node.h")

    def test_a_quoted_include_names_its_folder(self):
        self.assert_rejected("graph/a.cpp", "node.h")

    def test_an_include_with_odd_spacing_is_seen(self):
        self.assertEqual(1, len(check_includes.check_file("runtime/a.h", '// A file.\n  #  include   "graph/b.h"\n')))


class Circles(unittest.TestCase):
    def circles(self, **more):
        models = {"models/adapters/a.cpp": including("models/weights/w.h"), "models/step/s.h": including("models/adapters/a.h"),
                  "models/lowering/l.cpp": including("models/step/s.h"), "models/plan/p.cpp": including("models/lowering/l.h"),
                  "models/decoder_model.cpp": including("models/weights/w.h"), "models/plan/p.h": including("models/decoder_model.h")}
        return check_includes.check_circles(models | more)

    def test_folders_of_a_room_that_include_each_other_one_way_are_fine(self):
        self.assertEqual([], self.circles())

    def test_an_include_upwards_inside_a_room_is_rejected_with_the_circle(self):
        for path, target, arrows in (("models/lowering/up.h", "models/plan/p.h", 2), ("models/adapters/up.cpp", "models/plan/p.h", 4),
                                     ("models/weights/up.cpp", "models/adapters/a.h", 2)):
            found = self.circles(**{path: including(target)})
            self.assertEqual(1, len(found), found)
            self.assertIn("%s includes %s" % (path, target), found[0])
            self.assertEqual(arrows, found[0].count(" includes "), found[0])

    def test_a_folder_and_what_lies_below_it_may_include_each_other(self):
        self.assertEqual([], check_includes.check_circles({"graph/a.h": including("graph/nodes/b.h"),
                                                           "graph/nodes/c.cpp": including("graph/a.h")}))

    def test_a_known_circle_is_left_alone_until_it_has_gone(self):
        known = {"cpu_driver/work/a.cpp": including("cpu_driver/graphs/b.h"), "cpu_driver/graphs/c.h": including("cpu_driver/work/d.h")}
        self.assertEqual([], check_includes.check_circles(known))
        found = check_includes.check_circles(known | {"cpu_driver/work/a.cpp": including()})
        self.assertEqual(1, len(found), found)
        self.assertIn("CLOSING", found[0])


class Sizes(unittest.TestCase):
    def test_a_folder_of_too_many_sources_is_rejected(self):
        paths = ["runtime/kernels/%d.h" % i for i in range(check_includes.MOST_SOURCES)]
        self.assertEqual([], check_includes.check_sizes([*paths, "runtime/kernels/below/a.h", "runtime/a.h"]))
        found = check_includes.check_sizes([*paths, "runtime/kernels/a.cpp"])
        self.assertEqual(1, len(found), found)
        self.assertIn("runtime/kernels: has 26 sources", found[0])


class Names(unittest.TestCase):
    def test_shapeless_names_are_rejected(self):
        for name in ("utils.h", "string_utils.cpp", "common.cuh", "misc.py", "test_helpers.h", "helper.h"):
            found = check_includes.check_file("runtime/" + name, "# A file.\n" if name.endswith(".py") else including())
            self.assertEqual(1, len(found), name)
            self.assertIn(name, found[0])

    def test_a_word_that_only_contains_one_is_fine(self):
        self.assertEqual([], check_includes.check_file("runtime/commonplace.h", including()))


class FirstLines(unittest.TestCase):
    def test_a_file_must_open_with_a_comment(self):
        for path, text in (("graph/a.h", "#pragma once\n"), ("graph/a.cpp", ""), ("bench/a.sh", "#!/bin/sh\nset -e\n"),
                           ("tests/a.py", "import os\n"), ("cmake/a.cmake", "set(x y)\n")):
            found = check_includes.check_file(path, text)
            self.assertEqual(1, len(found), path)
            self.assertIn("comment", found[0])

    def test_a_cpp_may_open_with_the_header_that_says_what_it_is(self):
        self.assertEqual([], check_includes.check_file("graph/a.cpp", '#include "graph/a.h"\n'))
        self.assertEqual(1, len(check_includes.check_file("graph/a.cpp", "#include <vector>\n")))
        self.assertEqual(1, len(check_includes.check_file("graph/a.h", '#include "graph/b.h"\n')))

    def test_comments_of_each_language_are_known(self):
        for path, text in (("graph/a.h", "// A.\n"), ("bench/a.sh", "#!/bin/sh\n# A.\n"), ("tests/a.py", "# A.\n"),
                           ("tests/b.py", '#!/usr/bin/env python3\n"""A."""\n'), ("cmake/a.cmake", "# A.\n")):
            self.assertEqual([], check_includes.check_file(path, text), path)


class CommandLine(unittest.TestCase):
    def run_on(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            return subprocess.run([sys.executable, check_includes.__file__, root], capture_output=True, text=True)

    def test_a_sound_tree_exits_0(self):
        done = self.run_on({"runtime/a.h": including("kernels_src/b.h"), "kernels_src/b.h": including()})
        self.assertEqual((0, ""), (done.returncode, done.stderr))

    def test_cuda_below_a_pure_folder_is_rejected_with_the_way_there(self):
        plan = {"models/plan/b.h": including("runtime/driver.h"), "runtime/driver.h": "// A file.\n#include <cuda.h>\n"}
        for path in ("engine/schedule/a.h", "engine/cache/a.cpp"):
            done = self.run_on({path: including("models/plan/b.h"), **plan})
            self.assertEqual((1, 1), (done.returncode, len(done.stderr.splitlines())), done.stderr)
            self.assertIn(path + " -> models/plan/b.h -> runtime/driver.h -> cuda.h", done.stderr)
        done = self.run_on({"engine/device/a.h": including("models/plan/b.h"), **plan})
        self.assertEqual((0, ""), (done.returncode, done.stderr))

    def test_a_pure_folder_includes_no_header_of_cuda(self):
        for folder in ("base", "text/chat", "engine/cache", "engine/schedule"):
            for header in ("cuda.h", "cuda_runtime_api.h", "nvrtc.h", "cublasLt.h", "cuda/std/span"):
                done = self.run_on({folder + "/a.h": "// A file.\n#include <%s>\n" % header})
                self.assertEqual((1, 1), (done.returncode, len(done.stderr.splitlines())), done.stderr)
                self.assertIn(header, done.stderr)

    def test_a_cycle_of_includes_in_a_pure_folder_ends(self):
        done = self.run_on({"text/a.h": including("text/b.h"), "text/b.h": including("text/a.h")})
        self.assertEqual((0, ""), (done.returncode, done.stderr))

    def test_folders_are_counted_and_circles_found_in_a_tree(self):
        done = self.run_on({"models/plan/a.h": including("models/lowering/b.h"), "models/lowering/b.h": including("models/plan/a.h"),
                            **{"tests/cli/%d.py" % i: "# A test.\n" for i in range(26)},
                            **{"tests/golden/%d.py" % i: "" for i in range(26)}, **{"tests/fuzz/corpus/%d.py" % i: "" for i in range(26)}})
        self.assertEqual((1, 2), (done.returncode, len(done.stderr.splitlines())), done.stderr)
        self.assertIn("models/plan", done.stderr)
        self.assertIn("tests/cli: has 26 sources", done.stderr)

    def test_every_violation_of_a_tree_is_printed(self):
        done = self.run_on({"runtime/a.h": including("graph/b.h"), "graph/b.h": "#pragma once\n",
                            "tests/golden/odd.py": "import os\n"})
        self.assertEqual((1, 2), (done.returncode, len(done.stderr.splitlines())), done.stderr)


if __name__ == "__main__":
    unittest.main()
