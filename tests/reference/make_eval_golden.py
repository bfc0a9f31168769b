#!/usr/bin/env python3
"""Writes tests/golden/eval.json: how likely transformers finds a text with the demo model, and how far its distributions
are from those of the same model with another rope_theta, in float64 from float32 logits."""
import json
import os
import tempfile

import numpy
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
DEMO = os.path.join(HERE, "..", "..", "models", "demo")
OUT = os.path.join(HERE, "..", "golden", "eval.json")

TEXT = ("Once upon a time, in a place far away, there lived a boy. His name was Sean. Sean was busy and playful. He loved "
        "to bake. One afternoon, Sean was dancing in the house. His grandpa had told him not to do it. Sean bumped into "
        "the table. His grandpa's wagon fell down and its handle cracked. Sean's heart beat fast. He hid the wagon under "
        "the bed. \"Have you seen my wagon?\" asked his grandpa. \"I do not know,\" said Sean. But he felt very bad inside.")
ROPE_THETA = 2000.0  # of the reference
WINDOWS = (1024, 40)


def model_of(rope_theta=None):
    config = LlamaConfig.from_pretrained(DEMO)
    if rope_theta is not None:
        config.rope_parameters["rope_theta"] = rope_theta
    model = LlamaForCausalLM.from_pretrained(DEMO, config=config, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


def log_probabilities(model, window):
    with torch.no_grad():
        logits = model(torch.tensor([window])).logits[0].numpy().astype(numpy.float64)
    top = logits.max(1, keepdims=True)
    return logits - top - numpy.log(numpy.exp(logits - top).sum(1, keepdims=True))


def windows_of(ids, most):
    """The text after its first token, in pieces that each follow that token."""
    return [ids[:1] + ids[at:at + most - 1] for at in range(1, len(ids), most - 1)]


def case_of(models, ids, most):
    own, reference, divergences, same = [], [], [], []
    for window in windows_of(ids, most):
        found, expected = (log_probabilities(model, window)[:-1] for model in models)
        rows, following = numpy.arange(len(window) - 1), numpy.array(window[1:])
        own.extend(found[rows, following])
        reference.extend(expected[rows, following])
        divergences.extend((numpy.exp(expected) * (expected - found)).sum(1))
        same.extend(found.argmax(1) == expected.argmax(1))
    return {"window": most, "tokens": len(own), "log_likelihood": float(sum(own)),
            "reference_log_likelihood": float(sum(reference)), "kl_divergence": float(numpy.mean(divergences)),
            "largest_kl_divergence": float(max(divergences)), "same_likeliest": float(numpy.mean(same))}


def main():
    ids = AutoTokenizer.from_pretrained(DEMO)(TEXT)["input_ids"]
    models = (model_of(), model_of(ROPE_THETA))
    golden = {"text": TEXT, "rope_theta": ROPE_THETA, "cases": [case_of(models, ids, most) for most in WINDOWS]}
    with open(OUT, "w") as file:
        json.dump(golden, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
