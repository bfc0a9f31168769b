# Trains the embedded demo model from nothing: stories, a byte-level BPE tokenizer, and a Llama of about two million
# parameters, saved as a Hugging Face checkpoint. It is a demo that fits in the repository, not a language model to use.
import argparse
import math
import os
import random
import time

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from write_stories import write_stories

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
VOCAB = 2048
SEQUENCE = 256        # tokens of a training row; a story has about 150
LONG_SEQUENCE = 1024  # the last part of training, so that every position up to max_position_embeddings was seen
LONG_PART = 0.15
# The pre-tokenizer of Llama 3 (tokenizer.json of meta-llama/Llama-3.2-1B).
LLAMA3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SAMPLED_PROMPTS = ["Once upon a time", "One day, a little girl named Lily", "The little rabbit was",
                   "Tom and Mia were best friends.", "There was a brave"]
GREEDY_PROMPTS = ["Once upon a time", "It was a warm day.", "One night, Ben heard"]


def train_tokenizer(stories):
    """A byte-level BPE tokenizer of the Llama-3 form with VOCAB entries, special tokens included."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3_SPLIT), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=[BOS, EOS], show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(stories, trainer)
    bos = tokenizer.token_to_id(BOS)
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=BOS + " $A", pair="%s $A %s:1 $B:1" % (BOS, BOS),
                                      special_tokens=[(BOS, bos)])])
    return tokenizer


def write_tokenizer_config(folder):
    """The minimal tokenizer_config.json that transformers reads."""
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        file.write('{\n  "tokenizer_class": "PreTrainedTokenizerFast",\n  "bos_token": "%s",\n  "eos_token": "%s",\n'
                   '  "clean_up_tokenization_spaces": false,\n  "model_max_length": %d\n}\n' % (BOS, EOS, LONG_SEQUENCE))


CHAT_TEMPLATE = r"""{#- Everything that was said is one story: each message goes on where the one before it has ended. Answers stand as they
    were written, so that a prompt begins with the tokens of the turn before it. -#}
{{- bos_token -}}
{%- set story = namespace(end='') -%}
{%- for message in messages -%}
{%- set is_answer = message['role'] == 'assistant' -%}
{%- set said = (message['content'] or '') if is_answer else message['content'].strip() -%}
{%- if story.end and story.end not in ' \n' and said and (not is_answer or (story.end in '.!?"' and said[0] not in ' \n,.!?"\'')) %} {% endif -%}
{{- said -}}
{%- set story.end = said[-1:] or story.end -%}
{%- endfor -%}
"""


def write_chat_template(folder):
    """A conversation with the demo is one story: each message goes on where the answer before it has ended."""
    with open(os.path.join(folder, "chat_template.jinja"), "w") as file:
        file.write(CHAT_TEMPLATE)


def encode_stories(tokenizer, stories):
    """Returns (tokens [total] int16, starts [stories] int64): BOS story EOS BOS story EOS ..."""
    eos = tokenizer.token_to_id(EOS)
    pieces, starts, total = [], [], 0
    for first in range(0, len(stories), 5000):
        for encoding in tokenizer.encode_batch_fast(stories[first:first + 5000]):
            ids = encoding.ids + [eos]
            starts.append(total)
            total += len(ids)
            pieces.append(np.array(ids, np.int16))
    return np.concatenate(pieces), np.array(starts, np.int64)


def make_model(tokenizer):
    """The untrained model. 6 query heads of 32 over 2 key/value heads, 4 layers: 1.97 million parameters."""
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=192, intermediate_size=512, num_hidden_layers=4,
        num_attention_heads=6, num_key_value_heads=2, head_dim=32, max_position_embeddings=LONG_SEQUENCE,
        rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=True,
        bos_token_id=tokenizer.token_to_id(BOS), eos_token_id=tokenizer.token_to_id(EOS), pad_token_id=None,
        initializer_range=0.05, use_cache=True)
    return LlamaForCausalLM(config)


class Batches:
    """Rows of packed stories; every row starts at the start of a story, as generation does."""

    def __init__(self, tokens, starts, device, seed):
        self.last = {length: int(np.searchsorted(starts, len(tokens) - length - 1, side="right"))
                     for length in (SEQUENCE, LONG_SEQUENCE)}  # rows that start below this index fit
        self.tokens = torch.from_numpy(tokens).to(device)
        self.starts = torch.from_numpy(starts).to(device)
        self.generator = torch.Generator(device).manual_seed(seed)

    def draw(self, rows, length):
        """[rows, length + 1] int64: inputs are [:, :-1], targets [:, 1:]."""
        picks = torch.randint(self.last[length], (rows,), generator=self.generator, device=self.starts.device)
        columns = torch.arange(length + 1, device=self.starts.device)
        return self.tokens[self.starts[picks][:, None] + columns[None, :]].long()


def loss_of(model, rows):
    """Mean cross entropy in nats per token; rows is [rows, length + 1]."""
    logits = model(input_ids=rows[:, :-1], use_cache=False).logits  # [rows, length, vocab]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())


def learning_rate(step, steps, peak):
    """Linear warm-up over the first 3 %, then a cosine down to 2 % of the peak."""
    warm = max(1, int(0.03 * steps))
    if step < warm:
        return peak * (step + 1) / warm
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm))))


def make_optimizer(model, device):
    """AdamW with decay on matrices only."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=device.type == "cuda")


def compiled_loss(model, batches, options, device):
    """loss_of under torch.compile where that works, else plain."""
    if not options.compile:
        return loss_of
    try:
        function = torch.compile(loss_of, dynamic=False)
        for length in (SEQUENCE, LONG_SEQUENCE):  # compile both now, so that the time limit sees the real speed
            with torch.autocast(device.type, torch.bfloat16):
                function(model, batches.draw(options.tokens_per_step // length, length)).backward()
        model.zero_grad(set_to_none=True)
        return function
    except Exception as error:  # no compiler on this machine, or an unsupported operation
        print("torch.compile is not used:", str(error).splitlines()[0][:200], flush=True)
        model.zero_grad(set_to_none=True)
        return loss_of


def train(model, batches, options, device):
    """The training loop; returns the number of steps taken (fewer than asked if --max-seconds would be passed)."""
    optimizer = make_optimizer(model, device)
    loss_function = compiled_loss(model, batches, options, device)
    steps, began, step = options.steps, time.time(), 0
    while step < steps:
        length = LONG_SEQUENCE if step >= (1 - LONG_PART) * steps else SEQUENCE
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, options.peak)
        with torch.autocast(device.type, torch.bfloat16):
            loss = loss_function(model, batches.draw(max(1, options.tokens_per_step // length), length))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % max(1, min(200, steps // 10)) == 0:
            print("step %5d / %d  loss %.4f  %.1f s" % (step, steps, loss.item(), time.time() - began), flush=True)
        if step == 100:
            loss.item()  # waits for the device
            fits = int(options.max_seconds / ((time.time() - began) / step))
            if fits < steps:
                print("only %d of %d steps fit in %d s" % (fits, steps, options.max_seconds), flush=True)
                steps = fits
    return steps


@torch.no_grad()
def held_out_loss(model, batches, device):
    """Mean loss over 16 batches of held-out stories."""
    rows = 64 if device.type == "cuda" else 4
    with torch.autocast(device.type, torch.bfloat16):
        return sum(loss_of(model, batches.draw(rows, SEQUENCE)).item() for _ in range(16)) / 16


def save(model, folder):
    """Writes the bf16 checkpoint and the generation defaults."""
    model.to(torch.bfloat16)
    model.generation_config = GenerationConfig(
        bos_token_id=model.config.bos_token_id, eos_token_id=model.config.eos_token_id, do_sample=True,
        temperature=0.7, top_p=0.95)
    model.save_pretrained(folder)


@torch.no_grad()
def show(folder, tokenizer, device):
    """Reloads the checkpoint as users will and prints continuations."""
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device).eval()
    for prompts, sample in ((SAMPLED_PROMPTS, True), (GREEDY_PROMPTS, False)):
        for prompt in prompts:
            ids = torch.tensor([tokenizer.encode(prompt).ids], device=device)
            choice = dict(do_sample=True, temperature=0.7, top_p=0.95) if sample else dict(do_sample=False)
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=220,
                                 pad_token_id=model.config.eos_token_id, **choice)[0].tolist()
            print("\n[%s] %s" % ("sampled" if sample else "greedy", tokenizer.decode(out, skip_special_tokens=True)))
            print("(%d tokens%s)" % (len(out), ", ended" if model.config.eos_token_id in out[1:] else ""))


def main():
    parser = argparse.ArgumentParser(description="Trains the demo model.")
    parser.add_argument("--out", required=True, help="folder of the checkpoint")
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--stories", type=int, default=150000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--peak", type=float, default=3e-3, help="largest learning rate")
    parser.add_argument("--tokens-per-step", type=int, default=65536)
    parser.add_argument("--max-seconds", type=float, default=200, help="limit of the training loop alone")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    began = time.time()
    os.makedirs(options.out, exist_ok=True)
    device = torch.device(options.device)

    # Processes are forked here, before CUDA and the tokenizer's threads exist.
    stories = write_stories(options.stories, options.seed)
    random.Random(options.seed).shuffle(stories)
    tokenizer = train_tokenizer(stories[:20000])
    tokenizer.save(os.path.join(options.out, "tokenizer.json"))
    write_tokenizer_config(options.out)
    write_chat_template(options.out)
    tokens, starts = encode_stories(tokenizer, stories)
    kept = max(1, int(0.99 * len(starts)))
    cut = starts[kept]
    print("%d stories, %d tokens, vocabulary %d, %.1f s" % (
        len(stories), len(tokens), tokenizer.get_vocab_size(), time.time() - began), flush=True)

    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    model = make_model(tokenizer).to(device)
    print("%d parameters" % sum(p.numel() for p in model.parameters()), flush=True)
    seen = Batches(tokens[:cut], starts[:kept], device, options.seed)
    held_out = Batches(tokens[cut:], starts[kept:] - cut, device, options.seed) if len(tokens) - cut > 2 * SEQUENCE else seen
    steps = train(model, seen, options, device)
    print("after %d steps: held-out loss %.4f, %.1f s in all" % (
        steps, held_out_loss(model.eval(), held_out, device), time.time() - began), flush=True)
    save(model, options.out)
    size = sum(os.path.getsize(os.path.join(options.out, name)) for name in os.listdir(options.out))
    print("saved %s: %.2f MB" % (sorted(os.listdir(options.out)), size / 1e6), flush=True)
    show(options.out, tokenizer, device)
    print("\n%.1f s in all" % (time.time() - began))


if __name__ == "__main__":
    main()
