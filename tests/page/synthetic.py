# Plans that no model has, put into a real page in place of its own: chains and forks of any length, plans inside nodes,
# timings. Standard library only.
import json
import re

DATA = re.compile(r'(<script type="application/json" id="plan-data">)(.*?)(</script>)', re.DOTALL)


def data_of(page):
    return json.loads(DATA.search(page).group(2))


def with_data(page, data):
    text = json.dumps(data).replace("<", "\\u003c")
    return DATA.sub(lambda match: match.group(1) + text + match.group(3), page, count=1)


def node(index, name, layer="", reads="x", writes="y", kernel="mix"):
    uses = [{"field": "left", "buffer": reads, "offset": 0, "bytes": 512, "access": "in"},
            {"field": "y", "buffer": writes, "offset": 0, "bytes": 1024, "access": "out"}]
    return {"id": index, "name": name, "kind": "kernel", "kernel": kernel, "layer": layer, "grid": [132, 1, 1],
            "block": [256, 1, 1], "shared_bytes": 0, "bytes_read": 512 + index, "bytes_written": 1024, "uses": uses,
            "waits_for_inputs": True,
            "arguments": [{"field": "left", "role": "in", "type": "float32", "count": 128},
                          {"field": "y", "role": "out", "type": "float32", "count": 256},
                          {"field": "scale", "role": "scalar", "type": "float32", "value": 0.5}]}


def edge(earlier, later, kind="programmatic", reason="RAW y[0,1024)"):
    return {"from": earlier, "to": later, "type": kind, "reasons": [reason]}


def plan(name, nodes, edges):
    buffers = [{"name": buffer, "bytes": 1024, "kind": "activation", "live_in": buffer == "x", "live_out": False,
                "needed": [0, len(nodes) - 1]} for buffer in ("x", "y")]
    return {"name": name, "facts": {}, "hash": "0", "peak": {"bytes": 2048, "node": 0}, "buffers": buffers,
            "nodes": nodes, "edges": edges}


def page_data(dumped, folds=None):
    """What a page of one plan carries."""
    dumped = {**dumped, "device": "none", "about": {}, "folds": folds or {"runs": [], "bodies": {}}, "timings": None}
    return {"plan": dumped, "before": None, "diff": None}


def fork_join(count, width=8):
    """A chain of forks and joins without layers, so that nothing folds: `width` nodes after one and before the next."""
    nodes = [node(i, "node%d" % i, reads="x" if i % 2 else "y", writes="y" if i % 2 else "x") for i in range(count)]
    edges = []
    for i in range(count):
        hub = i - i % (width + 1)
        if i == hub and i > 0:
            edges += [edge(before, i, "full") for before in range(i - width, i)]
        elif i > hub:
            edges.append(edge(hub, i))
    return page_data(plan("synthetic.%d" % count, nodes, edges))


def nested():
    """before, a loop whose body holds three layers that are the same and a child, after."""
    inner = [node(2 * i + k, "l%d.%s" % (i, part), "l%d" % i)
             for i in range(3) for k, part in enumerate(("up", "down"))]
    child = {**node(6, "part"), "kind": "child", "kernel": "", "patchable_inside": True,
             "bodies": [plan("piece", [node(0, "innermost")], [])]}
    body = plan("nested/loop.body", inner + [child], [edge(i, i + 1) for i in range(6)])
    loop = {**node(1, "loop"), "kind": "conditional", "kernel": "", "bodies": [body],
            "conditional": {"type": "while", "default_value": 1, "reset_each_launch": True}}
    return page_data(plan("nested", [node(0, "before"), loop, node(2, "after")],
                          [edge(0, 1, "full"), edge(1, 2, "full")]),
                     {"runs": [], "bodies": {"1": [{"runs": [{"first": 0, "count": 2, "times": 3}],
                                                    "bodies": {"6": [{"runs": [], "bodies": {}}]}}]}})


def nested_timed():
    """The same with times: the loop takes 40 µs, and a round of its body 1 + 2 + ... + 7 µs."""
    def times(names, start=0.0):
        out = []
        for index, name in enumerate(names):
            out.append({"node": index, "name": name, "time_us": 1.0 + index, "span_us": 1.0 + index, "overlap_us": 0.0,
                        "start_us": start, "end_us": start + 1.0 + index, "waited_us": 0.0, "bracketed": False})
            start += 1.0 + index
        return out
    data = nested()
    body = data["plan"]["nodes"][1]["bodies"][0]
    nodes = times(["before", "loop", "after"])
    nodes[1].update(time_us=40.0, span_us=40.0, end_us=41.0,
                    bodies=[{"nodes": times([one["name"] for one in body["nodes"]])}])
    data["plan"]["timings"] = {"step_us": 44.0, "plain_step_us": 43.0, "peak_bytes_per_s": 1e12, "nodes": nodes}
    return data


def timings_of(dumped):
    """Made-up times of a dumped plan, in the form that --timings reads: node i takes 1 + i µs."""
    nodes, now = [], 0.0
    for index, one in enumerate(dumped["nodes"]):
        overlap = 0.25 if index else 0.0
        nodes.append({"node": one["id"], "name": one["name"], "time_us": 1.0 + index, "span_us": 1.0 + index + overlap,
                      "overlap_us": overlap, "start_us": now - overlap, "end_us": now + 1.0 + index,
                      "waited_us": 0.0, "bracketed": False})
        now += 1.0 + index
    return {"plan": dumped["name"], "plan_hash": dumped["hash"], "samples": 3, "step_us": now, "plain_step_us": now * 0.9,
            "peak_bytes_per_s": 4.66e12, "bracket_us": 0.5, "clock_step_us": 0.032, "nodes": nodes}
