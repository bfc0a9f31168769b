# The oracle: logits of a Llama checkpoint by Hugging Face transformers in float32 with eager attention.
# Writes float32 [1 + continuation, vocab]: row 0 after the prompt, then one row after each forced token.
import argparse
import logging
import os
import warnings

import numpy as np
import torch


def quiet():
    """Leaves only errors on stderr."""
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    from transformers.utils import logging as transformers_logging
    transformers_logging.disable_progress_bar()


def load(folder, device, dtype=torch.float32):
    """The model, reloaded from the checkpoint in `dtype` (never moved there from bf16: that rounds RoPE's
    frequencies), with TF32 off."""
    quiet()
    from transformers import AutoModelForCausalLM
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager",
                                                 experts_implementation="eager")
    return model.to(device).eval()


@torch.no_grad()
def one_forward(model, prompt, continuation):
    """[1 + continuation, vocab] float32 from one pass over prompt + continuation."""
    ids = torch.tensor([prompt + continuation], device=model.device)
    rows = model(input_ids=ids, use_cache=False, logits_to_keep=1 + len(continuation)).logits[0]
    return rows.float().cpu().numpy()


@torch.no_grad()
def hidden_states(model, tokens):
    """[tokens, hidden] float32 behind the final norm: what the head multiplies."""
    ids = torch.tensor([tokens], device=model.device)
    return model.base_model(input_ids=ids, use_cache=False).last_hidden_state[0].float().cpu().numpy()


@torch.no_grad()
def with_cache(model, prompt, continuation):
    """The same rows from a prefill and one step a token over a KV cache."""
    rows, cache = [], None
    for ids in [prompt] + [[token] for token in continuation]:
        out = model(input_ids=torch.tensor([ids], device=model.device), past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        rows.append(out.logits[0, -1].float().cpu().numpy())
    return np.stack(rows)


def token_list(text):
    """"1,2,3" to [1, 2, 3]; the empty text to []."""
    return [int(part) for part in text.split(",") if part.strip()]


def main():
    parser = argparse.ArgumentParser(description="Writes reference logits of a checkpoint.")
    parser.add_argument("--model", required=True, help="folder of the checkpoint")
    parser.add_argument("--prompt", required=True, type=token_list, help="token ids, such as 1,2,3")
    parser.add_argument("--continue", dest="continuation", type=token_list, default=[], help="forced token ids")
    parser.add_argument("--out", required=True, help="the .npy file to write")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--cache", action="store_true", help="step with a KV cache instead of one forward")
    options = parser.parse_args()
    if not options.prompt:
        parser.error("--prompt needs at least one token id")
    model = load(options.model, options.device)
    vocab = model.config.vocab_size
    outside = [token for token in options.prompt + options.continuation if not 0 <= token < vocab]
    if outside:
        parser.error("token ids outside 0..%d: %s" % (vocab - 1, outside))
    rows = (with_cache if options.cache else one_forward)(model, options.prompt, options.continuation)
    with open(options.out, "wb") as file:  # a file object keeps np.save from appending .npy
        np.save(file, rows.astype(np.float32))


if __name__ == "__main__":
    main()
