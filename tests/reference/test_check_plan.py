# Tests of check_plan.py: sound plans pass, and every kind of planted violation is named.
import copy
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest

import check_plan


def use(buffer, access, offset=0, size=64, field=None):
    return {"field": field or buffer + "_" + access, "buffer": buffer, "offset": offset, "bytes": size, "access": access}


def node(index, name, uses, kind="kernel"):
    return {"id": index, "name": name, "kind": kind, "kernel": "k", "layer": 0, "grid": [1, 1, 1],
            "block": [128, 1, 1], "shared_bytes": 0, "bytes_read": 0, "bytes_written": 0, "uses": uses}


def plan(nodes, edges, buffers=("w", "x", "y", "z"), size=256):
    return {"name": "planted", "facts": {"bucket": "1"},
            "buffers": [{"name": name, "bytes": size, "kind": "activation"} for name in buffers],
            "nodes": nodes,
            "edges": [{"from": a, "to": b, "type": "full", "reasons": []} for a, b in edges]}


def diamond():
    """start writes x; left and right read x and write y and z; end reads both and writes x again."""
    return plan([node(10, "start", [use("w", "frozen"), use("x", "out")]),
                 node(11, "left", [use("x", "in"), use("y", "out")]),
                 node(12, "right", [use("x", "in"), use("z", "out")]),
                 node(13, "end", [use("y", "in"), use("z", "in"), use("x", "out")])],
                [(10, 11), (10, 12), (11, 13), (12, 13)])


def layered(layers, width, seed):
    """A sound plan of layers * width nodes: each reads two parts of the layer before and writes its own part."""
    draw, nodes, edges = random.Random(seed), [], []
    for layer in range(layers):
        for column in range(width):
            index, uses = layer * width + column, [use("w", "frozen")]
            for source in sorted(draw.sample(range(width), min(2, width))) if layer else []:
                uses.append(use("a%d" % (layer - 1), "in", 64 * source, 64, "in%d" % source))
                edges.append(((layer - 1) * width + source, index))
            nodes.append(node(index, "l%d.n%d" % (layer, column), uses + [use("a%d" % layer, "out", 64 * column)]))
    return plan(nodes, edges, ["w"] + ["a%d" % layer for layer in range(layers)], 64 * max(4, width))


class CheckPlan(unittest.TestCase):
    def assert_violation(self, broken, *words, serial=False):
        violations, _ = check_plan.check_plan(broken, serial)
        self.assertEqual(1, len(violations), violations)
        for word in words:
            self.assertIn(word, violations[0])

    def assert_sound(self, sound, serial=False):
        self.assertEqual([], check_plan.check_plan(sound, serial)[0])

    def test_a_sound_diamond_passes_and_is_summed_up(self):
        violations, summary = check_plan.check_plan(diamond())
        self.assertEqual([], violations)
        self.assertEqual("planted: 4 nodes, 4 edges (0 programmatic), 4 buffers, 5 conflicting pairs", summary)

    def test_nodes_may_be_listed_in_any_order(self):
        shuffled = diamond()
        shuffled["nodes"].reverse()
        self.assert_sound(shuffled)

    def test_a_missing_edge_names_both_nodes_and_the_buffer(self):
        broken = diamond()
        del broken["edges"][3]
        self.assert_violation(broken, "right", "end", "buffer x", "not ordered")

    def test_each_removed_edge_is_noticed(self):
        for index in range(4):
            broken = diamond()
            del broken["edges"][index]
            self.assertTrue(check_plan.check_plan(broken)[0], "edge %d" % index)

    def test_write_after_read_needs_an_order(self):
        broken = plan([node(0, "reader", [use("x", "in")]), node(1, "writer", [use("x", "out")])], [])
        self.assert_violation(broken, "reader (in x_in)", "writer (out x_out)", "buffer x", "not ordered")

    def test_write_after_write_needs_an_order(self):
        broken = plan([node(0, "first", [use("x", "out")]), node(1, "second", [use("x", "out")])], [])
        self.assert_violation(broken, "first", "second", "not ordered")

    def test_a_write_over_frozen_bytes_needs_an_order(self):
        broken = plan([node(0, "first", [use("w", "frozen")]), node(1, "second", [use("w", "inout")])], [])
        self.assert_violation(broken, "frozen", "inout", "not ordered")

    def test_readers_need_no_order(self):
        self.assert_sound(plan([node(0, "a", [use("x", "in")]), node(1, "b", [use("x", "frozen")])], []))

    def test_neighbouring_ranges_need_no_order(self):
        self.assert_sound(plan([node(0, "a", [use("x", "out", 0, 64)]), node(1, "b", [use("x", "out", 64, 64)])], []))

    def test_one_shared_byte_needs_an_order(self):
        broken = plan([node(0, "a", [use("x", "out", 0, 65)]), node(1, "b", [use("x", "in", 64, 64)])], [])
        self.assert_violation(broken, "bytes 64..65")

    def test_an_empty_use_conflicts_with_nothing(self):
        self.assert_sound(plan([node(0, "a", [use("x", "out")]), node(1, "b", [use("x", "out", 8, 0)])], []))

    def test_an_implied_edge_is_named(self):
        broken = diamond()
        broken["edges"].append({"from": 10, "to": 13, "type": "full", "reasons": []})
        self.assert_violation(broken, "start -> end", "implied")

    def test_a_needless_edge_is_named(self):
        broken = plan([node(0, "a", [use("x", "out")]), node(1, "b", [use("y", "out")])], [(0, 1)])
        self.assert_violation(broken, "a -> b", "orders no conflicting pair")

    def test_a_needless_edge_is_allowed_in_a_serial_plan(self):
        self.assert_sound(plan([node(0, "a", [use("x", "out")]), node(1, "b", [use("y", "out")])], [(0, 1)]), True)

    def test_an_edge_that_only_carries_the_order_of_others_is_needed(self):
        # a -> b -> c with a conflict of a and c only: both edges carry it.
        self.assert_sound(plan([node(0, "a", [use("x", "out")]), node(1, "b", [use("y", "out")]),
                                node(2, "c", [use("x", "in")])], [(0, 1), (1, 2)]))

    def test_a_cycle_is_spelled_out(self):
        broken = diamond()
        broken["edges"].append({"from": 13, "to": 11, "type": "full", "reasons": []})
        self.assert_violation(broken, "cycle: ", "left -> end -> left")

    def test_an_edge_to_itself_is_a_cycle(self):
        broken = diamond()
        broken["edges"].append({"from": 12, "to": 12, "type": "full", "reasons": []})
        self.assert_violation(broken, "right -> right")

    def test_a_node_below_a_cycle_does_not_hide_it(self):
        broken = plan([node(0, "z", [use("x", "in")]), node(1, "a", [use("x", "out")]), node(2, "b", [use("y", "out")])],
                      [(1, 2), (2, 1), (1, 0)])
        self.assert_violation(broken, "cycle")

    def test_a_use_past_the_end_of_its_buffer_is_named(self):
        broken = diamond()
        broken["nodes"][1]["uses"][1]["offset"] = 193
        self.assert_violation(broken, "node left, field y_out", "bytes 193..257", "256")

    def test_a_use_before_its_buffer_is_named(self):
        broken = diamond()
        broken["nodes"][0]["uses"][0]["offset"] = -1
        self.assert_violation(broken, "node start, field w_frozen")

    def test_fields_of_one_node_may_not_overlap_when_one_writes(self):
        broken = plan([node(0, "a", [use("x", "in", 0, 64), use("x", "out", 32, 64)])], [])
        self.assert_violation(broken, "fields x_in (in) and x_out (out) overlap")

    def test_broken_schemas_are_named(self):
        def without(path, key):
            broken = diamond()
            target = broken
            for step in path:
                target = target[step]
            del target[key]
            return broken

        self.assert_violation(without([], "edges"), "graph", "edges")
        self.assert_violation(without(["nodes", 2], "uses"), "node 2", "uses")
        self.assert_violation(without(["nodes", 2], "grid"), "node right", "grid")
        self.assert_violation(without(["nodes", 0, "uses", 1], "access"), "node start, use 1", "access")
        self.assert_violation(without(["buffers", 3], "bytes"), "buffer 3", "bytes")
        self.assert_violation(without(["edges", 1], "type"), "edge 1", "type")
        self.assert_violation([], "graph is not an object")

    def test_unknown_words_and_names_are_named(self):
        for path, value, word in ((("nodes", 0, "uses", 0, "access"), "write", "\"write\""),
                                  (("nodes", 0, "uses", 0, "buffer"), "q", "no buffer is named q"),
                                  (("edges", 0, "to"), 99, "does not exist"), (("edges", 0, "type"), "soft", "soft"),
                                  (("nodes", 1, "name"), "start", "twice"), (("buffers", 1, "name"), "w", "twice"),
                                  (("nodes", 1, "grid"), [0, 1, 1], "three positive")):
            broken = diamond()
            target = broken
            for step in path[:-1]:
                target = target[step]
            target[path[-1]] = value
            violations, _ = check_plan.check_plan(broken)
            self.assertTrue(any(word in violation for violation in violations), (path, violations))

    def test_a_programmatic_edge_joins_kernels_only(self):
        broken = diamond()
        for edge in broken["edges"]:
            edge["type"] = "programmatic"
        self.assert_sound(broken)
        broken["nodes"][3]["kind"] = "memcpy"
        violations, _ = check_plan.check_plan(broken)
        self.assertEqual(2, len(violations), violations)
        self.assertIn("between kernels only", violations[0])

    def test_an_edge_listed_twice_is_named(self):
        broken = diamond()
        broken["edges"].append(copy.deepcopy(broken["edges"][0]))
        self.assert_violation(broken, "twice")

    def test_layered_plans_pass_and_any_planted_change_fails(self):
        for seed in range(20):
            sound = layered(6, 4, seed)
            self.assert_sound(sound)
            removed = copy.deepcopy(sound)
            del removed["edges"][seed % len(removed["edges"])]
            self.assertTrue(check_plan.check_plan(removed)[0])

    def test_three_hundred_nodes_take_little_processor_time(self):
        large = layered(60, 5, 1)
        began = time.process_time()
        self.assert_sound(large)
        self.assertLess(time.process_time() - began, 30.0)  # about 0.3 s alone; what grows with the cube takes minutes


class CommandLine(unittest.TestCase):
    def run_on(self, *plans):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for index, content in enumerate(plans):
                paths.append(os.path.join(folder, "%d.json" % index))
                with open(paths[-1], "w") as file:
                    file.write(content if isinstance(content, str) else json.dumps(content))
            script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "check_plan.py")
            return subprocess.run([sys.executable, script] + paths, capture_output=True, text=True)

    def test_sound_files_exit_0_with_a_line_each(self):
        done = self.run_on(diamond(), layered(3, 2, 1))
        self.assertEqual((0, "", 2), (done.returncode, done.stderr, len(done.stdout.splitlines())))

    def test_one_wrong_file_of_two_exits_1(self):
        done = self.run_on(diamond(), plan([node(0, "a", [use("x", "out", 250)])], []))
        self.assertEqual((1, 2), (done.returncode, len(done.stdout.splitlines())))
        self.assertIn("node a, field x_out", done.stderr)

    def test_a_file_that_is_not_json_exits_1(self):
        done = self.run_on("{")
        self.assertEqual(1, done.returncode)
        self.assertIn("cannot be read", done.stderr)


if __name__ == "__main__":
    unittest.main()
