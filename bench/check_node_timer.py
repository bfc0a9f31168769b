#!/usr/bin/env python3
"""Compares the node timer with NVIDIA's profiler, on a machine with a GPU and ncu (Nsight Compute).

    bench/check_node_timer.py --program build/nodewright --model DIR [--context 1024] [--against span|time]

1. `nodewright bench nodes` under programmatic edges: the sum of the node times must be within 5 % of the twin's step,
   and the twin at most 15 % slower than the plain graph.
2. `nodewright bench nodes --edges full`: each kernel on its own, which is what ncu measures.
3. ncu over an eager run of the same plan, `bench decode --modes eager --edges full`, with caches and clocks left alone:
   gpu__time_duration of each kernel, over the steps that it has seen whole. The prompt's launches are skipped: the same
   run with --trace has told how many launches there are.

For at least five kernels ncu must agree with the times of 2 within 10 %; those that do not are named. --against says with
which: `time` counts from the end of the kernel before, so it holds the launch, of which ncu sees a part; `span` is from
the first block's start to the last block's end. Both stand in the table. Exit 1 when fewer than five agree, 2 when
something could not be run.
"""
import argparse
import csv
import glob
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

LEAST_KERNELS = 5
LARGEST_DIFFERENCE = 0.10
LARGEST_SUM_ERROR = 0.05
LARGEST_OVERHEAD = 0.15
METRIC = "gpu__time_duration.sum"
PROFILED_STEPS = 8  # as many launches from the end on: bench decode ends with five steps, and reads between them


def find_ncu():
    places = ["/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda*/nsight-compute*/ncu",
              "/opt/nvidia/nsight-compute/*/target/*/ncu"]
    found = shutil.which("ncu")
    return found or next((path for place in places for path in sorted(glob.glob(place), reverse=True)), None)


def run(words, what):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        print("%s failed (exit code %d): %s\n%s%s" % (what, done.returncode, " ".join(words), done.stdout[-2000:],
                                                      done.stderr[-2000:]), file=sys.stderr)
        sys.exit(2)
    return done


def folded(entry):
    """The name that nodes of different layers share: "l3.qkv" is "*.qkv"."""
    layer, name = entry["layer"], entry["name"]
    return "*" + name[len(layer):] if layer else name


def medians_of(timings, member):
    values = {}
    for entry in timings["nodes"]:
        values.setdefault(folded(entry), []).append(entry[member])
    return {name: statistics.median(of_name) for name, of_name in values.items()}


def check_totals(timings):
    """What is wrong with one run of `bench nodes`, as lines."""
    problems = []
    total = timings["sum_us"] / timings["step_us"]
    overhead = timings["step_us"] / timings["plain_step_us"] - 1
    print("sum of node times %.1f us, twin's step %.1f us: %.1f %%; plain step %.1f us: the twin takes %.1f %% longer"
          % (timings["sum_us"], timings["step_us"], total * 100, timings["plain_step_us"], overhead * 100))
    if abs(total - 1) > LARGEST_SUM_ERROR:
        problems.append("the node times sum up to %.1f %% of the step" % (total * 100))
    if overhead > LARGEST_OVERHEAD:
        problems.append("the twin takes %.1f %% longer than the plain graph" % (overhead * 100))
    return problems


def read_ncu(text):
    """[(kernel, microseconds)] in the order of the launches, from `ncu --csv`."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise ValueError("ncu has printed no table")
    scale = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}
    rows = []
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        if row["Metric Name"] != METRIC:
            continue
        kernel = row["Kernel Name"].split("(")[0].strip()
        rows.append((kernel, float(row["Metric Value"].replace(",", "")) * scale[row["Metric Unit"]]))
    return rows


def steps_in(rows, step):
    """Every whole step among the launches: where the kernels of `step` follow one another."""
    names = [kernel for kernel, _ in rows]
    found, at = [], 0
    while at + len(step) <= len(names):
        if names[at:at + len(step)] == step:
            found.append([us for _, us in rows[at:at + len(step)]])
            at += len(step)
        else:
            at += 1
    return found


def compare(timed, profiled, against):
    """Prints the table; returns what is off by more than allowed, as lines, unless enough kernels agree. timed: {member:
    {name: us}}."""
    misses, offsets = [], []
    print("%-12s %10s %10s %8s %10s %8s" % ("node", "ncu us", "span us", "", "time us", ""))
    for name, reference in profiled.items():
        off = {member: timed[member][name] / reference - 1 for member in ("span_us", "time_us")}
        print("%-12s %10.2f %10.2f %+7.1f%% %10.2f %+7.1f%%"
              % (name, reference, timed["span_us"][name], off["span_us"] * 100, timed["time_us"][name],
                 off["time_us"] * 100))
        offsets.append(reference - timed["span_us"][name])
        if abs(off[against + "_us"]) > LARGEST_DIFFERENCE:
            misses.append("%s: ncu says %.2f us, the node timer's %s %.2f us (%+.1f %%)"
                          % (name, reference, against, timed[against + "_us"][name], off[against + "_us"] * 100))
    if offsets:
        print("ncu minus span: %.2f to %.2f us" % (min(offsets), max(offsets)))
    agreeing = len(profiled) - len(misses)
    print("%d of %d kernels agree within %.0f %%" % (agreeing, len(profiled), LARGEST_DIFFERENCE * 100))
    for miss in misses:
        print("beyond: " + miss)
    return misses if agreeing < LEAST_KERNELS else []


def bench_nodes(program, model, context, edges, folder):
    out = os.path.join(folder, "nodes.%s.json" % edges)
    print(run([program, "bench", "nodes", "--model", model, "--context", str(context), "--edges", edges, "--out", out],
              "bench nodes --edges " + edges).stdout)
    with open(out) as file:
        return json.load(file)


def eager_run(program, model, context):
    return [program, "bench", "decode", "--model", model, "--context", str(context), "--modes", "eager", "--edges", "full",
            "--samples", "1", "--steps", "1"]


def launches_before_the_end(trace, kernels_of_step):
    """Of the last steps. Launches that the trace does not know, of libraries, are profiled in addition."""
    return max(0, trace.count(" cuLaunchKernelEx(") - PROFILED_STEPS * kernels_of_step)


def profile(ncu, program, model, context, kernels_of_step):
    words = eager_run(program, model, context)
    skipped = launches_before_the_end(run([*words, "--trace"], "bench decode --trace").stderr, kernels_of_step)
    return read_ncu(run([ncu, "--csv", "--metrics", METRIC, "--clock-control", "none", "--cache-control", "none",
                         "--launch-skip", str(skipped), *words], "ncu").stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/nodewright")
    parser.add_argument("--model", required=True)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--against", choices=("span", "time"), default="time")
    parser.add_argument("--ncu", default=find_ncu())
    options = parser.parse_args()
    if not options.ncu:
        print("no ncu on the PATH, under /usr/local/cuda*/bin or /opt/nvidia/nsight-compute: pass --ncu",
              file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        problems = check_totals(bench_nodes(options.program, options.model, options.context, "programmatic", folder))
        timings = bench_nodes(options.program, options.model, options.context, "full", folder)
    nodes = [entry for entry in timings["nodes"] if entry["kernel"]]
    launches = profile(options.ncu, options.program, options.model, options.context, len(nodes))
    steps = steps_in(launches, [entry["kernel"] for entry in nodes])
    if not steps:
        print("ncu has seen %d launches and no whole step of %d kernels among them: the last are %s, of a step %s"
              % (len(launches), len(nodes), [kernel for kernel, _ in launches[-len(nodes):]],
                 [entry["kernel"] for entry in nodes]), file=sys.stderr)
        return 2
    values = {}
    for step in steps:
        for entry, us in zip(nodes, step):
            values.setdefault(folded(entry), []).append(us)
    print("ncu: %d launches, %d whole steps" % (len(launches), len(steps)))
    timed = {member: medians_of(timings, member) for member in ("span_us", "time_us")}
    problems += compare(timed, {name: statistics.median(of_name) for name, of_name in values.items()}, options.against)
    for problem in problems:
        print("MISS " + problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
