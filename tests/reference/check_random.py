# Checks random checkpoints that are in no repository: draws shapes of a family from seeds, writes each to a temporary
# folder, and compares `nodewright logits` with transformers in float32, in all three modes, which must agree bit by bit.
# Exit 1 where one is beyond the limit. Prints a line a checkpoint and the worst error. Weights that are not bf16 are
# rounded to bf16 at load; the reference is that of the rounded weights, and what the rounding itself costs is printed.
import argparse
import copy
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
import torch

import make_checkpoint
import reference_logits
from checkpoint_families import ARCHITECTURES
from compare_logits import greedy_agreement, relative_error

CONTEXT = 128  # what every checkpoint was made for; the longest prompt goes to its end
CONTINUATION = 3
PROMPT_LENGTHS = (1, 5, 37, 70, CONTEXT - CONTINUATION)
MODES = ("explicit", "captured", "eager")


def draw_shape(family, draw):
    """Options of make_checkpoint.py: small and odd, with every spelling and dtype in turn."""
    options = ["--family", family, "--config-spelling", draw.choice(["old", "new"]),
               "--dtype", draw.choice(["bfloat16"] * 3 + ["float16", "float32"]), "--vocab", draw.randrange(300, 1100),
               "--layers", 7 if family == "gemma3" else draw.randrange(1, 5), "--max-position", CONTEXT,
               "--intermediate", draw.randrange(40, 400), "--eps", draw.choice([1e-5, 1e-6]),
               "--shards", draw.choice([1, 1, 3]), draw.choice(["--tied", "--tied", "--untied"])]
    if draw.random() < 0.3:
        options.append("--no-prefix")
    if family == "gpt2":
        head_dim, heads = draw.choice([8, 16, 20, 32, 48, 64]), draw.randrange(1, 7)
        return options + ["--hidden", head_dim * heads, "--heads", heads,
                          "--activation", draw.choice(["gelu_new", "gelu", "gelu_pytorch_tanh"])]
    kv_heads = draw.choice([1, 1, 2, 3])
    heads = kv_heads * draw.choice([1, 2, 3, 4, 5])
    hidden = draw.choice([96, 100, 144, 160, 200])
    if family != "qwen3":  # transformers insists that heads divide the hidden size, though nothing uses the quotient
        hidden = heads * max(1, hidden // heads)
    options += ["--heads", heads, "--kv-heads", kv_heads, "--hidden", hidden,
                "--head-dim", draw.choice([16, 20, 32, 64, 96, 128, 256]),
                "--rope", draw.choice(["default", "linear"] + ["llama3"] * (family == "llama")),
                "--rope-factor", 8, "--rope-original", 64, "--rope-theta", draw.choice([1e4, 5e5, 1e6])]
    if family == "gemma3":
        options += ["--window", draw.choice([1, 2, 15, 16, 17, 63, 64, 65, 100]),
                    "--query-scalar", draw.choice([32, 64, 100, 256])]
    return options


def round_weights(model):
    """To bf16 and back, as they are loaded; not the buffers, which hold rotary frequencies."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())


def our_logits(program, folder, device, mode, bucket, prompt, continuation):
    out = os.path.join(folder, "ours.npy")
    subprocess.run([program, "logits", "--model", folder, "--device", device, "--mode", mode, "--bucket", str(bucket),
                    "--prompt-ids", ",".join(map(str, prompt)), "--continue", ",".join(map(str, continuation)),
                    "--out", out], check=True, stderr=subprocess.DEVNULL)
    return np.load(out)


def check(program, family, seed, device, limit):
    """Prints one line; returns the worst error, infinity where modes or greedy tokens disagree."""
    draw = random.Random("nodewright %s %d" % (family, seed))
    options = [str(option) for option in draw_shape(family, draw)]
    with tempfile.TemporaryDirectory() as folder:
        shape = make_checkpoint.parse(["--out", folder, "--seed", str(seed)] + options)
        make_checkpoint.write_checkpoint(shape, folder)
        model = reference_logits.load(folder, "cpu")
        unrounded = copy.deepcopy(model)
        round_weights(model)
        errors, rounding = [], []
        for length in PROMPT_LENGTHS:
            prompt = [draw.randrange(shape.vocab) for _ in range(length)]
            continuation = [draw.randrange(shape.vocab) for _ in range(CONTINUATION)]
            reference = reference_logits.one_forward(model, prompt, continuation)
            rounding.append(relative_error(reference_logits.one_forward(unrounded, prompt, continuation), reference))
            bucket = draw.choice([1, 1, 2])
            runs = [our_logits(program, folder, device, mode, bucket, prompt, continuation) for mode in MODES]
            errors.append(relative_error(runs[0], reference))
            agree, clear = greedy_agreement(runs[0], reference)
            if agree < clear or any(run.tobytes() != runs[0].tobytes() for run in runs):
                errors[-1] = float("inf")
    worst = max(errors) if np.isfinite(errors).all() else float("inf")
    print("%s %s seed %d: errors %s %%, rounding the weights %.2f %%, std %.2f; %s" % (
        "ok  " if worst <= limit else "FAIL", family, seed, " ".join("%.2f" % (100 * e) for e in errors),
        100 * max(rounding), reference.std(), " ".join(options)), flush=True)
    return worst


def main():
    parser = argparse.ArgumentParser(description="Compares random checkpoints with transformers.")
    parser.add_argument("--program", required=True, help="the nodewright command")
    parser.add_argument("--family", choices=sorted(ARCHITECTURES), nargs="*", default=sorted(ARCHITECTURES))
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--limit", type=float, default=0.02, help="largest error, as a part of the logits' std")
    options = parser.parse_args()
    failed = False
    for family in options.family:
        worst = max(check(options.program, family, options.first_seed + i, options.device, options.limit)
                    for i in range(options.seeds))
        print("%s: worst error %.3f %% of %d checkpoints" % (family, 100 * worst, options.seeds), flush=True)
        failed = failed or not worst <= options.limit
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
