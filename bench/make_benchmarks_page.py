#!/usr/bin/env python3
"""Writes docs/benchmarks.md, and the table of README.md between its two markers, from the files of bench/results:
`make benchmarks-page`. With --check it writes nothing and exits with 1 where either is stale.

bench/measurements.py reads the files, bench/benchmark_tables.py says which feeds which table, and the targets stand here.
Standard library only."""
import pathlib
import re
import sys

sys.dont_write_bytecode = True
import benchmark_tables as tables
import measurements as m
from benchmark_tables import GREEDY, LLAMA, LLAMA_3B, ORIGIN, OWN, PREFILL, QWEN, SAMPLED, ms, origin, table, times, us

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE, README = ROOT / "docs/benchmarks.md", ROOT / "README.md"
MARKED = re.compile(r"(<!-- made by bench/make_benchmarks_page.py -->\n).*?(<!-- end -->)", re.S)


def targets(results):
    rows = []

    def add(what, target, measured, met, source):
        rows.append([what, target, measured, "yes" if met else "**no**", *origin(source)])

    for source, what, unit, most, values in m.graph_targets(results):
        unit = {"us": "µs"}.get(unit, unit)
        add(what, f"at most {most:g} {unit}", " and ".join(f"{v:.0f}" if unit == "bytes" else f"{v:.3g}" for v in values),
            max(values) <= most, source)
    last = m.last_decode(results)
    for keys in (8192, 32000):
        extra = 1000 * (last.by_keys[keys] - last.by_keys[128])
        most = 1e6 * (tables.kv_bytes(results, keys) - tables.kv_bytes(results, 128)) / (0.7 * last.read_bytes_per_s)
        add(f"{keys:,} keys over 128, one row of {LLAMA}: keys and values at 70 % of the read bandwidth",
            f"at most {us(most)} µs", us(extra), extra <= most, last.source)
    peer_source, ratios = m.peer_ratios(results)
    slower = ratios[LLAMA_3B, 1][2][0]
    add(f"`torch.compile` beside one row of {LLAMA_3B}", "at least 2.00×", times(slower), slower >= 2, peer_source)
    http_source = results(tables.HTTP)
    worst = min(served["tokens_per_s"] / engine["tokens_per_s"] for engine, served in tables.http_medians(results).values())
    add("tokens/s through HTTP beside the engine, 1 to 256 streams", "at least 97.0 %", f"{100 * worst:.1f} %", worst >= 0.97,
        http_source)
    crowd, cores = tables.crowd_cores(results)
    late = 1000 * crowd["delivery_p99_below_s"]
    add("512 streams and 1000 idle connections: a step's events wait for their sockets after, 99th percentile",
        "at most 4 ms", f"below {late:g} ms", late <= 4, http_source)
    add("the same, cores that write at 512 × 200 tokens/s", "at most 1.10", f"{cores:.2f}", cores <= 1.1, http_source)
    ready_s = max(line["ready_s"] for line in results.lines(tables.HTTP) if line["what"] == "http" and line["turn"] > 0)
    add("`serve` from the process's start to `/ready`, caches warm", "at most 1.50 s", f"{ready_s:.2f} s", ready_s <= 1.5,
        http_source)
    start_source, ready, graphs, _ = m.start(results)
    add("`run` ready to serve", "at most 1.50 s", f"{ready:.2f} s", ready <= 1.5, start_source)
    add("of which its 102 graphs", "at most 150 ms", f"{graphs:.0f} ms", graphs <= 150, start_source)
    name = PREFILL[1][1]
    gain = tables.prompt_ms(results, name, 16, "eager") / tables.prompt_ms(results, name, 16, "graph")
    add(f"16 prompt tokens of {LLAMA_3B}: one graph over eager launches", "at least 3.00×", times(gain), gain >= 3, results(name))
    first_source, first = m.first_token(results)
    for tokens, (command, graph) in first.items():
        add(f"`generate` to the first token, {tokens} tokens of text", f"at most 1.1 × the graph + 1 ms: {ms(1.1 * graph + 1)}",
            ms(command), command <= 1.1 * graph + 1, first_source)
    return table(["what", "target", "measured", "met", *ORIGIN], rows)


def front(results):
    """README's table: a decode step of one row."""
    decode = {model: results.line(name, batch=1, context=1024, mode="explicit")["step_ms"]["median"] for model, name in GREEDY}
    _, ratios = m.peer_ratios(results)
    compiled = {LLAMA_3B: ratios[LLAMA_3B, 1][2][0], QWEN: ratios[QWEN, 1][2][0]}
    for model, name in tables.PEER_FILES:
        if results(name).data["batch"] == 1:
            compiled[model] = results(name).data["summary"]["torch.compile"]["times_ours"]
    rows = []

    def add(model, greedy, own, source):
        slower = times(compiled[model]) if source.card == "H200" else ""
        rows.append([model, f"{source.card}, {source.date}", ms(greedy), ms(own) if own else "", f"{1000 / greedy:.0f}", slower])

    for model, name in SAMPLED:
        add(model, tables.sampled_ms(results, name, 1, "greedy"), tables.sampled_ms(results, name, 1, OWN[model]), results(name))
    for model, name in GREEDY[:2]:
        add(model, decode[model], None, results(name))
    return table(["model", "card, date", "greedy, ms a step", "own sampling, ms", "greedy tokens/s", "`torch.compile` takes"], rows)


INTRODUCTION = """# Benchmarks

<!-- Written by bench/make_benchmarks_page.py from bench/results. Do not edit: run `make benchmarks-page`. -->

Each row names the card, date and commit of its measurement, and links to the file that also holds the command. The driver
is 580.159.04 in every file that names one. `bench/gpu_check.sh OUT decode bench` repeats the measurements.

Checkpoints are random bf16 weights in the exact shapes of the released models. Logits of random weights are flatter than
those of trained ones, so sampling draws from more tokens. Steps have 1024 keys a row unless a table says otherwise.
Times are medians. "Of the read bandwidth" is the bytes a step must read (weights and live keys and values) over its time,
divided by the read bandwidth measured between the samples. A windowed layer reads the keys of its window only; shares of
Gemma-3-1B are recounted from the recorded times, since its files count every key. "Tuned" steps use a file of
`nodewright tune`.
"""


def page(results):
    step, share = tables.greedy(results)
    ported, forms = tables.port(results)
    return "\n".join([
        INTRODUCTION,
        "## Targets\n", targets(results),
        "The worst bucket is the one whose median of five builds is largest. Context targets use the read bandwidth of the same run.\n",
        "## Greedy decode\n", step, share,
        "![Share of the read bandwidth by rows](images/decode-share.svg)\n",
        tables.drawn(results, tables.SHARE_PLOT),
        f"{LLAMA}, 128 keys a row:\n", tables.many_rows(results),
        "## Sampling beside greedy\n",
        "Every row of a step draws with the same setting, in turns with greedy steps of the same graph. The last row of each\n"
        "table is the second choice, three kernels behind the step.\n",
        tables.sampling(results),
        "## Long contexts\n",
        f"{LLAMA} in one graph for 32,768 keys.\n", tables.context(results),
        "![Time of a step by context](images/decode-context.svg)\n",
        tables.drawn(results, tables.CONTEXT_PLOT),
        "## Several steps in a launch\n", f"{LLAMA}, `--steps-per-launch 8`.\n", tables.several_steps(results),
        "## One plan, three runs\n", f"{LLAMA}, untuned.\n", tables.modes(results),
        "## Nodes of a step\n",
        "The time of a node runs from the latest end among its predecessors to its own end. `*` stands for a layer, and its\n"
        "figures are medians over the layers. A share above 100 % comes from L2, or from requests before the wait.\n"
        "Products of experts have no share: the files count every expert there, chosen or not.\n"
        "[where-the-time-goes.md](where-the-time-goes.md) explains the gaps.\n",
        tables.nodes(results),
        "## Long rows\n",
        "What streams weights past one row of x holds that row in registers. At 9f5576b rows of 5120 weights, and most as wide\n"
        "as a feed-forward, left too few of them, and the compiler spilled. Since d2cf39b the size of a block follows from the\n"
        "registers it has, and long rows of x stay bf16.\n",
        tables.long_rows(results),
        "## Other engines\n",
        "transformers 5.17 with torch 2.11 on the same card, in turns with ours. The second figure is the slowdown relative to\n"
        "Nodewright; where the file has slowdowns only, they stand alone. `torch.compile` runs with `mode=\"reduce-overhead\"`.\n"
        "`torch.cuda.graph` cannot capture the sliding-window cache of transformers. The eager times vary with the host.\n",
        tables.peers(results),
        "MLX's CUDA backend, whose host prepares a step while the GPU runs the one before. Its rounds differ with the host:\n",
        tables.mlx(results),
        "## Prompts\n",
        "One step for the whole prompt: one graph, pieces around attention, or eager launches. \"Of the matrix rate\" is the\n"
        "multiplications of weights and attention over the time of the graph, divided by the rate of an 8192-cubed bf16\n"
        "product of cuBLASLt that takes turns with the steps.\n",
        tables.prefill(results),
        "The same graph with attention of prompts by `mma.sync`, as in the table above, and by `wgmma`, as on compute\n"
        "capability 9.0 today:\n",
        tables.prompt_attention(results),
        "Through the command, tokenization included:\n", tables.first_token(results),
        f"Eight prompts of 4096 tokens whose own log probabilities are asked for, {LLAMA}:\n", tables.scored(results),
        "## Serving\n",
        f"{LLAMA}, 128 prompt tokens and 256 outputs a request, decoding together. The bare loop launches the same graphs without\n"
        "scheduler, requests or cache. A busy host spends 200 µs after each step.\n",
        tables.engine(results),
        "A long prompt that arrives among decoding requests, with `--step-tokens 512`:\n", tables.arriving(results),
        "`nodewright serve` beside the engine without HTTP, on the same requests: 128 prompt tokens, 128 tokens of answer, "
        "streamed to `bench serve --url` on the same machine:\n", tables.http(results),
        "## Start\n", tables.start(results),
        "## The graph library\n",
        "`nodewright bench graph`: a chain, and a fork of eight branches that join, of SAXPY kernels. \"Captured\" records one stream,\n"
        "as a program without a plan would, and changes an argument by recording again and updating. Adding includes deriving\n"
        "and checking all edges.\n",
        tables.library(results),
        "![GPU time of a node by length of the graph](images/graph-gpu.svg)\n",
        "![Time to build a graph by its length](images/graph-build.svg)\n",
        "![Time to change a graph by its length](images/graph-patch.svg)\n",
        tables.drawn(results, [tables.GRAPH]),
        ported, forms,
        "## nanoGPT\n",
        "The model of the article \"NanoGPT: CUDA Graph Replay\" (4 layers, width 32), `nodewright bench nanogpt`.\n", tables.nanogpt(results)])


def written(results, readme):
    """What both files should hold: (docs/benchmarks.md, README.md)."""
    if MARKED.search(readme) is None:
        return page(results), readme
    return page(results), MARKED.sub(lambda found: found[1] + front(results) + found[2], readme)


def main():
    results = m.Results()
    new = written(results, README.read_text())
    stale = [path.name for path, text in zip((PAGE, README), new) if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        print("stale: " + ", ".join(stale) if stale else "up to date")
        return 1 if stale else 0
    for path, text in zip((PAGE, README), new):
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
