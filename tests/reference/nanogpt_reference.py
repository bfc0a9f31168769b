#!/usr/bin/env python3
"""The nanoGPT article's model in torch, float64, with the weights that examples/nanogpt/nanogpt_weights.cpp makes from a seed.
Writes tests/golden/nanogpt/<model>.json, or with --errors says what a wrong setting would cost.

    python3 nanogpt_reference.py             # the same bytes for the same library versions; about 5 s
    python3 nanogpt_reference.py --errors    # rms error over standard deviation of the logits, per wrong setting
"""
import argparse
import json
import math
import os

import numpy
import torch
from torch import nn

GOLDEN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden", "nanogpt")
SEED = 1

# The article's model, and one in which nothing is a multiple of anything.
MODELS = {
    "article": {"layers": 4, "heads": 4, "embedding": 32, "context": 64, "vocab": 65},
    "odd_sizes": {"layers": 2, "heads": 3, "embedding": 15, "context": 21, "vocab": 37},
}
PROMPTS = {"article": (1, 8, 32, 60), "odd_sizes": (1, 9, 17)}
CONTINUED = 4  # forced tokens after each prompt; the longest cases end with a full context


def noise(stream, count):
    """SplitMix64 of (stream, 0 .. count - 1), as float32 in [-1, 1)."""
    with numpy.errstate(over="ignore"):
        z = (numpy.uint64(stream) * numpy.uint64(0xd1342543de82ef95) +
             (numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(1)) * numpy.uint64(0x9e3779b97f4a7c15))
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94d049bb133111eb)
        z = z ^ (z >> numpy.uint64(31))
    return ((z >> numpy.uint64(40)).astype(numpy.int64) - (1 << 23)).astype(numpy.float32) * numpy.float32(2.0 ** -23)


class Weights:
    """Hands the tensors out in the order in which nanogpt_weights.cpp lays them out."""

    def __init__(self, seed):
        self.seed, self.taken = seed, 0

    def take(self, shape, center, reach):
        values = noise(self.seed * 1000 + self.taken, math.prod(shape))
        self.taken += 1
        values = numpy.float32(center) + numpy.float32(reach) * values
        return torch.from_numpy(values.reshape(shape)).double()

    def vector(self, width, center):
        return self.take((width,), center, 0.3)

    def matrix(self, rows, cols, size):
        return self.take((rows, cols), 0.0, size * math.sqrt(3.0 / cols))


class CausalSelfAttention(nn.Module):
    """As the article's: one qkv projection without bias, scores over sqrt(head size), a projection with bias."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        length, width = x.shape
        q, k, v = (part.view(length, self.heads, width // self.heads).transpose(0, 1)
                   for part in self.qkv(x).split(width, dim=1))
        scores = (q @ k.transpose(-2, -1)) * self.scale
        scores = scores.masked_fill(torch.ones(length, length, dtype=torch.bool).triu(1), float("-inf"))
        return self.proj((scores.softmax(-1) @ v).transpose(0, 1).reshape(length, width))


class Model(nn.Module):
    def __init__(self, config, seed, eps=1e-5, gelu="none"):
        super().__init__()
        width = config["embedding"]
        self.token_table = nn.Embedding(config["vocab"], width)
        self.position_table = nn.Embedding(config["context"], width)
        self.blocks = nn.ModuleList()
        for _ in range(config["layers"]):
            self.blocks.append(nn.ModuleDict({
                "ln1": nn.LayerNorm(width, eps=eps), "attention": CausalSelfAttention(width, config["heads"]),
                "ln2": nn.LayerNorm(width, eps=eps),
                "mlp": nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate=gelu),
                                     nn.Linear(4 * width, width))}))
        self.ln_f = nn.LayerNorm(width, eps=eps)
        self.head = nn.Linear(width, config["vocab"])
        self.double().fill(config, Weights(seed))

    @torch.no_grad()
    def fill(self, config, weights):
        width = config["embedding"]

        def norm(module):
            module.weight.copy_(weights.vector(width, 1.0))
            module.bias.copy_(weights.vector(width, 0.0))

        def linear(module, size):
            module.weight.copy_(weights.matrix(*module.weight.shape, size))
            if module.bias is not None:
                module.bias.copy_(weights.vector(module.bias.shape[0], 0.0))

        self.token_table.weight.copy_(weights.take((config["vocab"], width), 0.0, 1.0))
        self.position_table.weight.copy_(weights.take((config["context"], width), 0.0, 1.0))
        for block in self.blocks:
            norm(block["ln1"])
            linear(block["attention"].qkv, 1.5)
            linear(block["attention"].proj, 0.5)
            norm(block["ln2"])
            linear(block["mlp"][0], 1.0)
            linear(block["mlp"][2], 0.5)
        norm(self.ln_f)
        linear(self.head, 2.0)

    def forward(self, tokens):
        x = self.token_table(tokens) + self.position_table(torch.arange(len(tokens)))
        for block in self.blocks:
            x = x + block["attention"](block["ln1"](x))
            x = x + block["mlp"](block["ln2"](x))
        return self.head(self.ln_f(x))


def cases(name):
    config = MODELS[name]
    for length in PROMPTS[name]:
        tokens = [(i * 7919 + 31 * length) % config["vocab"] for i in range(length + CONTINUED)]
        yield tokens[:length], tokens[length:]


@torch.no_grad()
def logits(model, prompt, continuation):
    """[1 + continued, vocab]: after the prompt, and after each forced token."""
    return model(torch.tensor(prompt + continuation))[len(prompt) - 1:]


def write_goldens():
    os.makedirs(GOLDEN, exist_ok=True)
    for name, config in MODELS.items():
        model = Model(config, SEED)
        made = {"made_by": "tests/reference/nanogpt_reference.py, torch %s" % torch.__version__, "config": config,
                "seed": SEED, "parameters": sum(p.numel() for p in model.parameters()), "cases": []}
        for prompt, continuation in cases(name):
            rows = [[float("%.9g" % v) for v in row] for row in logits(model, prompt, continuation).tolist()]
            made["cases"].append({"prompt": prompt, "continuation": continuation, "logits": rows})
        path = os.path.join(GOLDEN, name + ".json")
        with open(path, "w") as file:
            json.dump(made, file, separators=(",", ":"))
            file.write("\n")
        print(path, made["parameters"], "parameters, standard deviation of the logits %.2f" %
              numpy.std([row for case in made["cases"] for row in case["logits"]]))


def print_errors():
    for name, config in MODELS.items():
        right = Model(config, SEED)
        wrong = {"float32": Model(config, SEED).float(), "GELU by tanh": Model(config, SEED, gelu="tanh"),
                 "eps 1e-6": Model(config, SEED, eps=1e-6)}
        for what, model in wrong.items():
            errors = []
            for prompt, continuation in cases(name):
                expected = logits(right, prompt, continuation)
                difference = logits(model, prompt, continuation).double() - expected
                errors.append("%.1e" % (difference.square().mean().sqrt() / expected.std()).item())
            print("%-10s %-14s %s" % (name, what, " ".join(errors)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--errors", action="store_true", help="compare wrong settings instead of writing goldens")
    print_errors() if parser.parse_args().errors else write_goldens()
