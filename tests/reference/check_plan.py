# Checks the hazards of plans dumped by `nodewright graph --format json`, sharing no code with the builder it checks.
# Standard library only. Exit 1 with the named node, pair or edge when a plan is wrong.
import argparse
import json
import sys

READS, WRITES = ("frozen", "in"), ("out", "inout")
NUMBER, TEXT, LIST = int, str, list
GRAPH_KEYS = {"name": TEXT, "buffers": LIST, "nodes": LIST, "edges": LIST}
BUFFER_KEYS = {"name": TEXT, "bytes": NUMBER, "kind": TEXT}
NODE_KEYS = {"id": NUMBER, "name": TEXT, "kind": TEXT, "uses": LIST, "bytes_read": NUMBER, "bytes_written": NUMBER}
KERNEL_KEYS = {"kernel": TEXT, "grid": LIST, "block": LIST, "shared_bytes": NUMBER}  # of nodes of kind "kernel"
USE_KEYS = {"field": TEXT, "buffer": TEXT, "offset": NUMBER, "bytes": NUMBER, "access": TEXT}
EDGE_KEYS = {"from": NUMBER, "to": NUMBER, "type": TEXT, "reasons": LIST}


def check_plan(plan, serial=False):
    """Returns (violations as sentences, summary). With serial, edges that no hazard needs are allowed."""
    violations = schema_violations(plan)
    if violations:  # nothing below can trust the shape
        return violations, ""
    violations = use_violations(plan)
    positions = {node["id"]: index for index, node in enumerate(plan["nodes"])}
    edges = [(positions[edge["from"]], positions[edge["to"]]) for edge in plan["edges"]]
    names = [node["name"] for node in plan["nodes"]]
    order = topological_order(len(names), edges)
    if len(order) < len(names):
        in_cycle = cycle(edges, set(range(len(names))) - set(order))
        return violations + ["cycle: " + " -> ".join(names[node] for node in in_cycle)], ""
    conflicts = conflicting_pairs(plan)
    violations += order_violations(names, edges, order, conflicts)
    implied = implied_edges(edges, order)
    violations += ["edge %s -> %s is implied by other edges" % (names[a], names[b]) for a, b in implied]
    if not serial:
        violations += ["edge %s -> %s orders no conflicting pair that is not ordered without it" % (names[a], names[b])
                       for a, b in needless_edges(edges, order, conflicts) if (a, b) not in implied]
    programmatic = sum(edge["type"] == "programmatic" for edge in plan["edges"])
    return violations, "%s: %d nodes, %d edges (%d programmatic), %d buffers, %d conflicting pairs" % (
        plan["name"], len(names), len(edges), programmatic, len(plan["buffers"]), len(conflicts))


# Shape of the dump


def missing(what, value, keys):
    """Complaints about keys that an object lacks or holds with another type; further keys are welcome."""
    if not isinstance(value, dict):
        return ["%s is not an object" % what]
    wrong = [key for key, kind in keys.items()
             if not isinstance(value.get(key), kind) or isinstance(value.get(key), bool)]
    return ["%s: \"%s\" is missing or not of type %s" % (what, key, keys[key].__name__) for key in wrong]


def schema_violations(plan):
    """Keys, types, unique names and ids, known references and words."""
    found = missing("graph", plan, GRAPH_KEYS)
    if found:
        return found
    for index, buffer in enumerate(plan["buffers"]):
        found += missing("buffer %d" % index, buffer, BUFFER_KEYS)
    for index, node in enumerate(plan["nodes"]):
        found += node_schema("node %d" % index, node)
    for index, edge in enumerate(plan["edges"]):
        found += missing("edge %d" % index, edge, EDGE_KEYS)
    return found or reference_violations(plan)


def node_schema(what, node):
    found = missing(what, node, NODE_KEYS)
    if found:
        return found
    what = "node %s" % node["name"]
    if node["kind"] == "kernel":
        found = missing(what, node, KERNEL_KEYS)
        for key in ("grid", "block"):
            size = node.get(key)
            if isinstance(size, list) and not (len(size) == 3 and all(isinstance(n, int) and n >= 1 for n in size)):
                found.append("%s: \"%s\" is not three positive numbers" % (what, key))
    for index, use in enumerate(node["uses"]):
        found += missing("%s, use %d" % (what, index), use, USE_KEYS)
    return found


def reference_violations(plan):
    found = repeated("buffer name", [buffer["name"] for buffer in plan["buffers"]])
    found += repeated("node name", [node["name"] for node in plan["nodes"]])
    found += repeated("node id", [node["id"] for node in plan["nodes"]])
    found += repeated("edge", [(edge["from"], edge["to"]) for edge in plan["edges"]])
    buffers = {buffer["name"] for buffer in plan["buffers"]}
    kinds = {node["id"]: node["kind"] for node in plan["nodes"]}
    for node in plan["nodes"]:
        for use in node["uses"]:
            where = "node %s, field %s" % (node["name"], use["field"])
            if use["buffer"] not in buffers:
                found.append("%s: no buffer is named %s" % (where, use["buffer"]))
            if use["access"] not in READS + WRITES:
                found.append("%s: access \"%s\" is none of %s" % (where, use["access"], ", ".join(READS + WRITES)))
    for edge in plan["edges"]:
        where = "edge %d -> %d" % (edge["from"], edge["to"])
        if not {edge["from"], edge["to"]} <= set(kinds):
            found.append("%s names a node that does not exist" % where)
        elif edge["type"] not in ("full", "programmatic"):
            found.append("%s: type \"%s\" is neither full nor programmatic" % (where, edge["type"]))
        elif edge["type"] == "programmatic" and not kinds[edge["from"]] == kinds[edge["to"]] == "kernel":
            found.append("%s is programmatic, but joins %s and %s; CUDA allows it between kernels only" % (
                where, kinds[edge["from"]], kinds[edge["to"]]))
    return found


def repeated(what, values):
    seen, twice = set(), []
    for value in values:
        if value in seen:
            twice.append("%s %s appears twice" % (what, value))
        seen.add(value)
    return twice


# Uses and conflicts


def overlaps(a, b):
    """Whether two uses share a byte."""
    return a["buffer"] == b["buffer"] and a["offset"] < b["offset"] + b["bytes"] and \
        b["offset"] < a["offset"] + a["bytes"] and a["bytes"] > 0 and b["bytes"] > 0


def use_violations(plan):
    """Uses that leave their buffer, and fields of one node that overlap although one of them writes."""
    sizes = {buffer["name"]: buffer["bytes"] for buffer in plan["buffers"]}
    found = []
    for node in plan["nodes"]:
        for index, use in enumerate(node["uses"]):
            size, end = sizes[use["buffer"]], use["offset"] + use["bytes"]
            if use["offset"] < 0 or use["bytes"] < 0 or end > size:
                found.append("node %s, field %s: bytes %d..%d lie outside buffer %s of %d bytes" % (
                    node["name"], use["field"], use["offset"], end, use["buffer"], size))
            for other in node["uses"][:index]:
                if overlaps(use, other) and (use["access"] in WRITES or other["access"] in WRITES):
                    found.append("node %s: fields %s (%s) and %s (%s) overlap in buffer %s" % (
                        node["name"], other["field"], other["access"], use["field"], use["access"], use["buffer"]))
    return found


def conflicting_pairs(plan):
    """{(earlier position, later position): (use, use)} of nodes that share a byte that one of them writes."""
    by_buffer = {}
    for index, node in enumerate(plan["nodes"]):
        for use in node["uses"]:
            by_buffer.setdefault(use["buffer"], []).append((index, use))
    pairs = {}
    for uses in by_buffer.values():
        for writer, written in uses:
            if written["access"] not in WRITES:
                continue
            for other, use in uses:
                if other != writer and overlaps(written, use):
                    pair, both = ((writer, other), (written, use)) if writer < other else ((other, writer), (use, written))
                    pairs.setdefault(pair, both)
    return pairs


# Order. Sets of nodes are bits of a Python int, node i being bit i.


def successors(count, edges):
    lists = [[] for _ in range(count)]
    for a, b in edges:
        lists[a].append(b)
    return lists


def topological_order(count, edges):
    """All nodes, each after what it depends on; fewer than count when the graph has a cycle."""
    after, waiting = successors(count, edges), [0] * count
    for _, b in edges:
        waiting[b] += 1
    order = [node for node in range(count) if waiting[node] == 0]
    for node in order:  # grows while it is walked
        for next_node in after[node]:
            waiting[next_node] -= 1
            if waiting[next_node] == 0:
                order.append(next_node)
    return order


def cycle(edges, left):
    """Names one cycle among `left`, the nodes without a topological position: [node, ..., the same node]."""
    before = {b: a for a, b in edges if a in left and b in left}  # each of them has a predecessor among them
    node, path = min(left), []
    while node not in path:
        path.append(node)
        node = before[node]
    path = path[path.index(node):] + [node]
    return path[::-1]


def reachable(edges, order):
    """[nodes] sets of bits: what is reached from each node by at least one edge."""
    after, reach = successors(len(order), edges), [0] * len(order)
    for node in reversed(order):
        for next_node in after[node]:
            reach[node] |= reach[next_node] | 1 << next_node
    return reach


def is_ordered(reach, a, b):
    return bool(reach[a] >> b & 1 or reach[b] >> a & 1)


def order_violations(names, edges, order, conflicts):
    """Conflicting pairs that no path orders."""
    reach, found = reachable(edges, order), []
    for (a, b), (use_a, use_b) in sorted(conflicts.items()):
        if not is_ordered(reach, a, b):
            found.append("%s (%s %s) and %s (%s %s) share bytes %d..%d of buffer %s and are not ordered" % (
                names[a], use_a["access"], use_a["field"], names[b], use_b["access"], use_b["field"],
                max(use_a["offset"], use_b["offset"]),
                min(use_a["offset"] + use_a["bytes"], use_b["offset"] + use_b["bytes"]), use_a["buffer"]))
    return found


def implied_edges(edges, order):
    """Edges a -> b for which a longer path from a to b exists."""
    after, reach = successors(len(order), edges), reachable(edges, order)
    return [(a, b) for a, b in edges if any(reach[other] >> b & 1 for other in after[a] if other != b)]


def needless_edges(edges, order, conflicts):
    """Edges without which every conflicting pair that is ordered now stays ordered."""
    reach = reachable(edges, order)
    ordered = [pair for pair in conflicts if is_ordered(reach, *pair)]
    found = []
    for a, b in edges:
        # Only pairs from a or above to b or below can lose their order.
        touched = [(x, y) for x, y in ordered if passes(reach, a, b, x, y) or passes(reach, a, b, y, x)]
        without = reachable([edge for edge in edges if edge != (a, b)], order) if touched else []
        if all(is_ordered(without, x, y) for x, y in touched):
            found.append((a, b))
    return found


def passes(reach, a, b, x, y):
    """Whether some path from x to y may use the edge a -> b."""
    return (x == a or reach[x] >> a & 1) and (y == b or reach[b] >> y & 1)


def main():
    parser = argparse.ArgumentParser(description="Checks dumped plans for hazards.")
    parser.add_argument("files", nargs="+", metavar="GRAPH.json")
    parser.add_argument("--serial", action="store_true", help="the plan was built with the serial edge policy")
    options = parser.parse_args()
    failed = False
    for path in options.files:
        try:
            with open(path) as file:
                plan = json.load(file)
        except (OSError, ValueError) as error:
            print("%s: cannot be read: %s" % (path, error), file=sys.stderr)
            failed = True
            continue
        violations, summary = check_plan(plan, options.serial)
        for violation in violations:
            print("%s: %s" % (path, violation), file=sys.stderr)
        failed |= bool(violations)
        print("%s: %s" % (path, "%d violations" % len(violations) if violations else summary + ", all in order"))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
