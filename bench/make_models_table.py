#!/usr/bin/env python3
# Writes the tables of docs/models.md and docs/adapters.md that have figures, each between its two marks, from
# tests/golden/parity.json and bench/results/: what each architecture has and how fast it is, formats of weights, a mixture
# beside transformers, what adapters cost and whether loading them disturbs others. With --check it only says whether the pages are as it would write them.
import json
import os
import re
import statistics
import sys
import textwrap

sys.dont_write_bytecode = True
import measurements

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
RESULTS = os.path.join(ROOT, "bench", "results")
MARKED = re.compile(r"(<!-- table: bench/make_models_table.py (\w+) -->\n).*?(<!-- end of the table -->\n)", re.S)

# architecture, released models, what it has, goldens, the shapes that were timed
FAMILIES = [
    ("LlamaForCausalLM", "Llama 2 and 3, SmolLM2, Falcon3, Yi, DeepSeek-R1-Distill-Llama",
     "RMSNorm, SwiGLU, biases if asked for", "llama/*", ["llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b", "falcon3-3b"]),
    ("MistralForCausalLM, MinistralForCausalLM", "Mistral 7B, Nemo, Ministral", "windows", "mistral/*", ["mistral-7b-v0.3"]),
    ("Qwen2ForCausalLM", "Qwen2, Qwen2.5, DeepSeek-R1-Distill-Qwen", "biases of q, k and v", "qwen2/*",
     ["qwen2.5-1.5b", "qwen2.5-7b"]),
    ("Qwen3ForCausalLM", "Qwen3", "q and k normed by head", "qwen3/*", ["qwen3-4b"]),
    ("Qwen3MoeForCausalLM", "Qwen3-30B-A3B", "experts, q and k normed by head", "qwen3_moe/*", ["qwen3-30b-a3b"]),
    ("OlmoeForCausalLM", "OLMoE", "experts, q and k normed over all heads", "olmoe/*", ["olmoe-1b-7b"]),
    ("MixtralForCausalLM", "Mixtral", "experts", "mixtral/*", []),
    ("Phi3ForCausalLM", "Phi-3 mini, Phi-4, Phi-4-mini", "fused tensors, heads that turn in part, longrope", "phi3/*",
     ["phi-4-mini", "phi-4"]),
    ("GraniteForCausalLM", "Granite 3", "four multipliers", "granite/*", ["granite-3.1-2b"]),
    ("SmolLM3ForCausalLM", "SmolLM3", "layers that do not rotate", "smollm3/*", ["smollm3-3b"]),
    ("ExaoneForCausalLM", "EXAONE 3, 3.5", "names of its own", "exaone/*", ["exaone-3.5-2.4b"]),
    ("Exaone4ForCausalLM", "EXAONE 4", "norms after the blocks, layers that do not rotate", "exaone4/*",
     ["exaone-4.0-1.2b"]),
    ("Olmo2ForCausalLM", "OLMo 2", "norms after the blocks, q and k normed over all heads", "olmo2/*", ["olmo-2-1b"]),
    ("GemmaForCausalLM", "Gemma", "1 + w norms, scaled embedding, GeGLU", "gemma/*", []),
    ("Gemma2ForCausalLM", "Gemma 2", "norms on both sides, capped scores and logits, windows", "gemma2/*", ["gemma-2-2b"]),
    ("Gemma3ForCausalLM, Gemma3ForConditionalGeneration", "Gemma 3; of 4B and larger the text part",
     "norms on both sides, q and k normed by head, windows, two rotations", "gemma3/*", ["gemma-3-1b", "gemma-3-4b"]),
    ("GPT2LMHeadModel", "GPT-2, nanoGPT", "LayerNorm, biases, learned positions, no gate", "gpt2/*", []),
    ("GPTNeoXForCausalLM", "GPT-NeoX, Pythia", "LayerNorm, biases, parallel blocks, heads that turn in part", "gpt_neox/*",
     ["pythia-1.4b"]),
    ("Starcoder2ForCausalLM", "StarCoder2", "LayerNorm, biases, no gate, windows", "starcoder2/*", ["starcoder2-3b"]),
    ("StableLmForCausalLM", "StableLM 2, 3B", "LayerNorm, heads that turn in part, parallel blocks if asked for", "stablelm/*",
     ["stablelm-2-1.6b"]),
    ("CohereForCausalLM, Cohere2ForCausalLM", "Command R, Command R7B",
     "LayerNorm without shift, parallel blocks, neighbours turn, scaled logits", "cohere*", ["command-r7b"]),
]

# quantized weights: who stores them so, quant_method, what is read, what of it layers keep on the device, goldens in
# tests/golden/formats
FORMATS = [
    ("FP8, as Qwen and DeepSeek publish it", ["fp8"],
     "E4M3 with `weight_scale_inv` (a factor) for each block, in any float type, or one for a matrix",
     "FP8; bf16 where blocks are not 128 x 128", ["fp8_*"]),
    ("compressed-tensors", ["compressed-tensors"],
     "FP8 for each matrix, row, group or block; int8; packed integers of 1, 2, 4 or 8 bits with or without zeros, in groups or "
     "rows, also ordered by `weight_g_idx`; NVFP4; MXFP4; several of them by `targets` and `ignore`, with `re:` patterns",
     "FP8 of matrices, rows and blocks of 128 x 128; int4; else bf16", ["ct_*"]),
    ("ModelOpt", ["modelopt", "modelopt_fp4"], "FP8, NVFP4; also with `hf_quant_config.json` alone", "FP8; NVFP4 becomes bf16", ["modelopt_*"]),
    ("GPTQ", ["gptq"], "versions 1 and 2; 2, 4 and 8 bits; any `desc_act`; `dynamic` changes of bits and groups",
     "int4 in the order of columns; else bf16", ["gptq*"]),
    ("AWQ", ["awq"], "version `gemm`", "int4", ["awq"]),
    ("auto-round", ["auto-round", "intel/auto-round"],
     "the integers of GPTQ, both versions, and of AWQ; `extra_config` by name and by pattern",
     "int4; else bf16", ["auto_round*"]),
    ("bitsandbytes", ["bitsandbytes"], "nf4 and fp4, blocks of any size, scales quantized or not, any storage type", "bf16", ["bnb_*"]),
    ("gpt-oss", ["mxfp4"], "MXFP4 blocks of experts; the family itself is not read", "bf16", []),
]


def newest(kind, folder):
    """The latest file of bench/results whose name ends with the kind, and what it holds."""
    name = sorted(name for name in os.listdir(folder) if name.endswith("-%s.json" % kind))[-1]
    with open(os.path.join(folder, name)) as file:
        return name, json.load(file)


def prose(text):
    return textwrap.wrap(text, 120, break_on_hyphens=False)


def card(found):
    """"H100" of the name that the driver gives it."""
    return re.search(r"\b[A-Z]+\d+\b", found["gpu"])[0]


def errors(parity, pattern):
    """The least and the largest error of steps of one row over the goldens of a family, in percent."""
    prefix = pattern.rstrip("*")
    of = [error for golden, forms in parity.items() if golden.startswith(prefix) for error in forms["one_row"]]
    low, high = "%.1f" % min(of), "%.1f" % max(of)
    return "%s %%" % low if low == high else "%s to %s %%" % (low, high)


def measured(folder):
    """The lines of each shape by rows, of several files the last one's, and the words that name the files."""
    shapes, about = {}, []
    for kind in ("families", "mixtures", "tuned"):
        name, found = newest(kind, folder)
        for shape, model in found["models"].items():
            shapes.setdefault(shape, {}).update(
                (line["batch"], {**line, "share_of_read_bandwidth": measurements.decode_share(shape, line)})
                for line in model["lines"])
        about.append("%s, %s, commit %s: `bench/results/%s`" % (found["gpu"], found["date"], found["commit"], name))
    return shapes, about


def share(line):
    return "%.0f %%" % (100 * line["share_of_read_bandwidth"])


def speeds(shapes, names):
    """"qwen2.5-7b 185 (83 %)" of each shape: tokens/s of a step of one row, and its share of the read bandwidth."""
    texts = ["%s %.0f (%s)" % (name, 1e3 / shapes[name][1]["step_ms"]["median"], share(shapes[name][1])) for name in names]
    return ", ".join(texts) or "not timed"


def families(folder):
    with open(os.path.join(ROOT, "tests", "golden", "parity.json")) as file:
        parity = json.load(file)["percent"]
    shapes, about = measured(folder)
    lines = ["| `architectures` | released as | what it has | error, CPU driver | tokens/s of one row, 1024 keys (share of "
             "the read bandwidth) |", "|---|---|---|---|---|"]
    for architectures, released, features, pattern, timed in FAMILIES:
        names = ", ".join("`%s`" % architecture for architecture in architectures.split(", "))
        lines.append("| %s | %s | %s | %s on `%s` | %s |" % (names, released, features, errors(parity, pattern), pattern,
                                                          speeds(shapes, timed)))
    return "\n".join(lines) + ("\n\nTokens/s are of released shapes with drawn weights (`--load-format dummy`) on one of each:\n%s.\n"
                              % ";\n".join(about))


def formats(_):
    """Formats of safetensors folders, with the errors of their goldens, and the types of GGUF files."""
    with open(os.path.join(ROOT, "tests", "golden", "parity.json")) as file:
        parity = json.load(file)["percent"]
    lines = ["| stored by | `quant_method` | what is read | on the device | error, CPU driver |", "|---|---|---|---|---|"]
    for who, methods, read, kept, goldens in FORMATS:
        of = ", ".join("%s on `formats/%s`" % (errors(parity, "formats/" + pattern), pattern) for pattern in goldens)
        lines.append("| %s | %s | %s | %s | %s |"
                     % (who, ", ".join("`%s`" % method for method in methods), read, kept, of or "bits only"))
    lines.append("| GGUF | none: `--model FILE.gguf` | %s; split files by the name of the first | codes of 4 or 8 bits; MXFP4 and floats bf16 | bits only |"
                 % ", ".join(gguf_types()))
    return "\n".join(lines) + "\n"


def gguf_types():
    """The types that base/gguf_file.cpp lists, less the integers, which are no weights."""
    with open(os.path.join(ROOT, "base", "gguf_file.cpp")) as file:
        table = re.search(r"kTypes = \{\{(.*?)\}\};", file.read(), re.S)[1]
    return [name for name in re.findall(r'"(\w+)"', table) if not re.fullmatch(r"I\d+", name)]


def by_rows(folder):
    """Steps of every shape that was timed, by rows."""
    shapes, _ = measured(folder)
    rows = (1, 8, 32)
    lines = ["| step, ms (share) | " + " | ".join(counted(n) for n in rows) + " |", "|" + "---|" * (1 + len(rows))]
    lines += ["| %s | %s |" % (shape, " | ".join(step(of[n]) for n in rows)) for shape, of in sorted(shapes.items())]
    return "\n".join(lines) + "\n"


def counted(rows):
    return "1 row" if rows == 1 else "%d rows" % rows


def step(line):
    return "%#.3g (%s)" % (line["step_ms"]["median"], share(line))


def mixture(folder):
    """Steps of Qwen3-30B-A3B by rows, here and in each form of transformers that ran."""
    name, found = newest("mixtures", folder)
    ours = {line["batch"]: line for line in found["models"]["qwen3-30b-a3b"]["lines"]}
    peers = {peer["batch"]: peer for peer in found["peers"]["qwen3-30b-a3b"]}
    versions = peers[min(peers)]["versions"]
    short = {library: ".".join(versions[library].split(".")[:2]) for library in ("transformers", "torch")}
    lines = [*prose("Qwen3-30B-A3B with drawn weights beside `transformers` %s (torch %s, its own grouped products), one %s, "
                    "1024 keys, commit %s (`bench/results/%s`); shares are of the bytes that rows read which choose evenly:"
                    % (short["transformers"], short["torch"], card(found), found["commit"], name)), "",
             "| step, ms | " + " | ".join(counted(rows) for rows in sorted(ours)) + " |",
             "|" + "---|" * (1 + len(ours)),
             "| nodewright | " + " | ".join(step(ours[rows]) for rows in sorted(ours)) + " |"]
    for form, words in (("torch.cuda.graph", "under a CUDA graph"), ("eager", "eager")):
        cells = ["%.1f" % peers[rows]["step_ms"][form]["median"] if rows in peers else "" for rows in sorted(ours)]
        comma = ", " if form == "eager" else " "
        lines.append(("| `transformers`%s%s | %s |" % (comma, words, " | ".join(cells))).replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


def step_ms(lines, rows, rank):
    """The mean of the medians of a step that was timed several times."""
    return statistics.mean(line["step_ms"]["median"] for line in lines
                           if line["batch"] == rows and line["adapter_rank"] == rank)


def adapters(folder):
    """Steps with and without an adapter in each row, and steps without one beside room for some."""
    name, found = newest("adapters", folder)
    lines, room = found["lines"], found["no_row_has_one"]["lines"]
    rank = max(line["adapter_rank"] for line in lines)
    out = [*prose("Llama-3.2-3B, adapters of rank %d on all seven matrices of each layer, %d keys, one %s, commit %s "
                  "(`bench/results/%s`; `nodewright bench decode --adapter-rank 0 %d`):"
                  % (rank, lines[0]["context"], card(found), found["commit"], name, rank)), "",
           "| rows, each with an adapter | without, ms | with, ms | more |", "|---|---|---|---|"]
    for rows in sorted({line["batch"] for line in lines}):
        without, with_one = (step_ms(lines, rows, r) for r in (0, rank))
        out.append("| %d | %.3f | %.3f | %.0f %% |" % (rows, without, with_one, 100 * (with_one / without - 1)))
    out += ["", *prose("A step of one row without an adapter took %.3f ms with room for adapters and %.3f without."
                       % (step_ms(room, 1, rank), step_ms(room, 1, 0)))]
    return "\n".join(out) + "\n"


def loading(folder):
    """The largest gaps of streams, and between steps, while adapters come and go beside them; a line for each form."""
    name, found = newest("adapter-gap", folder)
    limit_ms, first = 5, found["forms"][0]["rounds"]
    out = [*prose("%d streams of Llama-3.2-3B, beside which an adapter of rank 16 on all seven matrices (%.0f MB) was loaded and "
                  "unloaded %d times, one %s, commit %s (`bench/results/%s`); the largest gap between two events of a stream, "
                  "and between two steps of the engine:"
                  % (first[0]["streams_whole"], found["adapter_bytes"] / 1e6, sum(len(turn["load_ms"]) for turn in first),
                     card(found), found["commit"], name)), "",
           "| ms | streams, calm | during loads | during unloads | steps, beside both | a load takes |",
           "|---|---|---|---|---|---|"]
    for form in found["forms"]:
        turns = form["rounds"]
        gaps = [max(turn[when]["largest_ms"] for turn in turns) for when in ("before", "loads", "unloads")]
        gaps.append(max(turn["steps"]["from_first_load_to_last_unload"]["largest_ms"] for turn in turns))
        out.append("| %s | %s | %.0f |" % (form["form"], " | ".join("%.1f" % gap for gap in gaps),
                                          statistics.median(sum((turn["load_ms"] for turn in turns), []))))
    turns = found["forms"][-1]["rounds"]
    late = [gap > limit_ms for turn in turns for when in ("load", "unload") for gap in turn["largest_of_each_%s_ms" % when]]
    out += ["", *prose("Streams waited more than %d ms in %d of %d loads and unloads in the last form, which is the engine's."
                       % (limit_ms, sum(late), len(late)))]
    return "\n".join(out) + "\n"


# page: its tables by the names in their marks
PAGES = {"docs/models.md": {"families": families, "rows": by_rows, "mixture": mixture, "formats": formats}, "docs/adapters.md": {"adapters": adapters, "loading": loading}}


def written(page, text, folder=RESULTS):
    """The page with its tables as the results have them."""
    tables = PAGES[page]
    found = [match[2] for match in MARKED.finditer(text)]
    if sorted(found) != sorted(tables):
        raise ValueError("%s has marks of the tables %s, expected %s" % (page, found, sorted(tables)))
    return MARKED.sub(lambda match: match[1] + tables[match[2]](folder) + match[3], text)


def main():
    stale = []
    for page in PAGES:
        path = os.path.join(ROOT, page)
        with open(path) as file:
            text = file.read()
        wanted = written(page, text)
        if text != wanted and "--check" in sys.argv[1:]:
            stale.append(page)
        elif text != wanted:
            with open(path, "w") as file:
                file.write(wanted)
    if stale:
        sys.exit("%s: not what bench/make_models_table.py writes; run it" % ", ".join(stale))


if __name__ == "__main__":
    main()
