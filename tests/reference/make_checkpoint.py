# Writes a random checkpoint of a family (checkpoint_families.py) in the Hugging Face layout, in any shape and config
# spelling, with weights that make wide logits and uneven attention, so that an arithmetic error shows. A released shape
# gets a tokenizer of its size (checkpoint_tokenizer.py), any other with --tokenizer.
import argparse
import json
import math
import os

import torch
from safetensors.torch import save_file

from checkpoint_families import ARCHITECTURES, PRESETS, SAMPLING, config, specs
from checkpoint_tokenizer import write_tokenizer

DEFAULTS = dict(family="llama", hidden=192, heads=6, kv_heads=2, head_dim=32, intermediate=320, layers=2, vocab=1003,
                tied=True, rope="default", rope_theta=10000.0, eps=1e-5, max_position=1024, window=16, query_scalar=None,
                score_std=2.0)


class Weights:
    """Draws tensors from one seeded stream, in the order asked."""

    def __init__(self, seed, device, dtype):
        self.device = torch.device(device)
        self.dtype = getattr(torch, dtype)
        self.generator = torch.Generator(self.device).manual_seed(seed)

    def normal(self, shape, mean, std):
        """A tensor of the given shape; the float32 draw covers 32 Mi elements at a time, so a 3B model stays small."""
        out = torch.empty(shape, dtype=self.dtype, device=self.device).flatten()
        for begin in range(0, out.numel(), 1 << 25):
            part = out[begin:begin + (1 << 25)]
            part.copy_(torch.randn(part.numel(), generator=self.generator, device=self.device) * std + mean)
        return out.view(shape).cpu()


def tensors(shape, weights):
    """Yields (name, tensor) in file order."""
    for spec in specs(shape):
        tensor = weights.normal(spec.size, spec.mean, spec.std)
        if spec.signs:
            tensor *= weights.normal(spec.size, 0.0, 1.0).sign()
        yield spec.name, tensor - spec.offset


def write_json(path, values):
    with open(path, "w") as file:
        json.dump(values, file, indent=2)
        file.write("\n")


def write_shards(folder, named_tensors, count, total_bytes, shards):
    """Writes one file, or `shards` files of about equal bytes and an index; only one shard is held in memory."""
    if shards == 1:
        save_file(dict(named_tensors), os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        return
    where, held, number, done_bytes = {}, {}, 1, 0
    for index, (name, tensor) in enumerate(named_tensors):
        held[name] = tensor
        done_bytes += tensor.nbytes
        tensors_left, files_left = count - index - 1, shards - number
        # Close a file at its share of the bytes, or when only one tensor remains for each further file.
        share_reached = files_left and done_bytes >= total_bytes * number / shards
        if tensors_left <= files_left or share_reached:
            file = "model-%05d-of-%05d.safetensors" % (number, shards)
            save_file(held, os.path.join(folder, file), metadata={"format": "pt"})
            where.update((name, file) for name in held)
            held, number = {}, number + 1
    write_json(os.path.join(folder, "model.safetensors.index.json"),
               {"metadata": {"total_size": total_bytes}, "weight_map": dict(sorted(where.items()))})


def sizes(shape):
    """(number of tensors, bytes) of the checkpoint."""
    elements = [math.prod(spec.size) for spec in specs(shape)]
    return len(elements), sum(elements) * getattr(torch, shape.dtype).itemsize


def write_checkpoint(shape, folder):
    """Writes the whole checkpoint; shape is the namespace that parse() returns."""
    os.makedirs(folder, exist_ok=True)
    count, total_bytes = sizes(shape)
    if shape.shards > count:
        raise SystemExit("--shards %d: the checkpoint has only %d tensors" % (shape.shards, count))
    write_shards(folder, tensors(shape, Weights(shape.seed, shape.device, shape.dtype)), count, total_bytes, shape.shards)
    values = config(shape)
    write_json(os.path.join(folder, "config.json"), values)
    write_json(os.path.join(folder, "generation_config.json"),
               {"bos_token_id": 0, "eos_token_id": values["eos_token_id"], **(SAMPLING[shape.family] if shape.preset else {})})
    if shape.tokenizer:
        write_tokenizer(folder, shape.vocab, shape.max_position)


def parse(arguments=None):
    """Options as a namespace; a preset fills the shape, and an explicit option overrides it."""
    parser = argparse.ArgumentParser(description="Writes a random checkpoint.")
    parser.add_argument("--out", required=True)
    parser.add_argument("--preset", choices=sorted(PRESETS))
    parser.add_argument("--family", choices=sorted(ARCHITECTURES))
    for name in ("hidden", "heads", "kv-heads", "head-dim", "intermediate", "layers", "vocab", "max-position", "window",
                 "query-scalar"):
        parser.add_argument("--" + name, type=int)
    parser.add_argument("--tied", dest="tied", action="store_true", default=None)
    parser.add_argument("--untied", dest="tied", action="store_false")
    parser.add_argument("--rope", choices=["default", "llama3", "linear"])
    parser.add_argument("--rope-theta", type=float)
    parser.add_argument("--rope-local-theta", type=float, default=10000.0, help="of Gemma's sliding layers")
    parser.add_argument("--rope-factor", type=float, default=32.0)
    parser.add_argument("--rope-low", type=float, default=1.0)
    parser.add_argument("--rope-high", type=float, default=4.0)
    parser.add_argument("--rope-original", type=int, default=8192)
    parser.add_argument("--eps", type=float)
    parser.add_argument("--score-std", type=float, help="of the attention scores before the softmax")
    parser.add_argument("--embedding-std", type=float,
                        help="of the residual stream; near sqrt(10 eps), a wrong eps shows in the logits")
    parser.add_argument("--activation", default="gelu_new", help="GPT-2's; nanoGPT's is gelu")
    parser.add_argument("--no-prefix", action="store_true", help="tensor names without model. or transformer.")
    parser.add_argument("--tokenizer", action=argparse.BooleanOptionalAction,
                        help="a byte-level tokenizer of the vocabulary's size, and a chat template (default: of a preset)")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--config-spelling", choices=["old", "new"], default="old")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options = parser.parse_args(arguments)
    for name, value in {**DEFAULTS, **PRESETS.get(options.preset, {})}.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.tokenizer is None:
        options.tokenizer = options.preset is not None
    if options.family == "gpt2":
        options.kv_heads, options.head_dim = options.heads, options.hidden // options.heads
    if options.heads % options.kv_heads:
        parser.error("--heads %d is not a multiple of --kv-heads %d" % (options.heads, options.kv_heads))
    return options


if __name__ == "__main__":
    chosen = parse()
    write_checkpoint(chosen, chosen.out)
