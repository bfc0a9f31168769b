#!/usr/bin/env python3
"""Tokenizers of released models, made from what two packages of PyPI carry: real_tokenizers.py PACKAGES OUT.

PACKAGES is a folder with the sdist of llama-cpp-python, OUT gets a folder for each tokenizer. The vocabularies of
llama.cpp (ggml-vocab-*.gguf) become the tokenizer.json that their family has; those of SentencePiece a tokenizer.model,
too. The files of mistral-common are copied as they are. Nothing of it may be committed here.
"""

import base64
import json
import pathlib
import shutil
import sys
import tarfile

from proto_message import field

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # token types of GGUF and SentencePiece


def sequence(kind, *parts):
    return {"type": "Sequence", kind: list(parts)}


def split(pattern, behavior="Isolated", kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": False}


def byte_level(**flags):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True, **flags}


def digits(single):
    return {"type": "Digits", "individual_digits": single}


def replace(before, after, kind="String"):
    return {"type": "Replace", "pattern": {kind: before}, "content": after}


def words(*patterns):
    return sequence("pretokenizers", *patterns, byte_level(use_regex=False))


def letters_of_deepseek(source):
    """The second expression of DeepSeek-LLM, a list of all cased letters, from llama.cpp's own source."""
    start = source.index("case LLAMA_VOCAB_PRE_TYPE_DEEPSEEK_LLM:")
    line = source[start:].splitlines()[3].strip()
    assert line.startswith('"\\\\s?[A-Za-z') and line.endswith(']+",'), line[:40]
    return line[1:-2].replace("\\\\", "\\")


NFC = {"type": "NFC"}
GPT2 = (None, byte_level())
CODE = (None, sequence("pretokenizers", digits(True), byte_level()))


def byte_level_families(source):
    """Name: normalizer and pre-tokenizer of the released tokenizer.json."""
    deepseek = [split("[\r\n]"), split(letters_of_deepseek(source)), split("\\s?[!-/:-~！-／：-～‘-‟　-。]+"), split("\\s+$"),
                split("[一-龥ࠀ-一가-퟿]+"), digits(True)]
    coder = [split("[\r\n]"), split("\\s?\\p{L}+"), split("\\s?\\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"), digits(True)]
    falcon = sequence("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, byte_level(), digits(False),
                      split("[0-9][0-9][0-9]"))
    return {
        "aquila": GPT2, "gpt-2": GPT2, "gpt-neox": (NFC, byte_level()), "mpt": (NFC, byte_level()), "refact": CODE, "starcoder": CODE,
        "command-r": (NFC, CODE[1]), "falcon": (None, falcon), "deepseek-llm": (None, words(*deepseek)),
        "deepseek-coder": (None, words(*coder)), "llama-bpe": (None, words(split(LLAMA3))), "qwen2": (NFC, words(split(QWEN2))),
        "qwen35": (None, words(split(QWEN35))),  # llama.cpp's lines keep marks apart: no normal form
    }


def added(number, content, special):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}


def file_of(model, tokens, types, *, normalizer=None, pre_tokenizer=None, decoder=None, prefix=(), suffix=()):
    pieces = [{"SpecialToken": {"id": tokens[i], "type_id": 0}} for i in prefix] + [{"Sequence": {"id": "A", "type_id": 0}}]
    pieces += [{"SpecialToken": {"id": tokens[i], "type_id": 0}} for i in suffix]
    template = {"type": "TemplateProcessing", "single": pieces, "pair": [], "special_tokens": {
        tokens[i]: {"id": tokens[i], "ids": [i], "tokens": [tokens[i]]} for i in (*prefix, *suffix)}}
    template["pair"] = pieces + [{"Sequence": {"id": "B", "type_id": 1}}]
    return {"version": "1.0", "truncation": {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}, "padding": None,
            "added_tokens": [added(i, token, types[i] != USER_DEFINED) for i, token in enumerate(tokens)
                             if types[i] in (UNKNOWN, CONTROL, USER_DEFINED)],
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": template if prefix or suffix else None,
            "decoder": decoder, "model": model}


def bpe(tokens, merges, **flags):
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
            "byte_fallback": False, "ignore_merges": False, "vocab": {token: i for i, token in enumerate(tokens)}, "merges": merges, **flags}


def merges_of(tokens, scores):
    """As transformers derives them from the pieces of a SentencePiece model."""
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = []
    for piece in tokens:
        local = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in vocab and piece[i:] in vocab]
        merges += [(left, right, scores[vocab[piece]]) for left, right in sorted(local, key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))]
    merges.sort(key=lambda merge: merge[2], reverse=True)
    return [[left, right] for left, right, _ in merges]


SPACES = replace("▁", " ")
BYTES_AND_FUSE = [{"type": "ByteFallback"}, {"type": "Fuse"}]


def llama_file(tokens, types, scores, prefix):
    model = bpe(tokens, merges_of(tokens, scores), unk_token=tokens[types.index(UNKNOWN)], fuse_unk=True, byte_fallback=True)
    return file_of(model, tokens, types, normalizer=sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")),
                   decoder=sequence("decoders", SPACES, *BYTES_AND_FUSE, {"type": "Strip", "content": " ", "start": 1, "stop": 0}), prefix=prefix)


def bert_file(tokens, types):
    """llama.cpp writes a word's start as U+2581 and leaves "##" out."""
    spelled = [token if types[i] != NORMAL else token[1:] if token.startswith("▁") else "##" + token for i, token in enumerate(tokens)]
    cls, sep = spelled.index("[CLS]"), spelled.index("[SEP]")
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
             "vocab": {token: i for i, token in enumerate(spelled)}}
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    return file_of(model, spelled, types, normalizer=normalizer, pre_tokenizer={"type": "BertPreTokenizer"},
                   decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}, prefix=[cls], suffix=[sep])


def unigram_file(tokens, types, scores, charsmap):
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    model = {"type": "Unigram", "unk_id": types.index(UNKNOWN), "vocab": [[t, s] for t, s in zip(tokens, scores)], "byte_fallback": False}
    normalizer = sequence("normalizers", {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()},
                          replace(" {2,}", " ", "Regex"))
    return file_of(model, tokens, types, normalizer=normalizer,
                   pre_tokenizer=sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace), decoder=metaspace,
                   prefix=[tokens.index("<s>")], suffix=[tokens.index("</s>")])


def gemma_file(tokens, types, merges):
    model = bpe(tokens, [merge.split(" ") if isinstance(merge, str) else merge for merge in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    return file_of(model, tokens, types, normalizer=replace(" ", "▁"), pre_tokenizer=split(" ", "MergedWithPrevious", "String"),
                   decoder=sequence("decoders", SPACES, *BYTES_AND_FUSE), prefix=[tokens.index("<bos>")])


def piece_model(tokens, types, scores, *, unigram=False, charsmap=b"", add_prefix=True, remove_extra=False):
    """A tokenizer.model: pieces, then the parts of trainer and normalizer (sentencepiece_model.proto). One piece is unknown;
    GGUF has that type for others, too."""
    unknown = types.index(UNKNOWN)
    types = [UNUSED if kind == UNKNOWN and i != unknown else kind for i, kind in enumerate(types)]
    pieces = b"".join(field(1, field(1, token.encode()) + field(2, float(scores[i])) + field(3, types[i])) for i, token in enumerate(tokens))
    trainer = field(3, 1 if unigram else 2) + field(35, int(BYTE in types))
    normalizer = field(1, b"identity") + (field(2, charsmap) if charsmap else b"") + field(3, int(add_prefix)) + field(4, int(remove_extra)) + field(5, 1)
    return pieces + field(2, trainer) + field(3, normalizer)


def write(folder, name, content):
    folder.mkdir(parents=True, exist_ok=True)
    data = json.dumps(content, ensure_ascii=False).encode() if isinstance(content, dict) else content
    (folder / name).write_bytes(data)
    print(folder, flush=True)


def from_gguf(path, source, out):
    import gguf
    name = path.name.removeprefix("ggml-vocab-").removesuffix(".gguf")
    fields = gguf.GGUFReader(path).fields
    get = lambda key: fields["tokenizer.ggml." + key].contents() if "tokenizer.ggml." + key in fields else None
    tokens, types, scores = get("tokens"), list(get("token_type")), get("scores")
    bos = [get("bos_token_id")] if get("add_bos_token") else []
    families = byte_level_families(source)
    if name in families:
        normalizer, pre_tokenizer = families[name]
        content = file_of(bpe(tokens, get("merges"), ignore_merges=name == "llama-bpe"), tokens, types, normalizer=normalizer,
                          pre_tokenizer=pre_tokenizer, decoder=byte_level(), prefix=bos)
    elif get("model") == "bert":
        content = bert_file(tokens, types)
    elif get("model") == "gemma4":
        content = gemma_file(tokens, types, get("merges"))
    elif get("model") == "t5":
        charsmap = bytes(get("precompiled_charsmap"))
        content = unigram_file(tokens, types, scores, charsmap)
        write(out / f"{name}-spm", "tokenizer.model", piece_model(tokens, types, scores, unigram=True, charsmap=charsmap, remove_extra=True))
    else:
        content = llama_file(tokens, types, scores, bos)
        write(out / f"{name}-spm", "tokenizer.model", piece_model(tokens, types, scores))
        copy_lines(path, out / f"{name}-spm")
    write(out / name, "tokenizer.json", content)
    copy_lines(path, out / name)


def copy_lines(path, folder):
    """The texts that llama.cpp's own test has, and the ids of the released tokenizer."""
    for ending in (".inp", ".out"):
        source = path.with_name(path.name + ending)
        if source.exists():
            shutil.copy(source, folder / ("lines" + ending))


def main():
    packages, out = map(pathlib.Path, sys.argv[1:])
    [archive] = packages.glob("llama_cpp_python-*.tar.gz")
    unpacked = packages / "unpacked"
    if not unpacked.exists():
        with tarfile.open(archive) as tar:
            tar.extractall(unpacked, [m for m in tar if "/vendor/llama.cpp/models/ggml-vocab-" in m.name or m.name.endswith("/src/llama-vocab.cpp")], filter="data")
    [source] = unpacked.glob("*/vendor/llama.cpp/src/llama-vocab.cpp")
    for path in sorted(unpacked.glob("*/vendor/llama.cpp/models/ggml-vocab-*.gguf")):
        from_gguf(path, source.read_text(), out)
    import mistral_common
    for path in sorted((pathlib.Path(mistral_common.__file__).parent / "data").iterdir()):
        if ".model" in path.name:
            write(out / path.name.replace("tokenizer", "mistral").replace(".model", ""), "tokenizer.model", path.read_bytes())
        elif path.name.startswith("tekken"):
            write(out / path.stem, "tekken.json", path.read_bytes())


if __name__ == "__main__":
    main()
