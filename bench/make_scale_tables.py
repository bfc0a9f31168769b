#!/usr/bin/env python3
# Writes the tables of docs/scale.md between their marks, from bench/results/. With --check it only says whether the page
# is as it would write it.
import json
import os
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PAGE = os.path.join(ROOT, "docs", "scale.md")
END = "<!-- end of the table -->\n"
ROUTING = "2026-11-26-replica-routing.json"
TENSOR_PARALLEL = "2026-11-26-h100x2-tensor-parallel.json"
TENSOR_PARALLEL_H200 = "2026-11-26-h200x2-tensor-parallel.json"
PEER = "2026-11-26-h100x2-peer.json"
REAL_REPLICAS = "2026-11-26-h100x2-replicas.json"
COLLECTIVES = "2026-11-26-h100x2-collectives.json"
SERVED_RANKS = "2026-11-26-h100x2-ranks.json"
LANES = "2026-11-26-h100x2-lanes.json"
FOUR = "2026-11-26-h100x4-teams.json"


def begin(name):
    return "<!-- %s: bench/make_scale_tables.py -->\n" % name


def rows_of(head, lines):
    return "".join("| %s |\n" % " | ".join(map(str, line)) for line in [head, ["---"] * len(head), *lines])


def results(name):
    with open(os.path.join(ROOT, "bench", "results", name), encoding="utf-8") as file:
        return json.load(file)


def routing():
    return results(ROUTING)


def figures_of(line, digits):
    return [("%%.%df" % digits) % line["one_ms"], ("%%.%df" % digits) % line["two_ms"],
            "%.3fx" % (line["one_ms"] / line["two_ms"])]


def decode():
    def name(line):
        return line["model"] + (" (%s)" % line["note"] if "note" in line else "")
    return rows_of(["model", "rows", "GPU", "one, ms", "two, ms", "faster"],
                   [[name(line), line["rows"], gpu, *figures_of(line, 3)]
                    for gpu, file in (("H100", TENSOR_PARALLEL), ("H200", TENSOR_PARALLEL_H200))
                    for line in results(file)["decode"]["lines"]])


def prompts():
    return rows_of(["model", "tokens", "one H100, ms", "two, ms", "faster"],
                   [[line["model"], line["tokens"], *figures_of(line, 1)]
                    for line in results(TENSOR_PARALLEL)["prompts"]["lines"]])


def more():
    """Of models that exchange more than dense ones, or the same beside adapters."""
    return rows_of(["model", "one H100, ms", "two, ms", "faster"],
                   [[line["model"], "%.3f" % line["one_ms"], "%.3f" % line["two_ms"],
                     "%.2fx" % (line["one_ms"] / line["two_ms"])] for line in results(TENSOR_PARALLEL)["more"]["lines"]])


def stages():
    lines = results(TENSOR_PARALLEL)["stages"]["lines"]
    head = ["model", "step", "one H100, ms", "two stages, ms", "faster"]
    def row(model, step, times):
        return [model, step, *("%.4g" % ms for ms in times), "%.2fx" % (times[0] / times[1])]
    return rows_of(head, [of_line for line in lines for of_line in (
        row(line["model"], "a token of one row", (line["one_ms"], line["two_ms"])),
        *(row(line["model"], "prompt of 8190 in chunks of " + chunk, times) for chunk, times in line["first_ms"].items()))])


def eight():
    """What eight GPUs give in all: so many replicas of so many devices, each at the rows of the table of steps."""
    def is_meant(line):
        return line["model"] == "Llama-3.2-3B"
    four = {line["rows"]: line["ms"][2] for line in filter(is_meant, results(FOUR)["decode"]["lines"])}
    ms = {line["rows"]: (line["one_ms"], line["two_ms"], four[line["rows"]])
          for line in filter(is_meant, results(TENSOR_PARALLEL)["decode"]["lines"])}
    head = ["arrangement", "a token at one row, ms", *("tokens/s of all at %d rows each" % rows for rows in (8, 32))]
    return rows_of(head, [["%d replicas of %s" % (replicas, words), "%.3f" % ms[1][which],
                           *("%d" % (1000 * replicas * rows / ms[rows][which]) for rows in (8, 32))]
                          for replicas, words, which in ((8, "one", 0), (4, "two (`--tp 2`)", 1), (2, "four (`--tp 4`)", 2))])


def sampled():
    lines = results(PEER)["sampled"]["lines"]
    greedy = sum(lines[0]["ms"])
    return rows_of(["options", "ms a token, two runs", "over greedy"],
                   [["`%s`" % line["options"], ", ".join("%.3f" % ms for ms in line["ms"]),
                     "%+.1f %%" % (100 * (sum(line["ms"]) / greedy - 1)) if line is not lines[0] else ""]
                    for line in lines])


def peer():
    of = results(PEER)["peer"]
    return rows_of(["model", "transformers with NCCL", "ms", "ours, ms", "faster"],
                   [[line["model"], line["form"], "%.3f" % line["ms"], "%.3f" % line["ours_ms"],
                     "%.2fx" % (line["ms"] / line["ours_ms"])] for line in of["lines"]])


def collectives():
    return rows_of(["model", "step", "packets, ms", "NCCL, ms", "slower"],
                   [[line["model"], line["step"], "%.4g" % line["packets_ms"], "%.4g" % line["nccl_ms"],
                     "%.2fx" % (line["nccl_ms"] / line["packets_ms"])] for line in results(COLLECTIVES)["lines"]])


def served_ranks():
    words = {"packets": "one process, packets", "nccl": "one process, NCCL", "processes": "a process a device"}
    return rows_of(["form", "greedy: first token, ms", "ms a token", "sampled, prompt in the cache: first token, ms", "ms a token"],
                   [[words[form], *("%.4g" % of[name][key] for name in ("greedy", "sampled")
                                    for key in ("first_ms", "ms_per_token"))]
                    for form, of in results(SERVED_RANKS)["forms"].items()])


def lanes():
    return rows_of(["model", "step", "one lane, ms", "two, ms", "faster"],
                   [[line["model"], line["step"], "%.4g" % line["one_ms"], "%.4g" % line["two_ms"],
                     "%.2fx" % (line["one_ms"] / line["two_ms"])] for line in results(LANES)["lines"]])


def four():
    """Of one, two and four devices; of one only where it ran."""
    def row(model, step, ms, digits):
        cells = ["" if one is None else ("%%.%dg" % digits) % one for one in ms]
        return [model, step, *cells, "%.2fx" % (ms[1] / ms[2])]
    of = results(FOUR)
    return rows_of(["model", "step", "one H100, ms", "two, ms", "four, ms", "four over two"],
                   [*(row(line["model"], "%d row%s" % (line["rows"], "s" if line["rows"] > 1 else ""), line["ms"], 4)
                      for line in of["decode"]["lines"]),
                    *(row(line["model"], "a token", line["ms"], 4) for line in of["generated"]["lines"]),
                    *(row(line["model"], "prompt of 8190", line["ms"], 4) for line in of["prompts"]["lines"])])


def real_replicas():
    of = results(REAL_REPLICAS)
    one, two = (sorted(of["tokens_per_s"][key])[1] for key in ("one", "two"))
    return rows_of(["replicas", "streams", "tokens/s, median of three", "over one"],
                   [[1, 64, one, ""], [2, 128, two, "%.2fx" % (two / one)]])


def replicas():
    def cells(one):
        return ["%.0f" % one["tokens_per_s"], "%.1f, %.1f" % (one["first_token_ms"]["median"], one["first_token_ms"]["p99"])]
    head = ["replicas", "policy", "streams: tokens/s of each", "first token, ms: median, p99",
            "mixed: tokens/s of each", "first token, ms: median, p99"]
    return rows_of(head, [[line["replicas"], line["policy"], *cells(line["streams"]), *cells(line["mixed"])]
                          for line in routing()["by_replicas"]["lines"]])


def preference():
    def more(tokens):
        return "no preference" if tokens < 0 else "any" if tokens >= 1 << 40 else tokens
    head = ["load", "more tokens allowed", "prompt tokens found", "first token, ms: median, p99"]
    return rows_of(head, [["%g" % line["load"], more(line["most_more_tokens"]), "%.0f %%" % (100 * line["result"]["found"]),
                           "%.1f, %.1f" % (line["result"]["first_token_ms"]["median"], line["result"]["first_token_ms"]["p99"])]
                          for line in routing()["by_preference"]["lines"]])


TABLES = {"replicas": replicas, "preference": preference, "real replicas": real_replicas, "decode": decode,
          "prompts": prompts, "sampled": sampled, "peer": peer, "more": more, "stages": stages,
          "eight": eight, "collectives": collectives, "served ranks": served_ranks, "lanes": lanes,
          "four": four}


def written(page):
    for name, table in TABLES.items():
        start = page.index(begin(name)) + len(begin(name))
        page = page[:start] + table() + page[page.index(END, start):]
    return page


def main():
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    if "--check" in sys.argv:
        return 0 if written(page) == page else "docs/scale.md is stale: python3 bench/make_scale_tables.py"
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(written(page))
    return 0


if __name__ == "__main__":
    sys.exit(main())
