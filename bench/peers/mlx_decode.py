# Times MLX's decode step beside ours: greedy, one token a row after a prompt of `context` - 1 tokens, in bf16. MLX builds
# the next step while the GPU runs the one before, as its own generate() does.
#
#   python3 bench/peers/mlx_decode.py --nodewright build/nodewright --model DIR --batch 1 8 --out mlx.json
#
# Needs `pip install mlx[cuda13] mlx-lm`; no network.
import argparse
import datetime
import json
import pathlib
import shlex
import statistics
import sys
import time

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

import compare_decode as ours

LEAD_IN = 16  # steps before the clock starts


def step_ms(model, batch, context, steps):
    """The mean of `steps` steps after a lead-in."""
    prompt = mx.array([[(7 + 15 * i) % 1000 for i in range(context - 1)]] * batch)
    cache = make_prompt_cache(model)

    def choose(tokens):
        return mx.argmax(model(tokens, cache=cache)[:, -1, :], axis=-1)

    tokens = choose(prompt)
    mx.eval(tokens)
    for i in range(LEAD_IN + steps):
        if i == LEAD_IN:
            mx.eval(tokens)
            start = time.perf_counter()
        following = choose(tokens[:, None])
        mx.async_eval(following)
        mx.eval(tokens)
        tokens = following
    mx.eval(tokens)
    return (time.perf_counter() - start) / steps * 1e3


def main():
    parser = argparse.ArgumentParser(description="Compares a decode step of Nodewright with MLX's CUDA backend.")
    parser.add_argument("--nodewright", required=True, help="the program")
    parser.add_argument("--model", required=True, help="folder of the checkpoint")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8], help="rows of the step")
    parser.add_argument("--context", type=int, default=1024, help="keys that a row attends to at first")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu tries the script, no more")
    parser.add_argument("--rounds", type=int, default=3, help="each measures both once")
    parser.add_argument("--samples", type=int, default=10, help="of ours, a round")
    parser.add_argument("--steps", type=int, default=40, help="in a sample")
    parser.add_argument("--commit", help="of the program; default: git rev-parse HEAD")
    parser.add_argument("--out", help="JSON file")
    options = parser.parse_args()

    model, _ = load_model(pathlib.Path(options.model))
    mx.eval(model.parameters())
    lines = []
    for batch in options.batch:
        of_ours, of_mlx = [], []
        run = argparse.Namespace(**{**vars(options), "batch": batch})
        step_ms(model, batch, options.context, 4)  # compiles
        for _ in range(options.rounds):
            of_ours.append(ours.run_nodewright(run)["step_ms"]["median"])
            of_mlx.append(step_ms(model, batch, options.context, options.steps))
        lines.append({"batch": batch, "nodewright_ms": of_ours, "mlx_ms": of_mlx,
                      "times_ours": statistics.median(of_mlx) / statistics.median(of_ours)})
        print(f"{batch} rows: nodewright {statistics.median(of_ours):.4f} ms, MLX {statistics.median(of_mlx):.4f} ms, "
              f"{lines[-1]['times_ours']:.2f} times as long", flush=True)
    if options.out:
        result = {"gpu": ours.gpu(), "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                  "commit": options.commit or ours.words_of(["git", "rev-parse", "HEAD"]),
                  "command": shlex.join(["python3"] + sys.argv), "mlx": mx.__version__,
                  "model": pathlib.Path(options.model).name, "context": options.context, "lines": lines}
        pathlib.Path(options.out).write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
