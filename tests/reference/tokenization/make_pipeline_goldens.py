#!/usr/bin/env python3
"""Writes tests/golden/pipelines/: a small tokenizer for each kind of pipeline, and what its own library makes of texts.

Each is trained on the text of make_tokenizer_goldens.py with the components of the family it is named after; `splits`
and `marks` are of no family and have what the others leave alone. `pieces_*` are files of SentencePiece, `tekken` one of
mistral-common. Run: python3 tests/reference/tokenization/make_pipeline_goldens.py [KIND ...] (written with tokenizers 0.23.3,
sentencepiece 0.2.3, mistral-common 1.13.1). Deterministic: the same versions write the same files.
"""

import base64
import io
import json
import pathlib
import random
import sys
import tempfile

import sentencepiece
import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from proto_message import field_of
from make_tokenizer_goldens import (BYTES, CORPUS, EDGE, FALLBACK_TEXTS, INVALID, LLAMA3, MIXED_TEXTS, added, all_pairs, encode_case, decode_case,
                                    handmade, random_texts, special_texts)

OUT = pathlib.Path(__file__).resolve().parents[2] / "golden" / "pipelines"
LINES = [line for line in CORPUS.split("\n") if line]
LETTERS = pre_tokenizers.ByteLevel.alphabet()


def trained(t, trainer):
    t.train_from_iterator(LINES, trainer)
    return t


def finished(t, plain=(), special=()):
    t.add_tokens(list(plain))
    t.add_special_tokens(list(special))
    return t


def around(t, single):
    names = [part for part in single.split() if not part.startswith("$")]
    return processors.TemplateProcessing(single=single, pair=single + " $B", special_tokens=[(name, t.token_to_id(name)) for name in names])


def character_bpe(size):
    """Letters, bytes and merged pieces, all of whose pairs merge, as transformers converts a SentencePiece model."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    trained(t, trainers.BpeTrainer(vocab_size=size, show_progress=False))
    found = json.loads(t.to_str())["model"]
    pieces = [a + b for a, b in found["merges"]]
    tokens = ["<unk>", "<s>", "</s>"] + BYTES + pieces + [token for token in found["vocab"] if len(token) == 1]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    return Tokenizer(models.BPE(vocab=vocab, merges=all_pairs(vocab, pieces), unk_token="<unk>", fuse_unk=True, byte_fallback=True))


SENTINELS = [added("<unk>", special=True), added("<s>", special=True), added("</s>", special=True)]
LLAMA_DECODERS = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]


def llama2():
    t = character_bpe(500)
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence(LLAMA_DECODERS)
    t = finished(t, [added("[INST]", normalized=True), added("<tool>")], SENTINELS)
    t.post_processor = around(t, "<s> $A")
    return t


def llama2_first():
    t = character_bpe(400)
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence(LLAMA_DECODERS)
    t = finished(t, [added("<tool>", lstrip=True)], SENTINELS)
    t.post_processor = around(t, "<s> $A")
    return t


CHARACTER_RULES = {"ﬁ": "fi", "①": "1", "½": "1/2", "e\u0301": "é", "a\u030a": "å", "Ａ": "A", "\u3000": " ", "\u00a0": " ", "\t": " ", "\n": " ",
                   "…": "...", "\u200b": "", "ｶﾞ": "ガ", "カ\u3099": "ガ", "\u2126": "\u03a9"}


def piece_model(**options):
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder) / "rules.tsv"
        rules.write_text("".join(" ".join(f"{ord(c):X}" for c in key) + "\t" + " ".join(f"{ord(c):X}" for c in value) + "\n"
                                 for key, value in CHARACTER_RULES.items()))
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(LINES * 3), model_writer=model, hard_vocab_limit=False, num_threads=1,
                                                 normalization_rule_tsv=str(rules), minloglevel=2, **options)
        return model.getvalue()


def unigram_vocab(model):
    m = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [(m.id_to_piece(i), m.get_score(i)) for i in range(m.get_piece_size())]


def t5():
    model = piece_model(vocab_size=400, model_type="unigram", character_coverage=0.98)
    t = Tokenizer(models.Unigram(unigram_vocab(model), 0, False))
    metaspace = dict(replacement="▁", prepend_scheme="always")
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(field_of(model, [3, 2])), normalizers.Strip(left=False, right=True),
                                         normalizers.Replace(Regex(" {2,}"), "▁")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(**metaspace, split=True)
    t.decoder = decoders.Metaspace(**metaspace)
    t = finished(t, [added("<extra_id_0>", lstrip=True, rstrip=True)], SENTINELS)
    t.post_processor = around(t, "$A </s>")
    return t


def xlm_roberta():
    model = piece_model(vocab_size=700, model_type="unigram", character_coverage=0.98, byte_fallback=True)
    t = Tokenizer(models.Unigram(unigram_vocab(model), 0, True))
    t.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")])
    t.decoder = decoders.Sequence([decoders.Metaspace(replacement="▁", prepend_scheme="always"), decoders.ByteFallback()])
    t = finished(t, [added("<mask>", lstrip=True)], SENTINELS)
    t.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    return t


BERT_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def bert():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=40))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    trained(t, trainers.WordPieceTrainer(vocab_size=600, special_tokens=BERT_SPECIALS, show_progress=False))
    t.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return t


def bert_cased():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", continuing_subword_prefix="@"))
    t.normalizer = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("contiguous")])
    t.decoder = decoders.WordPiece(prefix="@", cleanup=False)
    return trained(t, trainers.WordPieceTrainer(vocab_size=400, special_tokens=BERT_SPECIALS, continuing_subword_prefix="@", show_progress=False))


def byte_bpe(*steps, normalizer=None, size=600, **flags):
    t = Tokenizer(models.BPE(**flags))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Sequence(list(steps))
    t.decoder = decoders.ByteLevel()
    trained(t, trainers.BpeTrainer(vocab_size=size, initial_alphabet=LETTERS, show_progress=False))
    return finished(t, [added("<think>")], [added("<|endoftext|>", special=True)])


def isolated(pattern):
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def starcoder():
    return byte_bpe(pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False))


def falcon():
    return byte_bpe(pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Digits(False),
                    isolated("[0-9][0-9][0-9]"))


def deepseek():
    return byte_bpe(isolated("[\r\n]"), isolated(r"\s?\p{L}+"), isolated(r"\s?\p{P}+"), isolated("[一-龥ࠀ-一가-퟿]+"),
                    pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))


def command_r():
    return byte_bpe(pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=True), normalizer=normalizers.NFC())


def phi4():
    return byte_bpe(isolated(LLAMA3), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), size=500)


def gpt1():
    t = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=False))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.BPEDecoder(suffix="</w>")
    return trained(t, trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False))


def clip():
    t = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>", continuing_subword_prefix="", fuse_unk=False))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), behavior="removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    trained(t, trainers.BpeTrainer(vocab_size=700, special_tokens=["<|startoftext|>", "<|endoftext|>"], initial_alphabet=LETTERS,
                                   end_of_word_suffix="</w>", show_progress=False))
    t.post_processor = processors.RobertaProcessing(("<|endoftext|>", 1), ("<|startoftext|>", 0), trim_offsets=False, add_prefix_space=False)
    return t


def subwords():
    """BPE with the prefix of WordPiece."""
    t = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return trained(t, trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>"], continuing_subword_prefix="##", show_progress=False))


def words():
    t = Tokenizer(models.WordLevel(unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit("."), pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(False)])
    return trained(t, trainers.WordLevelTrainer(vocab_size=250, special_tokens=["<unk>", "<s>"], show_progress=False))


def wav2vec():
    letters = ["<pad>", "<s>", "</s>", "<unk>", "|"] + sorted(set("etaonihsrdlumwcfgypbvk'xjqz.,?!n't"))
    t = Tokenizer(models.WordLevel({token: i for i, token in enumerate(letters)}, unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(" ", "|")])
    t.pre_tokenizer = pre_tokenizers.FixedLength(1)
    t.decoder = decoders.CTC()
    return finished(t, special=[added(name, special=True) for name in ("<pad>", "<s>", "</s>", "<unk>")])


def splits():
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=False))
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Strip(), normalizers.Replace(Regex("x*y"), "[y]"), normalizers.Prepend("~")])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\d+"), "merged_with_next"), pre_tokenizers.Split(Regex(r"[aeiou]"), "merged_with_previous"),
        pre_tokenizers.Split(Regex("z*"), "contiguous"), pre_tokenizers.Split("the", "contiguous", invert=True),
        pre_tokenizers.Split(Regex(r"\s*"), "merged_with_next"), pre_tokenizers.Split(Regex(r"x?"), "merged_with_previous", invert=True),
        pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.FixedLength(7), pre_tokenizers.Split("q", "removed")])
    t.decoder = decoders.Sequence([decoders.Strip("~", 1, 0), decoders.Replace(Regex("[eE]"), "3"), decoders.Fuse(), decoders.Strip(" ", 2, 3)])
    trained(t, trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False))
    t = finished(t, [added("two words", normalized=True), added("word", single_word=True), added("<right>", rstrip=True)])
    t.post_processor = processors.Sequence([processors.BertProcessing(("</s>", 2), ("<s>", 1)), around(t, "<unk> $A </s>")])
    return t


def marks():
    """Bytes in letters by a normalizer, and a pre-tokenizer that knows nothing of it."""
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.ByteLevel()])
    t.pre_tokenizer = pre_tokenizers.Split(Regex("Ġ"), "merged_with_next")
    t.decoder = decoders.Sequence([decoders.Replace("Ċ", "ĊĊ"), decoders.ByteLevel()])
    return trained(t, trainers.BpeTrainer(vocab_size=400, initial_alphabet=LETTERS, show_progress=False))


KINDS = [llama2, llama2_first, t5, xlm_roberta, bert, bert_cased, starcoder, falcon, deepseek, command_r, phi4, gpt1, clip, subwords, words, wav2vec,
         splits, marks]
MORE = ["don't  stop , now . ok ?", "it 's a word's end", "12ab345 c6", "the zz thez q quit", "xxy yx x", "ﬁne ① ½ e\u0301 ａ Ａ\u3000b", "a\u00ad\u0600b", "ẞß İI ΑΣ",
        "漢字kanji漢", "ＡＢＣ １２", "é E\u0301 ñ", "ｶﾞｶﾞ", "\u2126\u03a9", "hello|world|", "  two  words  ", "two words", "word words", "<right>   x",
        "…and…", "\U0001f600\u0301", "\r\n\r\n", "x\r\ny", "\u1e9b\u0323", "[INST] hi [/INST]", "<tool>x <tool> y", "a <extra_id_0> b", "a <mask> b", "~~a~"]


def texts_of(rng, tokens):
    pool = list(handmade())
    return list(dict.fromkeys(MORE + rng.sample(pool, 55) + list(special_texts(tokens[:4] or ["<none>"]))[:20] + rng.sample(FALLBACK_TEXTS + MIXED_TEXTS, 15)
                              + list(random_texts(rng, 30))))


def lines_of(cases):
    return ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)


def write(folder, file, content, encode, decode):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(content)
    (folder / "cases.json").write_text(f'{{"encode":[\n{lines_of(encode)}\n],"decode":[\n{lines_of(decode)}\n]}}\n')
    print(f"{folder.name}: {len(encode)} texts, {len(decode)} id sequences", flush=True)


def decoded(t, sequences):
    """Without those that the library panics at: Strip of a text that is shorter than what it may take."""
    cases = []
    for ids in sequences:
        try:
            cases.append(decode_case(t, ids))
        except BaseException as error:  # pyo3's PanicException is no Exception
            if type(error).__name__ != "PanicException":
                raise
    return cases


def write_kind(kind, seed):
    rng = random.Random(seed)
    t = kind()
    special = [token.content for token in t.get_added_tokens_decoder().values() if token.special]
    encode = [encode_case(t, text) for text in texts_of(rng, [token.content for token in t.get_added_tokens_decoder().values()])]
    # The library makes a special token of a word that is spelled like one; plain text never does so here.
    model = json.loads(t.to_str())["model"]
    unknown = model["vocab"][model["unk_id"]][0] if "unk_id" in model else model.get("unk_token")
    encode = [case for case in encode if not any(token in case["text"] and token != unknown and t.token_to_id(token) in case["ids"] for token in special)]
    if unknown:
        encode = [case for case in encode if unknown not in case["text"]]
    encode += [encode_case(t, raw.decode("utf-8", errors="replace"), raw) for raw in INVALID[::3]]
    decode = decoded(t, [case.get("whole", case["ids"]) for case in encode[::2]])
    known = [i for i in range(t.get_vocab_size()) if t.id_to_token(i) is not None]
    decode += decoded(t, [[rng.choice(known) for _ in range(rng.randint(1, 12))] for _ in range(60)])
    saved = json.loads(t.to_str())
    if kind in (llama2, bert):  # as many fine-tunes have them: transformers sets them at each call
        saved["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
        saved["padding"] = {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "<unk>"}
    content = json.dumps(saved, ensure_ascii=False, separators=(",", ":")) + "\n"
    write(OUT / kind.__name__, "tokenizer.json", content.encode(), encode, decode)


def write_pieces(name, seed, **options):
    rng = random.Random(seed)
    model = piece_model(**options)
    m = sentencepiece.SentencePieceProcessor(model_proto=model)
    texts = [text for text in texts_of(rng, ["<s>", "<unk>", "<sep>"]) if "\0" not in text]
    encode = [{"text": text, "ids": m.encode(text)} for text in texts]
    known = [i for i in range(m.get_piece_size()) if not m.is_control(i) and not m.is_unknown(i)]
    sequences = [case["ids"] for case in encode[::2]] + [[rng.choice(known) for _ in range(rng.randint(1, 12))] for _ in range(60)]
    decode = [{"ids": ids, "kept": m.decode(ids), "skipped": m.decode(ids)} for ids in sequences if not any(map(m.is_unknown, ids))]
    write(OUT / name, "tokenizer.model", model, encode, decode)


def tekken_file():
    """Bytes, then what a byte-level BPE has merged, in its order; two special tokens of the first files are enough."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([isolated(LLAMA3), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trained(t, trainers.BpeTrainer(vocab_size=600, initial_alphabet=LETTERS, show_progress=False))
    from transformers.convert_slow_tokenizer import bytes_to_unicode
    byte_of = {letter: byte for byte, letter in bytes_to_unicode().items()}
    merged = [a + b for a, b in json.loads(t.to_str())["model"]["merges"]]
    tokens = [bytes([byte]) for byte in range(256)] + [bytes(byte_of[c] for c in token) for token in dict.fromkeys(merged)]
    vocab = [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for rank, token in enumerate(tokens)]
    pattern = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
               r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    return {"config": {"pattern": pattern, "num_vocab_tokens": len(vocab), "default_vocab_size": len(vocab) + 30 - 20, "default_num_special_tokens": 30,
                       "version": "v3"}, "vocab": vocab}


def write_tekken(seed):
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    rng = random.Random(seed)
    content = json.dumps(tekken_file(), separators=(",", ":")) + "\n"
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tekken.json"
        path.write_text(content)
        m = Tekkenizer.from_file(path)
    encode = [{"text": text, "ids": m.encode(text, bos=False, eos=False)} for text in texts_of(rng, ["<s>", "[INST]"])]
    sequences = [case["ids"] for case in encode[::2]]
    sequences += [[rng.randrange(m.num_special_tokens, m.n_words) for _ in range(rng.randint(1, 12))] for _ in range(60)]
    write(OUT / "tekken", "tekken.json", content.encode(), encode, [{"ids": ids, "kept": m.decode(ids), "skipped": m.decode(ids)} for ids in sequences])


def main():
    wanted = sys.argv[1:]
    for seed, kind in enumerate(KINDS):
        if not wanted or kind.__name__ in wanted:
            write_kind(kind, seed)
    pieces = {
        "pieces_bpe": dict(vocab_size=700, model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False, character_coverage=0.98,
                           user_defined_symbols=["▁▁", "<sep>", "\n\n"], control_symbols=["<ctl>"]),
        "pieces_unigram": dict(vocab_size=400, model_type="unigram", character_coverage=0.98, user_defined_symbols=["<sep>"]),
        "pieces_suffix": dict(vocab_size=400, model_type="bpe", treat_whitespace_as_suffix=True, character_coverage=0.98, split_digits=True),
    }
    for seed, (name, options) in enumerate(pieces.items()):
        if not wanted or name in wanted:
            write_pieces(name, 100 + seed, **options)
    if not wanted or "tekken" in wanted:
        write_tekken(200)


if __name__ == "__main__":
    main()
