#!/usr/bin/env python3
"""Fails where a decode step is slower than it was: two programs, run in turns on one machine, on the shapes of released
models with weights that are drawn. Standard library only. `make gpu-gate OUT=DIR` builds the program of the newest tag;
bench/results/2026-11-28-h100-gate.txt is a run.

    bench/gpu_gate.py --before OLD/nodewright --now build/nodewright --out DIR

Writes DIR/gate.json: every step time of every turn, the medians and their ratios. Exits 1 where a ratio is over --limit, 2
where a program cannot run, which it names."""
import argparse
import datetime
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

CONFIGS = pathlib.Path(__file__).resolve().parents[1] / "tests/golden/configs"


class Gate:
    def __init__(self, options):
        self.options = options
        self.folder = tempfile.TemporaryDirectory()
        self.gpus = set()

    def model(self, word):
        """A checkpoint's folder, or a folder with the configuration of a released model: what `dummy` needs."""
        if pathlib.Path(word).is_dir():
            return word
        folder = pathlib.Path(self.folder.name) / word
        if not folder.exists():
            source = CONFIGS / f"{word}.json"
            if not source.exists():
                known = ", ".join(sorted(path.stem for path in CONFIGS.glob("*.json")))
                raise SystemExit(f"gpu_gate: {word!r} is neither a folder nor one of {known}")
            folder.mkdir()
            (folder / "config.json").write_bytes(source.read_bytes())
        return str(folder)

    def steps(self, program, model):
        """Median step times in milliseconds, by (rows, context)."""
        options, out = self.options, pathlib.Path(self.folder.name) / "steps.json"
        out.unlink(missing_ok=True)
        command = [program, "bench", "decode", "--model", self.model(model), "--load-format", "dummy", "--device", options.device,
                   "--tuning", "none", "--batch", *map(str, options.rows), "--context", *map(str, options.context),
                   "--samples", str(options.samples), "--steps", str(options.steps), "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode or not out.exists():
            print(f"gpu_gate: {shlex.join(command)} ended with {done.returncode}:\n{done.stderr or done.stdout}", file=sys.stderr)
            raise SystemExit(2)
        written = json.loads(out.read_text())
        self.gpus.add(written["gpu"])
        return {(line["batch"], line["context"]): line["step_ms"]["median"] for line in written["lines"]}

    def measure(self, model):
        """{(rows, context): {"before": [ms of each turn], "now": [...]}}. The one that begins changes from turn to turn."""
        programs = [("before", self.options.before), ("now", self.options.now)]
        times = {}
        for turn in range(self.options.turns):
            for name, program in programs if turn % 2 == 0 else programs[::-1]:
                for at, ms in self.steps(program, model).items():
                    times.setdefault(at, {"before": [], "now": []})[name].append(ms)
        return times


def judged(model, times, limit):
    """A line for each number of rows: medians over the turns, and the ratio of now to before."""
    for (rows, context), turns in sorted(times.items()):
        before, now = statistics.median(turns["before"]), statistics.median(turns["now"])
        yield {"model": model, "rows": rows, "context": context, "before_ms": turns["before"], "now_ms": turns["now"],
               "median_before_ms": before, "median_now_ms": now, "ratio": now / before, "is_slower": now > limit * before}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--before", required=True, help="the program to compare with")
    parser.add_argument("--now", required=True, help="the program that is judged")
    parser.add_argument("--out", required=True, help="folder for gate.json")
    parser.add_argument("--models", nargs="+", default=["llama-3.2-1b", "llama-3.2-3b", "qwen3-4b", "gemma-3-1b"],
                        help="names of tests/golden/configs, or checkpoint folders")
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 8, 32, 64])
    parser.add_argument("--context", nargs="+", type=int, default=[1024])
    parser.add_argument("--turns", type=int, default=5, help="runs of each program and model")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--steps", type=int, default=20, help="launches a sample")
    parser.add_argument("--limit", type=float, default=1.02, help="largest ratio of the medians")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()

    gate, lines = Gate(options), []
    print(f"{'model':14} {'rows':>4} {'context':>7} {'before ms':>10} {'now ms':>10} {'ratio':>7}")
    for model in options.models:
        for line in judged(model, gate.measure(model), options.limit):
            lines.append(line)
            print(f"{line['model']:14} {line['rows']:4} {line['context']:7} {line['median_before_ms']:10.4f} "
                  f"{line['median_now_ms']:10.4f} {line['ratio']:7.4f}{'  slower' if line['is_slower'] else ''}", flush=True)
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    written = {"gpu": ", ".join(sorted(gate.gpus)), "date": datetime.date.today().isoformat(), "command": shlex.join(sys.argv),
               "limit": options.limit, "turns": options.turns, "lines": lines}
    (out / "gate.json").write_text(json.dumps(written, indent=2) + "\n")
    slower = [line for line in lines if line["is_slower"]]
    if slower:
        print(f"gpu_gate: {len(slower)} of {len(lines)} steps take more than {options.limit} times as long as before", file=sys.stderr)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
