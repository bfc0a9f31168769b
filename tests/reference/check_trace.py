"""What is wrong with a timeline in the Trace Event Format (object form): the rules that Perfetto and chrome://tracing
rely on. Standard library only.  usage: check_trace.py FILE"""
import json
import math
import sys

METADATA = {"process_name": str, "thread_name": str, "thread_sort_index": int}


def problems_of(trace):
    """Lines, none for a correct timeline of complete and metadata events."""
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        return ["no object with a list \"traceEvents\""]
    problems = []
    if trace.get("displayTimeUnit", "ms") not in ("ms", "ns"):
        problems.append("displayTimeUnit is %r" % trace["displayTimeUnit"])
    named, slices = set(), {}
    for number, event in enumerate(trace["traceEvents"]):
        where = "event %d" % number
        if not isinstance(event, dict) or not isinstance(event.get("name"), str) or not event["name"]:
            problems.append(where + " has no name")
            continue
        where += " (%s)" % event["name"]
        if not all(isinstance(event.get(key), int) for key in ("pid", "tid")):
            problems.append(where + " has no pid or tid")
            continue
        if event.get("ph") == "M":
            kind = METADATA.get(event["name"])
            value = next(iter(event.get("args", {}).values()), None)
            if kind is None or not isinstance(value, kind):
                problems.append(where + " is no metadata that is known")
            named.add((event["name"], event["pid"], event["tid"]))
        elif event.get("ph") == "X":
            times = [event.get("ts"), event.get("dur")]
            if not all(isinstance(t, (int, float)) and math.isfinite(t) for t in times) or event["dur"] < 0:
                problems.append(where + " has no ts and dur")
                continue
            slices.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["dur"], event["name"]))
        else:
            problems.append(where + " has phase %r" % event.get("ph"))
    for (pid, tid), on_track in sorted(slices.items()):
        if ("thread_name", pid, tid) not in named:
            problems.append("track %d of process %d has no name" % (tid, pid))
        if not any(kind == "process_name" and of == pid for kind, of, _ in named):
            problems.append("process %d has no name" % pid)
        on_track.sort()
        for (ts, dur, name), (next_ts, _, next_name) in zip(on_track, on_track[1:]):
            if ts + dur > next_ts + 1e-6:
                problems.append("on track %d, %s ends after %s has begun" % (tid, name, next_name))
    if not slices:
        problems.append("no slices")
    return problems


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        found = problems_of(json.load(file))
    for line in found:
        print(line)
    sys.exit(1 if found else 0)
