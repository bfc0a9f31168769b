#!/usr/bin/env python3
"""Checks that others read what `nodewright quantize` writes: random Llamas and a Qwen3-MoE in each format, loaded by
`transformers` (with compressed-tensors), against the source's model with matrices that torch has rounded. Codes must be
equal, logits within a rounding. Prints a line a checkpoint, and exits with 1 where one differs.
    check_quantized.py PROGRAM        pip install torch transformers compressed-tensors safetensors accelerate"""
import json
import os
import subprocess
import sys
import tempfile

import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, FineGrainedFP8Config, LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

FORMATS = ("fp8-block", "fp8-row", "int4-g128")
SIZES = {"vocab_size": 300, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "head_dim": 64, "max_position_embeddings": 128, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
         "initializer_range": 0.05}
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(intermediate_size=512, **SIZES)),
    "llama, groups of 64 and 32": lambda: LlamaForCausalLM(LlamaConfig(intermediate_size=512 + 96, **SIZES | {"hidden_size": 192})),
    "qwen3_moe": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(intermediate_size=512, moe_intermediate_size=128, num_experts=4,
                                                            num_experts_per_tok=2, **SIZES)),
}


def tensors_in(folder):
    found = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            with safe_open(os.path.join(folder, name), "pt") as file:
                found.update({key: file.get_tensor(key) for key in file.keys()})
    return found


def next_bf16(values):
    """The least bf16 numbers that are not below positive ones."""
    return ((values.view(torch.int32) + 0xffff) & -0x10000).view(torch.float32)


def rounded_fp8(values, scale):
    return (values / scale).clamp(-448, 448).to(torch.float8_e4m3fn)


def int4_of(packed, cols):
    shifts = torch.arange(0, 32, 4, dtype=torch.int32)
    return ((packed.unsqueeze(-1) >> shifts) & 15).reshape(packed.shape[0], cols) - 8


def expected_matrix(name, form, source, made):
    """The matrix as the format defines it, and whether its codes are those of torch; nothing where it stays."""
    weight = source[name].float()
    rows, cols = weight.shape
    if form == "int4-g128":
        if name + "_packed" not in made:
            return None
        scale = made[name + "_scale"].float()
        group = cols // scale.shape[1]
        assert group == next(size for size in (128, 64, 32) if cols % size == 0), name
        scales = scale.repeat_interleave(group, 1)
        codes = int4_of(made[name + "_packed"], cols)
        return codes * scales, torch.equal(codes.float(), torch.round(weight / scales).clamp(-8, 7))
    if made[name].dtype != torch.float8_e4m3fn:
        return None
    if form == "fp8-row":
        scales = next_bf16(weight.abs().amax(1, keepdim=True) / 448)
        same = torch.equal(scales, made[name + "_scale"])
    else:
        padded = torch.nn.functional.pad(weight, (0, -cols % 128, 0, -rows % 128))
        grid = next_bf16(padded.reshape(padded.shape[0] // 128, 128, -1, 128).abs().amax((1, 3)) / 448)
        same = torch.equal(grid, made[name + "_scale_inv"])
        scales = grid.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :cols]
    codes = rounded_fp8(weight, scales)
    return codes.float() * scales, same and torch.equal(codes.view(torch.uint8), made[name].view(torch.uint8))


def logits_of(model):
    ids = torch.arange(3, 40).unsqueeze(0)
    with torch.no_grad():
        return model.eval()(ids).logits[0].float()


def check(program, scratch, family, form):
    source_folder, made_folder = os.path.join(scratch, family), os.path.join(scratch, family + form)
    if not os.path.isdir(source_folder):
        torch.manual_seed(1)
        MODELS[family]().bfloat16().save_pretrained(source_folder)
    subprocess.run([program, "quantize", source_folder, "--out", made_folder, "--format", form], check=True, capture_output=True)
    source, made = tensors_in(source_folder), tensors_in(made_folder)
    state, codes_are_equal, matrices = {}, True, 0
    for name, tensor in source.items():
        found = expected_matrix(name, form, source, made) if tensor.ndim == 2 and ".layers." in name and not name.endswith("mlp.gate.weight") else None
        if found is None:
            assert torch.equal(made[name], tensor), name
            state[name] = tensor
            continue
        matrices += 1
        codes_are_equal &= found[1]
        state[name] = found[0].bfloat16()
    reference_folder = os.path.join(scratch, "reference")
    subprocess.run(["rm", "-rf", reference_folder], check=True)
    model = MODELS[family]().bfloat16()
    model.save_pretrained(reference_folder, state_dict=state)
    expected = logits_of(AutoModelForCausalLM.from_pretrained(reference_folder, dtype=torch.bfloat16, attn_implementation="eager"))
    options = {"dtype": torch.bfloat16, "attn_implementation": "eager"}
    if form == "fp8-block":
        options["quantization_config"] = FineGrainedFP8Config(weight_block_size=(128, 128), dequantize=True)
    try:
        theirs = logits_of(AutoModelForCausalLM.from_pretrained(made_folder, **options))
    except Exception as error:  # what transformers itself does not read is named, and is no fault of ours
        print("%-28s %-10s %d matrices, codes %s; transformers: %s" % (family, form, matrices, "equal" if codes_are_equal else "DIFFER", str(error).splitlines()[0][:160]))
        return codes_are_equal
    error = ((theirs - expected).square().mean().sqrt() / expected.std()).item()
    print("%-28s %-10s %d matrices, codes %s, logits differ by %g" % (family, form, matrices, "equal" if codes_are_equal else "DIFFER", error))
    return codes_are_equal and error == 0


def main():
    with tempfile.TemporaryDirectory() as scratch:
        results = [check(sys.argv[1], scratch, family, form) for family in MODELS for form in FORMATS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
