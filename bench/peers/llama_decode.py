# Times llama.cpp's decode step beside ours on one GGUF file: greedy, one token a row at about `context` keys. Draws the
# file where there is none: blocks of random codes whose weights are about 0.02 in size, in the types that llama.cpp's
# quantizer gives the matrices of a Llama.
#
#   python3 bench/peers/llama_decode.py --nodewright build/nodewright --llama FOLDER --config config.json --type Q4_K_M \
#       --model /tmp/drawn.gguf --batch 1 8 --out llama.json
#
# FOLDER has llama-bench and llama-batched-bench, built with CUDA. Needs `pip install gguf numpy`; no network.
import argparse
import datetime
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys

import gguf
import numpy
from gguf import GGMLQuantizationType as Type

import compare_decode as ours

WEIGHT = 0.02                       # about the size of a drawn weight
DRAWN_BYTES = 1 << 24               # of random blocks that repeat in a matrix
FILE_TYPES = {"Q8_0": 7, "Q4_0": 2, "Q4_K_M": 15}
STEPS = 64


def type_of(name, layer, layers, file_type):
    """As llama.cpp's quantizer chooses: Q4_K_M has the head and half of the values and of `down` in Q6_K."""
    if file_type != "Q4_K_M":
        return Type[file_type]
    more = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
    return Type.Q6_K if name == "head" or (more and name in ("attn_v", "ffn_down")) else Type.Q4_K


def blocks(random, kind, rows, cols):
    """[rows, bytes of a row]."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    count = rows * cols // elements
    data = random.integers(0, 256, (min(count, DRAWN_BYTES // size), size), dtype=numpy.uint8)

    def factor(at, value):
        data[:, at:at + 2] = numpy.full(len(data), value, numpy.float16).reshape(-1, 1).view(numpy.uint8)

    if kind == Type.Q8_0:
        factor(0, WEIGHT / 64)
    elif kind == Type.Q4_0:
        factor(0, WEIGHT / 4)
    elif kind == Type.Q4_K:  # scales and minima of 0 to 63, codes of 0 to 15
        factor(0, WEIGHT / 128)
        factor(2, WEIGHT / 128 * 7.5)
    else:                    # Q6_K: scales of -128 to 127, codes of -32 to 31
        factor(208, WEIGHT / 1024)
    return numpy.resize(data, (count, size)).reshape(rows, -1)


def draw(config, file_type, path):
    hidden, layers, inner = config["hidden_size"], config["num_hidden_layers"], config["intermediate_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    writer = gguf.GGUFWriter(path, "llama", use_temp_file=False)
    writer.add_context_length(min(config["max_position_embeddings"], 8192))
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(float(config.get("rope_theta", 10000)))
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(FILE_TYPES[file_type])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(["t", "0"] + ["t%d" % i for i in range(config["vocab_size"] - 2)])
    writer.add_token_types([1] * config["vocab_size"])
    writer.add_token_merges(["t 0"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    random = numpy.random.default_rng(1)

    def matrix(name, rows, cols, part, layer=0):
        kind = type_of(part, layer, layers, file_type)
        writer.add_tensor(name + ".weight", blocks(random, kind, rows, cols), raw_dtype=kind)

    def norm(name):
        writer.add_tensor(name + ".weight", numpy.ones(hidden, numpy.float32))

    tied = config.get("tie_word_embeddings", False)
    matrix("token_embd", config["vocab_size"], hidden, "head" if tied else "embedding")
    for layer in range(layers):
        for part, rows, cols in (("attn_q", heads * head_dim, hidden), ("attn_k", kv_heads * head_dim, hidden),
                                 ("attn_v", kv_heads * head_dim, hidden), ("attn_output", hidden, heads * head_dim),
                                 ("ffn_gate", inner, hidden), ("ffn_up", inner, hidden), ("ffn_down", hidden, inner)):
            matrix("blk.%d.%s" % (layer, part), rows, cols, part, layer)
        norm("blk.%d.attn_norm" % layer)
        norm("blk.%d.ffn_norm" % layer)
    norm("output_norm")
    if not tied:
        matrix("output", config["vocab_size"], hidden, "head")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}\nended with {done.returncode}:\n{(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def llama_ms(folder, model, batch, context):
    """A step of llama.cpp, in ms."""
    if batch == 1:
        command = [os.path.join(folder, "llama-bench"), "-m", model, "-ngl", "99", "-fa", "1", "-p", "0", "-n", str(STEPS),
                   "-d", str(context), "-r", "2", "-o", "json"]
        return 1e3 / json.loads(output_of(command))[0]["avg_ts"]
    command = [os.path.join(folder, "llama-batched-bench"), "-m", model, "-ngl", "99", "-fa", "on", "-c",
               str(batch * (context + STEPS)), "-npp", str(context), "-ntg", str(STEPS), "-npl", str(batch),
               "--output-format", "jsonl"]
    lines = [json.loads(line) for line in output_of(command).splitlines() if line.startswith("{")]
    return 1e3 * batch / lines[-1]["speed_tg"]


def main():
    parser = argparse.ArgumentParser(description="Compares a decode step of Nodewright with llama.cpp's.")
    parser.add_argument("--nodewright", required=True, help="the program")
    parser.add_argument("--llama", required=True, help="folder of llama-bench and llama-batched-bench")
    parser.add_argument("--config", required=True, help="config.json of a Llama")
    parser.add_argument("--type", choices=FILE_TYPES, default="Q8_0")
    parser.add_argument("--model", required=True, help="GGUF file, drawn where there is none")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    if not os.path.exists(options.model):
        draw(json.loads(pathlib.Path(options.config).read_text()), options.type, options.model)
    report = {"gpu": ours.gpu(), "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
              "commit": ours.words_of(["git", "rev-parse", "--short", "HEAD"]), "command": shlex.join(["python3", *sys.argv]),
              "model": pathlib.Path(options.config).stem, "type": options.type, "context": options.context, "lines": []}
    everything = options.batch
    for batch in everything:
        options.batch = batch
        mine, theirs = [], []
        for _ in range(options.rounds):
            mine.append(ours.run_nodewright(options)["step_ms"]["median"])
            theirs.append(llama_ms(options.llama, options.model, batch, options.context))
        line = {"batch": batch, "nodewright_ms": mine, "llama_cpp_ms": theirs,
                "times_ours": statistics.median(theirs) / statistics.median(mine)}
        report["lines"].append(line)
        print("%d rows: nodewright %.4f ms, llama.cpp %.4f ms, %.2f times as long"
              % (batch, statistics.median(mine), statistics.median(theirs), line["times_ours"]), flush=True)
        with open(options.out, "w") as file:
            json.dump(report, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
