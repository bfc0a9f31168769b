#!/usr/bin/env python3
# Writes the table of docs/models.md between its two marks: each architecture, what was compared with transformers, the
# error of steps of one row, and tokens/s of one row of a released shape with drawn weights, from tests/golden/parity.json
# and bench/results/. With --check it only says whether the page is as it would write it.
import json
import os
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PAGE = os.path.join(ROOT, "docs", "models.md")
BEGIN, END = "<!-- table: bench/make_models_table.py -->\n", "<!-- end of the table -->\n"

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
    ("Exaone4ForCausalLM", "EXAONE 4", "norms behind the blocks, layers that do not rotate", "exaone4/*",
     ["exaone-4.0-1.2b"]),
    ("Olmo2ForCausalLM", "OLMo 2", "norms behind the blocks, q and k normed over all heads", "olmo2/*", ["olmo-2-1b"]),
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


def errors(parity, pattern):
    """The least and the largest error of steps of one row over the goldens of a family, in percent."""
    prefix = pattern.rstrip("*")
    of = [error for golden, forms in parity.items() if golden.startswith(prefix) for error in forms["one_row"]]
    return "%.1f to %.1f %%" % (min(of), max(of))


def speeds(figures, shapes):
    """"qwen2.5-7b 185 (83 %)" of each shape: tokens/s of a step of one row, and its share of the read bandwidth."""
    texts = []
    for shape in shapes:
        for line in figures.get(shape, {}).get("lines", []):
            if line["batch"] == 1:
                texts.append("%s %.0f (%.0f %%)" % (shape, 1e3 / line["step_ms"]["median"],
                                                   100 * line["share_of_read_bandwidth"]))
    return ", ".join(texts) or "not timed"


def table():
    with open(os.path.join(ROOT, "tests", "golden", "parity.json")) as file:
        parity = json.load(file)["percent"]
    results = os.path.join(ROOT, "bench", "results")
    models, about = {}, []
    for kind in ("families", "mixtures"):
        name = sorted(n for n in os.listdir(results) if n.endswith("-%s.json" % kind))[-1]
        with open(os.path.join(results, name)) as file:
            found = json.load(file)
        models.update(found["models"])
        about.append("%s, %s, commit %s: `bench/results/%s`" % (found["gpu"], found["date"], found["commit"], name))
    lines = ["| `architectures` | released as | what it has | error, CPU driver | tokens/s of one row, 1024 keys (share of "
             "the read bandwidth) |", "|---|---|---|---|---|"]
    for architectures, released, features, pattern, shapes in FAMILIES:
        names = ", ".join("`%s`" % architecture for architecture in architectures.split(", "))
        lines.append("| %s | %s | %s | %s on `%s` | %s |" % (names, released, features, errors(parity, pattern), pattern,
                                                          speeds(models, shapes)))
    return "\n".join(lines) + ("\n\nTokens/s are of released shapes with drawn weights (`--load-format dummy`) on one of each:\n%s.\n"
                              % ";\n".join(about))


def main():
    with open(PAGE) as file:
        page = file.read()
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    wanted = page[:begin] + table() + page[end:]
    if "--check" in sys.argv[1:]:
        if page != wanted:
            sys.exit("docs/models.md is not what bench/make_models_table.py writes: run it")
        return
    with open(PAGE, "w") as file:
        file.write(wanted)


if __name__ == "__main__":
    main()
