# One decode step of Nodewright beside the same step of transformers, in one run: rounds alternate, so that clocks and
# temperature are the same for both. Prints a table and writes a JSON file for bench/results, anew after every round.
#
#   python3 bench/peers/compare_decode.py --nodewright build/nodewright --model DIR --batch 1 --context 1024 --out FILE
import argparse
import datetime
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import transformers_decode as peers

OURS = "nodewright"


def words_of(command):
    """The standard output of a command, or None when it cannot be had."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=os.path.dirname(__file__) or ".")
        return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else None
    except (OSError, subprocess.TimeoutExpired):
        return None


def gpu():
    line = words_of(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"])
    name, driver = line.split(", ") if line else (None, None)
    return {"name": name, "driver": driver}


def run_nodewright(options):
    """The one line of `nodewright bench decode`, as it stands in its JSON file."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "ours.json")
        command = [options.nodewright, "bench", "decode", "--model", options.model, "--batch", str(options.batch),
                   "--context", str(options.context), "--samples", str(options.samples), "--steps", str(options.steps),
                   "--device", options.device, "--out", out]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{shlex.join(command)}\nended with {done.returncode}:\n{done.stderr or done.stdout}")
        with open(out) as file:
            return json.load(file)["lines"][0]


def of_rounds(spreads):
    """Rounds' spreads as one: the median of the medians, and the ends of them all."""
    return {"median": statistics.median(s["median"] for s in spreads), "min": min(s["min"] for s in spreads),
            "max": max(s["max"] for s in spreads)}


def tell(what, since):
    print(f"{what} after {time.monotonic() - since:.0f} s", file=sys.stderr, flush=True)


def measure(options):
    """After every round: the rounds so far, and what was left out with the reason. A run that is cut off has those."""
    start = time.monotonic()
    step = peers.DecodeStep(options.model, options.batch, options.context, options.device)
    tell("loaded", start)
    made, left_out = peers.variants(step, options.compile)
    peers.check_agreement(step, made)
    tell("compiled and compared", start)
    rounds = []
    for i in range(options.rounds):
        ours = run_nodewright(options)
        times = {OURS: ours["step_ms"]}
        for name, run in made.items():
            times[name] = peers.spread(peers.sample_ms(run, options.device, options.samples, options.steps))
        rounds.append({"step_ms": times, "nodewright": ours})
        print(f"round {i + 1} of {options.rounds}: " +
              ", ".join(f"{name} {spread['median']:.4f} ms" for name, spread in times.items()), flush=True)
        yield rounds, left_out


def summary_of(rounds, batch):
    """Name -> step time, ratio to ours, tokens a second, and the share of the read bandwidth measured beside it."""
    needed = rounds[0]["nodewright"]["weight_bytes"] + rounds[0]["nodewright"]["kv_bytes"]  # bytes a step must read
    bandwidth = statistics.median(r["nodewright"]["read_bytes_per_s"]["median"] for r in rounds)
    times = {name: of_rounds([r["step_ms"][name] for r in rounds]) for name in rounds[0]["step_ms"]}
    return {name: {"step_ms": ms,
                   "tokens_per_s": batch / ms["median"] * 1e3,
                   "share_of_read_bandwidth": needed / (ms["median"] * 1e-3) / bandwidth,
                   "times_ours": ms["median"] / times[OURS]["median"]}
            for name, ms in times.items()}


def print_table(summary):
    print(f"{'':18} {'step ms':>9} {'min':>9} {'max':>9} {'tokens/s':>9} {'of read':>8} {'x ours':>7}")
    for name, line in summary.items():
        ms = line["step_ms"]
        print(f"{name:18} {ms['median']:9.4f} {ms['min']:9.4f} {ms['max']:9.4f} {line['tokens_per_s']:9.0f} "
              f"{line['share_of_read_bandwidth'] * 100:7.1f}% {line['times_ours']:7.2f}")


def write(options, rounds, left_out, summary):
    result = {"gpu": gpu(), "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "commit": options.commit or words_of(["git", "rev-parse", "HEAD"]),
              "command": shlex.join(["python3"] + sys.argv),
              "model": os.path.basename(os.path.normpath(options.model)), "batch": options.batch,
              "context": options.context, "samples": options.samples, "steps_per_sample": options.steps,
              "versions": peers.versions(), "left_out": left_out, "summary": summary, "rounds": rounds}
    with open(options.out + ".part", "w") as file:
        json.dump(result, file, indent=2)
        file.write("\n")
    os.replace(options.out + ".part", options.out)


def main():
    parser = argparse.ArgumentParser(description="Compares a decode step of Nodewright with transformers.")
    parser.add_argument("--nodewright", required=True, help="the program")
    parser.add_argument("--model", required=True, help="folder of the checkpoint")
    parser.add_argument("--batch", type=int, default=1, help="rows of the step")
    parser.add_argument("--context", type=int, default=1024, help="keys a row attends to, its own included")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu tries the script, no more")
    parser.add_argument("--rounds", type=int, default=3, help="each measures everything once")
    parser.add_argument("--samples", type=int, default=20, help="of each figure, a round")
    parser.add_argument("--steps", type=int, default=20, help="back to back in a sample")
    parser.add_argument("--compile", action="store_true", help="torch.compile as well (minutes)")
    parser.add_argument("--commit", help="of the program; default: git rev-parse HEAD")
    parser.add_argument("--out", help="JSON file")
    options = parser.parse_args()
    if min(options.batch, options.rounds, options.samples, options.steps) < 1 or options.context < 2:
        parser.error("--batch, --rounds, --samples and --steps are at least 1, --context at least 2")

    for rounds, left_out in measure(options):
        summary = summary_of(rounds, options.batch)
        if options.out:
            write(options, rounds, left_out, summary)
    print_table(summary)


if __name__ == "__main__":
    main()
