# A tokenizer and a chat template for a random checkpoint: the demo's byte-level BPE, cut or filled to the model's
# vocabulary, so that every id that random weights choose has a text. Not a tokenizer of any released model. Standard
# library only.
import json
import os

DEMO = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "models", "demo")
LEAST_VOCAB = 258  # two special tokens and the bytes

CHAT_TEMPLATE = ("{{ bos_token }}{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
                 "{% if add_generation_prompt %}assistant:{% endif %}")


def is_letter(char):
    return char.isascii() and char.isalpha()


def composed(words):
    """Yields pairs of words that stand in one word of a text, those of common words first."""
    heads = [word for word in words if is_letter(word[-1])]
    tails = [word for word in words if is_letter(word[0])]
    for place in range(len(heads) + len(tails) - 1):
        for head in range(max(0, place - len(tails) + 1), min(place + 1, len(heads))):
            yield heads[head], tails[place - head]


def tokenizer_of(vocab_size):
    """tokenizer.json with the ids 0 to vocab_size - 1, 0 and 1 of them special."""
    if vocab_size < LEAST_VOCAB:
        raise SystemExit("a vocabulary of %d: a byte-level tokenizer needs %d" % (vocab_size, LEAST_VOCAB))
    with open(os.path.join(DEMO, "tokenizer.json")) as file:
        tokenizer = json.load(file)
    model = tokenizer["model"]
    ordered = sorted(model["vocab"], key=model["vocab"].get)[:vocab_size]
    vocab = {token: number for number, token in enumerate(ordered)}
    merges = [pair for pair in model["merges"] if "".join(pair) in vocab]
    pairs = composed(ordered[LEAST_VOCAB:])
    while len(vocab) < vocab_size:
        pair = next(pairs)
        if vocab.setdefault("".join(pair), len(vocab)) == len(vocab) - 1:
            merges.append(list(pair))
    model["vocab"], model["merges"] = vocab, merges
    return tokenizer


def write_tokenizer(folder, vocab_size, context):
    """tokenizer.json and tokenizer_config.json; about a second for 262 144 tokens."""
    with open(os.path.join(DEMO, "tokenizer_config.json")) as file:
        settings = json.load(file)
    settings.update(model_max_length=context, chat_template=CHAT_TEMPLATE)
    for name, values in (("tokenizer.json", tokenizer_of(vocab_size)), ("tokenizer_config.json", settings)):
        with open(os.path.join(folder, name), "w") as file:
            json.dump(values, file, ensure_ascii=False)
            file.write("\n")
