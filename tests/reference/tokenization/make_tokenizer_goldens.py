#!/usr/bin/env python3
"""Writes tests/golden/tokenizers/: small BPE tokenizers of six forms, and what `tokenizers` makes of texts.

The released tokenizer files may not be copied here, so each family is trained on the text below with exactly the
normalizer, pre-tokenizer, flags, added tokens, post-processor and decoder of the released ones. `mixed` (byte level)
and `fallback` (characters) are no released forms: they have every flag that the others leave alone. Run: python3 tests/reference/tokenization/make_tokenizer_goldens.py
(written with tokenizers 0.23.3). Deterministic: the same version writes the same files.
"""

import base64
import json
import pathlib
import random

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

OUT = pathlib.Path(__file__).resolve().parents[2] / "golden" / "tokenizers"

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

CORPUS = """
The engine reads a file, builds a graph, and decodes one token after another until the text ends.
She said that it's fine, that they're here, that we've been told, that I'm late, that he'll come and you'd know.
IT'S LOUD, THEY'RE LOUD, WE'VE SHOUTED. Don't. Can't. Won't. O'Reilly's 1990s book cost $12.50, or 12,345,678 lire.
In 2024 there were 365 days and 1 leap day: 366. Version 3.14.159, 0x7fff, 1e-05, 100%, #42, @name, a_b_c, x->y, i++.
def attend(q, k, v, scale=0.125):\n    scores = q @ k.T * scale\n    return softmax(scores) @ v\n
for (int i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];\n}\n\n\n// done\r\n
{"name": "value", "list": [1, 2, 3], "nested": {"true": false, "null": null}}
Voilà, l'été à la plage, déjà vu, garçon, naïve, œuvre, Straße, Größe, über, Ærø, Łódź, žluťoučký kůň, İstanbul, ılık.
Съешь же ещё этих мягких французских булок, да выпей чаю. Привет, мир! Добрый день.
Ο καφές είναι ζεστός και η θάλασσα ήρεμη. שלום עולם, מה שלומך היום? مرحبا بالعالم، كيف حالك اليوم؟
नमस्ते दुनिया, आप कैसे हैं? สวัสดีชาวโลก วันนี้อากาศดี 안녕하세요 세계, 오늘은 날씨가 좋네요.
你好，世界。今天天气很好，我们去公园散步吧。こんにちは世界、今日は良い天気ですね。カタカナ、ひらがな、漢字。
Emoji: 😀 😃 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 ❤️ ✨ 🚀. Math: ∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β = ¬(¬α ∨ β), ∑ ∫ √ ≤ ≥ ≠ ∞ ½ ² ³.
"""

SCRIPTS = {
    "latin": "The quick brown fox jumps over the lazy dog.", "latin accents": "Žluťoučký kůň úpěl ďábelské ódy, Ærøskøbing",
    "cyrillic": "Широкая электрификация южных губерний", "greek": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία",
    "hebrew": "דג סקרן שט בים מאוכזב", "arabic": "نص حكيم له سر قاطع وذو شأن عظيم ١٢٣٤٥",
    "persian": "می‌خواهم بروم ۱۲۳", "devanagari": "ऋषियों को सताने वाले १२३४ दुष्ट", "bengali": "আমার সোনার বাংলা ৫৬৭",
    "tamil": "யாமறிந்த மொழிகளிலே", "thai": "เป็นมนุษย์สุดประเสริฐ ๑๒๓", "lao": "ຂ້ອຍກິນແກ້ວໄດ້", "khmer": "ខ្ញុំអាចញុំកញ្ចក់បាន",
    "burmese": "ကျွန်တော် ကျွန်မ", "georgian": "მინას ვჭამ და არა მტკივა", "armenian": "Կրնամ ապակի ուտել",
    "amharic": "ሰማይ አይታረስ ንጉሥ አይከሰስ።", "chinese": "我能吞下玻璃而不伤身体。一二三", "japanese": "いろはにほへと ちりぬるを カタカナ ﾊﾝｶｸ",
    "korean": "키스의 고유조건은 입술끼리 만나야 하고", "tibetan": "ཤེལ་སྒོ་ཟ་ནས་ང་ན་གི་མ་རེད།", "mongolian": "ᠪᠢ ᠰᠢᠯᠢ ᠢᠳᠡᠶᠦ", "cherokee": "ᎣᏏᏲ ᏣᎳᎩ",
    "runes": "ᚠᛇᚻ᛫ᛒᛦᚦ᛫ᚠᚱᚩᚠᚢᚱ", "gothic": "𐌼𐌰𐌲 𐌲𐌻𐌴𐍃", "cuneiform": "𒀀𒁀𒂀", "math letters": "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟎𝟏𝟐𝟑", "deseret": "𐐔𐐯𐑅𐐨𐑉𐐯𐐻",
    "vietnamese": "Tiếng Việt: đường phố", "turkish": "İIıi ŞşĞğ", "polish": "Pchnąć w tę łódź jeża lub ośm skrzyń fig",
}

# Characters that meet the edges of \s, \p{L}, \p{N}, case folding and NFC. All of them are older than Unicode 11.
EDGE = list("aZ09'\"_-+.,;:!?()[]{}<>|/\\@#$%^&*~`sStTmMdDéÉßŉſKÅıİ") + [
    " ", "  ", "\t", "\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1f", "\x7f", "\x00", "\x01", "\x85", "\xa0", "\xad",
    "\u1680", "\u180e", "\u2000", "\u2003", "\u200a", "\u200b", "\u200c", "\u200d", "\u2028", "\u2029", "\u202f",
    "\u205f", "\u2060", "\u3000", "\ufeff", "\ufffd", "\uffff", "\U0010ffff", "\ue000",
    "²", "½", "Ⅷ", "①", "٣", "३", "〇", "\U0001d7d8", "ª", "ǅ", "ʰ", "ー", "ﬁ", "\u0301", "\u0323", "\u0308", "\u20dd",
    "\u0e33", "\u3099", "가", "ᄀ", "ᅡ", "ᆨ", "\u0958", "\u2126", "\u1e9e", "日", "本", "😀", "🇩", "\ufe0f", "𝔘", "'s",
    "'S", "'ll", "'RE", "'\u017f", "e\u0301", "A\u030a",
]


def handmade():
    yield from SCRIPTS.values()
    yield from ["", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\t\t ", " \n", "\n ", " \n \n ", "a", " a", "a ", "  a", "a  b",
                "a   b    c", "a\tb", "a \t b", "a\n\n\nb", "a \n b", "a\r\rb", "a\r\n\r\nb", "x\n  y\n    z", "\n\n  x", "end.\n\n",
                "end. \n", "!!!\n\n\nx", "?!\r\n\r\n", "a\u00a0b", "\u00a0\u00a0a", "a\u00a0 b", "a \u00a0b", "\u3000a\u3000\u3000b",
                "a\u2003\u2003b", "a\u200bb", "a\u2028b", "a\u2029\n", "\ufeffBOM", "a\x00b", "\x00", "\x00\x00\x00", "\x01\x02\x1b[0m",
                "\x7f\x80\x9f", "tab\x0bvt\x0cff\x85nel", "\x1c\x1d\x1e\x1f"]
    for n in (1, 2, 3, 4, 5, 6, 7, 10, 13):
        yield "1234567890123"[:n]
    yield from ["1,234,567.89", "١٢٣٤٥٦٧", "१२३४५", "½¾²³", "ⅧⅨ 12Ⅷ", "①②③④", "3.14e-10", "v1.2.3-rc4", "a1b2c3", "12ab34", "00:11:22",
                "1 2 3", "12 345", "½cup", "x²y³", "𝟎𝟏𝟐𝟑𝟒"]
    for c in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d"):
        yield f"it{c} it{c.upper()} it{c.title()}x {c} {c}{c} 1{c}"
    yield from ["it'\u017f it'\u017ft", "'\u017f", "I'M I'm i'M", "'LL 'Ll 'lL", "don\u2019t it\u2019s", "''s ''''", "O'Reilly's'", "'S", "'K '\u212a",
                "\u212aelvin \u017flong", "İ'İ ı'ı", "'Re 'rE'VE'vE", "ß'ß ẞ", "'st 'tr 'rev", "a'sb'tc", "ŉ ǰ ΐ ﬀ ﬆ"]
    yield from ["e\u0301", "\u00e9", "A\u030a \u00c5 \u212b", "\u1e9b\u0323", "q\u0307\u0323 q\u0323\u0307", "\u0344", "\u0958", "\uf900", "\u2126 \u03a9",
                "\u1100\u1161\u11a8 \uac01 \uac00\u11a8", "\u304b\u3099 \u304c", "o\u0328\u0304 \u01ed", "a\u0315\u0300\u05ae\u0062", "\u0c47\u0c56", "\u0301abc", "a\u20dd\u0301",
                "e" + "\u0301\u0323" * 20, "\ufb1d\u05b4", "\u0f71\u0f72\u0f74", "\U0001d15e", "\ud55c\uae00 \u1112\u1161\u11ab"]
    yield from ["😀", "😀😀😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "❤️", "1️⃣2️⃣", "a😀b", " 😀", "😀 ", "👩🏾‍💻 codes", "☃️❄", "🫠", "\u200d\u200d", "e\ufe0f"]
    yield from ["a" * 200, " " * 200, "\n" * 100, "ab" * 100, "!" * 150, "the " * 60, "1" * 100, "é" * 80, "漢" * 70, " \n" * 50, "\t \n" * 30,
                "😀" * 40, "'s" * 40, "a " * 80, "  a" * 40, "-" * 79 + "\n", "=" * 40 + ">", "aA" * 60, "\u0301" * 60, "\u00a0" * 50]
    yield from ["def f(x):\n    return x+1\n\n\nclass A:\n\tpass", "int main() { return 0; }\r\n", "<html>\n  <body class=\"x\">&nbsp;</body>\n</html>",
                "SELECT * FROM t WHERE a='b''c';", "https://example.org/a_b?q=1&r=%20#frag", "user.name+tag@example.co.uk", "C:\\Users\\x\\n",
                "$\\frac{a}{b} \\leq \\sqrt{c}$", "| a | b |\n|---|---|\n| 1 | 2 |", "- [ ] todo\n- [x] done", "```py\nprint('hi')\n```", "a...b…c",
                "—–-‐", "“quoted” «guillemets» „low“", "¡Hola! ¿Qué?", "100€ £5 ¥7 ₿1", "CamelCaseWord snake_case_word kebab-case", "ALLCAPS lower MiXeD",
                "hello world", "Hello, World!", "  leading and trailing  ", "unreachable zqzq Ġunreachable", "\u202eevil\u202c", "Zalgo: Z̸̡̛͎a̶l̷g̸o̵"]
    # Letters, numbers and marks that came after Unicode 14, marks and a composite after Unicode 9, alone and in between.
    yield from ["a\U0002ecdcb", " \U00031350\U000323af x", "\u1c89\u1c8a", "1\U00011f50\U00011f59" + "2", "\U000116d0\U0001d2c0", "x\u0897y", "a\U0001e08f\u0301",
                "a\u0345\u1df6\u0334", "a\u1abf\u0301", "e\u0d3b\u0334\u0301", "o\u0328\U0001e2ae\u0304", "\U00011935\U00011930", "\U00011938\U00011930", "\u1df6e\u0301",
                "\U0002ec8d\U0001fd0c", "<|BEGIN_OF_TEXT|>\U0003147a▁नमस्तेwe'Ll", "鋘䒡\U00019254෯\U000e0d19\U0002ecdc\U000e0b37ѷ输",
                "\U0003c058\U00033f65\U00014324뉅\U00032268\U001028d2", "𳯑\U00031a17け\U0001b9a1"]


def special_texts(tokens):
    for t in tokens:
        yield from [t, f"a{t}b", f"a {t} b", f"{t}{t}", f"{t[:-1]}", f"{t[1:]}", f"\n{t}\n\n", f" {t}"]
    joined = "".join(tokens)
    yield from [joined, "  ".join(tokens), joined[1:-1], "<|<|" + joined, "user: " + tokens[0] + "'s 123\n" + tokens[-1] + " 's",
                joined.upper(), "é" + tokens[0] + "e\u0301" + tokens[-1] + "\u0301", "<" * 20, "<|" * 10, "|>" * 10]


INVALID = [b"\xff", b"\x80", b"\xc3", b"abc\xc3", b"\xc3(", b"\xe2\x82", b"\xe2\x82\xac\xe2\x82", b"\xe2(\xa1", b"\xf0\x9f\x98", b"\xf0\x9f\x98x", b"\xf0\x28\x8c\xbc",
           b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xa0\xbd\xed\xb8\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80",
           b"\xf8\x88\x80\x80\x80", b"\xfc\x84\x80\x80\x80\x80", b"\xfe\xff", b"caf\xe9 cr\xe8me", b"a\xffb\xfec", b"\xf1\x80\x80\xe1\x80\xc2b\x80c\x80\xbfd", b"\xff" * 9, b"\xe2" * 5 + b"x",
           b"\xf0\x9f" * 4, b"ok \xe6\x97\xa5\xe6\x9c", b"\x00\xff\x00", b"'s\xff's", b"\xbf1\xbf2", b"\xef\xbf", b"\xef\xbb\xbf\xef\xbb"]


def random_texts(rng, count):
    pools = [EDGE, list(" \n\t\r") + ["\u00a0"], list("ab1 '\n"), [w + " " for w in CORPUS.split()], EDGE + CORPUS.split()]
    for i in range(count):
        pool = pools[i % len(pools)]
        yield "".join(rng.choice(pool) for _ in range(rng.randint(2, 12)))


def added(content, **flags):
    return AddedToken(content, **{"normalized": False, **flags})


def llama3():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    names = ["begin_of_text", "end_of_text", "reserved_special_token_0", "reserved_special_token_1", "reserved_special_token_10",
             "start_header_id", "end_header_id", "eom_id", "eot_id", "python_tag"]
    specials = [added(f"<|{n}|>", special=True) for n in names]

    def finish(t):
        bos = t.token_to_id("<|begin_of_text|>")
        t.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=True),
            processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                                          special_tokens=[("<|begin_of_text|>", bos)])])
    # Whole words that no merge makes, as tiktoken vocabularies have them: only ignore_merges finds these.
    return t, 1100, ["Ġunreachable", "zqzq", "ĠĠĠĠĠĠĠĠĠĠĠĠĠ", "æĹ¥æľ¬"], specials, finish, "strings"


def gpt2():
    t = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix=""))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)

    def finish(t):
        t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t, 1000, ["<|endoftext|>"], [added("<|endoftext|>", special=True, normalized=True)], finish, "strings"


def qwen():
    t = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix=""))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])

    def finish(t):
        t.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    specials = [added(f"<|{n}|>", special=True) for n in ["endoftext", "im_start", "im_end"]]
    plain = [added(c) for c in ["<tool_call>", "</tool_call>", "<think>", "</think>"]]
    return t, 1000, [], specials + plain, finish, "pairs"


def mixed():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.NFC()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\d{2}|x*"), behavior="isolated", invert=False),
        pre_tokenizers.Split(Regex(r"[A-Z]"), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)])
    tokens = [added("<s>", special=True), added("</s>", special=True, lstrip=True, rstrip=True), added("<left>", lstrip=True),
              added("<right>", rstrip=True), added("<both>", lstrip=True, rstrip=True), added("word", single_word=True),
              added("<w>", single_word=True, special=True), added("caf\u00e9", normalized=True), added("e\u0301t\u00e9", normalized=True),
              added("cafe\u0301s"), added("<left><right>"), added("<le"), added("   "), added("Ġnot a space"), added("日本", normalized=True)]

    def finish(t):
        bos, eos = t.token_to_id("<s>"), t.token_to_id("</s>")
        t.post_processor = processors.Sequence([
            processors.ByteLevel(),
            processors.TemplateProcessing(single="<s> $A </s>", pair="$A $B", special_tokens=[("<s>", bos), ("</s>", eos)])])
    return t, 500, [], tokens, finish, "pairs"


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def all_pairs(vocab, pieces):
    """Merges as transformers derives them from a SentencePiece vocabulary: every pair of tokens that spells a piece, in
    the order of the pieces, so that a token may come from several pairs."""
    return [pair for piece in pieces
            for pair in sorted(((piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in vocab and piece[i:] in vocab),
                               key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))]


def characters(first, runs, size, **flags):
    """A BPE model over characters: ids in the order `first`, `runs`, bytes where `first` holds them, letters, pieces."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Split("▁", behavior="merged_with_next")
    t.train_from_iterator((line.replace(" ", "▁") for line in CORPUS.split("\n")),
                          trainers.BpeTrainer(vocab_size=size, show_progress=False))
    trained = json.loads(t.to_str())["model"]
    pieces = runs + [a + b for a, b in trained["merges"] if a + b not in runs]
    letters = [token for token in trained["vocab"] if len(token) == 1]
    vocab = {token: id for id, token in enumerate(dict.fromkeys(first + runs + letters + pieces))}
    return Tokenizer(models.BPE(vocab=vocab, merges=all_pairs(vocab, pieces), unk_token="<unk>", byte_fallback=True, **flags))


def gemma():
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    plain = ["[multimodal]"] + [f"<unused{i}>" for i in range(3)]
    turns = ["<start_of_turn>", "<end_of_turn>"]
    newlines = ["\n" * n for n in range(1, 32)]
    spaces = ["▁" * n for n in range(2, 32)]
    html = ["<table>", "<thead>", "<tr>", "</tr>", "<h1>", "<blockquote>", "<code>", "</code>"]
    t = characters(specials + plain + turns + newlines + spaces + html + BYTES, spaces, 1100, fuse_unk=True)
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous", invert=False)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])

    def finish(t):
        t.post_processor = processors.TemplateProcessing(single="<bos> $A", pair="<bos> $A <bos>:1 $B:1",
                                                         special_tokens=[("<bos>", t.token_to_id("<bos>"))])
    tokens = [added(c, special=True) for c in specials + turns] + [added(c) for c in plain + newlines + spaces + html]
    tokens.append(added("<image_soft_token>", special=True))  # behind the vocabulary
    return t, tokens, finish, "pairs"


def fallback():
    # Bytes below 0x80 and of two-byte characters only: others are unknown. Two byte tokens of odd spelling.
    some = [token for byte, token in enumerate(BYTES) if byte < 0xE0] + ["<0xe2>", "<0x+A>"]
    t = characters(["<unk>", "<s>", "</s>"] + some, ["▁▁", "▁▁▁"], 330, fuse_unk=False, ignore_merges=True)
    t.normalizer = normalizers.Sequence([normalizers.Replace("--", "—"), normalizers.NFC(), normalizers.Replace(" ", "▁")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split("▁", behavior="merged_with_previous"),
                                               pre_tokenizers.Split(".", behavior="isolated")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Replace("—", "--"), decoders.ByteFallback(), decoders.Fuse()])
    tokens = [added("<unk>", special=True), added("<s>", special=True), added("</s>", special=True, lstrip=True, rstrip=True),
              added("<left>", lstrip=True), added("<right>", rstrip=True), added("word", single_word=True),
              added("two words", normalized=True), added("cafe\u0301", normalized=True), added("a--b", normalized=True),
              added("▁x"), added("<0x41>", normalized=True)]

    def finish(t):
        t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="$A $B", special_tokens=[
            ("<s>", t.token_to_id("<s>")), ("</s>", t.token_to_id("</s>"))])
    return t, tokens, finish, "strings"


FALLBACK_TEXTS = [
    "日本語", "a日b本c", "日本€é😀", "é日é", "日é", "日\U0001d518é本x", "<0x41>", "<0x4", "<0xE2><0x82>", "two words", "two  words", "a two words b", "a--b", "a---b",
    "--", "----", "caf\u00e9", "cafe\u0301", "▁x", " x", "  x", "a </s> b", "a <left> b", "a <right> b", "word words sword word", "<unk>日<unk>",
    "x▁▁▁▁y", "x    y", "the. end..", " . .", "ab.cd", "\u0301日\u0301",
]

MIXED_TEXTS = [
    "a <left> b", "a \n\t<left><left>  <left>", "<right>   b <right>\u3000\u2028x", " <both> \u00a0<both> ", "<left><right> <right><left>", "a  <left><right>  b",
    "word", "a word.", "words sword word", "word_word -word-", "\u00e9word word\u00e9 \u200dword word\u200d", "\u24d0word word\u203f", "\u0301word", "word\u0301", "1word word1",
    "<w>", "a<w>", "<w>a", " <w> ", "<w><w>", "cafe\u0301", "caf\u00e9", "caf\u00e9s cafe\u0301s", "\u00e9t\u00e9 e\u0301te\u0301", "<le<left>", "<<le>", "a     b       c",
    "<right>      x", "<right>   <left>   </s>   word", "a </s> b", "x</s>\n\n</s>y", "<s>hello</s>", "Ġnot a space", "日本語 日本", "12345 1 22 333", "aBcDE xX xx xxx",
    "xx12ABab", "\n<left>", "hello<right>", "   ", "      ", "       ", "<both>", "  <both>  ",
]


def build(family):
    if family in (gemma, fallback):
        t, tokens, finish, merge_form = family()
        return added_and_finished(t, json.loads(t.to_str()), tokens, finish, merge_form)
    t, size, extra, tokens, finish, merge_form = family()
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS.split("\n"), trainers.BpeTrainer(
        vocab_size=size - len(extra), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    data = json.loads(t.to_str())
    vocab = data["model"]["vocab"]
    for token in extra:
        vocab.setdefault(token, len(vocab))
    return added_and_finished(t, data, tokens, finish, merge_form)


def added_and_finished(t, data, tokens, finish, merge_form):
    if merge_form == "strings":
        data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    t = Tokenizer.from_str(json.dumps(data))
    t.add_tokens([token for token in tokens if not token.special])
    t.add_special_tokens([token for token in tokens if token.special])
    finish(t)
    saved = json.loads(t.to_str())
    saved["model"]["merges"] = data["model"]["merges"]
    return Tokenizer.from_str(json.dumps(saved)), saved, [token.content for token in tokens]


def encode_case(t, text, raw=None):
    t.encode_special_tokens = True  # special tokens in the text are ordinary text
    plain = t.encode(text, add_special_tokens=False).ids
    t.encode_special_tokens = False
    parsed = t.encode(text, add_special_tokens=False).ids
    whole = t.encode(text, add_special_tokens=True).ids
    case = {"text": text} if raw is None else {"base64": base64.b64encode(raw).decode()}
    case["ids"] = plain
    if parsed != plain:
        case["parsed"] = parsed
    if whole != parsed:
        case["whole"] = whole
    return case


def decode_case(t, ids):
    return {"ids": ids, "kept": t.decode(ids, skip_special_tokens=False), "skipped": t.decode(ids, skip_special_tokens=True)}


def write(name, family, index):
    rng = random.Random(1000 + index)
    t, saved, tokens = build(family)
    if name == "gemma":  # a few of the many that differ in length only
        tokens = [token for token in tokens if not token.startswith(("\n\n\n", "▁▁▁", "<unused"))]
    texts = list(handmade()) + list(special_texts(tokens)) + list(random_texts(rng, 120))
    if name == "gemma":
        texts += ["\n" * 40, " " * 70, "▁" * 70, "a" + "\n" * 31 + "b", "▁▁ ▁▁"]
    if name == "fallback":
        texts = FALLBACK_TEXTS + texts[::2]
    if name == "mixed":
        texts = MIXED_TEXTS + list(special_texts(tokens[:9])) + list(handmade())[::3] + list(random_texts(rng, 60))
    texts = list(dict.fromkeys(texts))
    encode = [encode_case(t, text) for text in texts]
    if name == "fallback":  # a special token that is a whole word comes out of ignore_merges in the library, never here
        encode = [case for case in encode if not any(token in case["text"] and t.token_to_id(token) in case["ids"] for token in ("<unk>", "<s>", "</s>"))]
    encode += [encode_case(t, raw.decode("utf-8", errors="replace"), raw) for raw in INVALID]
    decode = [decode_case(t, case.get("whole", case["ids"])) for case in encode[::4]]
    for _ in range(100):  # random ids cut characters anywhere
        decode.append(decode_case(t, [rng.randrange(t.get_vocab_size()) for _ in range(rng.randint(1, 12))]))
    first_byte = t.token_to_id("<0x00>") or 0
    for i in range(60):  # one-byte tokens only: every kind of invalid UTF-8
        top = 0xE0 if name == "fallback" or i % 2 and first_byte else 256
        decode.append(decode_case(t, [first_byte + rng.randrange(top) for _ in range(rng.randint(1, 8))]))

    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(saved, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    lines = lambda cases: ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (folder / "cases.json").write_text(
        f'{{"tokenizers":"{tokenizers.__version__}","encode":[\n{lines(encode)}\n],"decode":[\n{lines(decode)}\n]}}\n')
    print(f"{name}: {t.get_vocab_size()} tokens, {len(encode)} texts, {len(decode)} id sequences")


if __name__ == "__main__":
    for index, family in enumerate([llama3, gpt2, qwen, mixed, gemma, fallback]):
        write(family.__name__, family, index)
