# Times one decode step of Hugging Face transformers: eager, under torch.cuda.graph, and optionally torch.compile.
# Not a benchmark of generate(): every row attends to exactly `context` keys, and the cache holds nothing else.
#
#   python3 bench/peers/transformers_decode.py --model DIR --batch 1 --context 1024 --out peers.json
import argparse
import json
import os
import statistics
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers


class DecodeStep:
    """One token a row at position context - 1, over a static cache of `context` keys: forward pass and argmax.

    A static cache counts its own tokens, one counter a layer, a tensor each: torch.compile makes no CUDA graph of steps
    that change views of one. One launch at the start of a step sets them all, so that every step is the same.
    """

    def __init__(self, folder, batch, context, device, dtype=torch.bfloat16, draws_weights=False):
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self.batch, self.context, self.device = batch, context, torch.device(device)
        self.model = self._load(folder, dtype, draws_weights).to(self.device).eval()
        config = self.model.config
        generator = torch.Generator(device=self.device).manual_seed(1)
        self.tokens = torch.randint(config.vocab_size, (batch, 1), generator=generator, device=self.device)
        self.positions = torch.full((batch, 1), context - 1, device=self.device)
        self.chosen = torch.zeros(batch, dtype=torch.long, device=self.device)
        self.cache = transformers.StaticCache(config=config, max_cache_len=context)
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.cache.early_initialization(batch, config.num_key_value_heads, head_dim, dtype, self.device)
        self.lengths = [torch.zeros((), dtype=torch.long, device=self.device) for _ in self.cache.layers]
        self.start_lengths = [torch.full_like(length, context - 1) for length in self.lengths]
        for length, layer in zip(self.lengths, self.cache.layers):
            layer.cumulative_length = length
            torch._dynamo.mark_static_address(layer.cumulative_length)
            for tensor in (layer.keys, layer.values):  # any history will do, zeros would make attention uniform
                tensor.normal_(generator=generator)
        self.compiled = None

    def _load(self, folder, dtype, draws_weights):
        if not draws_weights:
            return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
        config = transformers.AutoConfig.from_pretrained(folder)  # of config.json alone
        with self.device:
            return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")

    def _forward(self):
        out = self.model(input_ids=self.tokens, position_ids=self.positions, past_key_values=self.cache, use_cache=True)
        return out.logits[:, -1].argmax(dim=-1)

    def _set_lengths(self):
        torch._foreach_copy_(self.lengths, self.start_lengths)
        for layer in self.cache.layers:
            if hasattr(layer, "cumulative_length_int"):  # of a sliding window: whether it is full
                layer.cumulative_length_int = self.context - 1

    @torch.no_grad()
    def eager(self):
        """The step, launched operation by operation."""
        self._set_lengths()
        self.chosen.copy_(self._forward())

    def cuda_graph(self):
        """The same step captured once; returns what replays it."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # libraries choose algorithms and take workspaces before the capture
                self.eager()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.eager()
        return graph.replay

    def compile(self):
        """The step by torch.compile(mode="reduce-overhead"), which makes CUDA graphs of its own."""
        forward = torch.compile(self._forward, mode="reduce-overhead", fullgraph=False)

        @torch.no_grad()
        def step():
            self._set_lengths()
            torch.compiler.cudagraph_mark_step_begin()
            self.chosen.copy_(forward())

        for _ in range(5):  # compiles, records, then replays
            step()
        return step

    def weight_bytes(self):
        """Bytes of weights that a step reads: all but the embedding, of which it reads `batch` rows."""
        embedding = self.model.get_input_embeddings().weight
        tied = self.model.get_output_embeddings().weight is embedding
        total = sum(p.numel() * p.element_size() for p in self.model.parameters())
        return total - (0 if tied else embedding.numel() * embedding.element_size())


def sample_ms(step, device, samples, steps):
    """Milliseconds a step, one figure a sample of `steps` steps back to back. Device time on CUDA."""
    on_cuda = torch.device(device).type == "cuda"
    figures = []
    for i in range(-2, samples):  # two samples warm up
        if on_cuda:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        if on_cuda:
            end.record()
            end.synchronize()
        ms = start.elapsed_time(end) if on_cuda else (time.perf_counter() - begin) * 1e3
        if i >= 0:
            figures.append(ms / steps)
    return figures


def spread(figures):
    return {"median": statistics.median(figures), "min": min(figures), "max": max(figures)}


def variants(step, compile):
    """Name -> what runs one step, for every variant that this device and these options allow, and name -> why it is not
    there: a sliding window's cache makes a tensor of a host's value in every step, which no capture allows."""
    makers = {"eager": lambda: step.eager}
    if step.device.type == "cuda":
        makers["torch.cuda.graph"] = step.cuda_graph
    if compile:
        makers["torch.compile"] = step.compile
    made, left_out = {}, {}
    for name, make in makers.items():
        try:
            made[name] = make()
        except RuntimeError as error:
            left_out[name] = str(error).splitlines()[0]
            print(f"{name} is left out: {left_out[name]}", file=sys.stderr)
    return made, left_out


def check_agreement(step, made):
    """Every variant must choose the tokens that the eager step chooses; else it does not time the same work.

    Rows that eager steps choose differently are left out: sums whose order varies, a sliding window that moves on. Of the
    others an eighth may be near ties.
    """
    step.eager()
    expected = step.chosen.clone()
    settled = torch.ones_like(expected, dtype=torch.bool)
    for _ in range(8):
        step.eager()
        settled &= step.chosen == expected
    for name, run in made.items():
        step.chosen.fill_(-1)
        run()
        assert (step.chosen >= 0).all(), f"{name} chose nothing"
        differing = ((step.chosen != expected) & settled).sum().item()
        if name != "torch.compile":  # other kernels, other rounding: it must have run, no more
            assert differing <= step.batch // 8, f"{name} chose {step.chosen.tolist()}, not {expected.tolist()}"


def versions():
    return {"torch": torch.__version__, "transformers": transformers.__version__, "cuda": torch.version.cuda}


def write_result(result, path):
    """To a file, or to standard output where there is none."""
    text = json.dumps(result, indent=2) + "\n"
    if path:
        with open(path, "w") as file:
            file.write(text)
    else:
        print(text, end="")


def main():
    parser = argparse.ArgumentParser(description="Times one decode step of transformers.")
    parser.add_argument("--model", required=True, help="folder of the checkpoint")
    parser.add_argument("--batch", type=int, default=1, help="rows of the step")
    parser.add_argument("--context", type=int, default=1024, help="keys a row attends to, its own included")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu times the eager step only")
    parser.add_argument("--samples", type=int, default=20, help="of each figure; medians are reported")
    parser.add_argument("--steps", type=int, default=20, help="back to back in a sample")
    parser.add_argument("--load-format", default="auto", choices=["auto", "dummy"],
                        help="dummy: weights are drawn for config.json alone")
    parser.add_argument("--compile", action="store_true", help="torch.compile as well (minutes)")
    parser.add_argument("--out", help="JSON file; standard output otherwise")
    options = parser.parse_args()
    if options.batch < 1 or options.context < 2 or options.samples < 1 or options.steps < 1:
        parser.error("--batch, --samples and --steps are at least 1, --context at least 2")

    step = DecodeStep(options.model, options.batch, options.context, options.device,
                      draws_weights=options.load_format == "dummy")
    made, left_out = variants(step, options.compile)
    check_agreement(step, made)
    result = {"model": os.path.basename(os.path.normpath(options.model)), "batch": options.batch,
              "context": options.context, "samples": options.samples, "steps_per_sample": options.steps,
              "versions": versions(), "left_out": left_out, "weight_bytes": step.weight_bytes(),
              "step_ms": {name: spread(sample_ms(run, options.device, options.samples, options.steps))
                          for name, run in made.items()}}
    write_result(result, options.out)


if __name__ == "__main__":
    main()
