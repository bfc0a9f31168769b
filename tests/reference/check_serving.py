# Checks that requests served together get what each gets alone, tokens and log probabilities of prompts: draws mixed
# requests (lengths, prompts that begin alike, seeds, temperatures, scored prompts, stop ids, arrivals), runs them one after the other, and then together in every
# setting of `nodewright run`, all with --numerics invariant. Exit 1 where one differs. Standard library only.
#   check_serving.py --program nodewright --model DIR [--device cuda] [--requests 200] [--seed N] [--longest 96]
import argparse
import json
import random
import subprocess
import sys
import tempfile
import time

ALONE = ["--max-batch", "1", "--chunk", "8", "--buckets", "1,8", "--no-pipelining", "--no-prefix-cache"]
SETTINGS = {
    "32 rows, buckets 1 to 32": ["--max-batch", "32", "--chunk", "32", "--buckets", ",".join(map(str, range(1, 33)))],
    "one step at a time": ["--max-batch", "32", "--chunk", "32", "--no-pipelining"],
    "without prefix cache": ["--max-batch", "32", "--chunk", "16", "--no-prefix-cache"],
    "chunks of a prompt back to back": ["--max-batch", "8", "--step-tokens", "12", "--schedule", "mixed"],
    "prompts apart": ["--max-batch", "16", "--step-tokens", "16", "--schedule", "drained"],
    "one bucket": ["--max-batch", "8", "--chunk", "8", "--buckets", "8"],
    "buckets 1, 5 and 13": ["--max-batch", "13", "--chunk", "5", "--buckets", "1,5,13"],
    "few pages": ["--max-batch", "16", "--chunk", "16", "--pages", "24"],
    "few pages, taken as needed": ["--max-batch", "16", "--chunk", "16", "--pages", "24", "--reserve", "prompt"],
    "prompts in pieces": ["--max-batch", "16", "--chunk", "32", "--prefill", "piecewise"],
    "prompts node by node": ["--max-batch", "16", "--chunk", "32", "--prefill", "eager"],
    "with drafts": ["--max-batch", "8", "--chunk", "16", "--speculate", "4"],
    "arrivals over a second": ["--max-batch", "16", "--chunk", "16", "--rate", "200"],
}


def draw_requests(draw, count, vocab, longest):
    common = [[draw.randrange(vocab) for _ in range(longest)] for _ in range(3)]
    requests = []
    for i in range(count):
        prompt = draw.choice(common)[:draw.randrange(0, longest)] if draw.random() < 0.5 else []
        prompt = prompt + [draw.randrange(vocab) for _ in range(draw.randrange(1, 30))]
        request = {"id": i, "prompt_ids": prompt, "max_tokens": draw.randrange(1, 40), "ignore_eos": True,
                   "temperature": 0, "seed": draw.randrange(1 << 40)}
        if draw.random() < 0.3:
            request |= {"temperature": draw.choice([0.7, 1.0]), "top_k": draw.choice([0, 40]), "top_p": draw.choice([0.9, 1.0])}
        if draw.random() < 0.2:
            request["prompt_logprobs"] = draw.choice([0, 3])
        requests.append(request)
    return requests


def serve(arguments, requests, words):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("".join(json.dumps(request) + "\n" for request in requests))
        file.flush()
        command = [arguments.program, "run", "--model", arguments.model, "--device", arguments.device, "--numerics",
                   "invariant", "--max-context", str(arguments.longest + 80), "--requests", file.name, *words]
        started = time.time()
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    results = {result["id"]: result for result in map(json.loads, done.stdout.splitlines())}
    return results, time.time() - started


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/nodewright")
    parser.add_argument("--model", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--longest", type=int, default=96, help="tokens of a beginning that prompts share")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with open(f"{arguments.model}/config.json") as file:
        vocab = json.load(file)["vocab_size"]
    draw = random.Random(arguments.seed)
    requests = draw_requests(draw, arguments.requests, vocab, arguments.longest)
    alone, seconds = serve(arguments, requests, ALONE)
    print(f"alone: {len(alone)} requests, {sum(len(r['token_ids']) for r in alone.values())} tokens, {seconds:.1f} s", flush=True)
    # Every third now stops at a token that it is known to choose, and is expected to have been cut there.
    for request in requests[::3]:
        result = alone[request["id"]]
        stop = draw.choice(result["token_ids"])
        request["stop_ids"] = [stop]
        result["token_ids"] = result["token_ids"][:result["token_ids"].index(stop) + 1]
        result["finish_reason"] = "stop"
    failed = 0
    for name, words in SETTINGS.items():
        results, seconds = serve(arguments, requests, words)
        told = ("token_ids", "finish_reason", "prompt_logprobs")
        wrong = [i for i in alone if any(results[i].get(f) != alone[i].get(f) for f in told)]
        failed += bool(wrong)
        print(f"{name}: {f'{len(wrong)} differ, the first is {wrong[0]}' if wrong else 'equal'}, {seconds:.1f} s", flush=True)
    print("NOT equal" if failed else f"equal: {len(requests)} requests in {len(SETTINGS)} settings, seed {arguments.seed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
