#!/usr/bin/env python3
"""Draws what `nodewright bench graph --out graph.json` measured: plot_graph.py graph.json FOLDER [PREFIX]

Writes PREFIXgpu.svg (GPU time a node), PREFIXbuild.svg (build cost a node) and PREFIXpatch.svg (cost of a change), each
by the length of the graph: small, and legible on white and on black. Needs matplotlib.
"""
import json
import os
import sys

from plot_style import BLUE, GREEN, GREY, ORANGE, PURPLE, dress, matplotlib, plt, save


def cases(record, shape, width):
    """The cases of one shape and width, by length."""
    found = [c for c in record["cases"] if (c["shape"], c["width"]) == (shape, width)]
    return sorted(found, key=lambda c: c["nodes"])


def panel(axes, lines, title, curves, of_node=True):
    """Draws `curves` ((figures added up, label, colour, style), ...) with the spread of each as a band."""
    for figures, label, colour, style in curves:
        points = [c for c in lines if all(f in c["us"] for f in figures)]
        if not points:
            continue
        lengths = [c["nodes"] for c in points]
        middle, low, high = ([sum(c["us"][f][which] for f in figures) / (c["nodes"] if of_node else 1) for c in points]
                             for which in ("median", "min", "max"))
        axes.plot(lengths, middle, style, color=colour, label=label, linewidth=1.6, markersize=3.5)
        if len(figures) == 1:
            axes.fill_between(lengths, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    dress(axes, title, "nodes")
    axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    axes.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    axes.minorticks_off()  # they are nine tenths of the file


def draw(path, record, heading, unit, curves, of_node=True):
    pairs = [p for p in (("chain", "tiny"), ("chain", "full"), ("fork_join", "tiny"), ("fork_join", "full"))
             if cases(record, *p)]
    figure, all_axes = plt.subplots(1, len(pairs), figsize=(0.6 + 2.6 * max(2, len(pairs)), 3.3), squeeze=False,
                                    sharey=True)
    names = {"chain": "chain", "fork_join": "fork and join, 8 branches", "tiny": "1 block of 32 threads",
             "full": "a block of 256 threads an SM"}
    for axes, (shape, width) in zip(all_axes[0], pairs):
        panel(axes, cases(record, shape, width), names[shape] + "\n" + names[width], curves, of_node)
    all_axes[0][0].set_ylabel(unit, fontsize=8, color=GREY)
    figure.suptitle("%s: %s, %s" % (heading, record["gpu"], record["date"]), fontsize=10, color=GREY)
    save(figure, path, all_axes[0][0])


def main(words):
    if len(words) not in (2, 3):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    with open(words[0]) as file:
        record = json.load(file)
    if not record["cases"]:
        print("plot_graph: %s has no cases (was it written with --model-only?)" % words[0], file=sys.stderr)
        return 1
    os.makedirs(words[1], exist_ok=True)
    prefix = os.path.join(words[1], words[2] if len(words) == 3 else "")
    draw(prefix + "gpu.svg", record, "GPU time a node", "us a node", [
        (["gpu_eager"], "stream launches, programmatic", PURPLE, "s--"),
        (["gpu_captured_full"], "captured", ORANGE, "^--"),
        (["gpu_explicit_full"], "explicit, full edges", BLUE, "o-"),
        (["gpu_captured"], "captured, programmatic", GREY, "v--"),
        (["gpu_explicit"], "explicit, programmatic", GREEN, "D-")])
    draw(prefix + "build.svg", record, "Building, CPU time a node", "us a node", [
        (["build"], "build: builder and adding", BLUE, "o-"),
        (["capture"], "capture", ORANGE, "^--"),
        (["instantiate"], "instantiate", GREEN, "D-"),
        (["capture_instantiate"], "instantiate, captured", GREY, "v--"),
        (["upload"], "upload", PURPLE, "s-")])
    draw(prefix + "patch.svg", record, "Changing one argument, CPU time", "us", [
        (["patch_one"], "patch one node", BLUE, "o-"),
        (["patch_tenth"], "patch 10 %", GREEN, "D-"),
        (["patch_all"], "patch all", PURPLE, "s-"),
        (["recapture", "update"], "capture again and update", ORANGE, "^--")], of_node=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
