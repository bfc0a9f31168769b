#!/usr/bin/env python3
"""Draws what `nodewright bench decode --out FILE` measured: plot_decode.py FOLDER FILE...

Writes FOLDER/decode-share.svg, each model's share of the read bandwidth by batch, from files of several batches at one
context, and FOLDER/decode-context.svg, the time of a step by context, from files of several contexts at one batch. Needs
matplotlib.
"""
import json
import os
import sys

from plot_style import BLUE, GREEN, GREY, ORANGE, PURPLE, dress, matplotlib, plt, save

STYLES = [(BLUE, "o-"), (GREEN, "D-"), (ORANGE, "^-"), (PURPLE, "s-")]
KV_SHARE = 0.7  # of the read bandwidth: what the keys and values of a longer context may take


def lines_by(records, key, other):
    """(model, lines in the order of `key`) of every record that varies `key` and holds `other`."""
    for record in records:
        lines = sorted((l for l in record["lines"] if l["mode"] == "explicit"), key=lambda l: l[key])
        if len({l[key] for l in lines}) > 1 and len({l[other] for l in lines}) == 1:
            yield os.path.basename(record["model"].rstrip("/")), lines


def start(record, title, x_label, y_label):
    figure, axes = plt.subplots(figsize=(6.4, 3.4))
    dress(axes, "%s: %s, %s" % (title, record["gpu"]["name"] if isinstance(record["gpu"], dict) else record["gpu"],
                                record["date"][:10]), x_label)
    axes.set_ylabel(y_label, fontsize=8, color=GREY)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%d"))
    axes.minorticks_off()
    return figure, axes


def draw_share(records, path):
    series = list(lines_by(records, "batch", "context"))
    if not series:
        return False
    figure, axes = start(records[0], "Share of the read bandwidth, %d keys" % series[0][1][0]["context"], "rows of a step",
                         "(weights + keys and values) / time / bandwidth")
    for (model, lines), (colour, style) in zip(series, STYLES):
        axes.plot([l["batch"] for l in lines], [l["share_of_read_bandwidth"] for l in lines], style, color=colour,
                  label=model, linewidth=1.6, markersize=4)
    axes.set_ylim(0, 1)
    axes.set_xticks(sorted({l["batch"] for _, lines in series for l in lines}))
    save(figure, path, axes)
    return True


def draw_context(records, path):
    series = list(lines_by(records, "context", "batch"))
    if not series:
        return False
    figure, axes = start(records[0], "Time of a step, batch %d" % series[0][1][0]["batch"], "keys of a row", "ms")
    for (model, lines), (colour, style) in zip(series, STYLES):
        keys = [l["context"] for l in lines]
        axes.plot(keys, [l["step_ms"]["median"] for l in lines], style, color=colour, label=model, linewidth=1.6,
                  markersize=4)
        first = lines[0]
        axes.plot(keys, [first["step_ms"]["median"] + 1e3 * (l["kv_bytes"] - first["kv_bytes"]) /
                         (KV_SHARE * l["read_bytes_per_s"]["median"]) for l in lines], "--", color=GREY,
                  label="the first, and keys and values at %d %% of the bandwidth" % (100 * KV_SHARE), linewidth=1.2)
    axes.set_ylim(bottom=0)
    axes.set_xticks(sorted({l["context"] for _, lines in series for l in lines}))
    save(figure, path, axes)
    return True


def main(words):
    if len(words) < 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    records = []
    for path in words[1:]:
        with open(path) as file:
            records.append(json.load(file))
    os.makedirs(words[0], exist_ok=True)
    drawn = [draw_share(records, os.path.join(words[0], "decode-share.svg")),
             draw_context(records, os.path.join(words[0], "decode-context.svg"))]
    if not any(drawn):
        print("plot_decode: no file has several batches at one context, or several contexts at one batch", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
