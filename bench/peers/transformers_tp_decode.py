# Times one decode step of Hugging Face transformers split over several GPUs of one host, tensor parallel with NCCL: the
# peer of `nodewright --tp`. Weights are drawn; only config.json is read.
#
#   python3 bench/peers/transformers_tp_decode.py --model DIR --ranks 2 --batch 1 --context 1024 --out peers.json
#
# Each rank builds transformers' own model of a shard's sizes (heads, key and value heads and the feed-forward width
# divided), an all-reduce follows every `o_proj` and `down_proj`, and the head's rows are divided, each rank's best being
# gathered: Megatron's split without the DTensors of transformers' tp_plan, whose eager dispatch costs more. Every rank
# is a process; the slowest rank's time counts.
import argparse
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
import torch.multiprocessing
import transformers

import transformers_decode as one_device


class RankStep(one_device.DecodeStep):
    """A rank's part of a decode step."""

    def __init__(self, folder, batch, context, device, rank, ranks):
        self.rank, self.ranks = rank, ranks
        torch.manual_seed(1)  # what is not divided is the same on all ranks
        super().__init__(folder, batch, context, device, draws_weights=True)

    def _load(self, folder, dtype, draws_weights):
        config = transformers.AutoConfig.from_pretrained(folder)
        config.head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
            whole = getattr(config, name)
            if whole % self.ranks:
                sys.exit(f"{name} {whole} does not divide by {self.ranks}")
            setattr(config, name, whole // self.ranks)
        with self.device:
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
            self.head_rows = config.vocab_size // self.ranks
            model.lm_head = torch.nn.Linear(config.hidden_size, self.head_rows, bias=False, dtype=dtype)

        def all_reduced(module, inputs, output):
            if torch.compiler.is_compiling():
                return collectives.all_reduce(output, "sum", dist.group.WORLD)
            dist.all_reduce(output)  # in place: a kernel less
            return output

        for name, module in model.named_modules():
            if name.endswith(("o_proj", "down_proj")):
                module.register_forward_hook(all_reduced)
        return model

    def _forward(self):
        out = self.model(input_ids=self.tokens, position_ids=self.positions, past_key_values=self.cache, use_cache=True)
        best, token = out.logits[:, -1].max(dim=-1)
        mine = torch.stack([best.float(), (token + self.rank * self.head_rows).float()], dim=1)
        if torch.compiler.is_compiling():
            all_best = collectives.all_gather_tensor(mine, 0, dist.group.WORLD)
        else:
            all_best = mine.new_empty(self.ranks * self.batch, 2)
            dist.all_gather_into_tensor(all_best, mine)
        all_best = all_best.view(self.ranks, self.batch, 2)
        which = all_best[:, :, 0].argmax(dim=0, keepdim=True)
        return all_best[:, :, 1].gather(0, which)[0].long()


def run_rank(rank, options, results):
    on_cuda = options.device == "cuda"
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port))
    if on_cuda:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if on_cuda else "gloo", rank=rank, world_size=options.ranks,
                            device_id=torch.device("cuda", rank) if on_cuda else None)
    device = f"cuda:{rank}" if on_cuda else "cpu"
    step = RankStep(options.model, options.batch, options.context, device, rank, options.ranks)
    made, left_out = one_device.variants(step, options.compile)
    chosen, figures = {}, {}
    for name, run in made.items():
        step.chosen.fill_(-1)
        run()
        chosen[name] = step.chosen.tolist()
        dist.barrier()
        figures[name] = one_device.spread(one_device.sample_ms(run, device, options.samples, options.steps))
    results.put((rank, chosen, figures, left_out))
    dist.barrier()
    # Captured collectives and their communicator do not always part in peace.
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description="Times one tensor parallel decode step of transformers.")
    parser.add_argument("--model", required=True, help="folder with a config.json")
    parser.add_argument("--ranks", type=int, default=2, help="GPUs, a process each")
    parser.add_argument("--batch", type=int, default=1, help="rows of the step")
    parser.add_argument("--context", type=int, default=1024, help="keys a row attends to, its own included")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu tries the script with gloo")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--steps", type=int, default=20, help="back to back in a sample")
    parser.add_argument("--compile", action="store_true", help="torch.compile as well (minutes)")
    parser.add_argument("--port", type=int, default=29533, help="of the ranks' rendezvous on this host")
    parser.add_argument("--out", help="JSON file; standard output otherwise")
    options = parser.parse_args()
    if options.ranks < 2 or options.batch < 1 or options.context < 2 or options.samples < 1 or options.steps < 1:
        parser.error("--ranks and --context are at least 2, --batch, --samples and --steps at least 1")

    context = torch.multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    ranks = [context.Process(target=run_rank, args=(rank, options, results)) for rank in range(options.ranks)]
    for rank in ranks:
        rank.start()
    found = []
    while len(found) < options.ranks:
        if not results.empty():
            found.append(results.get())
            continue
        if any(rank.exitcode not in (None, 0) for rank in ranks):
            for rank in ranks:
                rank.kill()
            sys.exit("a rank ended early")
        ranks[0].join(0.2)
    for rank in ranks:
        rank.join()
    _, chosen, _, left_out = found[0]
    assert all(other[1] == chosen for other in found), f"ranks chose differently: {[other[1] for other in found]}"
    slowest = {name: max((other[2][name] for other in found), key=lambda spread: spread["median"]) for name in chosen}
    result = {"model": os.path.basename(os.path.normpath(options.model)), "ranks": options.ranks,
              "batch": options.batch, "context": options.context, "samples": options.samples,
              "steps_per_sample": options.steps, "left_out": left_out,
              "versions": one_device.versions() | ({"nccl": torch.cuda.nccl.version()} if options.device == "cuda" else {}),
              "step_ms": slowest}
    one_device.write_result(result, options.out)


if __name__ == "__main__":
    main()
