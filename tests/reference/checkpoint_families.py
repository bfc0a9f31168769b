# What a random checkpoint of each family holds: its tensors, with the spreads that make wide logits and uneven
# attention, and its config.json in the old and the new spelling. Written to a folder by make_checkpoint.py.
import collections
import math

LOGIT_STD = 4.0      # standard deviation of the logits aimed at
RESIDUAL_PART = 0.7  # standard deviation of what a block adds, relative to the embedding's
GAIN_SPREAD = 0.3    # norm gains are 1 +- this; LayerNorm's shifts and the biases are 0 +- this

# offset: subtracted from what is drawn, as Gemma's norms multiply by 1 + weight; signs: each element's sign is random.
Spec = collections.namedtuple("Spec", "name size mean std offset signs", defaults=(0.0, False))

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM", "gemma3": "Gemma3ForCausalLM",
                 "gpt2": "GPT2LMHeadModel"}

# Exact shapes of the released checkpoints (config.json of meta-llama/Llama-3.2-1B and -3B, Qwen/Qwen3-0.6B and -4B,
# google/gemma-3-1b-pt, openai-community/gpt2). Through gemma's 26 layers of four norms, scores of 2 amplify roundings so
# far that transformers in bf16 stands 6.6 % from its own float32 (hidden 144, CPU); those of 1 do less.
PRESETS = {
    "llama-3.2-1b": dict(family="llama", hidden=2048, heads=32, kv_heads=8, head_dim=64, intermediate=8192, layers=16,
                         vocab=128256, tied=True, rope="llama3", rope_theta=500000.0, eps=1e-5, max_position=131072),
    "llama-3.2-3b": dict(family="llama", hidden=3072, heads=24, kv_heads=8, head_dim=128, intermediate=8192, layers=28,
                         vocab=128256, tied=True, rope="llama3", rope_theta=500000.0, eps=1e-5, max_position=131072),
    "qwen3-0.6b": dict(family="qwen3", hidden=1024, heads=16, kv_heads=8, head_dim=128, intermediate=3072, layers=28,
                       vocab=151936, tied=True, rope_theta=1e6, eps=1e-6, max_position=40960),
    "qwen3-4b": dict(family="qwen3", hidden=2560, heads=32, kv_heads=8, head_dim=128, intermediate=9728, layers=36,
                     vocab=151936, tied=True, rope_theta=1e6, eps=1e-6, max_position=40960),
    "gemma-3-1b": dict(family="gemma3", hidden=1152, heads=4, kv_heads=1, head_dim=256, intermediate=6912, layers=26,
                       vocab=262144, tied=True, rope_theta=1e6, eps=1e-6, max_position=32768, window=512,
                       query_scalar=256, score_std=1.0),
    "gpt2": dict(family="gpt2", hidden=768, heads=12, kv_heads=12, head_dim=64, intermediate=3072, layers=12,
                 vocab=50257, tied=True, eps=1e-5, max_position=1024),
}

# What generation_config.json asks for in meta-llama/Llama-3.2-1B-Instruct, Qwen/Qwen3-0.6B and google/gemma-3-1b-it.
SAMPLING = {
    "llama": dict(do_sample=True, temperature=0.6, top_p=0.9),
    "qwen3": dict(do_sample=True, temperature=0.6, top_k=20, top_p=0.95),
    "gemma3": dict(do_sample=True, top_k=64, top_p=0.95),
    "gpt2": {},
}


def units(shape):
    """(std of the head, of the embedding, of the residual stream that enters the first layer)."""
    # The head sees a vector of unit rms times the final gain. A tied head has the embedding's scale, so that the
    # final gain makes up for an embedding asked small (which lets eps weigh in every norm).
    head_std = LOGIT_STD / math.sqrt(shape.hidden * (1 + GAIN_SPREAD ** 2))
    embedding_std = shape.embedding_std or (head_std if shape.tied else 1.0)
    return head_std, embedding_std, embedding_std * (math.sqrt(shape.hidden) if shape.family == "gemma3" else 1)


def norm(shape, name, size, mean=1.0, signs=False):
    """Gains `mean` +- 0.3 mean, and the shifts of a LayerNorm."""
    offset = 1.0 if shape.family == "gemma3" else 0.0
    yield Spec(name + ".weight", (size,), mean, abs(mean) * GAIN_SPREAD, offset, signs)
    if shape.family == "gpt2":
        yield Spec(name + ".bias", (size,), 0.0, GAIN_SPREAD)


def projections(shape):
    """Yields (name in a layer, [out, in], std) of the seven matrices, std chosen for an input of unit rms.

    Scores are a sum over head_dim of q*k / sqrt(head_dim), so q and k of std s give scores of std s^2. The sum over
    keys shrinks the attention's output, and silu(g)*u of unit g, u has rms about 0.6: the output matrices make up.
    """
    hidden, wide = shape.hidden, shape.heads * shape.head_dim
    narrow, inner = shape.kv_heads * shape.head_dim, shape.intermediate
    unit = 1 / math.sqrt(hidden * (1 + GAIN_SPREAD ** 2))
    yield "self_attn.q_proj", (wide, hidden), unit * math.sqrt(shape.score_std)
    yield "self_attn.k_proj", (narrow, hidden), unit * math.sqrt(shape.score_std)
    yield "self_attn.v_proj", (narrow, hidden), unit
    yield "self_attn.o_proj", (hidden, wide), RESIDUAL_PART / (0.6 * math.sqrt(wide))
    yield "mlp.gate_proj", (inner, hidden), unit
    yield "mlp.up_proj", (inner, hidden), unit
    yield "mlp.down_proj", (hidden, inner), RESIDUAL_PART / (0.6 * math.sqrt(inner))


def llama_layer(shape, residual_std):
    yield from norm(shape, "input_layernorm", shape.hidden)
    for name, size, std in projections(shape):
        adds = name.endswith(("o_proj", "down_proj"))
        yield Spec(name + ".weight", size, 0.0, std * residual_std if adds else std)
    yield from norm(shape, "post_attention_layernorm", shape.hidden)


def head_norms(shape):
    """Normed heads are of unit rms: the gains alone make scores of score_std."""
    gain = math.sqrt(shape.score_std * math.sqrt((shape.query_scalar or shape.head_dim) / shape.head_dim))
    yield from norm(shape, "self_attn.q_norm", shape.head_dim, gain)
    yield from norm(shape, "self_attn.k_norm", shape.head_dim, gain)


def qwen3_layer(shape, residual_std):
    yield from llama_layer(shape, residual_std)
    yield from head_norms(shape)


def gemma3_layer(shape, residual_std):
    yield from norm(shape, "input_layernorm", shape.hidden)
    for name, size, std in projections(shape):
        yield Spec(name + ".weight", size, 0.0, std)
    yield from head_norms(shape)
    yield from norm(shape, "post_attention_layernorm", shape.hidden, RESIDUAL_PART * residual_std)
    yield from norm(shape, "pre_feedforward_layernorm", shape.hidden)
    yield from norm(shape, "post_feedforward_layernorm", shape.hidden, RESIDUAL_PART * residual_std)


def gpt2_layer(shape, residual_std):
    """Matrices are stored [in, out]. One tensor holds q, k and v, so one std for the three."""
    stds = {name: std for name, _, std in projections(shape)}
    hidden, inner = shape.hidden, shape.intermediate
    yield from norm(shape, "ln_1", hidden)
    for name, size, std in (("attn.c_attn", (hidden, 3 * hidden), stds["self_attn.q_proj"]),
                            ("attn.c_proj", (hidden, hidden), stds["self_attn.o_proj"] * residual_std)):
        yield Spec(name + ".weight", size, 0.0, std)
        yield Spec(name + ".bias", size[1:], 0.0, GAIN_SPREAD * (residual_std if name.endswith("c_proj") else 1))
    yield from norm(shape, "ln_2", hidden)
    for name, size, std in (("mlp.c_fc", (hidden, inner), stds["mlp.up_proj"]),
                            ("mlp.c_proj", (inner, hidden), stds["mlp.down_proj"] * residual_std)):
        yield Spec(name + ".weight", size, 0.0, std)
        yield Spec(name + ".bias", size[1:], 0.0, GAIN_SPREAD * (residual_std if name.endswith("c_proj") else 1))


LAYERS = {"llama": llama_layer, "qwen3": qwen3_layer, "gemma3": gemma3_layer, "gpt2": gpt2_layer}


def specs(shape):
    """Yields every tensor in file order; the tied form has no lm_head.weight."""
    head_std, embedding_std, residual_std = units(shape)
    gpt2 = shape.family == "gpt2"
    prefix = "transformer." if gpt2 else "model."
    bare = "" if shape.no_prefix else prefix
    table = (shape.vocab, shape.hidden)
    yield Spec(bare + ("wte.weight" if gpt2 else "embed_tokens.weight"), table, 0.0, embedding_std)
    if gpt2:
        yield Spec(bare + "wpe.weight", (shape.max_position, shape.hidden), 0.0, embedding_std)
    for layer in range(shape.layers):
        for spec in LAYERS[shape.family](shape, residual_std):
            yield spec._replace(name="%s%s.%d.%s" % (bare, "h" if gpt2 else "layers", layer, spec.name))
    # Random signs, else a token's own embedding gives its own logit 10 sigma, and greedy text repeats one token.
    final_gain = head_std / embedding_std if shape.tied else 1.0
    yield from norm(shape, bare + ("ln_f" if gpt2 else "norm"), shape.hidden, final_gain, shape.tied)
    if not shape.tied:
        yield Spec("lm_head.weight", table, 0.0, head_std)


# ---- config.json ----------------------------------------------------------------------------------------------------


def rope_parameters(shape):
    """The rope section without theta: {} for the default kind."""
    if shape.rope == "llama3":
        return {"rope_type": "llama3", "factor": shape.rope_factor, "low_freq_factor": shape.rope_low,
                "high_freq_factor": shape.rope_high, "original_max_position_embeddings": shape.rope_original}
    if shape.rope == "linear":
        return {"rope_type": "linear", "factor": shape.rope_factor}
    return {}


def llama_config(shape):
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
        values["torch_dtype"] = shape.dtype
        values["transformers_version"] = "4.45.0"
    else:
        values["rope_parameters"] = {"rope_type": "default", "rope_theta": shape.rope_theta, **rope_parameters(shape)}
        values["dtype"] = shape.dtype
        values["transformers_version"] = "5.17.0"
    return values


def as_saved(config_class, shape, **values):
    """What transformers itself writes for a configuration of its own class."""
    values = config_class(vocab_size=shape.vocab, bos_token_id=0, tie_word_embeddings=shape.tied, dtype=shape.dtype,
                          architectures=[ARCHITECTURES[shape.family]], **values).to_dict()
    values.pop("_name_or_path", None)
    return values


def shared_sizes(shape):
    return dict(hidden_size=shape.hidden, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
                num_key_value_heads=shape.kv_heads, head_dim=shape.head_dim, intermediate_size=shape.intermediate,
                max_position_embeddings=shape.max_position, rms_norm_eps=shape.eps)


def qwen3_config(shape):
    from transformers import Qwen3Config
    values = as_saved(Qwen3Config, shape, eos_token_id=1, **shared_sizes(shape),
                      rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta,
                                       **rope_parameters(shape)})
    if shape.config_spelling == "old":
        for new in ("rope_parameters", "dtype", "layer_types"):
            values.pop(new)
        values.update(rope_theta=shape.rope_theta, rope_scaling=rope_parameters(shape) or None,
                      torch_dtype=shape.dtype, transformers_version="4.51.0")
    return values


def tied_key(shape):
    """What files of families whose head is tied by default leave out."""
    return ["tie_word_embeddings"] if shape.tied else []


def gemma3_config(shape):
    from transformers import Gemma3TextConfig
    rope = {"full_attention": {"rope_type": "default", "rope_theta": shape.rope_theta, **rope_parameters(shape)},
            "sliding_attention": {"rope_type": "default", "rope_theta": shape.rope_local_theta}}
    values = as_saved(Gemma3TextConfig, shape, eos_token_id=[1, shape.vocab - 1], **shared_sizes(shape),
                      query_pre_attn_scalar=shape.query_scalar or shape.head_dim, sliding_window=shape.window,
                      rope_parameters=rope)
    if shape.config_spelling == "old":  # as google/gemma-3-1b-pt: no key for the tied head, none for the layers' kinds
        for new in ["rope_parameters", "dtype", "layer_types", "use_bidirectional_attention"] + tied_key(shape):
            values.pop(new, None)
        values.update(rope_theta=shape.rope_theta, rope_scaling=rope_parameters(shape) or None,
                      rope_local_base_freq=shape.rope_local_theta, sliding_window_pattern=6, torch_dtype=shape.dtype,
                      transformers_version="4.50.0")
    return values


def gpt2_config(shape):
    from transformers import GPT2Config
    values = as_saved(GPT2Config, shape, eos_token_id=1, n_embd=shape.hidden, n_layer=shape.layers, n_head=shape.heads,
                      n_positions=shape.max_position, n_inner=shape.intermediate, layer_norm_epsilon=shape.eps,
                      activation_function=shape.activation)
    if shape.config_spelling == "old":  # as openai-community/gpt2: no key for the tied head or the dtype
        for new in ["dtype"] + tied_key(shape):
            values.pop(new, None)
        values.update(n_ctx=shape.max_position)
        if shape.intermediate == 4 * shape.hidden:
            values.pop("n_inner")
    return values


CONFIGS = {"llama": llama_config, "qwen3": qwen3_config, "gemma3": gemma3_config, "gpt2": gpt2_config}


def config(shape):
    """config.json in the old spelling (released checkpoints) or the new one (transformers 5)."""
    return dict(sorted(CONFIGS[shape.family](shape).items()))
