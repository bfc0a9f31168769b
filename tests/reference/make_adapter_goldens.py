# Writes tests/golden/adapters/<name>/: a small LoRA adapter of a committed golden checkpoint as PEFT saves it, and the
# logits that PEFT gives with it in float32. The same bytes for the same library versions; needs peft beside torch and
# transformers.
import argparse
import json
import os
import random
import shutil

import numpy as np
import torch

import reference_logits

PROMPT_LENGTHS, CONTINUATION = (5, 37), 4
# B A relative to W, by their standard deviations: enough that leaving out one module shows.
PART_OF_WEIGHT = 0.6
LLAMA = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

# name: (base, dtype of the file, keys of LoraConfig).
ADAPTERS = {
    # All seven, with ranks and scales of their own; biases stand beside them.
    "llama_all": ("llama/biases", torch.float32, dict(r=4, lora_alpha=6, target_modules=LLAMA,
                                                      rank_pattern={"q_proj": 2, r"layers\.1\.mlp\.down_proj": 8},
                                                      alpha_pattern={"v_proj": 3})),
    # Another rank for the same base, by a regular expression, scaled by the root of the rank.
    "llama_root": ("llama/biases", torch.bfloat16, dict(r=8, lora_alpha=5, use_rslora=True,
                                                        target_modules=r".*\.(q_proj|v_proj|up_proj)")),
    "llama_layer": ("llama/biases", torch.float16, dict(r=3, lora_alpha=9, target_modules=["o_proj", "down_proj", "k_proj"],
                                                        layers_to_transform=[1])),
    "llama_linear": ("llama/biases", torch.float32, dict(r=1, lora_alpha=2, target_modules="all-linear")),
    # One tensor each of q, k, v and of gate and up; three quarters of a head turn.
    "phi3": ("phi3/long", torch.float32, dict(r=4, lora_alpha=4, target_modules=["qkv_proj", "o_proj", "gate_up_proj",
                                                                                 "down_proj"])),
    # q, k and v head by head; parallel blocks, no gate, LayerNorms.
    "gpt_neox": ("gpt_neox/parallel", torch.float32, dict(r=4, lora_alpha=4, target_modules=[
        "query_key_value", "attention.dense", "dense_h_to_4h", "dense_4h_to_h"])),
    # Matrices stored [in, out].
    "gpt2": ("gpt2/learned_positions", torch.float32, dict(r=4, lora_alpha=4, fan_in_fan_out=True,
                                                           target_modules=["c_attn", "c_proj", "c_fc"])),
    # Norms after the blocks, too; after them alone; a residual that is scaled.
    "gemma2": ("gemma2/caps", torch.float32, dict(r=4, lora_alpha=4, target_modules=LLAMA)),
    "olmo2": ("olmo2/wide_norms", torch.float32, dict(r=4, lora_alpha=4, target_modules=LLAMA)),
    "granite": ("granite/multipliers", torch.float32, dict(r=4, lora_alpha=4, target_modules=LLAMA)),
    # Heads normed one by one, whose widths are not the model's.
    "qwen3": ("qwen3/normed_heads", torch.float32, dict(r=4, lora_alpha=4, target_modules=LLAMA)),
    # Attention everywhere, and the feed-forward blocks of the layers without experts.
    "qwen3_moe": ("qwen3_moe/every_second", torch.float32, dict(
        r=4, lora_alpha=4, target_modules=r".*\.(self_attn\.[qkvo]_proj|layers\.[02]\.mlp\.(gate|up|down)_proj)")),
}


@torch.no_grad()
def draw_adapter(model, seed):
    """A and B of every module, from one seeded stream, so wide that s B A is PART_OF_WEIGHT of W."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if not hasattr(module, "lora_A") or "default" not in module.lora_A:
            continue
        a, b = module.lora_A["default"].weight, module.lora_B["default"].weight
        a.copy_(torch.randn(a.shape, generator=generator) / a.shape[1] ** 0.5)
        wanted = PART_OF_WEIGHT * module.get_base_layer().weight.std() * (a.shape[1] / a.shape[0]) ** 0.5
        b.copy_(torch.randn(b.shape, generator=generator) * wanted / abs(module.scaling["default"]))


def write_adapter(name, golden):
    base, dtype, keys = ADAPTERS[name]
    from peft import LoraConfig, PeftModel, get_peft_model
    from peft.utils import transformers_weight_conversion
    # PEFT takes any gate_proj of a mixture for those of its experts, also where a layer has none.
    transformers_weight_conversion.convert_peft_config_for_transformers = lambda *unused, **unused_too: None
    folder, scratch = os.path.join(golden, "adapters", name), os.path.join(golden, "adapters", name + ".scratch")
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(0)
    adapted = get_peft_model(reference_logits.load(os.path.join(golden, base), "cpu"),
                             LoraConfig(task_type="CAUSAL_LM", **keys))
    draw_adapter(adapted, sum(map(ord, name)))
    for parameter_name, parameter in adapted.named_parameters():
        if "lora_" in parameter_name:
            parameter.data = parameter.data.to(dtype)
    adapted.save_pretrained(scratch)
    os.makedirs(folder)
    shutil.copy(os.path.join(scratch, "adapter_model.safetensors"), folder)
    with open(os.path.join(scratch, "adapter_config.json")) as file:
        config = json.load(file)
    config["base_model_name_or_path"] = base
    for key in ("target_modules", "exclude_modules"):  # PEFT writes sets in no order
        if isinstance(config.get(key), list):
            config[key] = sorted(config[key])
    with open(os.path.join(folder, "adapter_config.json"), "w") as file:
        json.dump(config, file, indent=1, sort_keys=True)
        file.write("\n")
    shutil.rmtree(scratch)
    model = PeftModel.from_pretrained(reference_logits.load(os.path.join(golden, base), "cpu"), folder).float().eval()
    plain = reference_logits.load(os.path.join(golden, base), "cpu")
    draw = random.Random("nodewright adapter " + name)
    vocab, cases = plain.config.vocab_size, []
    for length in PROMPT_LENGTHS:
        prompt, continuation = ([draw.randrange(vocab) for _ in range(n)] for n in (length, CONTINUATION))
        rows = reference_logits.one_forward(model, prompt, continuation)
        away = rows - reference_logits.one_forward(plain, prompt, continuation)
        file = "prompt_%d.npy" % length
        np.save(os.path.join(folder, file), rows)
        cases.append({"prompt": prompt, "continuation": continuation, "logits": file})
        print("%-14s prompt of %2d: logits std %.2f, the adapter moves them by %.2f of it" %
              (name, length, rows.std(), np.sqrt(np.mean(away ** 2)) / rows.std()))
    with open(os.path.join(folder, "cases.json"), "w") as file:
        json.dump({"made_by": "make_adapter_goldens.py", "base": base, "cases": cases}, file)
        file.write("\n")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description="Writes tests/golden/adapters.")
    parser.add_argument("--golden", default=os.path.join(here, "..", "golden"))
    parser.add_argument("--adapter", choices=sorted(ADAPTERS), nargs="*", default=list(ADAPTERS))
    options = parser.parse_args()
    for name in options.adapter:
        write_adapter(name, options.golden)


if __name__ == "__main__":
    main()
