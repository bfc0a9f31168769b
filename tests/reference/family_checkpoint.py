# A small random checkpoint of any architecture that transformers knows: its own class makes the model and writes it,
# with weights drawn as checkpoint_families.py draws them (wide logits, uneven attention). FAMILIES has one of each
# family, of odd sizes and with every quirk on.
import json
import math
import os

import torch

GAIN_SPREAD, RESIDUAL_PART, LOGIT_STD, SCORE_STD, ROUTER_STD = 0.3, 0.7, 4.0, 2.0, 2.0

# Grouped heads, heads * head_dim that is not hidden where the family allows it, no size a multiple of 64.
SIZES = dict(hidden_size=60, intermediate_size=100, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
             vocab_size=131, max_position_embeddings=512, bos_token_id=0, eos_token_id=1, pad_token_id=None)
LONG = [1.0 + 0.5 * i for i in range(6)]  # longrope: a factor for each of 6 pairs

# name: (configuration class, its keys).
FAMILIES = {
    # q, k, v with biases; the second layer slides.
    "qwen2/biases": ("Qwen2Config", dict(SIZES, rope_parameters={"rope_type": "default", "rope_theta": 1e6},
                                         use_sliding_window=True, sliding_window=16, max_window_layers=1)),
    "llama/biases": ("LlamaConfig", dict(SIZES, head_dim=20, attention_bias=True, mlp_bias=True,
                                         tie_word_embeddings=True)),
    "llama/yarn": ("LlamaConfig", dict(SIZES, rope_parameters={"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0,
                                                               "original_max_position_embeddings": 64})),
    "llama/dynamic": ("LlamaConfig", dict(SIZES, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4,
                                                                  "factor": 4.0})),
    "mistral/window_16": ("MistralConfig", dict(SIZES, head_dim=20, sliding_window=16)),
    # 12 of 16 elements of a head turn, by factors of their own, and are stretched.
    "phi3/long": ("Phi3Config", dict(SIZES, hidden_size=96, partial_rotary_factor=0.75,
                                     original_max_position_embeddings=4, tie_word_embeddings=True,
                                     rope_parameters={"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 6,
                                                      "long_factor": LONG, "partial_rotary_factor": 0.75})),
    "phi3/short": ("Phi3Config", dict(SIZES, hidden_size=96, sliding_window=16, partial_rotary_factor=0.75,
                                      original_max_position_embeddings=512,
                                      rope_parameters={"rope_type": "longrope", "rope_theta": 1e4, "short_factor": LONG,
                                                       "long_factor": [1.0] * 6, "partial_rotary_factor": 0.75})),
    "granite/multipliers": ("GraniteConfig", dict(SIZES, embedding_multiplier=12.0, residual_multiplier=0.22,
                                                  attention_multiplier=0.15, logits_scaling=8.0, attention_bias=True,
                                                  tie_word_embeddings=True)),
    "smollm3/unrotated": ("SmolLM3Config", dict(SIZES, num_hidden_layers=4, no_rope_layer_interval=2)),
    "exaone/names": ("ExaoneConfig", dict(SIZES, activation_function="silu")),
    "gemma/first": ("GemmaConfig", dict(SIZES, head_dim=24, tie_word_embeddings=True)),
    "gemma2/caps": ("Gemma2Config", dict(SIZES, head_dim=24, query_pre_attn_scalar=20, sliding_window=16,
                                         attn_logit_softcapping=3.0, final_logit_softcapping=6.0, tie_word_embeddings=True)),
    "olmo2/wide_norms": ("Olmo2Config", dict(SIZES)),
    "exaone4/hybrid": ("Exaone4Config", dict(SIZES, num_hidden_layers=4, sliding_window=16, sliding_window_pattern=4,
                                             head_dim=20)),
    "exaone4/global": ("Exaone4Config", dict(SIZES, sliding_window=None, layer_types=["full_attention"] * 2,
                                             tie_word_embeddings=True)),
    # 6 of 20 elements of a head turn.
    "gpt_neox/parallel": ("GPTNeoXConfig", dict(SIZES, num_attention_heads=3, num_key_value_heads=3,
                                                rope_parameters={"rope_type": "default", "rope_theta": 1e4,
                                                                 "partial_rotary_factor": 0.3})),
    "gpt_neox/sequential": ("GPTNeoXConfig", dict(SIZES, num_attention_heads=3, num_key_value_heads=3,
                                                  use_parallel_residual=False,
                                                  rope_parameters={"rope_type": "default", "rope_theta": 1e4,
                                                                   "partial_rotary_factor": 1.0})),
    "starcoder2/window_16": ("Starcoder2Config", dict(SIZES, sliding_window=16, tie_word_embeddings=True)),
    "stablelm/partial": ("StableLmConfig", dict(SIZES, hidden_size=48, use_qkv_bias=True,
                                                rope_parameters={"rope_type": "default", "rope_theta": 1e4,
                                                                 "partial_rotary_factor": 0.5})),
    "stablelm/parallel": ("StableLmConfig", dict(SIZES, hidden_size=48, use_parallel_residual=True,
                                                 rope_parameters={"rope_type": "default", "rope_theta": 1e4,
                                                                  "partial_rotary_factor": 0.25})),
    "cohere/parallel": ("CohereConfig", dict(SIZES, logit_scale=0.25, tie_word_embeddings=True)),
    "cohere2/hybrid": ("Cohere2Config", dict(SIZES, num_hidden_layers=4, sliding_window=16, logit_scale=0.25,
                                             tie_word_embeddings=True)),
    # Experts: 3 of 7, whose weights are made to sum to one; 2 of 5, whose are not, under norms of all heads; 2 of 4.
    "qwen3_moe/normed": ("Qwen3MoeConfig", dict(SIZES, head_dim=20, num_experts=7, num_experts_per_tok=3,
                                                moe_intermediate_size=36, norm_topk_prob=True)),
    "olmoe/wide_norms": ("OlmoeConfig", dict(SIZES, num_experts=5, num_experts_per_tok=2, norm_topk_prob=False)),
    "mixtral/two_of_four": ("MixtralConfig", dict(SIZES, num_local_experts=4, num_experts_per_tok=2,
                                                  tie_word_embeddings=True)),
    # Dense layers among those with experts, of another width: the first one, and another list entry that is none; every
    # other, the last one too.
    "qwen3_moe/dense_first": ("Qwen3MoeConfig", dict(SIZES, head_dim=20, num_experts=5, num_experts_per_tok=2,
                                                     moe_intermediate_size=36, norm_topk_prob=True,
                                                     mlp_only_layers=[0, 9])),
    "qwen3_moe/every_second": ("Qwen3MoeConfig", dict(SIZES, num_hidden_layers=3, head_dim=20, num_experts=5,
                                                      num_experts_per_tok=2, moe_intermediate_size=36,
                                                      norm_topk_prob=True, decoder_sparse_step=2)),
}
# Drawn again where a row's last expert and the next were so close that rounding swapped them.
SEEDS = {"olmoe/wide_norms": 201, "qwen3_moe/every_second": 304}
# Written as released before transformers 5.
OLD_SPELLING = {"qwen2/biases", "llama/yarn", "phi3/long", "stablelm/partial"}
# Families whose norms multiply by 1 + weight, and those that norm what a block adds.
ONE_PLUS = {"GemmaConfig", "Gemma2Config"}
BEHIND = {"Gemma2Config", "Olmo2Config", "Exaone4Config"}
ADDS = ("o_proj", "out_proj", "down_proj", "c_proj", "attention.dense", "dense_4h_to_h")


class Draw:
    """Fills a model's parameters from one seeded stream."""

    def __init__(self, config, seed):
        self.config, self.kind = config, type(config).__name__
        self.generator = torch.Generator().manual_seed(seed)
        self.head_std = LOGIT_STD / math.sqrt(config.hidden_size * (1 + GAIN_SPREAD ** 2))
        self.head_std *= getattr(config, "logits_scaling", 1.0) / (getattr(config, "logit_scale", None) or 1.0)
        self.embedding_std = self.head_std if config.tie_word_embeddings else 1.0
        scale = getattr(config, "embedding_multiplier", 1.0)
        self.residual_std = self.embedding_std * (math.sqrt(config.hidden_size) if self.kind in ONE_PLUS else scale)

    def normal(self, like, mean, std):
        return mean + std * torch.randn(like.shape, generator=self.generator)

    def norm(self, name, like):
        mean = 1.0
        if self.kind in BEHIND and "post_" in name:
            mean = RESIDUAL_PART * self.residual_std
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            mean = math.sqrt(SCORE_STD)
        gains = self.normal(like, mean, mean * GAIN_SPREAD)
        is_final = "layers." not in name and ".h." not in name
        if is_final and self.config.tie_word_embeddings:  # else a token predicts itself
            gains = gains * torch.randn(like.shape, generator=self.generator).sign()
        return gains - (1.0 if self.kind in ONE_PLUS else 0.0)

    def matrix(self, name, like):
        if name.endswith(("embed_tokens.weight", "embed_in.weight", "wte.weight")):
            return self.normal(like, 0.0, self.embedding_std)
        if name.startswith(("lm_head", "embed_out")):
            return self.normal(like, 0.0, self.head_std)
        width = like.shape[-1]
        if name.endswith(("mlp.gate.weight", "block_sparse_moe.gate.weight")):  # far apart: rounding swaps no experts
            return self.normal(like, 0.0, ROUTER_STD / math.sqrt(width * (1 + GAIN_SPREAD ** 2)))
        if any(part in name for part in ADDS):
            std = RESIDUAL_PART / (0.6 * math.sqrt(width)) * self.residual_std
            return self.normal(like, 0.0, std / getattr(self.config, "residual_multiplier", 1.0))
        std = 1 / math.sqrt(width * (1 + GAIN_SPREAD ** 2))
        if any(part in name for part in ("q_proj", "k_proj", "query_key_value", "qkv_proj")):
            std *= math.sqrt(SCORE_STD)
            head_dim = getattr(self.config, "head_dim", None) or self.config.hidden_size // self.config.num_attention_heads
            std /= math.sqrt(getattr(self.config, "attention_multiplier", head_dim ** -0.5) * math.sqrt(head_dim))
        return self.normal(like, 0.0, std)

    def fill(self, model):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                is_norm = parameter.dim() == 1 and name.endswith("weight")
                if is_norm:
                    drawn = self.norm(name, parameter)
                elif parameter.dim() == 1:
                    adds = any(part in name for part in ADDS)
                    drawn = self.normal(parameter, 0.0, GAIN_SPREAD * (self.residual_std if adds else 1.0))
                else:
                    drawn = self.matrix(name, parameter)
                parameter.copy_(drawn)


def old_spelling(values):
    """rope_theta beside rope_scaling, as released before transformers 5."""
    rope = values.pop("rope_parameters", None) or {}
    values["rope_theta"] = rope.pop("rope_theta", 10000.0)
    if "partial_rotary_factor" in rope:
        values["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    values["rope_scaling"] = rope if rope.get("rope_type", "default") != "default" else None
    values.pop("layer_types", None)
    values["torch_dtype"] = values.pop("dtype", "bfloat16")
    return values


def write_family(name, folder):
    """Writes config.json, generation_config.json and model.safetensors of FAMILIES[name]; the vocabulary's size."""
    import transformers
    kind, keys = FAMILIES[name]
    config = getattr(transformers, kind)(**keys)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    Draw(config, SEEDS.get(name, 100 + list(FAMILIES).index(name))).fill(model)
    os.makedirs(folder, exist_ok=True)
    model.to(torch.bfloat16).save_pretrained(folder)
    path = os.path.join(folder, "config.json")
    with open(path) as file:
        values = json.load(file)
    values["architectures"] = [kind.replace("Config", "ForCausalLM")]  # also where transformers takes another's class
    if name in OLD_SPELLING:
        values = old_spelling(values)
    with open(path, "w") as file:
        json.dump(dict(sorted(values.items())), file, indent=2)
        file.write("\n")
    os.chmod(os.path.join(folder, "model.safetensors"), 0o644)
    return config.vocab_size
