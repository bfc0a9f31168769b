"""Reads the files of bench/results: JSON as our benchmarks write it, and some reports in text, each by a pattern that has to
match. A report that reads otherwise is an error, so no figure is guessed. Standard library only."""
import json
import pathlib
import re
import typing

FOLDER = pathlib.Path(__file__).resolve().parent / "results"


class Source:
    """One file: where its figures come from."""

    def __init__(self, folder, name):
        self.name = name
        self.text = (folder / name).read_text()
        if name.endswith(".json"):
            self.data = json.loads(self.text)
            gpu = self.data["gpu"]
            self.gpu = gpu if isinstance(gpu, str) else gpu["name"]
            self.date, self.commit = self.data["date"][:10], self.data["commit"]
        else:
            self.gpu, self.date = self.match(r"NVIDIA H\d00")[0], self.match(r"\b20\d\d-\d\d-\d\d\b")[0]
            named = re.search(r"commit ([0-9a-f]{7})\b", self.text, re.I)
            self.commit = named[1] if named else ""

    @property
    def card(self):
        return re.search(r"H\d00", self.gpu)[0]

    def match(self, pattern, flags=0):
        found = re.search(pattern, self.text, flags)
        if not found:
            raise ValueError(f"{self.name} has no {pattern!r}")
        return found

    def numbers(self, pattern):
        """The numbers in the first group of what matches."""
        return [float(number) for number in self.match(pattern, re.M)[1].split()]

    def of(self, commit, gpu=None):
        """The same file, for figures of another commit that it names, or of that commit's parent (`1072e77^`), or GPU."""
        if commit.rstrip("^") not in self.text:
            raise ValueError(f"{self.name} does not name the commit {commit}")
        other = object.__new__(Source)
        other.__dict__ = {**self.__dict__, "commit": commit, "gpu": gpu or self.gpu}
        return other


class Results:
    def __init__(self, folder=FOLDER):
        self.folder = folder
        self.sources = {}

    def __call__(self, name):
        if name not in self.sources:
            self.sources[name] = Source(self.folder, name)
        return self.sources[name]

    def lines(self, name, **wanted):
        """The lines of a benchmark's file whose fields have these values."""
        lines = [line for line in self(name).data["lines"] if all(line.get(key) == value for key, value in wanted.items())]
        if not lines:
            raise ValueError(f"{name} has no line of {wanted}")
        return lines

    def line(self, name, **wanted):
        lines = self.lines(name, **wanted)
        if len(lines) != 1:
            raise ValueError(f"{name} has {len(lines)} lines of {wanted}")
        return lines[0]


CONFIGS = FOLDER.parents[1] / "tests/golden/configs"


def kv_bytes(shape, rows, keys):
    """Bytes of keys and values that a step of a released shape reads: in a windowed layer those of the window."""
    config = json.loads((CONFIGS / f"{shape}.json").read_text())
    layers, window, pattern = (config[key] for key in ("num_hidden_layers", "sliding_window", "sliding_window_pattern"))
    full = layers // pattern
    of_token = 2 * 2 * config["num_key_value_heads"] * config["head_dim"]
    return rows * of_token * (full * keys + (layers - full) * min(keys, window))


# Files that count every key in windowed layers name this shape. Other windows are no shorter than the 1024 keys.
RECOUNTED = "gemma-3-1b"


def decode_share(shape, line):
    """The share of the read bandwidth in a line of `bench decode`, counted again for RECOUNTED."""
    if shape.lower() != RECOUNTED:
        return line["share_of_read_bandwidth"]
    bytes_read = line["weight_bytes"] + kv_bytes(RECOUNTED, line["batch"], line["context"])
    return bytes_read / (1e-3 * line["step_ms"]["median"]) / line["read_bytes_per_s"]["median"]


OVERLAP = "2026-11-23-h200-overlap.txt"
GRAPH_TARGETS = "2026-11-23-h200-graph-targets-4d7dc59.txt"
GRAPH_LIBRARY = ("2026-11-25-h100-graph-library.txt", "2026-11-25-h200-graph-library.txt")
PEERS = "2026-11-23-h200-peers.txt"
FIRST_TOKEN = "2026-11-25-h100-first-token.txt"
PORT = "2026-11-25-h100-port.txt"
LOAD = "2026-11-21-h200-load.txt"
OLDER = "2026-11-25-h100-beside-older-commits.txt"
DOOR = "2026-11-25-door.txt"
SCORED = "2026-11-25-h100-scored-prompts.txt"
PROMPT_ATTENTION = "2026-11-28-h200-prompt-attention.txt"


def section(source, number):
    """The text of section `number` of a report whose sections begin with `== N. `."""
    return source.match(rf"^== {number}\. .*?(?=^== |\Z)", re.M | re.S)[0]


class Decode(typing.NamedTuple):
    """Llama-3.2-1B as tuned at e49492a, ms a step."""
    source: Source
    by_rows: dict
    shares: dict  # of the read bandwidth, by rows
    by_keys: dict
    read_bytes_per_s: float
    several_steps: dict  # by rows: (eight steps in a launch, a loop of eight)


def last_decode(results):
    source = results(OVERLAP).of("e49492a")
    text = section(source, 10)
    rows = re.search(r"^rows 1 to 64: ([\d. ]+) at .*? TB/s: ([\d. ]+) %$", text, re.M)
    keys = re.search(r"^contexts 128, 1024, 8192, 32 000: ([\d. ]+) at ([\d.]+) TB/s$", text, re.M)
    steps = re.search(r"^8 steps a launch, 1 and 8 rows: ([\d.]+) ([\d.]+)   as a loop ([\d.]+) ([\d.]+)$", text, re.M)
    if not (text.startswith("== 10. e49492a") and rows and keys and steps):
        raise ValueError(f"section 10 of {OVERLAP} reads otherwise")
    counts = (1, 2, 4, 8, 16, 32, 64)
    times, shares = ([float(n) for n in rows[group].split()] for group in (1, 2))
    contexts = [float(n) for n in keys[1].split()]
    if not (len(times) == len(shares) == len(counts) and len(contexts) == 4):
        raise ValueError(f"section 10 of {OVERLAP} has other columns")
    return Decode(source, dict(zip(counts, times)), dict(zip(counts, (share / 100 for share in shares))),
                  dict(zip((128, 1024, 8192, 32000), contexts)), float(keys[2]) * 1e12,
                  {1: (float(steps[1]), float(steps[3])), 8: (float(steps[2]), float(steps[4]))})


def start(results):
    """(source, s from the start of `run` until it is ready to serve, ms of its 102 graphs, s of `generate`)"""
    source = results(OVERLAP).of("23340d0")
    found = re.search(r"Ready to serve, 102 graphs, warm: ([\d.]+) s, graphs (\d+) ms; .* generate ([\d.]+) s\.",
                      section(source, 1))
    if not found:
        raise ValueError(f"section 1 of {OVERLAP} does not say when it was ready")
    return source, float(found[1]), float(found[2]), float(found[3])


def many_rows(results):
    """[(source, ms a step of 4096 rows, its share of the matrix rate)], an H100's and an H200's"""
    source = results(DOOR)
    times = source.match(r"^2\. bench decode --rows 4096 .*\n   H100  ([\d.]+) \(.*?\);  H200  ([\d.]+) \(", re.M)
    shares = source.match(r"(\d+) and (\d+) % of the matrix rate")
    commits = source.match(r"H100: NVIDIA H100 80GB HBM3, commit (\w+); H200: NVIDIA H200, commit (\w+)\.")
    return [(source.of(commits[n], card), float(times[n]), float(shares[n]) / 100) for n, card in ((1, "H100"), (2, "H200"))]


def scored_prompts(results):
    """(source, {--step-tokens: [share of the unscored rate with 0 and with 5 log probabilities]})"""
    source = results(SCORED)
    rows = re.findall(r"^  (512|2048)\b.* ([\d.]+), ([\d.]+)$", source.text, re.M)
    if len(rows) != 2:
        raise ValueError(f"{SCORED} has {len(rows)} rows")
    return source, {int(tokens): [float(none), float(five)] for tokens, none, five in rows}


def prompt_attention(results):
    """(source, [(model, tokens, ms with mma.sync, ms with wgmma)])"""
    source = results(PROMPT_ATTENTION)
    lines = re.findall(r"^  (llama-\S+)? +(8192|1024) +([\d.]+) +([\d.]+)(?: |$)", source.text, re.M)
    if [bool(model) for model, *_ in lines] != [True, False] * 2:
        raise ValueError(f"{PROMPT_ATTENTION} has {len(lines)} lines")
    return source, [(lines[i - i % 2][0], int(tokens), float(before), float(after))
                    for i, (_, tokens, before, after) in enumerate(lines)]


def bucket_graphs(results):
    """(source, [(ms of 102 graphs, us a node), one a run])"""
    source = results(GRAPH_TARGETS)
    runs = re.findall(r"^102 graphs, 8568 nodes: ([\d.]+) ms, ([\d.]+) us a node ", source.text, re.M)
    if len(runs) != 2:
        raise ValueError(f"{GRAPH_TARGETS} has {len(runs)} runs")
    return source, [(float(total), float(node)) for total, node in runs]


def graph_targets(results):
    """[(source, what, unit, most, [value of each run])]"""
    found = []
    for name, count in ((GRAPH_TARGETS, 6), (GRAPH_LIBRARY[0], 6), (GRAPH_LIBRARY[1], 6)):
        source = results(name)
        rows = re.findall(r"^(\S.*?) {2,}([\d.]+) (us|bytes) +at most ([\d.]+) +(?:met|MISSED)$", source.text, re.M)
        targets = {}
        for what, value, unit, most in rows:
            targets.setdefault((what, unit, float(most)), []).append(float(value))
        if len(targets) != count or any(len(values) != 2 for values in targets.values()):
            raise ValueError(f"{name} has not {count} targets in two runs")
        found += [(source, what, unit, most, values) for (what, unit, most), values in targets.items()]
    return found


def peer_ratios(results):
    """{(model, rows): (ms of ours, share, [how many times ours: torch.compile, torch.cuda.graph, eager])}, of commit 3f701e2"""
    source = results(PEERS).of("3f701e2")
    found = {}
    for name, rows, rest in re.findall(r"^((?:Llama|Qwen)\S*), (\d+) {2,}(.*)$", source.text, re.M):
        ours, *others = re.split(r" {2,}", rest.strip())
        ms = re.fullmatch(r"([\d.]+) \(([\d.]+) %\)", ours)
        ratios = [re.fullmatch(r"(?:[\d.]+, )?([\d.]+)(?: \(wanted [\d.]+\))?", other) for other in others]
        if not ms or len(ratios) != 3 or not all(ratios):
            raise ValueError(f"{PEERS} has a line that reads otherwise: {name}, {rows}")
        found[name, int(rows)] = (float(ms[1]), float(ms[2]) / 100, [float(ratio[1]) for ratio in ratios])
    if len(found) != 4:
        raise ValueError(f"{PEERS} has {len(found)} lines")
    return source, found


def first_token(results):
    """(source, {tokens: (ms through the command, ms of the engine's own graph)})"""
    source = results(FIRST_TOKEN)
    command = dict(re.findall(r"^  (1024|8192) tokens: [\d. ]+; median ([\d.]+)$", source.text, re.M))
    graph = source.match(r"^nodewright bench prefill .*, ms: 1024: ([\d.]+) \(.*?\); 8192: ([\d.]+) \(", re.M)
    return source, {1024: (float(command["1024"]), float(graph[1])), 8192: (float(command["8192"]), float(graph[2]))}


def port(results):
    """(source, [us a step under capture, one a process], [the same, explicit])"""
    source = results(PORT)
    return source, source.numbers(r"^  captured ([\d. ]+)$"), source.numbers(r"^  explicit ([\d. ]+)$")


def library_forms(results):
    """(source, {form: (add us, instantiate us, launch us, us a node on the GPU)}) of the products benchmark"""
    source = results(OLDER).of("1072e77^")
    found = source.match(r"kernel node add ([\d.]+), instantiate ([\d.]+), launch ([\d.]+), GPU ([\d.]+)\s+a node; "
                         r"child graph add ([\d.]+), instantiate ([\d.]+), launch ([\d.]+), GPU ([\d.]+)\s+a node")
    values = [float(value) for value in found.groups()]
    return source, {"kernel node": values[:4], "child graph": values[4:]}


NODE_FILES = ("2026-11-27-h100-nodes.txt", "2026-11-27-h200-nodes.txt")
NODE_ROWS = (1, 8, 32, 64)


def node_times(results, name, shape):
    """{rows: ({node: (us, share of the read bandwidth)}, us of the step, what the twin takes)} as `bench nodes` printed
    them; `*` in a node's name stands for the layer. Empty where the file has no such shape."""
    reports = {}
    for rows, text in re.findall(rf"^== {re.escape(shape)}, --bucket (\d+)\n(.*?)(?=^== |\Z)", results(name).text, re.M | re.S):
        nodes = re.findall(r"^(\S+)(?: \(bracketed\))? +\d+ +([\d.]+) +[\d.]+ +[\d.]+ +([\d.]+)% +[\d.]+ +[\d.]+$", text, re.M)
        printed = re.findall(r"^node +nodes [^\n]*\n(.*?)^sum of node times", text, re.M | re.S)
        step = re.search(r"^plain step +([\d.]+) us, the twin takes ([\d.]+)% (longer|less)$", text, re.M)
        if len(printed) != 1 or printed[0].count("\n") != len(nodes) or not step:
            raise ValueError(f"{name} has a table of nodes that reads otherwise: {shape}, {rows}")
        times = {node: (float(us), float(share) / 100) for node, us, share in nodes}
        reports[int(rows)] = times, float(step[1]), f"{step[2]} % {'more' if step[3] == 'longer' else 'less'}"
    if reports and tuple(reports) != NODE_ROWS:
        raise ValueError(f"{name} has {shape} at {list(reports)} rows")
    return reports


def load(results):
    """(source, the first run's JSON object)"""
    source = results(LOAD)
    return source, json.JSONDecoder().raw_decode(source.match(r"^== load1\n(\{.*)", re.M | re.S)[1])[0]
