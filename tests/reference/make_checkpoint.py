# Writes a random checkpoint of the Llama architecture in the Hugging Face layout, in any shape and config spelling,
# with weights that make wide logits and uneven attention, so that an arithmetic error shows. No tokenizer.
import argparse
import json
import math
import os

import torch
from safetensors.torch import save_file

# Exact shapes of the released checkpoints (config.json of meta-llama/Llama-3.2-1B and -3B).
PRESETS = {
    "llama-3.2-1b": dict(hidden=2048, heads=32, kv_heads=8, head_dim=64, intermediate=8192, layers=16, vocab=128256,
                         tied=True, rope="llama3", rope_theta=500000.0, eps=1e-5, max_position=131072),
    "llama-3.2-3b": dict(hidden=3072, heads=24, kv_heads=8, head_dim=128, intermediate=8192, layers=28, vocab=128256,
                         tied=True, rope="llama3", rope_theta=500000.0, eps=1e-5, max_position=131072),
}
DEFAULTS = dict(hidden=192, heads=6, kv_heads=2, head_dim=32, intermediate=320, layers=2, vocab=1003, tied=True,
                rope="default", rope_theta=10000.0, eps=1e-5, max_position=1024)

LOGIT_STD = 4.0      # standard deviation of the logits aimed at
SCORE_STD = 2.0      # standard deviation of the attention scores before the softmax
RESIDUAL_PART = 0.7  # standard deviation of what a block adds, relative to the embedding's
GAIN_SPREAD = 0.3    # norm gains are 1 +- this


def projections(shape):
    """Yields (name in a layer, [out, in], std) of the seven matrices, std chosen for an input of unit rms.

    Scores are a sum over head_dim of q*k / sqrt(head_dim), so q and k of std s give scores of std s^2. The sum over
    keys shrinks the attention's output, and silu(g)*u of unit g, u has rms about 0.6: the output matrices make up.
    """
    hidden, wide = shape.hidden, shape.heads * shape.head_dim
    narrow, inner = shape.kv_heads * shape.head_dim, shape.intermediate
    unit = 1 / math.sqrt(hidden * (1 + GAIN_SPREAD ** 2))
    yield "self_attn.q_proj", (wide, hidden), unit * math.sqrt(SCORE_STD)
    yield "self_attn.k_proj", (narrow, hidden), unit * math.sqrt(SCORE_STD)
    yield "self_attn.v_proj", (narrow, hidden), unit
    yield "self_attn.o_proj", (hidden, wide), RESIDUAL_PART / (0.6 * math.sqrt(wide))
    yield "mlp.gate_proj", (inner, hidden), unit
    yield "mlp.up_proj", (inner, hidden), unit
    yield "mlp.down_proj", (hidden, inner), RESIDUAL_PART / (0.6 * math.sqrt(inner))


class Weights:
    """Draws tensors from one seeded stream, in the order asked."""

    def __init__(self, seed, device):
        self.device = torch.device(device)
        self.generator = torch.Generator(self.device).manual_seed(seed)

    def normal(self, shape, mean, std):
        """bf16 of the given shape; the float32 draw covers 32 Mi elements at a time, so a 3B model stays small."""
        out = torch.empty(shape, dtype=torch.bfloat16, device=self.device).flatten()
        for begin in range(0, out.numel(), 1 << 25):
            part = out[begin:begin + (1 << 25)]
            part.copy_(torch.randn(part.numel(), generator=self.generator, device=self.device) * std + mean)
        return out.view(shape).cpu()


def tensors(shape, weights):
    """Yields (name, bf16 tensor) in file order; the tied form has no lm_head.weight."""
    # The head sees a vector of unit rms times the final gain. A tied head has the embedding's scale, so that the
    # final gain makes up for an embedding asked small (which lets eps weigh in every norm).
    head_std = LOGIT_STD / math.sqrt(shape.hidden * (1 + GAIN_SPREAD ** 2))
    embedding_std = shape.embedding_std or (head_std if shape.tied else 1.0)
    final_gain = head_std / embedding_std if shape.tied else 1.0
    yield "model.embed_tokens.weight", weights.normal((shape.vocab, shape.hidden), 0.0, embedding_std)
    for layer in range(shape.layers):
        prefix = "model.layers.%d." % layer
        yield prefix + "input_layernorm.weight", weights.normal((shape.hidden,), 1.0, GAIN_SPREAD)
        for name, size, std in projections(shape):
            adds = name.endswith(("o_proj", "down_proj"))
            yield prefix + name + ".weight", weights.normal(size, 0.0, std * embedding_std if adds else std)
        yield prefix + "post_attention_layernorm.weight", weights.normal((shape.hidden,), 1.0, GAIN_SPREAD)
    norm = weights.normal((shape.hidden,), final_gain, final_gain * GAIN_SPREAD)
    if shape.tied:  # else a token's own embedding gives its own logit 10 sigma, and greedy text repeats one token
        norm *= weights.normal((shape.hidden,), 0.0, 1.0).sign()
    yield "model.norm.weight", norm
    if not shape.tied:
        yield "lm_head.weight", weights.normal((shape.vocab, shape.hidden), 0.0, head_std)


def rope_parameters(shape):
    """The rope section without theta: {} for the default kind."""
    if shape.rope == "llama3":
        return {"rope_type": "llama3", "factor": shape.rope_factor, "low_freq_factor": shape.rope_low,
                "high_freq_factor": shape.rope_high, "original_max_position_embeddings": shape.rope_original}
    if shape.rope == "linear":
        return {"rope_type": "linear", "factor": shape.rope_factor}
    return {}


def config(shape):
    """config.json in the old spelling (released checkpoints) or the new one (transformers 5)."""
    values = {
        "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 0,
        "eos_token_id": 1, "head_dim": shape.head_dim, "hidden_act": "silu", "hidden_size": shape.hidden,
        "initializer_range": 0.02, "intermediate_size": shape.intermediate,
        "max_position_embeddings": shape.max_position, "mlp_bias": False, "model_type": "llama",
        "num_attention_heads": shape.heads, "num_hidden_layers": shape.layers, "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": shape.eps, "tie_word_embeddings": shape.tied, "use_cache": True, "vocab_size": shape.vocab}
    if shape.config_spelling == "old":
        values["rope_theta"] = shape.rope_theta
        values["rope_scaling"] = rope_parameters(shape) or None
        values["torch_dtype"] = "bfloat16"
        values["transformers_version"] = "4.45.0"
    else:
        values["rope_parameters"] = {"rope_type": "default", "rope_theta": shape.rope_theta, **rope_parameters(shape)}
        values["dtype"] = "bfloat16"
        values["transformers_version"] = "5.17.0"
    return dict(sorted(values.items()))


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
        done_bytes += 2 * tensor.numel()
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
    """(number of tensors, bytes in bf16) of the checkpoint."""
    per_layer = sum(rows * columns for _, (rows, columns), _ in projections(shape)) + 2 * shape.hidden
    heads = 1 if shape.tied else 2
    elements = heads * shape.vocab * shape.hidden + shape.layers * per_layer + shape.hidden
    return heads + 1 + 9 * shape.layers, 2 * elements


def write_checkpoint(shape, folder):
    """Writes the whole checkpoint; shape is the namespace that parse() returns."""
    os.makedirs(folder, exist_ok=True)
    count, total_bytes = sizes(shape)
    if shape.shards > count:
        raise SystemExit("--shards %d: the checkpoint has only %d tensors" % (shape.shards, count))
    write_shards(folder, tensors(shape, Weights(shape.seed, shape.device)), count, total_bytes, shape.shards)
    write_json(os.path.join(folder, "config.json"), config(shape))
    write_json(os.path.join(folder, "generation_config.json"), {"bos_token_id": 0, "eos_token_id": 1})


def parse(arguments=None):
    """Options as a namespace; a preset fills the shape, and an explicit option overrides it."""
    parser = argparse.ArgumentParser(description="Writes a random Llama checkpoint.")
    parser.add_argument("--out", required=True)
    parser.add_argument("--preset", choices=sorted(PRESETS))
    for name in ("hidden", "heads", "kv-heads", "head-dim", "intermediate", "layers", "vocab", "max-position"):
        parser.add_argument("--" + name, type=int)
    parser.add_argument("--tied", dest="tied", action="store_true", default=None)
    parser.add_argument("--untied", dest="tied", action="store_false")
    parser.add_argument("--rope", choices=["default", "llama3", "linear"])
    parser.add_argument("--rope-theta", type=float)
    parser.add_argument("--rope-factor", type=float, default=32.0)
    parser.add_argument("--rope-low", type=float, default=1.0)
    parser.add_argument("--rope-high", type=float, default=4.0)
    parser.add_argument("--rope-original", type=int, default=8192)
    parser.add_argument("--eps", type=float)
    parser.add_argument("--embedding-std", type=float,
                        help="of the residual stream; near sqrt(10 eps), a wrong eps shows in the logits")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--config-spelling", choices=["old", "new"], default="old")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options = parser.parse_args(arguments)
    for name, value in {**DEFAULTS, **PRESETS.get(options.preset, {})}.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.heads % options.kv_heads:
        parser.error("--heads %d is not a multiple of --kv-heads %d" % (options.heads, options.kv_heads))
    return options


if __name__ == "__main__":
    chosen = parse()
    write_checkpoint(chosen, chosen.out)
