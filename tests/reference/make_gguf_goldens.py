#!/usr/bin/env python3
# Writes tests/golden/gguf/: blocks of every type that is read, and tiny models of several families, with gguf's own
# writer; digests of each matrix are those of gguf's dequantize(), in the order of heads that the same model has in a
# Hugging Face checkpoint, whose config.json stands beside it.
#   pip install gguf numpy; make_gguf_goldens.py
# A digest is FNV-1a, 64 bits, over the matrix in bf16: the value in float32, rounded once. Version: gguf 0.19.0.
import json
import pathlib

import gguf
import numpy
from gguf import GGMLQuantizationType as Type

HEAD_DIM = 32
OUT = pathlib.Path(__file__).resolve().parent.parent / "golden" / "gguf"
TYPES = [Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K,
         Type.IQ4_NL, Type.IQ4_XS, Type.MXFP4]
# Where the halves of a block lie that are its factors: random bits there would be infinities.
HALVES = {Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0], Type.Q2_K: [80, 82],
          Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208], Type.IQ4_NL: [0],
          Type.IQ4_XS: [0], Type.MXFP4: []}


def fnv(data):
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 % (1 << 64)
    return "%016x" % digest


def bf16_bytes(values):
    bits = numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16).tobytes()


def blocks(random, kind, rows, cols, scale=0.01):
    """Random blocks, [rows, bytes of a row]."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    data = random.integers(0, 256, (rows * cols // elements, size), dtype=numpy.uint8)
    for at in HALVES[kind]:
        half = (random.standard_normal(len(data)) * scale).astype(numpy.float16)
        data[:, at:at + 2] = half.reshape(-1, 1).view(numpy.uint8)
    if kind == Type.MXFP4:
        data[:, 0] = random.integers(110, 122, len(data))
        data[:3, 0] = [0, 1, 2]  # subnormal factors
    return data.reshape(rows, -1)


def types(folder):
    random = numpy.random.default_rng(1)
    writer = gguf.GGUFWriter(folder / "types.gguf", "llama")
    digests = {}
    for kind in TYPES:
        name = "%s.weight" % kind.name
        data = blocks(random, kind, 3, 512)
        writer.add_tensor(name, data, raw_dtype=kind)
        digests[name] = {"shape": [3, 512], "digest": fnv(bf16_bytes(gguf.dequantize(data, kind)))}
    finish(writer)
    (folder / "types.json").write_text(json.dumps(digests, indent=1) + "\n")


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Model:
    def __init__(self, case, architecture, kinds, seed):
        self.folder = OUT / case
        self.folder.mkdir(parents=True, exist_ok=True)
        self.random = numpy.random.default_rng(seed)
        self.writer = gguf.GGUFWriter(self.folder / "model.gguf", architecture)
        self.kinds, self.architecture, self.digests, self.count = kinds, architecture, {}, 0

    def matrix(self, theirs, ours, rows, cols, order=None, kind=None):
        """`order`: rows of the checkpoint's matrix in those of the file's."""
        kind = kind or self.kinds[self.count % len(self.kinds)]
        self.count += 1
        if cols % gguf.GGML_QUANT_SIZES[kind][0] != 0:  # as llama.cpp's quantizer falls back
            kind = Type.Q8_0
        if kind in (Type.F32, Type.F16, Type.BF16):
            values = (self.random.standard_normal((rows, cols)) * 0.1).astype(numpy.float32)
            data = values if kind == Type.F32 else gguf.quantize(values, kind)
            values = gguf.dequantize(data, kind) if kind != Type.F32 else values
        else:
            data = blocks(self.random, kind, rows, cols)
            values = gguf.dequantize(data, kind)
        self.writer.add_tensor(theirs, data, raw_dtype=kind)
        self.digest(ours, theirs, values if order is None else values[order], 0 if order is None else rows // HEAD_DIM)

    def digest(self, ours, theirs, values, heads=0):
        """`heads`: that lie in another order in the file."""
        self.digests[ours + ".weight"] = {"shape": list(values.shape), "digest": fnv(bf16_bytes(values)),
                                          "stored": theirs, "heads": heads}

    def bias(self, theirs, ours, size):
        values = self.random.standard_normal(size).astype(numpy.float32)
        self.writer.add_tensor(theirs + ".bias", values)
        self.digests[ours + ".bias"] = {"shape": [size], "digest": fnv(bf16_bytes(values)), "stored": theirs + ".bias", "heads": 0}

    def experts(self, theirs, ours, count, rows, cols, kind):
        data = blocks(self.random, kind, count * rows, cols)
        values = gguf.dequantize(data, kind)
        self.writer.add_tensor(theirs, data.reshape(count, rows, -1), raw_dtype=kind)
        for i in range(count):
            stored = theirs.replace(".ffn", ".experts.%d.ffn" % i)
            self.digest(ours % i, stored, values[i * rows:(i + 1) * rows])

    def vector(self, theirs, ours, size, plus_one=False):
        """A norm: bf16 in the checkpoint, F32 in the file, where Gemma's hold the one that is added elsewhere."""
        values = (self.random.standard_normal(size) * 0.1 + (0 if plus_one else 1)).astype(numpy.float32)
        values = (values.view(numpy.uint32) & numpy.uint32(0xFFFF0000)).view(numpy.float32)
        self.writer.add_tensor(theirs, values + numpy.float32(1) if plus_one else values)
        self.digest(ours, theirs, values)

    def write(self, config, tokens):
        writer, name = self.writer, self.architecture
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_freq_base(config["rope_theta"])
        writer.add_rope_dimension_count(config["head_dim"])
        writer.add_file_type(1)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("llama-bpe")
        writer.add_token_list(tokens)
        writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
        writer.add_token_merges(["a b"])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(1)
        writer.add_add_bos_token(True)
        writer.add_chat_template("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}")
        finish(writer)
        config = {"bos_token_id": 0, "eos_token_id": [1, 2], "torch_dtype": "bfloat16", **config}
        (self.folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        (self.folder / "expected.json").write_text(json.dumps(self.digests, indent=1) + "\n")


TOKENS = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "a", "b", "ab"] + ["c%d" % i for i in range(26)]


def neighbours(heads, head_dim):
    """Row i of a checkpoint's query matrix in the file, whose rows 2i and 2i + 1 were i and i + head_dim / 2
    (convert_hf_to_gguf.py, LlamaModel.permute)."""
    rows = numpy.arange(heads * head_dim).reshape(heads, head_dim // 2, 2)
    return rows.swapaxes(1, 2).reshape(-1)


def layers(model, config, permuted=False, biases=False, head_norms=0, pre_norms=True, post_norms=False, plus_one=False,
           fused=False, experts="mlp.experts.%%d.%s_proj"):
    """`head_norms`: 1 of each head, 2 of all together."""
    hidden, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    model.matrix("token_embd.weight", "model.embed_tokens", config["vocab_size"], hidden)
    model.vector("output_norm.weight", "model.norm", hidden, plus_one)
    if not config["tie_word_embeddings"]:
        model.matrix("output.weight", "lm_head", config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        ours, theirs = "model.layers.%d." % i, "blk.%d." % i
        order = (lambda count: neighbours(count, dim)) if permuted else (lambda count: None)
        if pre_norms:
            model.vector(theirs + "attn_norm.weight", ours + "input_layernorm", hidden, plus_one)
        if fused:
            model.matrix(theirs + "attn_qkv.weight", ours + "self_attn.qkv_proj", (heads + 2 * kv_heads) * dim, hidden)
        else:
            model.matrix(theirs + "attn_q.weight", ours + "self_attn.q_proj", heads * dim, hidden, order(heads))
            model.matrix(theirs + "attn_k.weight", ours + "self_attn.k_proj", kv_heads * dim, hidden, order(kv_heads))
            model.matrix(theirs + "attn_v.weight", ours + "self_attn.v_proj", kv_heads * dim, hidden)
        if biases:
            for kind, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
                model.bias(theirs + "attn_" + kind, ours + "self_attn." + kind + "_proj", count * dim)
        if head_norms:
            widths = [dim, dim] if head_norms == 1 else [heads * dim, kv_heads * dim]
            model.vector(theirs + "attn_q_norm.weight", ours + "self_attn.q_norm", widths[0], plus_one)
            model.vector(theirs + "attn_k_norm.weight", ours + "self_attn.k_norm", widths[1], plus_one)
        model.matrix(theirs + "attn_output.weight", ours + "self_attn.o_proj", hidden, heads * dim)
        if post_norms:
            model.vector(theirs + "post_attention_norm.weight", ours + "post_attention_layernorm", hidden, plus_one)
            if pre_norms:
                model.vector(theirs + "ffn_norm.weight", ours + "pre_feedforward_layernorm", hidden, plus_one)
            model.vector(theirs + "post_ffw_norm.weight", ours + "post_feedforward_layernorm", hidden, plus_one)
        else:
            model.vector(theirs + "ffn_norm.weight", ours + "post_attention_layernorm", hidden, plus_one)
        if "num_experts_per_tok" in config:
            count = config.get("num_experts") or config["num_local_experts"]
            width = config.get("moe_intermediate_size", inner)
            router = "block_sparse_moe.gate" if "sparse" in experts % "" else "mlp.gate"
            gate, up, down = ("w1", "w3", "w2") if "sparse" in experts % "" else ("gate", "up", "down")
            model.matrix(theirs + "ffn_gate_inp.weight", ours + router, count, hidden, kind=Type.F32)
            model.experts(theirs + "ffn_gate_exps.weight", ours + experts % gate, count, width, hidden, Type.Q5_0)
            model.experts(theirs + "ffn_up_exps.weight", ours + experts % up, count, width, hidden, Type.Q8_0)
            model.experts(theirs + "ffn_down_exps.weight", ours + experts % down, count, hidden, width, Type.Q4_1)
        elif fused:
            model.matrix(theirs + "ffn_up.weight", ours + "mlp.gate_up_proj", 2 * inner, hidden)
            model.matrix(theirs + "ffn_down.weight", ours + "mlp.down_proj", hidden, inner)
        else:
            model.matrix(theirs + "ffn_gate.weight", ours + "mlp.gate_proj", inner, hidden)
            model.matrix(theirs + "ffn_up.weight", ours + "mlp.up_proj", inner, hidden)
            model.matrix(theirs + "ffn_down.weight", ours + "mlp.down_proj", hidden, inner)


def config_of(architecture, **more):
    return {"architectures": [architecture], "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
            "num_key_value_heads": 2, "head_dim": HEAD_DIM, "intermediate_size": 32, "vocab_size": 32, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 128, "rope_theta": 10000.0, "tie_word_embeddings": False, **more}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    types(OUT)

    # Blocks of 256, neighbours that turn together, Llama 3's factors as a tensor.
    config = config_of("LlamaForCausalLM", hidden_size=256, rope_theta=500000.0)
    model = Model("llama", "llama", [Type.Q4_K, Type.Q8_0, Type.Q4_0, Type.Q6_K, Type.Q5_K], 2)
    layers(model, {**config, "intermediate_size": 256}, permuted=True)
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64}
    frequencies = 1.0 / 500000.0 ** (numpy.arange(0, 32, 2) / 32)
    factors = []
    for wavelength in 2 * numpy.pi / frequencies:  # convert_hf_to_gguf.py, LlamaModel.generate_extra_tensors
        if wavelength < 64 / 4:
            factors.append(1)
        elif wavelength > 64:
            factors.append(8)
        else:
            smooth = (64 / wavelength - 1) / 3
            factors.append(1 / ((1 - smooth) / 8 + smooth))
    model.writer.add_tensor("rope_freqs.weight", numpy.array(factors, numpy.float32))
    model.write({**config, "intermediate_size": 256, "rope_scaling": scaling}, TOKENS)

    config = config_of("Qwen3ForCausalLM", tie_word_embeddings=True, rope_theta=1000000.0)
    model = Model("qwen3", "qwen3", [Type.Q8_0, Type.F16, Type.IQ4_NL, Type.Q5_1], 3)
    layers(model, config, head_norms=1)
    model.write(config, TOKENS)

    config = config_of("Qwen3MoeForCausalLM", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
                       norm_topk_prob=True)
    model = Model("qwen3moe", "qwen3moe", [Type.Q8_0, Type.BF16], 4)
    layers(model, config, head_norms=1)
    model.writer.add_expert_count(4)
    model.writer.add_expert_used_count(2)
    model.writer.add_expert_feed_forward_length(32)
    model.write(config, TOKENS)

    config = config_of("Gemma3ForCausalLM", tie_word_embeddings=True, num_hidden_layers=2, sliding_window=16,
                       query_pre_attn_scalar=32, hidden_activation="gelu_pytorch_tanh", rope_theta=1000000.0,
                       sliding_window_pattern=6, rms_norm_eps=1e-6)
    model = Model("gemma3", "gemma3", [Type.Q4_0], 5)
    layers(model, config, head_norms=1, post_norms=True, plus_one=True)
    model.writer.add_sliding_window(16)
    model.write(config, TOKENS)

    config = config_of("Phi3ForCausalLM", sliding_window=None)
    model = Model("phi3", "phi3", [Type.Q8_0], 6)
    layers(model, config, fused=True)
    model.write(config, TOKENS)

    config = config_of("Qwen2ForCausalLM")
    model = Model("qwen2", "qwen2", [Type.Q5_0], 7)
    layers(model, config, biases=True)
    model.write(config, TOKENS)

    config = config_of("MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2, sliding_window=None)
    model = Model("mixtral", "llama", [Type.Q8_0], 8)
    layers(model, config, permuted=True, experts="block_sparse_moe.experts.%%d.%s")
    model.writer.add_expert_count(4)
    model.writer.add_expert_used_count(2)
    model.write(config, TOKENS)

    config = config_of("GraniteForCausalLM", attention_multiplier=0.25, embedding_multiplier=3.0,
                       residual_multiplier=0.5, logits_scaling=4.0)
    model = Model("granite", "granite", [Type.Q4_0], 9)
    layers(model, config, permuted=True)
    model.writer.add_attention_scale(0.25)
    model.writer.add_embedding_scale(3.0)
    model.writer.add_residual_scale(0.5)
    model.writer.add_logit_scale(4.0)
    model.write(config, TOKENS)

    config = config_of("SmolLM3ForCausalLM", tie_word_embeddings=True, num_hidden_layers=4)
    model = Model("smollm3", "smollm3", [Type.Q4_0], 10)
    layers(model, config, permuted=True)
    model.write(config, TOKENS)

    config = config_of("Olmo2ForCausalLM")
    model = Model("olmo2", "olmo2", [Type.Q8_0], 11)
    layers(model, config, head_norms=2, pre_norms=False, post_norms=True)
    model.write(config, TOKENS)

    config = config_of("GemmaForCausalLM", tie_word_embeddings=True, hidden_activation="gelu_pytorch_tanh")
    model = Model("gemma", "gemma", [Type.Q8_0], 12)
    layers(model, config, plus_one=True)
    model.write(config, TOKENS)

    config = config_of("Gemma2ForCausalLM", tie_word_embeddings=True, num_hidden_layers=2, sliding_window=16,
                       query_pre_attn_scalar=32, hidden_activation="gelu_pytorch_tanh", attn_logit_softcapping=50.0,
                       final_logit_softcapping=30.0)
    model = Model("gemma2", "gemma2", [Type.Q4_0], 13)
    layers(model, config, post_norms=True, plus_one=True)
    model.writer.add_sliding_window(16)
    model.writer.add_attn_logit_softcapping(50.0)
    model.writer.add_final_logit_softcapping(30.0)
    model.write(config, TOKENS)


main()
