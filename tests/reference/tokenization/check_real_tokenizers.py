#!/usr/bin/env python3
"""Real vocabularies against their oracles: check_real_tokenizers.py FILES [--strings 10000] [--program PATH].

FILES is what real_tokenizers.py wrote. tokenizer.json: `tokenizers`, and the ids that llama.cpp has of the released
tokenizer; tokenizer.model: `sentencepiece`; tekken.json: `mistral-common`. Each text goes through as plain text, so that
no special token comes of it. Broken UTF-8 is read as U+FFFD. Exit 1 if anything differs.
"""

import argparse
import json
import logging
import pathlib
import random
import subprocess
import sys
import warnings

import compare_tokenizers
from compare_tokenizers import ROOT, Report, ours, strings_of
from make_tokenizer_goldens import CORPUS, INVALID, SCRIPTS

# These must be there, whatever the packages carry beside them.
EXPECTED = ["aquila", "baichuan", "baichuan-spm", "bert-bge", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2", "gpt-neox",
            "llama-bpe", "llama-spm", "llama-spm-spm", "mistral.v1", "mistral_instruct_mistral_240216.v2", "mistral_instruct_mistral_240323.v3",
            "mistral_instruct_mistral_241114.v7", "mistral_instruct_mistral_241114.v7m1",
            "mpt", "nomic-bert-moe", "nomic-bert-moe-spm", "phi-3", "phi-3-spm", "qwen2", "qwen35", "refact",
            "starcoder", "tekken_240718", "tekken_240911"]


class Pieces:
    """A tokenizer.model. Control pieces in the text are text, and no added token splits it."""

    def __init__(self, folder):
        import sentencepiece
        self.model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
        m = self.model
        self.texts = [i for i in range(m.get_piece_size()) if not m.is_control(i) and not m.is_unknown(i)]
        self.tokens = []

    def encode(self, texts):
        return self.model.encode(texts)

    def decode(self, sequences):
        return self.model.decode(sequences)

    def decodes(self, ids):
        """Not compared: the sign for unknown characters, and broken bytes, each of which is one U+FFFD there."""
        return all(not self.model.is_unknown(i) for i in ids)


class Tekken:
    def __init__(self, folder):
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
        self.model = Tekkenizer.from_file(folder / "tekken.json")
        self.texts = list(range(self.model.num_special_tokens, self.model.n_words))
        self.tokens = ["<s>", "[INST]", "[/INST]"]

    def encode(self, texts):
        return [self.model.encode(text, bos=False, eos=False) for text in texts]

    def decode(self, sequences):
        return [self.model.decode(ids) for ids in sequences]

    def decodes(self, ids):
        return True


def compare_with(oracle, program, folder, count, seed):
    rng = random.Random(seed)
    report = Report(folder.name)
    lines = [line for line in CORPUS.split("\n") if line] + list(SCRIPTS.values())
    texts = list(strings_of(rng, oracle.tokens, count - count // 4)) + [" ".join(rng.choices(lines, k=2)) for _ in range(count // 4)]
    texts = [text for text in texts if "\0" not in text]  # SentencePiece's Python ends there
    expected = oracle.encode(texts)
    found = [answer["ids"] for answer in ours(program, folder, [{"text": text} for text in texts])]
    report.compare("plain text", texts, found, expected)
    sequences = [ids for ids in expected if oracle.decodes(ids)]
    sequences += [[rng.choice(oracle.texts) for _ in range(rng.randint(1, 16))] for _ in range(count // 4)]
    found = [answer["text"] for answer in ours(program, folder, [{"ids": ids} for ids in sequences])]
    report.compare("decoded", sequences, found, oracle.decode(sequences))
    return report.differences


def compare_broken(encode, program, folder):
    """All kinds of broken UTF-8 in one text."""
    raw = b"\n".join(INVALID).replace(b"\0", b"")
    done = subprocess.run([program, "tokenize", "--model", str(folder)], input=raw, stdout=subprocess.PIPE, check=True)
    report = Report(folder.name)
    report.compare("broken UTF-8", [raw], [list(map(int, done.stdout.split(b",")))], [encode(raw.decode("utf-8", errors="replace"))])
    return report.differences


def compare_lines(program, folder):
    """llama.cpp's own lines, whose ids come from the released tokenizer."""
    if not (folder / "lines.inp").exists():
        return 0
    texts = (folder / "lines.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    expected = [list(map(int, line.split())) for line in (folder / "lines.out").read_text().split("\n")]
    texts, expected = texts[:len(expected)], expected[:len(texts)]
    report = Report(folder.name)
    found = [answer["ids"] for answer in ours(program, folder, [{"text": text} for text in texts], "--parse-special")]
    report.compare("llama.cpp's lines", texts, found, expected)
    return report.differences


def check(program, folder, count, seed):
    if (folder / "tokenizer.json").exists():
        from tokenizers import Tokenizer
        library = Tokenizer.from_file(str(folder / "tokenizer.json"))
        library.no_truncation()
        library.encode_special_tokens = True
        encode = lambda text: library.encode(text, add_special_tokens=False).ids
        differences = compare_tokenizers.compare(program, folder, count, seed)
    else:
        oracle = Tekken(folder) if (folder / "tekken.json").exists() else Pieces(folder)
        encode = lambda text: oracle.encode([text])[0]
        differences = compare_with(oracle, program, folder, count, seed)
    return differences + compare_broken(encode, program, folder) + compare_lines(program, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=pathlib.Path)
    parser.add_argument("--program", default=str(ROOT / "build" / "nodewright"))
    parser.add_argument("--strings", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", help="the name of one of them")
    options = parser.parse_args()
    missing = [name for name in EXPECTED if not (options.files / name).is_dir()]
    if missing:
        sys.exit(f"not there: {', '.join(missing)}")
    folders = [folder for folder in sorted(options.files.iterdir()) if not options.only or folder.name in options.only]
    differences = sum(check(options.program, folder, options.strings, options.seed) for folder in folders)
    print(f"{len(folders)} tokenizers, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
