#!/usr/bin/env python3
# Writes tests/golden/formats/: a tiny Llama in each format of quantized weights, written by the format's own library
# where PyPI has one, a digest of each matrix as that library dequantizes it, and logits of transformers.
#   pip install torch compressed-tensors numpy safetensors bitsandbytes transformers; make_format_goldens.py [--case NAME]
# A digest is FNV-1a, 64 bits, over the matrix in bf16: the value in float32, rounded once. tests/models/weights/formats
# reads them. Versions: torch 2.15, compressed-tensors 0.20.1, bitsandbytes 0.50.2, transformers 5.24.
import argparse
import json
import pathlib

import numpy
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

OUT = pathlib.Path(__file__).resolve().parent.parent / "golden" / "formats"
DTYPE = torch.bfloat16


def fnv(data):
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 % (1 << 64)
    return "%016x" % digest


class Model:
    """A Llama of one layer: its config.json, and its tensors before they are quantized."""

    def __init__(self, hidden, intermediate, seed):
        self.heads, self.head_dim, self.vocab = 2, 32, 24
        self.hidden, self.intermediate = hidden, intermediate
        self.random = torch.Generator().manual_seed(seed)
        self.stored, self.digests, self.values = {}, {}, {}
        width = self.heads * self.head_dim
        layer = "model.layers.0."
        self.matrices = {layer + "self_attn.q_proj": (width, hidden), layer + "self_attn.k_proj": (width, hidden),
                         layer + "self_attn.v_proj": (width, hidden), layer + "self_attn.o_proj": (hidden, width),
                         layer + "mlp.gate_proj": (intermediate, hidden), layer + "mlp.up_proj": (intermediate, hidden),
                         layer + "mlp.down_proj": (hidden, intermediate)}
        for name in ("model.norm", layer + "input_layernorm", layer + "post_attention_layernorm"):
            self.stored[name + ".weight"] = (1 + 0.1 * self.draw(hidden)).to(DTYPE)
        for name in ("model.embed_tokens", "lm_head"):
            self.stored[name + ".weight"] = (0.1 * self.draw(self.vocab, hidden)).to(DTYPE)

    def draw(self, *shape):
        return torch.randn(*shape, generator=self.random)

    def weight(self, module):
        rows, cols = self.matrices[module]
        return 0.1 * self.draw(rows, cols) * (1 + self.draw(rows, 1).abs())  # rows of different size

    def add(self, module, stored, value):
        """`value`: what the library makes of `stored`, float32."""
        for name, tensor in stored.items():
            self.stored[module + "." + name] = tensor.contiguous().clone()
        assert value.dtype == torch.float32 and tuple(value.shape) == self.matrices[module]
        rounded = value.to(torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes()
        self.digests[module + ".weight"] = {"shape": list(value.shape), "digest": fnv(rounded)}
        self.values[module + ".weight"] = value

    def leave(self, module):
        self.stored[module + ".weight"] = self.weight(module).to(DTYPE)

    def write(self, case, quantization, key="quantization_config"):
        folder = OUT / case
        folder.mkdir(parents=True, exist_ok=True)
        config = {"architectures": ["LlamaForCausalLM"], "hidden_size": self.hidden, "num_hidden_layers": 1,
                  "num_attention_heads": self.heads, "num_key_value_heads": self.heads, "head_dim": self.head_dim,
                  "intermediate_size": self.intermediate, "vocab_size": self.vocab, "rms_norm_eps": 1e-5,
                  "max_position_embeddings": 64, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
                  "torch_dtype": "bfloat16", key: quantization}
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        (folder / "expected.json").write_text(json.dumps(self.digests, indent=1) + "\n")
        save_file(self.stored, folder / "model.safetensors", metadata={"format": "pt"})
        self.write_logits(folder, {name: value for name, value in config.items() if name not in (key, "torch_dtype")})

    def write_logits(self, folder, config):
        """What transformers makes of the dequantized weights in float32, as make_goldens.py writes it."""
        model = LlamaForCausalLM(LlamaConfig(**config, torch_dtype="float32", attn_implementation="eager")).eval()
        plain = {name: tensor.float() for name, tensor in self.stored.items()
                 if name.endswith(".weight") and name not in self.values}
        model.load_state_dict({**plain, **self.values})
        tokens = torch.randint(3, self.vocab, (24,), generator=torch.Generator().manual_seed(40))
        with torch.no_grad():
            logits = model(tokens[None]).logits[0]
        prompt, continuation = tokens[:21].tolist(), tokens[21:].tolist()
        numpy.save(folder / "logits.npy", logits[20:].numpy().astype("<f4"))
        case = {"prompt": prompt, "continuation": continuation, "logits": "logits.npy"}
        (folder / "cases.json").write_text(json.dumps({"cases": [case]}) + "\n")


# ---- compressed-tensors -----------------------------------------------------------------------------------------

def compress(model, module, compressor, args, extra=None):
    weight = model.weight(module).to(DTYPE)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    rows, cols = weight.shape
    local = {"weight": weight}
    wide = weight.float()
    if args.strategy == "tensor":
        low, high = wide.min().reshape(1), wide.max().reshape(1)
    elif args.strategy == "channel":
        low, high = wide.amin(1, keepdim=True), wide.amax(1, keepdim=True)
    elif args.strategy == "block":
        block_rows, block_cols = args.block_structure
        padded = torch.nn.functional.pad(wide, (0, -cols % block_cols, 0, -rows % block_rows))
        blocks = padded.reshape(padded.shape[0] // block_rows, block_rows, padded.shape[1] // block_cols, block_cols)
        low, high = blocks.amin((1, 3)), blocks.amax((1, 3))
    else:
        groups = wide.reshape(rows, cols // args.group_size, args.group_size)
        low, high = groups.amin(2), groups.amax(2)
    if compressor.startswith("nvfp4"):
        local["weight_global_scale"] = generate_gparam(low.min().reshape(1), high.max().reshape(1)).float()
    scale, zero = calculate_qparams(low, high, args, global_scale=local.get("weight_global_scale"))
    local["weight_scale"] = scale if compressor.endswith("fp4-pack-quantized") else scale.to(DTYPE)
    if not args.symmetric:
        local["weight_zero_point"] = zero.to(torch.int8)
    library = BaseCompressor.get_value_from_registry(compressor)
    stored = library.compress(local, scheme)
    # In float32: the library computes in the dtype of the scales, which are the same numbers there.
    wide = {name: tensor.float() if name == "weight_scale" and tensor.dtype == DTYPE else tensor
            for name, tensor in stored.items()}
    value = library.decompress(wide, scheme)["weight"].float()
    model.add(module, {**stored, **(extra or {})}, value)


def group(args, targets=("Linear",), **more):
    weights = json.loads(args.model_dump_json())
    return {"targets": list(targets), "weights": weights, "input_activations": None, "output_activations": None, **more}


def compressed(case, compressor, args, hidden=96, intermediate=64, seed=1, extra=None, activations=None):
    model = Model(hidden, intermediate, seed)
    for module in model.matrices:
        compress(model, module, compressor, args, extra)
    groups = {"group_0": group(args)}
    if activations:
        groups["group_0"]["input_activations"] = activations
    model.write(case, {"quant_method": "compressed-tensors", "format": compressor, "quantization_status": "compressed",
                       "config_groups": groups, "ignore": ["lm_head"], "kv_cache_scheme": None,
                       "sparsity_config": {}, "transform_config": {}, "global_compression_ratio": None})


def mixed(case):
    """Integers of two widths by pattern, FP8 by name, and modules that an ignore list leaves alone."""
    model = Model(96, 64, 9)
    four = QuantizationArgs(num_bits=4, type="int", symmetric=False, strategy="group", group_size=32)
    eight = QuantizationArgs(num_bits=8, type="int", symmetric=True, strategy="channel")
    floats = QuantizationArgs(num_bits=8, type="float", symmetric=True, strategy="channel")
    for module in model.matrices:
        if module.endswith("k_proj") or module.endswith("up_proj"):
            model.leave(module)
        elif module.endswith("down_proj"):
            compress(model, module, "float-quantized", floats)
        else:
            compress(model, module, "pack-quantized", eight if "self_attn" in module else four)
    groups = {"group_0": group(four, ["Linear"], format="pack-quantized"),
              "group_1": group(eight, [r"re:.*self_attn\.(q|k|v|o)_proj$"], format="pack-quantized"),
              "group_2": group(floats, ["model.layers.0.mlp.down_proj"], format="float-quantized")}
    model.write(case, {"quant_method": "compressed-tensors", "format": "mixed-precision",
                       "quantization_status": "compressed", "config_groups": groups,
                       "ignore": ["lm_head", "model.layers.0.self_attn.k_proj", "re:.*up_proj"]})


def ordered(case):
    """The group of each column in weight_g_idx, as older versions wrote it for actorder "group"."""
    model = Model(96, 64, 10)
    args = QuantizationArgs(num_bits=4, type="int", symmetric=True, strategy="group", group_size=32)
    for module, (rows, cols) in model.matrices.items():
        order = torch.randperm(cols, generator=model.random)
        groups = torch.empty(cols, dtype=torch.int32)
        groups[order] = torch.arange(cols, dtype=torch.int32) // 32
        library = BaseCompressor.get_value_from_registry("pack-quantized")
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        codes = torch.randint(-8, 8, (rows, cols), generator=model.random, dtype=torch.int8)
        scale = (0.05 * (1 + model.draw(rows, cols // 32).abs())).to(DTYPE)
        ones = torch.ones(rows, cols // 32)
        stored = library.compress({"weight": codes.float(), "weight_scale": ones}, scheme)
        stored["weight_scale"], stored["weight_g_idx"] = scale, groups
        model.add(module, stored, codes.float() * scale.float()[:, groups.long()])
    weights = json.loads(args.model_dump_json())
    weights["actorder"] = "group"
    model.write(case, {"quant_method": "compressed-tensors", "format": "pack-quantized",
                       "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
                       "ignore": ["lm_head"]}, key="compression_config")


# ---- transformers' fp8, ModelOpt ----------------------------------------------------------------------------------

def fp8_block(case, scale_dtype, seed):
    """As transformers' finegrained_fp8 quantizes: codes = w / scale, scale = max / 448, in blocks that may be cut."""
    model = Model(136, 72, seed)
    for module, (rows, cols) in model.matrices.items():
        weight = model.weight(module)
        padded = torch.nn.functional.pad(weight, (0, -cols % 128, 0, -rows % 128))
        blocks = padded.reshape(padded.shape[0] // 128, 128, padded.shape[1] // 128, 128)
        scale = (blocks.abs().amax((1, 3)) / 448).to(scale_dtype)
        whole = scale.float().repeat_interleave(128, 0).repeat_interleave(128, 1)[:rows, :cols]
        codes = (weight / whole).clamp(-448, 448).to(torch.float8_e4m3fn)
        model.add(module, {"weight": codes, "weight_scale_inv": scale}, codes.float() * whole)
    model.write(case, {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
                       "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]})


def fp8_tensor(case):
    model = Model(96, 64, 12)
    for module in model.matrices:
        weight = model.weight(module)
        scale = weight.abs().max() / 448
        codes = (weight / scale).to(torch.float8_e4m3fn)
        model.add(module, {"weight": codes, "weight_scale": scale, "input_scale": torch.tensor(1.0)},
                  codes.float() * scale)
    model.write(case, {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]})


def modelopt_nvfp4(case):
    """The layout of nvidia's FP4 checkpoints: weight_scale_2 is a factor."""
    model = Model(96, 64, 13)
    values = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6])
    values = torch.cat([values, -values])
    for module, (rows, cols) in model.matrices.items():
        codes = torch.randint(0, 16, (rows, cols), generator=model.random, dtype=torch.uint8)
        scale = (model.draw(rows, cols // 16).abs() * 100).clamp(0, 448).to(torch.float8_e4m3fn)
        second = torch.rand((), generator=model.random) * 1e-3
        factor = scale.float() * second
        model.add(module, {"weight": codes[:, ::2] | codes[:, 1::2] << 4, "weight_scale": scale,
                           "weight_scale_2": second, "input_scale": torch.tensor(0.5)},
                  values[codes.long()] * factor.repeat_interleave(16, 1))
    model.write(case, {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]})


# ---- GPTQ and AWQ, written from their specifications ----------------------------------------------------------------

def pack(codes, places, bits=4):
    """[n, m] integers to words along the last axis: code i of a word is at places[i]."""
    in_word = 32 // bits
    grouped = codes.reshape(codes.shape[0], -1, in_word).astype(numpy.uint32)
    word = numpy.zeros(grouped.shape[:2], numpy.uint32)
    for i in range(in_word):
        word |= grouped[:, :, i] << numpy.uint32(bits * places[i])
    return torch.from_numpy(word.view(numpy.int32).copy())


def columns(case, bits, version, ordered, size, seed, rules=(), config=None):
    """gptq, version 1 or 2, or awq. `rules`: endings of modules with bits and group size of their own, or None for those
    that stay; `config`: in place of the usual one."""
    model = Model(96, 64, seed)
    random = numpy.random.default_rng(seed)
    usual = (bits, size)
    for module, (rows, cols) in model.matrices.items():
        own = next((value for ending, value in rules if module.endswith(ending)), usual)
        if own is None:
            model.leave(module)
            continue
        bits, size = own
        count = -(-cols // size)
        codes = random.integers(0, 1 << bits, (cols, rows))
        zeros = random.integers(1, 1 << bits, (count, rows))
        scale = torch.from_numpy(random.random((count, rows)) * 0.05).to(torch.float16)
        of_group = numpy.arange(cols) // size
        if ordered:
            random.shuffle(of_group)
        value = (codes - zeros[of_group]) * scale.float().numpy()[of_group]
        in_word = 32 // bits
        straight = list(range(in_word))
        stored = {"scales": scale}
        if version == "awq":
            places = [0, 4, 1, 5, 2, 6, 3, 7]
            stored |= {"qweight": pack(codes, places), "qzeros": pack(zeros, places)}
        else:
            down = codes.reshape(cols // in_word, in_word, rows).transpose(0, 2, 1).reshape(-1, in_word)
            stored |= {"qweight": pack(down, straight, bits).reshape(cols // in_word, rows),
                       "qzeros": pack(zeros - (version == 1), straight, bits)}
            if config is None or config["quant_method"] == "gptq":
                stored["g_idx"] = torch.from_numpy(of_group.astype(numpy.int32))
        model.add(module, stored, torch.from_numpy(value.T.astype(numpy.float32)))
    bits, size = usual
    if config is not None:
        model.write(case, config)
    elif version == "awq":
        model.write(case, {"quant_method": "awq", "bits": 4, "group_size": size, "zero_point": True, "version": "gemm",
                           "modules_to_not_convert": None})
    else:
        model.write(case, {"quant_method": "gptq", "bits": bits, "group_size": size if count > 1 else -1,
                           "desc_act": ordered, "sym": False,
                           **({"checkpoint_format": "gptq_v2"} if version == 2 else {})})


def auto_round(packing, **more):
    return {"quant_method": "auto-round", "packing_format": packing, "bits": 4, "group_size": 32, "sym": False,
            "data_type": "int", "autoround_version": "0.9.0", "block_name_to_quantize": "model.layers", **more}


# ---- bitsandbytes, gpt-oss's experts ---------------------------------------------------------------------------------

def bitsandbytes(case, kind, block, nested, storage, seed):
    from bitsandbytes.backends.default.ops import _dequantize_4bit_compute
    from bitsandbytes.functional import dequantize_blockwise, quantize_4bit
    model = Model(160, 136, seed)
    for module in model.matrices:
        weight = model.weight(module)
        codes, state = quantize_4bit(weight, blocksize=block, compress_statistics=nested, quant_type=kind,
                                     quant_storage=storage)
        parts = {"weight." + name: tensor for name, tensor in state.as_dict(packed=True).items()}
        absmax = dequantize_blockwise(state.absmax, state.state2) + state.offset if nested else state.absmax
        # The library's form of any device: blocks go on from row to row, as they do in its CUDA kernels. Its own form of
        # CPUs lets each row begin with a block where rows are no whole blocks, as they are here.
        value = _dequantize_4bit_compute(codes.view(torch.uint8).reshape(-1), absmax, state.code, block, weight.shape,
                                         torch.float32)
        model.add(module, {"weight": codes, **parts}, value)
    model.write(case, {"quant_method": "bitsandbytes", "_load_in_4bit": True, "_load_in_8bit": False,
                       "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": kind,
                       "bnb_4bit_quant_storage": str(storage).removeprefix("torch."),
                       "bnb_4bit_use_double_quant": nested, "bnb_4bit_compute_dtype": "bfloat16",
                       "llm_int8_skip_modules": None})


def mxfp4_experts(case):
    """The tensors of one layer's experts, without the model around them: its family is not read."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    random = torch.Generator().manual_seed(30)
    stored, digests = {}, {}
    for name, rows, cols in (("gate_up_proj", 48, 64), ("down_proj", 64, 32)):
        blocks = torch.randint(0, 256, (3, rows, cols // 32, 16), generator=random, dtype=torch.uint8)
        scales = torch.randint(100, 130, (3, rows, cols // 32), generator=random, dtype=torch.uint8)
        prefix = "model.layers.0.mlp.experts."
        stored |= {prefix + name + "_blocks": blocks, prefix + name + "_scales": scales}
        value = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).transpose(1, 2)
        for expert in range(3):
            rounded = value[expert].to(torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes()
            digests[f"{prefix}{expert}.{name}.weight"] = {"shape": [rows, cols], "digest": fnv(rounded)}
    folder = OUT / case
    folder.mkdir(parents=True, exist_ok=True)
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    (folder / "quantization.json").write_text(json.dumps({"quantization_config": quantization}, indent=1) + "\n")
    (folder / "expected.json").write_text(json.dumps(digests, indent=1) + "\n")
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})


def args(bits, kind, symmetric, strategy, **more):
    return QuantizationArgs(num_bits=bits, type=kind, symmetric=symmetric, strategy=strategy, **more)


CASES = {
    "fp8_block": lambda case: fp8_block(case, torch.float32, 2),
    "fp8_block_bf16_scales": lambda case: fp8_block(case, torch.bfloat16, 3),
    "fp8_tensor": fp8_tensor,
    "ct_fp8_channel": lambda case: compressed(case, "float-quantized", args(8, "float", True, "channel")),
    "ct_fp8_tensor": lambda case: compressed(
        case, "float-quantized", args(8, "float", True, "tensor"), seed=4, extra={"input_scale": torch.tensor([0.5])},
        activations={"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}),
    "ct_fp8_block": lambda case: compressed(
        case, "float-quantized", args(8, "float", True, "block", block_structure=[128, 128]), hidden=136,
        intermediate=72, seed=5),
    "ct_int8_channel": lambda case: compressed(case, "int-quantized", args(8, "int", True, "channel"), seed=6),
    "ct_int4_group": lambda case: compressed(
        case, "pack-quantized", args(4, "int", True, "group", group_size=32), seed=7),
    "ct_int4_zeros": lambda case: compressed(
        case, "pack-quantized", args(4, "int", False, "group", group_size=32), seed=8),
    "ct_int4_channel": lambda case: compressed(case, "pack-quantized", args(4, "int", False, "channel"), seed=14),
    "ct_mixed": mixed,
    "ct_ordered": ordered,
    "ct_nvfp4": lambda case: compressed(
        case, "nvfp4-pack-quantized", args(4, "float", True, "tensor_group", group_size=16,
                                           scale_dtype=torch.float8_e4m3fn), seed=15),
    "ct_mxfp4": lambda case: compressed(
        case, "mxfp4-pack-quantized", args(4, "float", True, "group", group_size=32, scale_dtype=torch.uint8), seed=16),
    "modelopt_nvfp4": modelopt_nvfp4,
    "gptq": lambda case: columns(case, 4, 1, False, 32, 17),
    "gptq_ordered": lambda case: columns(case, 4, 1, True, 32, 18),
    "gptq_v2": lambda case: columns(case, 4, 2, False, 32, 19),
    "gptq_int8": lambda case: columns(case, 8, 1, False, 128, 20),
    "awq": lambda case: columns(case, 4, "awq", False, 32, 21),
    "gptq_int2": lambda case: columns(case, 2, 1, False, 32, 22),
    "gptq_dynamic": lambda case: columns(
        case, 4, 1, True, 32, 23, [("down_proj", (8, 16)), ("k_proj", None)],
        {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": False,
         "dynamic": {r"+:.*\.down_proj$": {"bits": 8, "group_size": 16}, r"-:.*k_proj$": {}}}),
    "auto_round": lambda case: columns(
        case, 4, 1, False, 32, 24, [("down_proj", (8, 32)), ("o_proj", (4, 16)), ("up_proj", None)],
        auto_round("auto_round:auto_gptq", extra_config={
            "model.layers.0.mlp.down_proj": {"bits": 8}, r".*self_attn\.o_proj": {"bits": 4, "group_size": 16},
            "model.layers.0.mlp.up_proj": {"bits": 16, "data_type": "float"}})),
    "auto_round_v2": lambda case: columns(case, 4, 2, False, 32, 25, config=auto_round("auto_round:gptqmodel")),
    "auto_round_awq": lambda case: columns(case, 4, "awq", False, 32, 26, config=auto_round("auto_round:auto_awq")),
    "bnb_nf4": lambda case: bitsandbytes(case, "nf4", 64, False, torch.uint8, 27),
    "bnb_nf4_nested": lambda case: bitsandbytes(case, "nf4", 64, True, torch.uint8, 28),
    "bnb_fp4": lambda case: bitsandbytes(case, "fp4", 128, False, torch.bfloat16, 29),
    "mxfp4_experts": mxfp4_experts,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES)
    chosen = parser.parse_args().case
    for case, make in CASES.items():
        if chosen in (None, case):
            make(case)


main()
