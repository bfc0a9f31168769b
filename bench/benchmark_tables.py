"""The tables of docs/benchmarks.md: which file of bench/results feeds which table. Each row ends with card, date, commit
and file."""
import statistics

import measurements as m

LLAMA, GEMMA, LLAMA_3B, QWEN = "Llama-3.2-1B", "Gemma-3-1B", "Llama-3.2-3B", "Qwen3-4B"
MIXTURE = "Qwen3-30B-A3B"
ROWS = (1, 2, 4, 8, 16, 32, 64)


# How figures are written.

def ms(value):
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def us(value):
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def percent(share):
    return f"{100 * share:.0f} %"


def times(ratio):
    return f"{ratio:.2f}×" if ratio < 10 else f"{ratio:.1f}×"


def counted(rows):
    return "1 row" if rows == 1 else f"{rows} rows"


def yes(value):
    return "yes" if value else "no"


def origin(source):
    """The last four cells of a row: card, date, commit, file."""
    short = source.name.removeprefix(source.date + "-").removeprefix(source.card.lower() + "-")
    return [source.card, source.date, source.commit, f"[{short}](../bench/results/{source.name})"]


ORIGIN = ["card", "date", "commit", "file"]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        if len(row) != len(head):
            raise ValueError(f"a row of {len(row)} cells below {head}")
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def drawn(results, names):
    """Which files `bench/plot_decode.py` and `bench/plot_graph.py` drew a picture of."""
    sources = [results(name) for name in names]
    links = ", ".join(origin(source)[3] for source in sources)
    return f"Drawn from {links} ({sources[0].card}, {sources[0].date}, {sources[0].commit}).\n"


# Decode steps.

SHARE_PLOT = ["2026-11-23-h200-llama-3.2-1b-decode-751dd0e.json", "2026-11-23-h200-llama-3.2-3b-decode-751dd0e.json",
              "2026-11-23-h200-qwen3-4b-decode-751dd0e.json"]
CONTEXT_PLOT = ["2026-11-23-h200-llama-3.2-1b-context-751dd0e.json"]

GREEDY = [  # model, file; of several commits the last that has these rows
    (LLAMA_3B, "2026-11-23-h200-llama-3.2-3b-decode-751dd0e.json"),
    (QWEN, "2026-11-23-h200-qwen3-4b-decode-751dd0e.json"),
    (GEMMA, "2026-11-22-h200-gemma-3-1b-decode.json"),
]
SAMPLED = [
    (LLAMA, "2026-11-25-h100-llama-3.2-1b-sampling.json"), (LLAMA, "2026-11-25-h200-llama-3.2-1b-sampling.json"),
    (GEMMA, "2026-11-25-h100-gemma-3-1b-sampling.json"), (GEMMA, "2026-11-25-h200-gemma-3-1b-sampling.json"),
]
# In generation_config.json of Llama-3.2-1B-Instruct and gemma-3-1b-it.
OWN = {LLAMA: "temperature=0.6,top_p=0.9", GEMMA: "temperature=1,top_k=64,top_p=0.95"}


def sampled_ms(results, name, rows, sampling):
    return results.line(name, batch=rows, sampling=sampling)["step_us"]["median"] / 1000


def greedy(results):
    rows = []
    for model, name in SAMPLED:
        cells = [ms(sampled_ms(results, name, n, "greedy")) if n in (1, 8, 64) else "" for n in ROWS]
        rows.append([model, *cells, yes(results(name).data["tuned"]), *origin(results(name))])
    last = m.last_decode(results)
    rows.append([LLAMA, *(ms(last.by_rows[n]) for n in ROWS), "yes", *origin(last.source)])
    share_rows = [[LLAMA, *(percent(last.shares[n]) for n in ROWS), *origin(last.source)]]
    for model, name in GREEDY:
        lines = {line["batch"]: line for line in results.lines(name, context=1024, mode="explicit")}
        rows.append([model, *(ms(lines[n]["step_ms"]["median"]) if n in lines else "" for n in ROWS),
                     yes(results(name).data["tuned"]), *origin(results(name))])
        share_rows.append([model, *(percent(m.decode_share(model, lines[n])) if n in lines else "" for n in ROWS),
                           *origin(results(name))])
    heads = [str(n) for n in ROWS]
    return (table(["ms a step, by rows", *heads, "tuned", *ORIGIN], rows),
            table(["of the read bandwidth, by rows", *heads, *ORIGIN], share_rows))


def sampling(results):
    parts = []
    for model, _ in SAMPLED[::2]:
        names = [name for other, name in SAMPLED if other == model]
        head = ["µs over a greedy step"] + [f"{results(name).card}, {counted(n)}" for name in names for n in (1, 8, 64)]
        settings = [line["sampling"] for line in results.lines(names[0], batch=1)]
        rows = []
        for setting in settings:
            lines = [results.line(name, batch=n, sampling=setting) for name in names for n in (1, 8, 64)]
            if setting == "greedy":
                rows.append(["greedy, ms a step", *(ms(line["step_us"]["median"] / 1000) for line in lines)])
            else:
                rows.append([f"`{setting}`", *(us(line["over_greedy_us"]["median"]) for line in lines)])
        sources = table(["measured by", *ORIGIN], [["`bench decode --sampling`", *origin(results(name))] for name in names])
        parts.append(f"{model}; its own setting is `{OWN[model]}`:\n\n{table(head, rows)}\n{sources}")
    return "\n".join(parts)


CONTEXT = "2026-11-23-h200-llama-3.2-1b-context-23340d0.json"
KEYS = (128, 1024, 8192, 32000)


def kv_bytes(results, keys):
    return results.line(CONTEXT, context=keys, batch=1)["kv_bytes"]


def many_rows(results):
    return table(["ms a step of 4096 rows", "of the matrix rate", *ORIGIN],
                 [[ms(value), percent(share), *origin(source)] for source, value, share in m.many_rows(results)])


def context(results):
    lines = [results.line(CONTEXT, context=keys, batch=1) for keys in KEYS]
    last = m.last_decode(results)
    return table(["ms a step, by keys", *(f"{keys:,}" for keys in KEYS), *ORIGIN],
                 [["one row", *(ms(line["step_ms"]["median"]) for line in lines), *origin(results(CONTEXT))],
                  ["one row", *(ms(last.by_keys[keys]) for keys in KEYS), *origin(last.source)]])


def several_steps(results):
    last = m.last_decode(results)
    return table(["ms a step, by rows", "one step a launch", "eight steps", "a loop of eight", *ORIGIN],
                 [[str(n), ms(last.by_rows[n]), *map(ms, last.several_steps[n]), *origin(last.source)] for n in (1, 8)])


MODES = "2026-11-20-h200-llama-3.2-1b-modes.json"


def modes(results):
    rows = [[str(n), *(ms(results.line(MODES, batch=n, context=1024, mode=mode)["step_ms"]["median"])
                       for mode in ("explicit", "captured", "eager")), *origin(results(MODES))] for n in (1, 2, 4, 8)]
    return table(["ms a step, by rows", "explicit", "captured", "eager", *ORIGIN], rows)


EXPERT_NODES = ("*.gate_up", "*.down")  # of the mixture: the files count all experts, whichever rows have


def node_cell(model, node, times):
    if node not in times:
        return ""
    took, share = times[node]
    return us(took) if model == MIXTURE and node in EXPERT_NODES else f"{us(took)}, {percent(share)}"


def nodes(results):
    """A table of each shape, and the table of the files."""
    parts = []
    for model in (LLAMA, LLAMA_3B, GEMMA, MIXTURE):
        heads, reports = [], []
        for name in m.NODE_FILES:
            for rows, report in m.node_times(results, name, model.lower()).items():
                heads.append(f"{results(name).card}, {counted(rows)}")
                reports.append(report)
        longest_first = sorted((times for times, *_ in reports), key=len, reverse=True)
        names = dict.fromkeys(node for times in longest_first for node in times)
        body = [[f"`{node}`", *(node_cell(model, node, times) for times, *_ in reports)] for node in names]
        body.append(["the step", *(us(step) for _, step, _ in reports)])
        body.append(["the timed twin takes", *(twin for *_, twin in reports)])
        parts.append(f"{model}:\n\n" + table(["µs, of the read bandwidth", *heads], body))
    parts.append(table(["measured by", *ORIGIN], [["`bench nodes`", *origin(results(name))] for name in m.NODE_FILES]))
    return "\n".join(parts)


LONG_ROWS = "2026-11-26-h100-long-rows.json"


def long_rows(results):
    source = results(LONG_ROWS)
    whole = {line["model"]: line for line in source.data["decode"]["lines"]}
    rows = []
    for line in source.data["layers"]["lines"]:
        before, now = line["before_us"], line["us"]
        tokens = whole.get(line["model"])
        rows.append([line["model"], *(f"{us(before[part])}, {us(now[part])}" for part in ("gate_up", "down", "head")),
                     f"{us(before['step'])}, {us(now['step'])}", times(before["step"] / now["step"]),
                     f"{ms(tokens['before_ms'])}, {ms(tokens['ms'])}" if tokens else ""])
    return (table(["µs of six layers, before and now", "`*.gate_up`", "`*.down`", "`logits`", "the step", "faster",
                   "ms a token of all layers"], rows)
            + "\n" + table(["`bench nodes`, `generate`", *ORIGIN], [["one row", *origin(source)]]))


# Other engines.

PEER_FILES = [(LLAMA, "2026-11-23-h200-llama-3.2-1b-peers.json"), (LLAMA_3B, "2026-11-23-h200-llama-3.2-3b-peers-32.json"),
              (GEMMA, "2026-11-23-h200-gemma-3-1b-peers.json"), (LLAMA_3B, "2026-11-28-h200-llama-3.2-3b-peers.json"),
              (LLAMA, "2026-11-28-h200-llama-3.2-1b-peers-8.json")]
PEERS = ("torch.compile", "torch.cuda.graph", "eager")


def peers(results):
    rows = []
    for model, name in PEER_FILES:
        data = results(name).data
        cells = [f"{ms(peer['step_ms']['median'])}, {times(peer['times_ours'])}" if peer else "not possible"
                 for peer in (data["summary"].get(kind) for kind in PEERS)]
        rows.append([model, str(data["batch"]), ms(data["summary"]["nodewright"]["step_ms"]["median"]), *cells,
                     *origin(results(name))])
    source, ratios = m.peer_ratios(results)
    done = {(row[0], row[1]) for row in rows}
    for (model, n), (ours, _, others) in ratios.items():
        if (model, str(n)) not in done:
            rows.append([model, str(n), ms(ours), *(times(ratio) for ratio in others), *origin(source)])
    return table(["model", "rows", "nodewright, ms", *PEERS, *ORIGIN], rows)


MLX_FILES = [(LLAMA, "2026-11-29-h200-llama-3.2-1b-mlx.json"), (LLAMA_3B, "2026-11-29-h200-llama-3.2-3b-mlx.json"),
             (LLAMA, "2026-11-29-h200-llama-3.2-1b-mlx-2.json"), (LLAMA_3B, "2026-11-29-h200-llama-3.2-3b-mlx-2.json")]


def mlx(results):
    rows = []
    for model, name in MLX_FILES:
        for line in results(name).data["lines"]:
            rounds = sorted(line["mlx_ms"])
            rows.append([model, str(line["batch"]), ms(statistics.median(line["nodewright_ms"])),
                         f"{ms(statistics.median(rounds))}, {times(line['times_ours'])}", ms(rounds[0]),
                         *origin(results(name))])
    return table(["model", "rows", "nodewright, ms", "MLX", "its shortest round", *ORIGIN], rows)


# Prompts.

PREFILL = [(LLAMA, "2026-11-22-h200-llama-3.2-1b-prefill.json"), (LLAMA_3B, "2026-11-22-h200-llama-3.2-3b-prefill.json")]
TOKENS = (1, 16, 128, 1024, 8192)


def prompt_ms(results, name, tokens, form):
    return results.line(name, tokens=tokens, form=form)["ms"]["median"]


def prefill(results):
    rows = []
    for model, name in PREFILL:
        for tokens in TOKENS:
            share = results.line(name, tokens=tokens, form="graph")["share_of_matrix_rate"]
            rows.append([model, str(tokens), *(ms(prompt_ms(results, name, tokens, form)) for form in ("graph", "piecewise", "eager")),
                         percent(share), *origin(results(name))])
    return table(["model", "tokens", "one graph, ms", "piecewise", "eager", "of the matrix rate", *ORIGIN], rows)


def prompt_attention(results):
    source, lines = m.prompt_attention(results)
    return table(["model", "tokens", "attention by `mma.sync`, ms", "by `wgmma`", *ORIGIN],
                 [[{"llama-3.2-1b": LLAMA, "llama-3.2-3b": LLAMA_3B}[model], str(tokens), ms(before), ms(after), *origin(source)]
                  for model, tokens, before, after in lines])


def first_token(results):
    source, by_tokens = m.first_token(results)
    return table(["tokens of text", "`generate`, ms to the first token", "the graph alone, ms", *ORIGIN],
                 [[str(tokens), ms(command), ms(graph), *origin(source)] for tokens, (command, graph) in by_tokens.items()])


def scored(results):
    source, shares = m.scored_prompts(results)
    return table(["`--step-tokens`", "`prompt_logprobs` 0, of the unscored rate", "`prompt_logprobs` 5", *ORIGIN],
                 [[str(tokens), *map(percent, values), *origin(source)] for tokens, values in shares.items()])


# Serving.

SERVE = "2026-11-23-h200-serve-23340d0.json"
ARRIVING = ["2026-11-25-h100-arriving.json", "2026-11-25-h200-arriving.json"]


def engine(results):
    kinds = ("bare loop", "pipelined", "one at a time", "pipelined, busy", "one at a time, busy")
    rows = [[str(line["batch"]), *(ms(line[kind]["step_ms"]["median"]) for kind in kinds), us(line["pipelined"]["gap_us"]),
             *origin(results(SERVE))] for line in results.lines(SERVE)]
    return table(["requests", "bare loop, ms a step", "engine", "one step at a time", "engine, busy host",
                  "one at a time, busy host", "idle between steps, µs", *ORIGIN], rows)


def arriving(results):
    rows = []
    for name in ARRIVING:
        line = results.line(name)
        rows.append([str(line["decoders"]), str(line["prompt_tokens"]), ms(line["between_tokens_before_ms"]["median"]),
                     ms(line["between_tokens_ms"]["median"]), ms(line["worst_gap_ms"]["median"]),
                     f"{line['prompt_tokens_per_s']['median']:.0f}", percent(line["share_of_alone"]), *origin(results(name))])
    return table(["decoders", "prompt tokens", "between tokens before, ms", "while the prompt runs", "worst gap",
                  "prompt tokens/s", "of the prompt alone", *ORIGIN], rows)


HTTP = "2026-11-26-h100-http.json"


def http_medians(results):
    """{concurrency: (engine, http)}, each with the medians of its turns."""
    by_rows = {}
    for line in results.lines(HTTP):
        if line["what"] != "crowd":
            by_rows.setdefault(line["concurrency"], {"engine": [], "http": []})[line["what"]].append(line)

    def medians(lines):
        return {"tokens_per_s": statistics.median(line["tokens_per_s"] for line in lines),
                "between_ms": statistics.median(line["between_tokens_ms"]["median"] for line in lines),
                "between_p99_ms": statistics.median(line["between_tokens_ms"]["p99"] for line in lines),
                "first_ms": statistics.median(line["first_token_ms"]["median"] for line in lines)}

    return {rows: (medians(kinds["engine"]), medians(kinds["http"])) for rows, kinds in by_rows.items()}


def crowd_cores(results):
    """Cores of the threads that write, of 512 streams at 200 tokens/s each, from what they took at the measured rate."""
    line, = [one for one in results.lines(HTTP) if one["what"] == "crowd"]
    return line, (line["cpu_s"]["http"] + line["cpu_s"]["delivery"]) / line["output_tokens"] * 512 * 200


def http(results):
    rows = []
    for streams, (engine, served) in http_medians(results).items():
        rows.append([str(streams), f"{engine['tokens_per_s']:.0f}", f"{served['tokens_per_s']:.0f}",
                     f"{100 * (served['tokens_per_s'] / engine['tokens_per_s'] - 1):+.1f} %", ms(engine["between_ms"]),
                     ms(served["between_ms"]), ms(engine["between_p99_ms"]), ms(served["between_p99_ms"]),
                     *origin(results(HTTP))])
    return table(["streams", "engine, tokens/s", "through HTTP", "difference", "engine, ms between tokens", "through HTTP",
                  "engine, 99th percentile", "through HTTP", *ORIGIN], rows)


def start(results):
    source, ready, graphs, generate = m.start(results)
    load_source, load = m.load(results)
    graph_source, runs = m.bucket_graphs(results)
    return table(["start, caches warm", "time", *ORIGIN],
                 [["`run`, 102 graphs, ready to serve", f"{ready:.2f} s", *origin(source)],
                  ["of which the graphs", f"{graphs:.0f} ms", *origin(source)],
                  ["`generate`, first token of a 16-token prompt", f"{generate:.2f} s", *origin(source)],
                  ["102 graphs without library products", " and ".join(f"{total:.0f} ms" for total, _ in runs), *origin(graph_source)],
                  [f"loading {load['file_bytes'] / 1e9:.1f} GB from the page cache, {percent(load['share_of_link'])} of the link",
                   f"{load['load_ms']['median']:.0f} ms", *origin(load_source)]])


# The graph library.

GRAPH = "2026-11-21-h200-graph.json"  # built from ab88bd9: the file's commit_note


def graph_case(results, shape):
    case, = [c for c in results(GRAPH).data["cases"] if (c["shape"], c["width"], c["nodes"]) == (shape, "tiny", 1000)]
    return {key: value["median"] for key, value in case["us"].items()}


def library(results):
    source, rows = results(GRAPH), []
    for shape, title in (("chain", "chain"), ("fork_join", "eight branches")):
        t = graph_case(results, shape)
        if shape == "chain":
            rows.append(["stream launches, chain", us(t["gpu_eager"] / 1000), us(t["submit_eager"]), "", "", "", ""])
        for run, add, instantiate, upload, change in (
                ("captured", t["capture"], t["capture_instantiate"], t["capture_upload"], t["recapture"] + t["update"]),
                ("explicit", t["build"], t["instantiate"], t["upload"], t["patch_one"])):
            rows.append([f"{run}, {title}",
                         f"{us(t['gpu_' + run + '_full'] / 1000)} / {us(t['gpu_' + run] / 1000)}", us(t["launch_" + run]),
                         *(us(value / 1000) for value in (add, instantiate, upload)), us(change)])
    head = ["1000 nodes of one block", "GPU, µs a node: full / programmatic edges", "CPU launch, µs", "add or record, µs a node",
            "instantiate", "upload", "change one argument, µs"]
    return table(head + ORIGIN, [row + origin(source) for row in rows])


def port(results):
    source, captured, explicit = m.port(results)
    forms_source, forms = m.library_forms(results)
    return (table(["`examples/port`, µs a step, three processes each", "runs", *ORIGIN],
                  [["captured again each step", ", ".join(map(us, captured)), *origin(source)],
                   ["explicit, patched", ", ".join(map(us, explicit)), *origin(source)]]),
            table(["products of cuBLASLt as", "add, µs", "instantiate", "launch", "GPU, µs a node", *ORIGIN],
                  [[form, *map(us, values), *origin(forms_source)] for form, values in forms.items()]))


NANOGPT = "2026-11-20-h200-nanogpt.json"


def nanogpt(results):
    rows = [[f"`{case['config']}`", *(f"{1000 * case['modes'][mode]['step_ms']['median']:.1f}" for mode in ("eager", "captured", "explicit")),
             times(case["modes"]["explicit"]["step_speedup"]), case["tokens"], *origin(results(NANOGPT))]
            for case in results(NANOGPT).data["named"]]
    return table(["configuration", "eager, µs a step", "captured", "explicit", "explicit over eager", "tokens", *ORIGIN], rows)
