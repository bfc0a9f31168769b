# A model over several GPUs as `serve` answers with it: one process whose kernels send packets, one whose ranks gather by
# NCCL, and a process a rank. The same streams through each in turns, which must give the same text; then a rank is
# killed, and the time is taken until the open stream ends with an error. Standard library only.
#   bench/serve_ranks.py --program build/nodewright --model DIR --prompt 1024 --output 256 --rounds 2 --out FILE [--gpus 2] [--commit C]
import argparse
import datetime
import http.client
import json
import re
import signal
import socket
import statistics
import subprocess
import sys
import time

START_S = 120


class Process:
    """A `serve` and what it says."""

    def __init__(self, args, *words):
        command = [args.program, "serve", "--model", args.model, "--port", "0", "--max-num-seqs", "4", "--max-model-len",
                   str(args.prompt + args.output + 8), "--step-tokens", str(args.prompt), *args.words, *words]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.said = []

    def wait_for(self, pattern):
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.search(pattern, line):
                return found
        raise SystemExit("ended: " + "".join(self.said))

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def processes(args, form):
    if form != "processes":
        return [Process(args, "--tp", str(args.gpus), "--collectives", form)]
    place = "127.0.0.1:%d" % free_port()
    return [Process(args, "--tp", str(args.gpus), "--rank", str(rank), "--rendezvous", place, "--device",
                    "cuda:%d" % rank) for rank in range(args.gpus)]


def port_of(server):
    port = int(server.wait_for(r"http://[^ ]*:(\d+)").group(1))
    server.wait_for(r"ready: ")
    return port


def stream(port, args, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_S)
    began = time.perf_counter()
    connection.request("POST", "/v1/completions", json.dumps(dict(body, stream=True, ignore_eos=True)),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(response.read().decode())
    times, text = [], []
    for line in response:
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            if "error" in event:
                return times, text, event["error"]["message"], time.perf_counter()
            times.append(time.perf_counter() - began)
            text.append(event["choices"][0]["text"])
    return times, "".join(text), None, time.perf_counter()


def bodies(args):
    prompt = [(i * 7919) % args.vocab for i in range(args.prompt)]
    fixed = {"prompt": prompt, "max_tokens": args.output}
    return {"greedy": dict(fixed, temperature=0), "sampled": dict(fixed, temperature=0.6, top_p=0.9, seed=7)}


def measured(args, form):
    group = processes(args, form)
    port = port_of(group[0])
    figures = {}
    for name, body in bodies(args).items():
        stream(port, args, body)
        body = dict(body, prompt=[token + 1 for token in body["prompt"]])  # nothing of it is in the cache
        times, text, error, _ = stream(port, args, body)
        if error:
            raise SystemExit("%s: %s" % (form, error))
        figures[name] = {"first_ms": 1000 * times[0], "ms_per_token": 1000 * (times[-1] - times[0]) / (args.output - 1),
                         "text": text}
    codes = [group[0].end()] + [one.process.wait(60) for one in group[1:]]
    if any(codes):
        raise SystemExit("%s: exit codes %s" % (form, codes))
    return figures


def killed_rank(args):
    """Milliseconds from the kill of rank 1 to the error of the open stream, that error, and rank 0's exit code."""
    group = processes(args, "processes")
    port = port_of(group[0])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_S)
    connection.request("POST", "/v1/completions", json.dumps(dict(bodies(args)["greedy"], stream=True, ignore_eos=True)),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    for _ in range(20):
        response.readline()
    group[1].process.kill()
    killed = time.perf_counter()
    rest = response.read().decode()
    ended = 1000 * (time.perf_counter() - killed)
    code = group[0].process.wait(60)
    for one in group[2:]:
        one.process.wait(60)
    return {"error_after_ms": ended, "error": (re.findall(r'"message":"([^"]*)', rest) or [rest[-200:]])[0],
            "exit_code_of_rank_0": code}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/nodewright")
    parser.add_argument("--model", required=True)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--output", type=int, default=256)
    parser.add_argument("--vocab", type=int, default=120000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out", required=True)
    parser.add_argument("words", nargs="*", help="options of `serve`, behind --")
    args = parser.parse_args()
    forms = ("packets", "nccl", "processes")
    rounds = [{form: measured(args, form) for form in forms} for _ in range(args.rounds)]
    result = {"date": datetime.date.today().isoformat(), "commit": args.commit, "command": " ".join(sys.argv),
              "gpu": subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True,
                                    text=True).stdout.split("\n")[0],
              "prompt": args.prompt, "output": args.output, "rounds": args.rounds, "forms": {}}
    texts = {}
    for form in forms:
        of_form = result["forms"][form] = {}
        for name in rounds[0][form]:
            of_form[name] = {key: round(statistics.median(one[form][name][key] for one in rounds), 3)
                             for key in ("first_ms", "ms_per_token")}
            texts.setdefault(name, set()).update(one[form][name]["text"] for one in rounds)
    result["same_text"] = {name: len(of_name) == 1 for name, of_name in texts.items()}
    result["killed_rank"] = killed_rank(args)
    with open(args.out, "w") as file:
        json.dump(result, file, indent=1)
    print(json.dumps(result, indent=1))
    if not all(result["same_text"].values()):
        raise SystemExit("the forms give other texts")


if __name__ == "__main__":
    main()
