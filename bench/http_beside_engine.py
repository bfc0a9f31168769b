#!/usr/bin/env python3
"""The engine without HTTP and the server in front of it, in turns, on the same requests: one JSON file. Standard library
only. Run by bench/gpu_check.sh (section http)."""
import argparse
import collections
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

NAMED = ("engine", "delivery", "worker", "http")  # threads of the server; the engine's is engine-0


class Server:
    """A server on a port of its own, and what its threads took."""

    def __init__(self, options, rows, io_threads):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [options.program, "serve", "--model", options.model, "--device", options.device, "--port", "0",
             "--served-model-name", "measured", "--max-num-seqs", str(rows), "--max-context", str(options.max_context),
             "--io-threads", str(io_threads)], stderr=self.errors)
        begin = time.monotonic()
        self.url = self.wait(lambda: re.search(r"(http://\S+) listens", self.told()))[1]
        self.wait(self.is_ready)
        self.ready_s = time.monotonic() - begin

    def told(self):
        self.errors.seek(0)
        return self.errors.read()

    def wait(self, condition):
        for _ in range(6000):
            if self.process.poll() is not None:
                break
            if found := condition():
                return found
            time.sleep(0.01)
        sys.exit("the server did not start:\n" + self.told())

    def is_ready(self):
        try:
            return urllib.request.urlopen(self.url + "/ready", timeout=5).status == 200
        except urllib.error.HTTPError:
            return False

    def cpu_s(self):
        """Seconds of each kind of thread."""
        sums = collections.Counter()
        for task in os.listdir(f"/proc/{self.process.pid}/task"):
            with open(f"/proc/{self.process.pid}/task/{task}/stat") as file:
                name, fields = re.fullmatch(r"\d+ \((.*)\) (.*)\n?", file.read()).groups()
            name = name.split("-")[0]
            if name in NAMED:
                sums[name] += sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")
        return dict(sums)

    def delivery(self):
        """Of nodewright_delivery_seconds: the bound below which 99 in 100 of the steps are."""
        text = urllib.request.urlopen(self.url + "/metrics", timeout=5).read().decode()
        buckets = [(float(bound), int(count)) for bound, count in
                   re.findall(r'nodewright_delivery_seconds_bucket\{[^}]*le="([^"+]+)"\} (\d+)', text)]
        total = int(re.search(r"nodewright_delivery_seconds_count\S* (\d+)", text)[1])
        return next((bound for bound, count in buckets if count >= 0.99 * total), None)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(timeout=60) != 0:
            sys.exit("the server ended with %d:\n%s" % (self.process.returncode, self.told()))


def traffic(options, rows, more, out):
    words = [options.program, "bench", "serve", "--model", options.model, "--concurrency", str(rows), "--requests",
             str(max(4 * rows, 8)), "--prompt-tokens", str(options.prompt_tokens), "--output-tokens",
             str(options.output_tokens), "--rounds", "2", "--commit", options.commit, "--out", out, *more]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}:\n{done.stderr}")
    with open(out) as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out", required=True)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 64, 256])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=128)
    parser.add_argument("--max-context", type=int, default=2048)
    parser.add_argument("--crowd", type=int, default=512, help="streams beside --idle connections; 0: not measured")
    parser.add_argument("--idle", type=int, default=1000)
    options = parser.parse_args()
    lines, head = [], {}
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "one.json")
        for rows in options.concurrency:
            for turn in range(options.rounds):
                alone = traffic(options, rows, ["--device", options.device, "--max-batch", str(rows), "--max-context",
                                                str(options.max_context)], out)
                head = {key: alone[key] for key in ("gpu", "driver", "date", "commit", "model")}
                lines.append({"what": "engine", "concurrency": rows, "turn": turn, **alone["lines"][0]})
                lines.append({"what": "http", **measured(options, rows, 1, 0, turn, out)})
        if options.crowd > 0:
            lines.append({"what": "crowd", **measured(options, options.crowd, 2, options.idle, 0, out)})
    with open(options.out, "w") as file:
        json.dump({**head, "command": " ".join(sys.argv), "lines": lines}, file, indent=1)
    for line in lines:
        print(line["what"], line["concurrency"], f"{line['tokens_per_s']:.1f} tokens/s,", "between tokens",
              {key: round(value, 3) for key, value in line["between_tokens_ms"].items()}, line.get("cpu_s", ""))


def measured(options, rows, io_threads, idle, turn, out):
    """One server, started for it."""
    server = Server(options, rows, io_threads)
    before, begin = server.cpu_s(), time.monotonic()
    one = traffic(options, rows, ["--url", server.url, "--served-model-name", "measured", "--idle-connections", str(idle)], out)
    seconds = time.monotonic() - begin
    cpu = {name: round(spent - before.get(name, 0), 2) for name, spent in server.cpu_s().items()}
    line = {"concurrency": rows, "turn": turn, "io_threads": io_threads, "idle_connections": idle,
            "ready_s": server.ready_s, "cpu_s": cpu, "wall_s": seconds, "delivery_p99_below_s": server.delivery(),
            **one["lines"][0]}
    server.end()
    return line


if __name__ == "__main__":
    main()
