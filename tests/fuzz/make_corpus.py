# Writes the inputs that the fuzzers begin with: make_corpus.py FOLDER makes FOLDER/NAME/seed-*. What the fuzzers found
# beyond them stands beside these in tests/fuzz/corpus (README.md says how it got there). Standard library only.
import base64
import ctypes
import glob
import json
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "reference", "tokenization"))
from proto_message import field  # noqa: E402

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


# --- safetensors ------------------------------------------------------------------------------------------------------

def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else dump(header)
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_seeds():
    two = {"__metadata__": {"format": "pt"}, "a": tensor("BF16", [2, 3], 0, 12), "b": tensor("F32", [2], 12, 20)}
    yield "two", safetensors(two, b"d" * 20)
    yield "empty", safetensors({})
    yield "scalar", safetensors({"s": tensor("F32", [], 0, 4)}, b"data")
    yield "zero_size", safetensors({"z": tensor("F32", [5, 0], 0, 0), "a": tensor("U8", [3], 0, 3)}, b"abc")
    yield "unaligned", safetensors({"a": tensor("U8", [3], 0, 3), "b": tensor("F32", [1], 3, 7)}, b"d" * 7)
    yield "padded", safetensors(dump(two) + b"   ", b"d" * 20)
    yield "half_bytes", safetensors({"f": tensor("F4", [3, 2], 0, 3)}, b"abc")
    yield "hole", safetensors({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 3, 5)}, b"d" * 5)
    yield "overlap", safetensors({"a": tensor("U8", [4], 0, 4), "b": tensor("U8", [4], 2, 6)}, b"d" * 6)
    yield "trailing", safetensors({"a": tensor("U8", [2], 0, 2)}, b"abc")
    yield "product_wraps", safetensors({"a": tensor("F32", [2**62], 0, 0)})
    yield "bits_wrap", safetensors({"a": tensor("U8", [2**61], 0, 0)})
    yield "zero_behind_overflow", safetensors({"a": tensor("U8", [2**40, 2**40, 0], 0, 0)})
    yield "negative", safetensors({"a": tensor("U8", [-1], 0, 1)}, b"a")
    yield "backwards", safetensors({"a": tensor("U8", [1], 2**64 - 1, 0)})
    yield "twice", safetensors(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
                               b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}')
    yield "field_twice", safetensors(b'{"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}')
    yield "length_huge", safetensors({}, length=2**64 - 1)
    yield "length_past_the_end", safetensors({}, length=100)
    yield "length_cut", b"\x02\0\0"
    yield "zero_byte", safetensors(b"{}\0")
    yield "nested", safetensors(b'{"a":' + b"[" * 200)
    yield "not_utf8", safetensors(b'{"\xff":{}}')


# --- GGUF -------------------------------------------------------------------------------------------------------------

def gguf_text(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf_value(value):
    """The type and the bytes of a value."""
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, gguf_text(value)
    kinds, elements = zip(*(gguf_value(one) for one in value))
    return 9, struct.pack("<IQ", kinds[0], len(value)) + b"".join(elements)


def gguf(keys, tensors, version=3):
    """`tensors`: name, dimensions with the innermost first, type, bytes."""
    head, data = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)), b""
    for key, value in keys.items():
        kind, encoded = gguf_value(value)
        head += gguf_text(key) + struct.pack("<I", kind) + encoded
    for name, shape, kind, content in tensors:
        head += gguf_text(name) + struct.pack("<I%dQIQ" % len(shape), len(shape), *shape, kind, len(data))
        data += content + bytes(-len(content) % 32)
    return head + bytes(-len(head) % 32) + data


# Code: bytes of a block, elements of a block.
GGUF_BLOCKS = {0: (4, 1), 1: (2, 1), 30: (2, 1), 2: (18, 32), 3: (20, 32), 6: (22, 32), 7: (24, 32), 8: (34, 32), 10: (84, 256),
               11: (110, 256), 12: (144, 256), 13: (176, 256), 14: (210, 256), 20: (18, 32), 23: (136, 256), 39: (17, 32)}


def gguf_matrix(name, shape, kind):
    elements = 1
    for size in shape:
        elements *= size
    size, of_block = GGUF_BLOCKS[kind]
    return name, shape, kind, bytes((i * 37 + 11) % 120 for i in range(elements // of_block * size))


def gguf_seeds():
    tokens = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % byte for byte in range(256)] + ["\u2581", "a", "b", "ab", "\u2581ab"]
    sizes = {"block_count": 1, "context_length": 64, "embedding_length": 64, "feed_forward_length": 96, "attention.head_count": 2,
             "attention.head_count_kv": 1, "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 1e4}

    def keys(family, **more):
        return {"general.architecture": family, **{family + "." + key: value for key, value in sizes.items()}, **more}
    sentences = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": [-float(i) for i in range(len(tokens))],
                 "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * 5, "tokenizer.ggml.bos_token_id": 1,
                 "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.add_bos_token": True}
    words = sorted(byte_alphabet())
    pairs = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": words + ["ab", "abc", "<|im_end|>"],
             "tokenizer.ggml.merges": ["a b", "ab c"], "tokenizer.ggml.token_type": [1] * (len(words) + 2) + [3],
             "tokenizer.chat_template": "{{ messages }}"}
    embedding = gguf_matrix("token_embd.weight", [64, 264], 8)
    yield "sentences", gguf(keys("llama", **sentences), [embedding, gguf_matrix("rope_freqs.weight", [16], 0)])
    yield "pairs", gguf(keys("qwen3", **pairs), [gguf_matrix("token_embd.weight", [64, 259], 2)])
    yield "version_2", gguf(keys("gemma3", **{"gemma3.attention.sliding_window": 16}), [embedding], 2)
    yield "types", gguf({}, [gguf_matrix("t%d" % kind, [256, 2], kind) for kind in GGUF_BLOCKS])
    yield "experts", gguf(keys("llama", **{"llama.expert_count": 3, "llama.expert_used_count": 2}),
                          [embedding, gguf_matrix("blk.0.ffn_up_exps.weight", [64, 2, 3], 8)])
    yield "phi3", gguf(keys("phi3", **{"phi3.rope.scaling.attn_factor": 1.5, "phi3.rope.scaling.original_context_length": 32}),
                       [embedding, gguf_matrix("rope_factors_short.weight", [16], 0), gguf_matrix("rope_factors_long.weight", [16], 0)])
    yield "yarn", gguf(keys("qwen2", **{"qwen2.rope.scaling.type": "yarn", "qwen2.rope.scaling.factor": 4.0}), [embedding])
    yield "split", gguf(keys("llama", **{"split.count": 2, "split.no": 0}), [embedding])
    yield "aligned", gguf({"general.alignment": 64}, [])
    yield "empty", gguf({}, [])
    yield "cut", gguf(keys("llama", **sentences), [embedding])[:4000]


# --- quantization_config and its weights ------------------------------------------------------------------------------

def quantized(config, **tensors):
    """`tensors`: by name, with . for __, dtype, shape and bytes of an element or the bytes."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        if isinstance(content, int):
            count = content
            for size in shape:
                count *= size
            content = bytes((i * 29 + 3) % 100 for i in range(count))
        header[name.replace("__", ".")] = tensor(dtype, shape, len(data), len(data) + len(content))
        data += content
    return dump(config) + b"\0" + safetensors(header, data)


def quantization_seeds():
    def compressed(kind, args, **more):
        return {"quant_method": "compressed-tensors", "format": kind, "ignore": ["lm_head", "re:.*up_proj"],
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": args}}, **more}
    yield "fp8", quantized({"quant_method": "fp8", "weight_block_size": [8, 32]}, m__weight=("F8_E4M3", [16, 64], 1),
                           m__weight_scale_inv=("BF16", [2, 2], 2))
    yield "fp8_tensor", quantized({"quant_method": "fp8", "activation_scheme": "static"}, m__weight=("F8_E4M3", [16, 64], 1),
                                  m__weight_scale=("F32", [], 4), m__input_scale=("F32", [], 4))
    integers = {"num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": 32}
    yield "packed", quantized(compressed("pack-quantized", integers), m__weight_packed=("I32", [16, 8], 4),
                              m__weight_scale=("BF16", [16, 2], 2), m__weight_zero_point=("I32", [2, 2], 4),
                              m__weight_shape=("I64", [2], struct.pack("<2q", 16, 64)))
    yield "ordered", quantized(compressed("pack-quantized", {**integers, "symmetric": True}), m__weight_packed=("I32", [16, 8], 4),
                               m__weight_scale=("BF16", [16, 2], 2), m__weight_g_idx=("I32", [64], struct.pack("<64i", *[0, 1] * 32)))
    yield "int8", quantized(compressed("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel"}),
                            m__weight=("I8", [16, 64], 1), m__weight_scale=("F32", [16, 1], 4))
    yield "nvfp4", quantized(compressed("nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}),
                             m__weight_packed=("U8", [16, 32], 1), m__weight_scale=("F8_E4M3", [16, 4], 1),
                             m__weight_global_scale=("F32", [1], 4))
    yield "two_groups", quantized({**compressed("mixed-precision", integers), "config_groups": {
        "group_0": {"targets": ["re:.*q_proj$"], "format": "pack-quantized", "weights": integers},
        "group_1": {"targets": ["Linear"], "format": "float-quantized", "weights": {"num_bits": 8, "type": "float", "strategy": "block",
                                                                                  "block_structure": [8, 32]}}}},
        m__weight=("F8_E4M3", [16, 64], 1), m__weight_scale=("F32", [2, 2], 4))
    columns = {"m__qweight": ("I32", [8, 16], 4), "m__qzeros": ("I32", [2, 2], 4), "m__scales": ("F16", [2, 16], 2)}
    order = {"m__g_idx": ("I32", [64], struct.pack("<64i", *[1, 0] * 32))}
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    yield "gptq", quantized({**gptq, "desc_act": True}, **columns, **order)
    yield "gptq_dynamic", quantized({**gptq, "bits": 8, "dynamic": {"+:m$": {"bits": 4}, "-:.*k_proj": {}}}, **columns)
    yield "auto_round", quantized({**gptq, "quant_method": "auto-round", "packing_format": "auto_round:gptqmodel",
                                   "extra_config": {"x": {"bits": 16}, ".*m": {"group_size": 32}}}, **columns)
    yield "awq", quantized({"quant_method": "awq", "bits": 4, "group_size": 32}, m__qweight=("I32", [64, 2], 4),
                           m__qzeros=("I32", [2, 2], 4), m__scales=("F16", [2, 16], 2))
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [16, 64]}
    nested = dump({**state, "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.5})
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    codes = {"m__weight": ("U8", [512, 1], 1), "m__weight__quant_map": ("F32", [16], 4)}
    yield "nf4", quantized(config, **codes, m__weight__absmax=("F32", [16], 4),
                           m__weight__quant_state__bitsandbytes__nf4=("U8", [len(dump(state))], dump(state)))
    yield "nf4_nested", quantized(config, **codes, m__weight__absmax=("U8", [16], 1), m__weight__nested_absmax=("F32", [1], 4),
                                  m__weight__nested_quant_map=("F32", [256], 4),
                                  m__weight__quant_state__bitsandbytes__nf4=("U8", [len(nested)], nested))
    yield "mxfp4", quantized({"quant_method": "mxfp4"}, l__experts__p_blocks=("U8", [2, 16, 2, 16], 1),
                             l__experts__p_scales=("U8", [2, 16, 2], 1))
    yield "modelopt", quantized({"quant_method": "modelopt", "quant_algo": "NVFP4"}, m__weight=("U8", [16, 32], 1),
                                m__weight_scale=("F8_E4M3", [16, 4], 1), m__weight_scale_2=("F32", [], 4))
    yield "unknown", quantized({"quant_method": "exl3"})
    yield "nothing", b"{}"


# --- model.safetensors.index.json -------------------------------------------------------------------------------------

def index_seeds():
    def index(weight_map):
        return dump({"metadata": {"total_size": 8}, "weight_map": weight_map})
    yield "sound", index({"a": "a.safetensors", "b": "b.safetensors"})
    yield "one", index({"a": "a.safetensors"})
    yield "empty", index({})
    yield "wrong_shard", index({"a": "b.safetensors"})
    yield "missing_shard", index({"a": "c.safetensors"})
    for number, name in enumerate(("../a.safetensors", "/etc/passwd", ".", "..", "", "x/a.safetensors", "x\\a", "a\0b",
                                   "a" * 300)):
        yield "shard_%d" % number, index({"a": name})
    yield "no_map", dump({})
    yield "map_is_list", dump({"weight_map": ["a"]})
    yield "twice", b'{"weight_map":{"a":"a.safetensors","a":"b.safetensors"}}'


# --- config.json ------------------------------------------------------------------------------------------------------

LLAMA = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "vocab_size": 300, "rms_norm_eps": 1e-5,
         "max_position_embeddings": 512, "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": [2, 3]}
ROPE = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}
QWEN3 = {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "rope_theta": 1e6,
         "use_sliding_window": False}
GEMMA3 = {**LLAMA, "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "query_pre_attn_scalar": 16,
          "sliding_window": 16, "sliding_window_pattern": 6, "hidden_activation": "gelu_pytorch_tanh",
          "rope_local_base_freq": 1e4, "rope_theta": 1e6,
          "layer_types": ["sliding_attention", "full_attention"]}
GPT2_CONFIG = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4,
               "n_positions": 128, "n_ctx": 128, "vocab_size": 300, "layer_norm_epsilon": 1e-5,
               "activation_function": "gelu_new", "bos_token_id": 2, "eos_token_id": 2}


def config_seeds():
    yield "llama", dump(LLAMA)
    yield "llama3_rope", dump({**LLAMA, "rope_theta": 5e5, "rope_scaling": ROPE})
    yield "new_spelling", dump({**LLAMA, "rope_parameters": {**ROPE, "rope_theta": 5e5}})
    yield "linear_rope", dump({**LLAMA, "rope_scaling": {"type": "linear", "factor": 8.0}})
    yield "defaults", dump({"architectures": ["LlamaForCausalLM"]})
    yield "with_generation", dump(LLAMA) + b"\0" + dump({"eos_token_id": [2], "do_sample": True, "temperature": 0.6,
                                                         "top_p": 0.9, "top_k": 50})
    yield "qwen3", dump(QWEN3)
    yield "gemma3", dump(GEMMA3)
    yield "gemma3_new_spelling", dump({**GEMMA3, "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}}})
    yield "gpt2", dump(GPT2_CONFIG)
    mixture = {**QWEN3, "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 5, "num_experts_per_tok": 2,
               "moe_intermediate_size": 36, "norm_topk_prob": True}
    yield "mixture", dump(mixture)
    yield "dense_layers", dump({**mixture, "mlp_only_layers": [0, 9], "decoder_sparse_step": 2})
    yield "extremes", dump({**LLAMA, "vocab_size": 2**63, "hidden_size": -1, "head_dim": 2**64 - 1,
                            "rms_norm_eps": 1e308})
    yield "smallest", dump({**LLAMA, "hidden_size": 1, "num_attention_heads": 1, "num_key_value_heads": 1,
                            "head_dim": 4, "rope_theta": 1e-300})
    yield "steep_rope", dump({**LLAMA, "rope_theta": 1e15, "rope_scaling": {
        **ROPE, "factor": 1e-9, "low_freq_factor": 1e-9, "high_freq_factor": 1e9}})
    yield "types", dump({**LLAMA, "hidden_size": "64", "eos_token_id": {"a": []}})
    yield "quantized", dump({**LLAMA, "quantization_config": {"quant_method": "gptq"}})
    yield "twice", b'{"vocab_size":1,"vocab_size":2}'
    yield "nested", b'{"a":' * 100
    yield "zero_then_nothing", b"\0"


# --- adapter_config.json ----------------------------------------------------------------------------------------------
ADAPTER = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "down_proj"], "bias": "none"}


def adapter_seeds():
    yield "list", dump(ADAPTER)
    yield "regex", dump({**ADAPTER, "target_modules": r".*\.layers\.[0-9]+\..*(q|v)_proj", "use_rslora": True})
    yield "all_linear", dump({**ADAPTER, "target_modules": "all-linear", "exclude_modules": ["k_proj"]})
    yield "patterns", dump({**ADAPTER, "rank_pattern": {"q_proj": 4, r"layers\.0\.mlp": 2}, "alpha_pattern": {"^down": 1}})
    yield "layers", dump({**ADAPTER, "layers_to_transform": [0, 11], "layers_pattern": "layers"})
    yield "dora", dump({**ADAPTER, "use_dora": True})
    yield "extremes", dump({**ADAPTER, "r": 2**63, "lora_alpha": 1e308})
    yield "repeats", dump({**ADAPTER, "target_modules": "(a{1,50}){1,50}(b*)*c"})
    yield "nested", dump({**ADAPTER, "target_modules": "(" * 200 + ")" * 200})


# --- tokenizer.json ---------------------------------------------------------------------------------------------------

def byte_alphabet():
    """The letter of each byte in a byte-level vocabulary."""
    plain = list(range(0x21, 0x7f)) + list(range(0xa1, 0xad)) + list(range(0xae, 0x100))
    letters, spare = {}, 0x100
    for byte in range(256):
        letters[byte] = chr(byte if byte in plain else spare)
        spare += byte not in plain
    return letters


def added(number, content, special=True, **flags):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": special, **flags}


def split(pattern):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}


def byte_level(**changes):
    """A tokenizer of few bytes, so that mutations reach every part of it; one begins a character that no other ends."""
    letters = byte_alphabet()
    vocab = {letters[b]: i for i, b in enumerate(b" abehlot\n\xc3")}
    for pair in ("he", "ll", "hell", "hello", "Ġa"):
        vocab[pair] = len(vocab)
    file = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [added(100, "<|eot_id|>")],
            "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
            "post_processor": None, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": vocab, "merges": ["h e", "l l", "he ll", "hell o", "Ġ a"]}}
    for key, value in changes.items():
        if key in file["model"]:
            file["model"][key] = value
        else:
            file[key] = value
    return file


def gemma():
    """Byte fallback and one word a text, as Gemma-3's file has them."""
    vocab = {"<pad>": 0, "<eos>": 1, "<bos>": 2, "<unk>": 3, "\u2581": 4, "a": 5, "b": 6, "ab": 7, "\u2581a": 8}
    for byte in range(256):
        vocab["<0x%02X>" % byte] = len(vocab)
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added(i, t) for i, t in enumerate(("<pad>", "<eos>", "<bos>", "<unk>"))],
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                              "invert": False},
            "post_processor": None,
            "decoder": {"type": "Sequence", "decoders": [
                {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
                {"type": "Fuse"}]},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                      "vocab": vocab, "merges": [["a", "b"], ["\u2581", "a"]]}}


def tokenizer_seeds():
    text = b"\0hello a <|eot_id|> hello\n\n  \xff"
    yield "gpt2", dump(byte_level()) + text
    yield "llama3", dump(byte_level(pre_tokenizer=split(LLAMA3), ignore_merges=True, post_processor={
        "type": "Sequence", "processors": [
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
            {"type": "TemplateProcessing",
             "single": [{"SpecialToken": {"id": "<|eot_id|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
             "pair": [], "special_tokens": {
                 "<|eot_id|>": {"id": "<|eot_id|>", "ids": [100], "tokens": ["<|eot_id|>"]}}}]})) + text
    yield "qwen3", dump(byte_level(normalizer={"type": "NFC"}, pre_tokenizer=split(LLAMA3.replace("{1,3}", "")))) + text
    yield "gemma3", dump(gemma()) + text
    yield "pairs", dump(byte_level(merges=[["h", "e"], ["l", "l"]])) + text
    yield "added_flags", dump(byte_level(added_tokens=[
        added(100, "<|eot_id|>", lstrip=True, rstrip=True), added(101, "hello", False, normalized=True),
        added(102, "a", False, single_word=True)])) + text
    yield "gpt2_regex", dump(byte_level(pre_tokenizer=split(GPT2))) + text
    for name, pattern in (("nested_repeats", "(a*)*b"), ("backtracks", "(a+)+$"), ("counts", "(?:a{1,1000}){1,1000}"),
                          ("backreference", r"(a)\1"), ("look_behind", r"(?<=a)b|(?<!c)d"), ("empty", ""),
                          ("recursion", r"(?<x>a\g<x>?b)"), ("absent", r"(?~ab)"), ("does_not_compile", "(a")):
        yield "regex_" + name, dump(byte_level(pre_tokenizer=split(pattern))) + b"\0" + b"a" * 40 + b"c"
    yield "largest_id", dump(byte_level(vocab={"a": 4194303})) + text
    yield "id_too_large", dump(byte_level(vocab={"a": 4194304}))
    yield "same_id", dump(byte_level(vocab={"a": 1, "b": 1}))
    yield "merge_is_nested", dump(byte_level(merges=["?"])).replace(b'"?"', b"[" * 500 + b"]" * 500)
    yield "merge_of_unknown", dump(byte_level(merges=["h q"]))
    yield "sequences_in_sequences", dump(byte_level(normalizer="?")).replace(
        b'"?"', b'{"type":"Sequence","normalizers":[' * 20 + b"]}" * 20)
    yield "word_piece", dump({"model": {"type": "WordPiece", "vocab": {}}})
    for kind in PIPELINES:
        yield "pipeline_" + kind, dump(trimmed(kind)) + text
    yield "vocab_twice", b'{"model":{"type":"BPE","vocab":{"a":0,"a":1},"merges":[]}}'
    yield "nested", b'{"model":' * 1000
    yield "zero_then_nothing", b"\0"


def trimmed(kind):
    """A golden tokenizer with few tokens, so that mutations reach every part of it."""
    with open(f"tests/golden/pipelines/{kind}/tokenizer.json", encoding="utf-8") as file:
        content = json.load(file)
    model = content["model"]
    if isinstance(model["vocab"], list):
        model["vocab"] = model["vocab"][:60]
    else:
        needed = {token["content"] for token in content["added_tokens"]} | {model.get("unk_token")}
        model["vocab"] = {token: i for n, (token, i) in enumerate(model["vocab"].items()) if n < 60 or token in needed}
    if "merges" in model:
        known = model["vocab"]
        prefix = len(model.get("continuing_subword_prefix") or "")
        model["merges"] = [pair for pair in model["merges"] if pair[0] in known and pair[1] in known and pair[0] + pair[1][prefix:] in known][:20]
    return content


PIPELINES = ("llama2", "llama2_first", "t5", "xlm_roberta", "bert", "bert_cased", "falcon", "deepseek", "gpt1", "clip", "subwords", "words", "wav2vec",
             "splits", "marks")


# --- tokenizer.model and tekken.json ----------------------------------------------------------------------------------

def pieces_seeds():
    pieces = [("<unk>", 2), ("<s>", 3), ("</s>", 3), ("<sep>", 4), ("ll", 5), ("\u2581", 1), ("H", 1), ("e", 1), ("l", 1), ("o", 1), ("llo", 1),
              ("\u2581He", 1), ("He", 1)] + [("<0x%02X>" % byte, 6) for byte in range(256)]
    body = b"".join(field(1, field(1, piece.encode()) + field(2, -float(i)) + field(3, kind)) for i, (piece, kind) in enumerate(pieces))
    for name, kind in (("unigram", 1), ("bpe", 2), ("word", 3)):
        yield name, body + field(2, field(3, kind) + field(35, 1)) + field(3, field(3, 1) + field(4, 1) + field(5, 1))
    yield "suffix", body + field(2, field(3, 2) + field(24, 1)) + field(3, field(4, 0))
    yield "twice", body + body
    with open("tests/golden/pipelines/t5/tokenizer.json", encoding="utf-8") as file:
        charsmap = base64.b64decode(json.load(file)["normalizer"]["normalizers"][0]["precompiled_charsmap"])
    yield "map", body + field(3, field(2, charsmap))
    yield "cut_map", body + field(3, field(2, charsmap[:5]))
    vocab = [{"rank": i, "token_bytes": base64.b64encode(bytes([i])).decode(), "token_str": None} for i in range(256)]
    tekken = {"config": {"pattern": "\\p{L}+|.", "num_vocab_tokens": 256, "default_vocab_size": 276, "default_num_special_tokens": 20, "version": "v3"},
              "vocab": vocab}
    yield "tekken", dump(tekken)
    yield "tekken_specials", dump({**tekken, "special_tokens": [{"rank": 0, "token_str": "<s>", "is_control": True}]})


# --- chat template ----------------------------------------------------------------------------------------------------
# Its fuzzer brings its own seeds: a function template_seeds here, and a line below.

# --- cubin ------------------------------------------------------------------------------------------------------------

KERNEL = b"""struct Args { const float* x; float* y; int n; };
extern "C" __global__ void __launch_bounds__(96) k(const __grid_constant__ Args a) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (threadIdx.x < a.n) a.y[threadIdx.x] = a.x[threadIdx.x];
}"""


def cubin_seeds():
    """A small cubin of the NVRTC that the build uses."""
    libraries = glob.glob("build/cuda-wheels/nvidia/*/lib/libnvrtc.so.13")
    nvrtc = ctypes.CDLL(libraries[0] if libraries else "libnvrtc.so.13")
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 1)(b"--gpu-architecture=sm_90")
    if (nvrtc.nvrtcCreateProgram(ctypes.byref(program), KERNEL, b"k.cu", 0, None, None)
            or nvrtc.nvrtcCompileProgram(program, 1, options) or nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))):
        raise RuntimeError("NVRTC does not compile the kernel")
    image = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, image)
    yield "nvrtc", image.raw
    yield "header_alone", image.raw[:64]
    yield "empty", b""


# --- chat templates ---------------------------------------------------------------------------------------------------

def template_seeds():
    """The released templates, and every construct that the tests know with the values it is tried on."""
    for path in sorted(glob.glob("tests/golden/chat/*/chat_template.jinja")):
        with open(path, "rb") as file:
            yield path.split("/")[-2], file.read()
    with open("tests/golden/chat/constructs.json", encoding="utf-8") as file:
        constructs = json.load(file)
    values = dump(constructs["values"])
    for number, case in enumerate(constructs["cases"]):
        yield f"construct_{number:03}", case["source"].encode() + b"\0" + values
    yield "work", b"{% for a in range(9999) %}{% for b in range(9999) %}{{ a * b }}{% endfor %}{% endfor %}"
    yield "calls", b"{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}"
    yield "doubling", b"{% set n = namespace(s='x') %}{% for i in range(99) %}{% set n.s = n.s * 2 %}{% endfor %}"
    yield "nested_lists", b"{% set n = namespace(l=[]) %}{% for i in range(999) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}"
    yield "deep", b"{{ " + b"(" * 200 + b"1" + b")" * 200 + b" }}"
    yield "not_utf8", b"\xff{{ '\xc3' }}"


# --- Patterns and schemas of guided decoding --------------------------------------------------------------------------

def pattern_seeds():
    """Behind a zero byte what the text chooses."""
    choices = b"\0\1\2\3 some choices \xf0\x80"
    patterns = {
        "yes_no": "(yes|no)", "words": "(?:the|then|there)( [A-Za-z]+)+!", "numbers": "-?(?:0|[1-9][0-9]{0,18})(\\.[0-9]+)?",
        "object": r'\{"name": "[a-z ]{1,12}", "n": -?[0-9]+\}', "joined": "(?,-|ab|c?)d", "classes": r"[^\d\s]\W\w[\]\-^]+.",
        "unicode": "[\u00e0-\u00ff\u2000-\U0001f600]*\u20ac\\u00e9", "empty": "", "optional": "(a?){30}(b*c+)*",
        "ends": "^a|b{2,3}|c{2}d{0,}$", "escapes": r"\x41\n\r\t\f\v\0\.\$", "all": "(?:.|\\n)*",
        "exponential": "[ab]*a[ab]{12}", "many_states": "(?:[ -~]?){60}", "nested_stars": "((((a+)+)+)+)+b",
        "states": "((a{1000}){1000}){1000}", "empty_repeats": "((((){10000}){10000}){10000}){10000}",
        "empty_groups": "(((" + "()" * 20 + "){10000}){10000}){100}", "choices_of_nothing": "(((|){0,10000}){10000}){10000}",
        "joined_groups": "(?:(?,()|()|()){10000}){10000}", "long_repeat": "(.{10000}){20}", "deep": "(" * 199 + "a" + ")" * 199,
        "too_deep": "(" * 300, "surrogates": "a[^\\x00-\ud7ff\ue000-\U0010ffff]?b",
        "class_of_surrogates": "[^\\x00-\ud7ff\ue000-\U0010ffff]", "wide_class": "[!#%')+;=?ACEGIKMOQSUWY]{99}" * 3,
        "backwards": "[z-a]", "look_around": "(?=a)b", "lazy": "a+?", "property": "\\p{L}"}
    for name, pattern in patterns.items():
        yield name, pattern.encode("utf-8", "surrogatepass") + choices
    yield "not_utf8", b"a\xff" + choices


def schema_seeds():
    choices = b"\0\1\2\3 some choices \xf0\x80"
    person = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer"}},
              "required": ["age", "name"], "additionalProperties": False, "title": "person"}
    a_to_h = "abcdefgh"
    schemas = {
        "person": person, "array": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 3},
        "optional": {"type": "object", "properties": {k: {"const": i} for i, k in enumerate("abcde")}, "required": ["c"]},
        "all_optional": {"type": "object", "properties": {k: {"type": "null"} for k in "abc\u00e9\n"}},
        "enum": {"enum": ["a.b", 3, None, {"x": [1]}, 2.5], "type": ["integer", "string"]},
        "any_of": {"anyOf": [{"const": "yes"}, {"type": "string", "minLength": 2, "maxLength": 3}, person]},
        "one_of": {"oneOf": [{"type": "object", "properties": {"k": {"const": k}}, "required": ["k"]} for k in a_to_h]},
        "bounds": {"type": "array", "items": {"type": "number", "exclusiveMinimum": -2.5, "maximum": 1e3}},
        "integer_bounds": {"type": "integer", "minimum": -17, "exclusiveMaximum": 105.5},
        "formats": {"type": "array", "items": {"anyOf": [{"type": "string", "format": f} for f in (
            "date", "time", "date-time", "duration", "uuid", "email", "hostname", "ipv4", "ipv6", "uri")]}},
        "number_formats": {"type": ["integer", "null", "string"], "format": "uint8", "maxLength": 1.0},
        "references": {"$defs": {"n": {"type": "integer", "minimum": 0}, "a b": {"$ref": "#/$defs/n"}},
                       "type": "array", "items": {"$ref": "#/$defs/a%20b"}},
        "tree": {"$defs": {"t": {"type": "object", "properties": {"l": {"$ref": "#/$defs/t"}, "v": {}}}}, "$ref": "#/$defs/t"},
        "endless": {"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}, "minItems": 1}}, "$ref": "#/$defs/t"},
        "loop": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        "doubling": {"$defs": {**{f"d{i}": {"type": "object", "properties": {k: {"$ref": f"#/$defs/d{i+1}"} for k in "lr"}}
                                  for i in range(20)}, "d20": {"type": "null"}}, "$ref": "#/$defs/d0"},
        "others": {"type": "object", "properties": {"ab": True, "ac\"": {"type": "boolean"}}, "required": ["ab", "z"],
                   "additionalProperties": {"type": "array", "items": {"enum": ["x", "y"]}}},
        "pattern": {"type": "string", "pattern": "^[a-z]+\\.$"}, "draft4": {"type": "number", "minimum": 3, "exclusiveMinimum": True},
        "all_of": {"allOf": [{"type": "boolean"}], "description": "d"}}
    nested = {"type": "null"}
    for _ in range(22):
        nested = {"type": "array", "items": nested}
    schemas["nested_arrays"] = nested
    schemas["wide_nested_arrays"] = {"anyOf": [nested] * 12}
    schemas["referred_enum"] = {"$defs": {"e": {"enum": list(range(60))}}, "anyOf": [{"$ref": "#/$defs/e"}] * 60}
    schemas["long_name"] = {"properties": {"n" * 6000: True}, "additionalProperties": True}
    schemas["long_names"] = {"properties": {"n" * 3000: {"properties": {f"{i}": {"type": "null"} for i in range(300)}}}}
    schemas["large_enum"] = {"enum": list(range(1200))}
    schemas["required"] = {"properties": {f"p{i}": {"type": "null"} for i in range(300)},
                           "required": [f"p{i % 300}" for i in range(600)]}
    schemas["disjoint"] = {"oneOf": [{"enum": [100 * i + j for j in range(20)]} for i in range(8)]}
    schemas["types"] = {"type": ["null"] * 100, "enum": list(range(100))}
    for name, schema in schemas.items():
        yield name, dump(schema) + choices
    yield "written_numbers", b'{"enum":[1.50,1e5,-0,123456789012345678901234567890,1E400],"type":"number"}' + choices
    yield "no_schema", b"[]"


# --- HTTP and bodies of calls -----------------------------------------------------------------------------------------

def http_seeds():
    """Behind a byte that says how the connection is cut."""
    body = b'{"prompt":"x"}'
    post = b"POST /v1/completions?a=1 HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    get = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
    head = b"POST / HTTP/1.1\r\nHost: a\r\n"
    yield "get", b"\x01" + get
    yield "post", b"\x02" + post
    yield "pipeline", b"\x03" + post + b"\r\n" + get + post
    yield "old", b"\x04GET / HTTP/1.0\r\n\r\n"
    yield "absolute", b"\x05GET http://host:80/path?q HTTP/1.1\r\nHost: host\r\nConnection: close\r\n\r\n"
    yield "options", b"\x06OPTIONS * HTTP/1.1\r\nHost: a\r\nOrigin: http://b\r\n\r\n"
    yield "chunks", b"\x07" + head + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n1\r\nd\r\n0\r\nT: v\r\n\r\n" + get
    yield "no_chunks", b"\x08" + head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    yield "expects", b"\x09" + head + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n{}"
    yield "two_lengths", b"\x0a" + head + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} "
    yield "both_framings", b"\x0b" + head + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    yield "gzip", b"\x0c" + head + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
    yield "large_body", b"\x0d" + head + b"Content-Length: 9999999999999999999\r\n\r\n"
    yield "large_head", b"\x0e" + head + b"X: " + b"y" * 600 + b"\r\n\r\n"
    yield "long_chunk_size", b"\x0f" + head + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 600
    yield "folded", b"\x10" + head + b"X: a\r\n b\r\n\r\n"
    yield "bare_feeds", b"\x11GET / HTTP/1.1\nHost: a\n\n"


def body_seeds():
    text = b"\0\1\2\3 some choices"
    messages = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"],
              "$defs": {"n": {"type": "integer"}}}
    tools = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}}]
    yield "prompt", dump({"prompt": "Once upon a time", "max_tokens": 5}) + text
    yield "ids", dump({"prompt": [1, 2, 3], "echo": True, "logprobs": 2, "max_tokens": 0}) + text
    yield "prompts", dump({"prompt": ["a", "b"], "n": 2, "stream": True, "stream_options": {
        "include_usage": True, "continuous_usage_stats": True}}) + text
    yield "id_lists", dump({"prompt": [[1, 2], [3]], "prompt_logprobs": 1, "return_token_ids": True}) + text
    yield "sampling", dump({"model": "demo", "prompt": "x", "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": -1,
                            "presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.1,
                            "logit_bias": {"5": 1}, "bad_words": ["cat"], "stop_token_ids": [7], "ignore_eos": True,
                            "min_tokens": 2, "user": "u", "best_of": 1, "suffix": None}) + text
    yield "stop", dump({"prompt": "x", "stop": ["a", "the"], "include_stop_str_in_output": True, "stream": True}) + text
    yield "special", dump({"prompt": "<|begin_of_text|>x", "skip_special_tokens": False, "add_special_tokens": False,
                           "truncate_prompt_tokens": 2, "allowed_token_ids": [5, 6, 7],
                           "return_tokens_as_token_ids": True, "logprobs": 1, "request_id": "r"}) + text
    yield "chat", dump({**messages, "max_completion_tokens": 9, "logprobs": True, "top_logprobs": 2, "n": 2}) + text
    yield "chat_stream", dump({**messages, "stream": True, "chat_template_kwargs": {"x": 1}, "documents": []}) + text
    yield "continues", dump({"messages": [{"role": "assistant", "content": "On"}], "continue_final_message": True,
                             "add_generation_prompt": False}) + text
    yield "tools", dump({**messages, "tools": tools, "tool_choice": "auto", "parallel_tool_calls": False}) + text
    yield "tools_required", dump({**messages, "tools": tools, "tool_choice": "required", "stream": True}) + text
    yield "tools_named", dump({**messages, "tools": tools, "tool_choice": {"type": "function",
                                                                           "function": {"name": "f"}}}) + text
    yield "json_schema", dump({**messages, "response_format": {"type": "json_schema", "json_schema": {
        "name": "n", "strict": True, "schema": schema}}}) + text
    yield "regex", dump({"prompt": "x", "structured_outputs": {"regex": "[a-c]{1,4}(x|y)+"}}) + text
    yield "choice", dump({"prompt": "x", "guided_choice": ["yes", "no"], "stream": True}) + text
    yield "no_json", b"{"
    yield "twice", b'{"prompt":"a","prompt":"b"}'
    yield "deep", b'{"prompt":' + b"[" * 80


SEEDS = {"safetensors": safetensors_seeds, "gguf": gguf_seeds, "quantization": quantization_seeds, "index": index_seeds, "config": config_seeds, "adapter": adapter_seeds, "tokenizer": tokenizer_seeds, "pieces": pieces_seeds,
         "cubin": cubin_seeds, "template": template_seeds, "http": http_seeds, "body": body_seeds,
         "pattern": pattern_seeds, "schema": schema_seeds}


def main(folder):
    for name, seeds in SEEDS.items():
        os.makedirs(os.path.join(folder, name), exist_ok=True)
        for seed, data in seeds():
            with open(os.path.join(folder, name, "seed-" + seed), "wb") as file:
                file.write(data)


if __name__ == "__main__":
    main(*sys.argv[1:])
