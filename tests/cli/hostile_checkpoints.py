# Builds checkpoints that must be refused, from the sound ones of tests/golden/llama, in pure Python.
import json
import os
import shutil
import struct

from command import golden_model

SINGLE, SHARDED = "unaligned", "one_kv_head"  # golden models of one file and of 14
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def copy_model(name, folder):
    """A golden checkpoint without its reference logits, in a new folder."""
    shutil.copytree(golden_model(name), folder, ignore=shutil.ignore_patterns("*.npy", "cases.json"))
    for where, _, files in os.walk(folder):
        for file in files:
            os.chmod(os.path.join(where, file), 0o644)
    return folder


def read_bytes(folder, name):
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()


def write_bytes(folder, name, data):
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)


def change_json(folder, name, change):
    value = json.loads(read_bytes(folder, name))
    change(value)
    write_bytes(folder, name, json.dumps(value).encode())


def split_safetensors(data):
    """(header as an object, the bytes after it)."""
    (header_bytes,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + header_bytes]), data[8 + header_bytes:]


def join_safetensors(header, data):
    """`header`: an object, or text where it must be something that no object gives."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text)) + text + data


def change_header(folder, change, name=WEIGHTS):
    """`change(header)` changes the object, or returns text to take in its place."""
    header, data = split_safetensors(read_bytes(folder, name))
    changed = change(header)
    write_bytes(folder, name, join_safetensors(header if changed is None else changed, data))


def set_config(**values):
    return lambda folder: change_json(folder, "config.json", lambda config: config.update(values))


def set_field(tensor, field, value):
    return lambda folder: change_header(folder, lambda header: header[tensor].update({field: value}))


def cut_weights(size):
    """The first `size` bytes alone; a negative size cuts from the end."""
    return lambda folder: write_bytes(folder, WEIGHTS, read_bytes(folder, WEIGHTS)[:size])


def replace_file(name, data):
    return lambda folder: write_bytes(folder, name, data)


def remove_file(name):
    return lambda folder: os.remove(os.path.join(folder, name))


def rename_tensor(old, new):
    return lambda folder: change_header(folder, lambda header: header.update({new: header.pop(old)}))


def overlap_tensors(first, second):
    """`second` claims the bytes of `first`, which stands before it and has its size."""
    def change(header):
        header[second]["data_offsets"] = header[first]["data_offsets"]
    return lambda folder: change_header(folder, change)


def name_twice(tensor):
    def change(header):
        text = json.dumps(header)
        return text[:-1] + ", %s: %s}" % (json.dumps(tensor), json.dumps(header[tensor]))
    return lambda folder: change_header(folder, change)


def change_index(change):
    return lambda folder: change_json(folder, INDEX, lambda index: change(index["weight_map"]))


def plant_bf16(tensor, value):
    """Overwrites the first element of a tensor with a bf16 given as 16 bits."""
    def build(folder):
        data = bytearray(read_bytes(folder, WEIGHTS))
        header, _ = split_safetensors(bytes(data))
        at = 8 + struct.unpack("<Q", data[:8])[0] + header[tensor]["data_offsets"][0]
        data[at:at + 2] = struct.pack("<H", value)
        write_bytes(folder, WEIGHTS, bytes(data))
    return build


def make_fifo(name):
    def build(folder):
        os.remove(os.path.join(folder, name))
        os.mkfifo(os.path.join(folder, name))
    return build


def link_to(name, target):
    """Puts a symbolic link in the place of a file; None: one that names itself."""
    def build(folder):
        os.remove(os.path.join(folder, name))
        os.symlink(target or name, os.path.join(folder, name))
    return build


def make_folder(name):
    def build(folder):
        os.remove(os.path.join(folder, name))
        os.mkdir(os.path.join(folder, name))
    return build


Q, K = "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight"  # the same size in SINGLE
NORM, DOWN = "model.norm.weight", "model.layers.1.mlp.down_proj.weight"

# (name, golden model, what is done to its copy, words that the refusal must hold)
HOSTILE = [
    ("no_config", SINGLE, remove_file("config.json"), ["config.json"]),
    ("config_is_no_json", SINGLE, replace_file("config.json", b"hidden_size = 4"), ["config.json", "JSON"]),
    ("config_is_empty", SINGLE, replace_file("config.json", b""), ["config.json"]),
    ("config_is_a_list", SINGLE, replace_file("config.json", b"[1, 2]"), ["config.json", "array"]),
    ("config_nests_deeply", SINGLE, replace_file("config.json", b"[" * 100000), ["config.json"]),
    ("config_holds_a_zero_byte", SINGLE, replace_file("config.json", b"{}\0{}"), ["config.json", "zero"]),
    ("config_is_a_fifo", SINGLE, make_fifo("config.json"), ["config.json", "named pipe"]),
    ("config_is_a_folder", SINGLE, make_folder("config.json"), ["config.json", "it is a folder"]),
    ("config_links_to_itself", SINGLE, link_to("config.json", None), ["config.json"]),
    ("config_links_to_zeros", SINGLE, link_to("config.json", "/dev/zero"), ["config.json", "it is a device"]),
    ("config_of_a_terabyte", SINGLE, lambda f: os.truncate(os.path.join(f, "config.json"), 1 << 40),
     ["config.json", str(1 << 40)]),
    ("generation_config_is_a_fifo", SINGLE, make_fifo("generation_config.json"), ["generation_config.json"]),
    ("architecture_unknown", SINGLE, set_config(architectures=["BertModel"]), ["config.json", "BertModel"]),
    ("architecture_missing", SINGLE, set_config(architectures=None), ["config.json", "architectures"]),
    ("no_layers", SINGLE, set_config(num_hidden_layers=0), ["num_hidden_layers"]),
    ("heads_do_not_divide", SINGLE, set_config(num_key_value_heads=3), ["num_key_value_heads"]),
    ("hidden_size_negative", SINGLE, set_config(hidden_size=-100), ["hidden_size"]),
    ("vocab_beyond_numbers", SINGLE, set_config(vocab_size=2**63), ["vocab_size"]),
    ("hidden_size_is_text", SINGLE, set_config(hidden_size="100"), ["hidden_size"]),
    ("head_dim_odd", SINGLE, set_config(head_dim=21), ["head_dim"]),
    ("quantized", SINGLE, set_config(quantization_config={"bits": 4}), ["quantization_config"]),
    ("rope_unknown", SINGLE, set_config(rope_scaling={"rope_type": "mrope", "factor": 2.0}), ["mrope"]),
    ("rope_theta_nan", SINGLE, set_config(rope_theta=float("nan")), ["config.json"]),
    ("sizes_at_their_limits", SINGLE, set_config(hidden_size=1 << 20, vocab_size=1 << 24, num_hidden_layers=1 << 12,
                                                 intermediate_size=1 << 20), ["model.embed_tokens.weight", "1048576"]),
    ("rope_frequencies_infinite", SINGLE, set_config(rope_theta=1e-300), ["config.json", "rope_theta"]),
    ("layers_without_tensors", SINGLE, set_config(num_hidden_layers=4), ["model.layers.3."]),
    ("no_weights", SINGLE, remove_file(WEIGHTS), [WEIGHTS]),
    ("weights_empty", SINGLE, cut_weights(0), [WEIGHTS, "0 bytes"]),
    ("weights_end_in_the_prefix", SINGLE, cut_weights(5), [WEIGHTS, "5 bytes"]),
    ("weights_end_in_the_header", SINGLE, cut_weights(100), [WEIGHTS, "100"]),
    ("weights_truncated", SINGLE, cut_weights(-100), [WEIGHTS]),
    ("weights_too_long", SINGLE, lambda f: write_bytes(f, WEIGHTS, read_bytes(f, WEIGHTS) + b"\0" * 8), [WEIGHTS]),
    ("weights_are_a_fifo", SINGLE, make_fifo(WEIGHTS), [WEIGHTS]),
    ("weights_link_to_nowhere", SINGLE, link_to(WEIGHTS, "absent"), [WEIGHTS]),
    ("weights_link_to_zeros", SINGLE, link_to(WEIGHTS, "/dev/zero"), [WEIGHTS, "it is a device"]),
    ("weights_are_a_folder", SINGLE, make_folder(WEIGHTS), [WEIGHTS, "it is a folder"]),
    ("header_length_huge", SINGLE, replace_file(WEIGHTS, b"\xff" * 64), [WEIGHTS, str(2**64 - 1)]),
    ("header_is_no_json", SINGLE, replace_file(WEIGHTS, join_safetensors("{nonsense", b"")), [WEIGHTS, "JSON"]),
    ("tensors_overlap", SINGLE, overlap_tensors(K, Q), [WEIGHTS, "inside", "self_attn"]),
    ("offsets_backwards", SINGLE, set_field(NORM, "data_offsets", [200, 0]), [WEIGHTS, NORM]),
    ("offsets_huge", SINGLE, set_field(NORM, "data_offsets", [2**64 - 200, 2**64 - 1]), [WEIGHTS, NORM]),
    ("shape_overflows", SINGLE, set_field(NORM, "shape", [2**32, 2**32, 100]), [WEIGHTS, NORM]),
    ("shape_overflows_to_the_right_size", SINGLE, set_field(NORM, "shape", [2**63 + 50, 2]), [WEIGHTS, NORM]),
    ("shape_negative", SINGLE, set_field(NORM, "shape", [-100]), [WEIGHTS, NORM]),
    ("shape_fractional", SINGLE, set_field(NORM, "shape", [100.0]), [WEIGHTS, NORM]),
    ("shape_wrong", SINGLE, set_field(DOWN, "shape", [172, 100]), [WEIGHTS, DOWN, "[100, 172]", "[172, 100]"]),
    ("dtype_unknown", SINGLE, set_field(NORM, "dtype", "BF17"), [WEIGHTS, NORM, "BF17"]),
    ("dtype_of_integers", SINGLE, set_field(NORM, "dtype", "I16"), [NORM, "I16"]),
    ("tensor_twice", SINGLE, name_twice(NORM), [WEIGHTS, NORM]),
    ("tensor_missing", SINGLE, rename_tensor(DOWN, "other"), [DOWN]),
    ("tensor_name_breaks_the_line", SINGLE, rename_tensor(DOWN, "a\nb"), [DOWN]),
    ("shard_missing", SHARDED, remove_file("model-00005-of-00014.safetensors"), ["model-00005-of-00014.safetensors"]),
    ("shard_outside", SHARDED, change_index(lambda m: m.update({NORM: "../config.json"})), [INDEX, "../config.json"]),
    ("shard_without_its_tensor", SHARDED, change_index(lambda m: m.update({"ghost": min(m.values())})), [INDEX, "ghost"]),
    ("tensor_in_two_shards", SHARDED,
     lambda f: write_bytes(f, "model-00013-of-00014.safetensors", read_bytes(f, "model-00012-of-00014.safetensors")),
     ["model-00012-of-00014.safetensors", "model-00013-of-00014.safetensors"]),
    ("index_is_a_fifo", SHARDED, make_fifo(INDEX), [INDEX, "named pipe"]),
    ("shard_links_to_itself", SHARDED, link_to("model-00005-of-00014.safetensors", None),
     ["model-00005-of-00014.safetensors"]),
    ("index_is_no_json", SHARDED, replace_file(INDEX, b"{"), [INDEX, "JSON"]),
    ("weights_hold_a_nan", SINGLE, plant_bf16(NORM, 0x7fc0), ["logits", "NaN"]),
]
