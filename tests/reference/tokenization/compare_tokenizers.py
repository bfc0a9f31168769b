#!/usr/bin/env python3
"""Compares `nodewright tokenize` with the `tokenizers` library on random and adversarial strings, the library as judge.

For each tokenizer.json: ids of the strings as plain text, with special tokens parsed, and with what the post-processor
adds; the text of those ids and of random ids, with and without special tokens; whether a text survives the round trip
wherever it does in the library. Exit 1 if anything differs. One difference is meant and counted apart: with
ignore_merges the library makes a special token of a word that is spelled like one; plain text never does so here.

    compare_tokenizers.py --strings 100000                      the tokenizers in tests/golden/tokenizers
    compare_tokenizers.py --tokenizer DIR --strings 1000        any folder with a tokenizer.json
"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import unicodedata

from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden" / "tokenizers"

PLANES = [(0x0, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x2FFFF), (0x30000, 0x3FFFF), (0xE0000, 0xE0FFF), (0xF0000, 0x10FFFF)]
SPACES = [" ", "  ", "\t", "\n", "\r", "\r\n", "\v", "\f", "\x85", "\xa0", "\u1680", "\u2003", "\u2028", "\u2029", "\u202f", "\u3000",
          "\u200b", "\ufeff", "\u180e", "\x1c", "\x00"]
MARKS = [chr(c) for c in range(0x300, 0x370)] + ["\u0327", "\u0328", "\u0345", "\u05b0", "\u064b", "\u093c", "\u3099", "\u20dd", "\ufe0f", "\u200d"]
WORDS = ["the", " the", "don't", "IT'S", "we'Ll", "'\u017f", "hello", " world", "Straße", "naïve", "Привет", " мир", "你好", "日本語", "안녕", "שלום",
         "مرحبا", "नमस्ते", "1234567", "3.14", "x=1;", "\n    return", "😀", "👨‍👩‍👧‍👦", "🏳️‍🌈", "é", "e\u0301", "Å", "ﬁ", "½", "٣٤٥", "<0x41>", "▁", "▁▁", "Ġ"]


def strings_of(rng, tokens, count):
    """`count` strings: characters of all planes, of one script block, spaces, marks, runs, words, added tokens and their
    pieces, and mixtures. Lone surrogates have no UTF-8 and are left out."""

    def anything():
        low, high = rng.choice(PLANES)
        while True:
            c = rng.randint(low, high)
            if not 0xD800 <= c <= 0xDFFF:
                return chr(c)

    def block():
        start = rng.choice([0x20, 0xA0, 0x100, 0x370, 0x400, 0x590, 0x600, 0x900, 0xE00, 0x1100, 0x1E00, 0x2000, 0x2100, 0x3040, 0x4E00, 0xAC00,
                            0xF900, 0xFB00, 0x10400, 0x1D400, 0x1F300, 0x20000, 0x2F800, 0xE0100])
        return [chr(start + rng.randrange(96)) for _ in range(rng.randint(1, 24))]

    def token_piece():
        token = rng.choice(tokens) if tokens else "<x>"
        cut = rng.randint(0, len(token))
        return rng.choice([token, token, token[:cut], token[cut:], token.upper(), token + token])

    makers = [
        lambda: [anything() for _ in range(rng.randint(1, 24))],
        block,
        lambda: [rng.choice(SPACES) for _ in range(rng.randint(1, 16))],
        lambda: [rng.choice(SPACES + WORDS) for _ in range(rng.randint(1, 16))],
        lambda: [rng.choice("aeou가한ᄀ\u05d0か") + "".join(rng.choice(MARKS) for _ in range(rng.randint(0, 6))) for _ in range(rng.randint(1, 6))],
        lambda: [rng.choice(SPACES + WORDS + ["-", "=", "!", "\u0301"]) * rng.choice([2, 3, 7, 31, 64, 200])],
        lambda: [token_piece() for _ in range(rng.randint(1, 6))],
        lambda: [rng.choice([token_piece, anything, lambda: rng.choice(SPACES), lambda: rng.choice(WORDS)])() for _ in range(rng.randint(1, 20))],
        lambda: [unicodedata.normalize(rng.choice(["NFC", "NFD", "NFKC", "NFKD"]), "".join(block()))],
    ]
    for i in range(count):
        yield "".join(makers[i % len(makers)]())


def ours(program, folder, questions, *flags):
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    done = subprocess.run([program, "tokenize", "--model", str(folder), "--batch", *flags], input=lines.encode(), stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Report:
    def __init__(self, name):
        self.name, self.differences = name, 0

    def compare(self, what, questions, found, expected, meant=lambda i: False):
        wrong = [i for i in range(len(questions)) if found[i] != expected[i]]
        apart = [i for i in wrong if meant(i)]
        wrong = [i for i in wrong if not meant(i)]
        self.differences += len(wrong)
        print(f"{self.name:10} {what:38} {len(questions):7} {'equal' if not wrong else f'{len(wrong)} DIFFER'}"
              f"{f', {len(apart)} special in the library only' if apart else ''}", flush=True)
        for i in wrong[:5]:
            print(f"    {questions[i]!r}\n      ours     {found[i]!r}\n      library  {expected[i]!r}")


def compare(program, folder, count, seed):
    rng = random.Random(seed)
    library = Tokenizer.from_file(str(folder / "tokenizer.json"))
    library.no_truncation()  # as transformers does
    library.no_padding()
    added = library.get_added_tokens_decoder()
    tokens = [token.content for token in added.values()]
    report = Report(folder.name)
    texts = list(strings_of(rng, tokens, count))
    questions = [{"text": text} for text in texts]

    def ids_of(encode_special, add_special):
        library.encode_special_tokens = encode_special
        return [encoding.ids for encoding in library.encode_batch(texts, add_special_tokens=add_special)]

    plain, parsed, whole = ids_of(True, False), ids_of(False, False), ids_of(False, True)
    for what, flags, expected in (("plain text", [], plain), ("special tokens parsed", ["--parse-special"], parsed),
                                  ("with the post-processor", ["--parse-special", "--add-special"], whole)):
        found = [answer["ids"] for answer in ours(program, folder, questions, *flags)]
        report.compare(what, texts, found, expected, lambda i: not flags and any(
            token.special and id in expected[i] and token.content in texts[i] for id, token in added.items()))

    size = library.get_vocab_size()
    known = [id for id in range(size + 64) if library.id_to_token(id) is not None]
    sequences = whole + [[rng.choice(known) for _ in range(rng.randint(1, 16))] for _ in range(count // 4)]
    questions = [{"ids": ids} for ids in sequences]
    decoded = {}
    for what, flags, skip in (("decoded, special tokens kept", [], False), ("decoded, special tokens skipped", ["--skip-special"], True)):
        expected = library.decode_batch(sequences, skip_special_tokens=skip)
        decoded[skip] = [answer["text"] for answer in ours(program, folder, questions, *flags)]
        report.compare(what, sequences, decoded[skip], expected)

    survives = [i for i, text in enumerate(texts) if library.decode(plain[i], skip_special_tokens=False) == text]
    kept = ours(program, folder, [{"ids": plain[i]} for i in survives])
    report.compare("round trips that the library's do", [texts[i] for i in survives], [answer["text"] for answer in kept], [texts[i] for i in survives])
    return report.differences


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build" / "nodewright"))
    parser.add_argument("--tokenizer", type=pathlib.Path, action="append", help="a folder with tokenizer.json (default: all in tests/golden/tokenizers)")
    parser.add_argument("--strings", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folders = options.tokenizer or sorted(path.parent for path in GOLDEN.glob("*/tokenizer.json"))
    return 1 if sum(compare(options.program, folder, options.strings, options.seed) for folder in folders) else 0


if __name__ == "__main__":
    sys.exit(main())
