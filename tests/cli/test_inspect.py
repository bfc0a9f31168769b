# `nodewright inspect` as a black box: its numbers against those counted here from the files. Standard library only.
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

from command import DEMO, DEVICE, PROGRAM, RUN_TIME, USAGE, CommandTest, golden_model, run
from hostile_checkpoints import HOSTILE, SINGLE, copy_model, read_bytes, set_config, split_safetensors, write_bytes

MODELS = [DEMO] + [golden_model(name) for name in ("odd_sizes", "one_kv_head", "unaligned")]
ELEMENT_BYTES = {"BF16": 2, "F16": 2, "F32": 4}

# Llama-3.2-1B (its config.json), and what a step of it moves
LLAMA_1B = dict(hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, head_dim=64,
                intermediate_size=8192, vocab_size=128256, max_position_embeddings=131072, tie_word_embeddings=True,
                architectures=["LlamaForCausalLM"], rms_norm_eps=1e-5, rope_theta=500000.0, bos_token_id=128000,
                eos_token_id=[128001, 128008, 128009])
LLAMA_1B_PARAMETERS, LLAMA_1B_KV = 1235814400, 32 * 1024


def tensors_of(folder):
    """{name: (dtype, shape)} of every safetensors file of a checkpoint."""
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            header, _ = split_safetensors(read_bytes(folder, name))
            tensors.update({n: (t["dtype"], t["shape"]) for n, t in header.items() if n != "__metadata__"})
    return tensors


def count(shape):
    product = 1
    for size in shape:
        product *= size
    return product


def llama_shapes(c):
    """(name, shape) of every tensor of a tied Llama."""
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    wide, narrow = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    yield "model.embed_tokens.weight", [c["vocab_size"], hidden]
    for layer in range(c["num_hidden_layers"]):
        for name, shape in (("input_layernorm", [hidden]), ("self_attn.q_proj", [wide, hidden]),
                            ("self_attn.k_proj", [narrow, hidden]), ("self_attn.v_proj", [narrow, hidden]),
                            ("self_attn.o_proj", [hidden, wide]), ("post_attention_layernorm", [hidden]),
                            ("mlp.gate_proj", [inner, hidden]), ("mlp.up_proj", [inner, hidden]),
                            ("mlp.down_proj", [hidden, inner])):
            yield "model.layers.%d.%s.weight" % (layer, name), shape
    yield "model.norm.weight", [hidden]


def write_hollow_checkpoint(folder, config):
    """A checkpoint whose tensors are a hole in the file: as long as the real one, and nothing to read."""
    header, at = {}, 0
    for name, shape in llama_shapes(config):
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * count(shape)]}
        at += 2 * count(shape)
    text = json.dumps(header).encode()
    write_bytes(folder, "config.json", json.dumps(config).encode())
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


class Inspect(CommandTest):
    def inspect(self, model, *words, **options):
        return json.loads(self.succeed("inspect", "--model", model, "--json", *words, **options))

    def test_it_counts_what_the_files_hold(self):
        for model in MODELS:
            with self.subTest(model):
                report, tensors = self.inspect(model, "--device", "none"), tensors_of(model)
                config = json.loads(read_bytes(model, "config.json"))
                for ours, theirs in (("layers", "num_hidden_layers"), ("hidden", "hidden_size"), ("head_dim", "head_dim"),
                                     ("heads", "num_attention_heads"), ("kv_heads", "num_key_value_heads"),
                                     ("intermediate", "intermediate_size"), ("vocab", "vocab_size"),
                                     ("tied", "tie_word_embeddings"),
                                     ("bos", "bos_token_id")):
                    self.assertEqual(config[theirs], report[ours], ours)
                scaling = config.get("rope_scaling") or {}
                factor = scaling["factor"] if scaling.get("rope_type") == "linear" else 1
                self.assertEqual(config["max_position_embeddings"] * factor, report["context"])
                self.assertEqual([config["eos_token_id"]], report["eos"])
                self.assertEqual(config["architectures"], [report["architecture"]])
                self.assertEqual(len(tensors), report["tensors"])
                self.assertEqual(sum(count(shape) for _, shape in tensors.values()), report["parameters"])
                self.assertEqual(sum(count(shape) * ELEMENT_BYTES[dtype] for dtype, shape in tensors.values()),
                                 report["file_bytes"])
                for key in ("kinds", "file_dtypes"):
                    for sums in ("tensors", "parameters", "bytes"):
                        total = report["file_bytes" if sums == "bytes" else sums]
                        self.assertEqual(total, sum(share[sums] for share in report[key]), key)
                self.assertEqual({dtype for dtype, _ in tensors.values()}, {d["name"] for d in report["file_dtypes"]})
                parameters = {kind["name"]: kind["parameters"] for kind in report["kinds"]}
                for kind, words in (("attention", "self_attn"), ("feed-forward", "mlp"), ("norms", "norm"),
                                    ("embedding", "embed_tokens"), ("head", "lm_head")):
                    self.assertEqual(sum(count(s) for n, (_, s) in tensors.items() if words in n),
                                     parameters.get(kind, 0), kind)
                self.assertNotIn("other", parameters)
                self.assertLessEqual(2 * report["parameters"], report["device_bytes"])
                self.assertIsNone(report["device"])

    def test_a_checkpoint_of_gigabytes_is_counted_without_being_read(self):
        with tempfile.TemporaryDirectory() as folder:
            write_hollow_checkpoint(folder, LLAMA_1B)
            process = subprocess.Popen([PROGRAM, "inspect", "--model", folder, "--json", "--device", "none"],
                                       stdout=subprocess.PIPE)
            report = json.load(process.stdout)
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            with open("/proc/%d/io" % process.pid) as counts:  # of the 2.5 GB
                self.assertLess(int(re.search(r"rchar: (\d+)", counts.read())[1]), 256 << 20)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            process.stdout.close()
            self.assertEqual(0, process.returncode)
            self.assertLess(used.ru_maxrss << 10, 1 << 30)  # nor mapped and looked at
            blocks = os.stat(os.path.join(folder, "model.safetensors")).st_blocks
        self.assertLess(blocks * 512, 1 << 20)
        self.assertEqual(LLAMA_1B_PARAMETERS, report["parameters"])
        self.assertEqual(2 * LLAMA_1B_PARAMETERS, report["file_bytes"])
        self.assertEqual(2 * LLAMA_1B_PARAMETERS + 2 * 2048, report["weight_bytes_per_token"])  # and an embedding row
        self.assertEqual(LLAMA_1B_KV, report["kv_bytes_per_token"])
        self.assertEqual([128001, 128008, 128009], report["eos"])
        self.assertIsNone(report["tokenizer"])

    def test_a_row_of_an_untied_embedding_is_all_that_a_token_moves_of_it(self):
        report = self.inspect(golden_model("one_kv_head"), "--device", "none")  # 517 x 96, untied
        self.assertLess(report["weight_bytes_per_token"], report["device_bytes"] - 516 * 96 * 2)

    def test_dense_layers_of_a_mixture_are_named(self):
        folder = golden_model("qwen3_moe/every_second")
        report = self.inspect(folder, "--device", "none")
        self.assertEqual((3, 5, 36, [0, 2], 100), tuple(report[key] for key in (
            "layers", "experts", "intermediate", "dense_layers", "dense_intermediate")))
        self.assertIn("experts       5 in 1 of 3 layers, 2 of a token; the others have one block of 100\n",
                      self.succeed("inspect", "--model", folder, "--device", "none"))

    def test_the_tokenizer_is_described_where_there_is_one(self):
        tokenizer = self.inspect(DEMO, "--device", "none")["tokenizer"]
        self.assertEqual(("BPE", "", "Split + ByteLevel"),
                         (tokenizer["model"], tokenizer["normalizer"], tokenizer["pre_tokenizer"]))
        file = json.loads(read_bytes(DEMO, "tokenizer.json"))
        self.assertEqual((len(file["model"]["vocab"]), len(file["added_tokens"])),
                         (tokenizer["tokens"], tokenizer["added_tokens"]))

    def test_a_chat_template_is_found_in_either_place(self):
        with tempfile.TemporaryDirectory() as holder:
            folder = copy_model(SINGLE, os.path.join(holder, "model"))
            self.assertEqual("", self.inspect(folder, "--device", "none")["chat_template"])
            write_bytes(folder, "tokenizer_config.json", b'{"chat_template": "{{ messages }}"}')
            self.assertEqual("tokenizer_config.json", self.inspect(folder, "--device", "none")["chat_template"])
            write_bytes(folder, "chat_template.jinja", b"{{ messages }}")
            self.assertEqual("chat_template.jinja", self.inspect(folder, "--device", "none")["chat_template"])

    def test_without_a_gpu_the_report_says_so_and_a_device_asked_for_is_an_error(self):
        report = self.inspect(DEMO, CUDA_VISIBLE_DEVICES="")
        self.assertIsNone(report["device"])
        self.assertIn("--device cpu", report["no_device"])
        self.assertIn("device        none: ", self.succeed("inspect", "--model", DEMO, CUDA_VISIBLE_DEVICES=""))
        self.assert_refused(RUN_TIME, ["--device cpu"], "inspect", "--model", DEMO, "--device", "cuda",
                            CUDA_VISIBLE_DEVICES="")
        self.assert_refused(USAGE, ["bogus"], "inspect", "--model", DEMO, "--device", "bogus")

    def test_what_fits_on_a_device_fills_its_free_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            write_hollow_checkpoint(folder, LLAMA_1B)
            report = self.inspect(folder, "--device", DEVICE if DEVICE != "cpu" else "cpu:memory_mb=3000")
            short = self.inspect(folder, "--device", "cpu:memory_mb=1000")
        device = report["device"]
        self.assertTrue(device["weights_fit"])
        self.assertEqual([1, 8, 64], [fit["sequences"] for fit in device["fits"]])
        for fit in device["fits"]:
            tokens = fit["sequences"] * fit["tokens_each"]
            used = report["device_bytes"] + tokens * LLAMA_1B_KV
            self.assertLessEqual(used, device["free_bytes"])
            if fit["tokens_each"] < 131072:  # a page more in each would not fit
                self.assertEqual(0, fit["tokens_each"] % 64)
                self.assertLess(device["free_bytes"], used + fit["sequences"] * 64 * LLAMA_1B_KV)
            seconds = report["weight_bytes_per_token"] / device["read_bytes_per_s"]
            self.assertAlmostEqual(seconds * 1e3, fit["least_step_ms"], delta=seconds)
            seconds += tokens * LLAMA_1B_KV / device["read_bytes_per_s"]
            self.assertAlmostEqual(seconds * 1e3, fit["filled_step_ms"], delta=seconds)
        self.assertFalse(short["device"]["weights_fit"])
        self.assertEqual([0, 0, 0], [fit["tokens_each"] for fit in short["device"]["fits"]])

    def test_the_text_says_the_same_on_every_line(self):
        text = self.succeed("inspect", "--model", DEMO, "--device", DEVICE)
        for line in (r"architecture  LlamaForCausalLM: 4 layers, hidden 192, intermediate 512, vocabulary 2048, context 1024,"
                     r" tied head", r"attention     6 heads and 2 key/value heads of 32; rotary default, theta 10000",
                     r"parameters    \d+ in 38 tensors, 3\.\d+ MB in the files", r"  attention +\d+ parameters +\d+\.\d % .+",
                     r"  BF16 +\d+ parameters +100\.0 % .+", r"cache         1\.02 kB a token",
                     r"tokenizer     BPE, 2048 tokens and 2 added; normalizer none, pre-tokenizer Split \+ ByteLevel; "
                     r"bos 0, eos 1; chat template in chat_template.jinja", r"device        .+ free, reads .+/s \(median of 5\)",
                     r" +8 +1024 +\d+\.\d{3} ms +\d+\.\d{3} ms"):
            self.assertRegex(text, re.compile("^" + line + "$", re.MULTILINE))

    def test_layers_with_a_window_count_for_the_pages_that_they_hold(self):
        model = golden_model("gemma3/window_16")  # six layers of seven see 16 tokens
        report = self.inspect(model, "--device", DEVICE)
        self.assertEqual((16, 7 * report["windowed_kv_bytes_per_token"]), (report["window"], 6 * report["kv_bytes_per_token"]))
        text = self.succeed("inspect", "--model", model, "--device", "none")
        self.assertRegex(text, r"(?m)^cache +[\d.]+ \w+ a token, [\d.]+ \w+ of them only of the last 16 tokens$")
        step, = [fit for fit in report["device"]["fits"] if fit["sequences"] == 64]
        self.assertEqual(256, step["tokens_each"])  # the context the model was made for
        of_layer = report["kv_bytes_per_token"] / 7
        moved = report["weight_bytes_per_token"] + 64 * of_layer * (256 + 6 * 16)
        self.assertAlmostEqual(1, step["filled_step_ms"] * 1e-3 * report["device"]["read_bytes_per_s"] / moved, places=6)
        self.assertIsNone(self.inspect(DEMO, "--device", "none")["window"])

    def assert_stopped(self, named, folder):
        """Exit code 1, nothing on stderr, and a report that holds each of `named` in the lines of what stops it."""
        done = run("inspect", "--model", folder, "--device", "none")
        self.assertEqual((1, b""), (done.returncode, done.stderr))
        text = done.stdout.decode()
        self.assertNotIn("\x1b", text)
        lines = re.search(r"^model .+\nruns          no\n((?:  .+\n)+)", text)
        for name in named:
            self.assertIn(name, lines.group(1))
        report = json.loads(run("inspect", "--model", folder, "--device", "none", "--json").stdout)
        self.assertFalse(report["runs"])
        self.assertEqual(lines.group(1).count("\n"), len(report["obstacles"]))
        return {one["part"]: one["why"] for one in report["obstacles"]}

    def test_every_fault_of_the_configs_has_a_line(self):
        with tempfile.TemporaryDirectory() as holder:
            folder = copy_model(golden_model("odd_sizes"), os.path.join(holder, "m"))
            config = json.loads(read_bytes(folder, "config.json"))
            config.update(num_hidden_layers=0, hidden_act="relu", quantization_config={"bits": 4})
            write_bytes(folder, "config.json", json.dumps(config).encode())
            write_bytes(folder, "generation_config.json", b'{"top_p": 2, "temperature": "warm"}')
            self.assert_stopped(["num_hidden_layers is 0", "hidden_act is 'relu'", "quantization_config", "top_p is 2",
                                 "temperature is '\"warm\"'"], folder)
            parts = [one["part"] for one in json.loads(
                run("inspect", "--model", folder, "--device", "none", "--json").stdout)["obstacles"]]
            self.assertEqual(["config"] * 2 + ["generation_config"] * 2 + ["weights"], parts)

    def test_hostile_checkpoints_are_refused_as_loading_refuses_them(self):
        with tempfile.TemporaryDirectory() as holder:
            for name, model, change, named in HOSTILE:
                if name == "weights_hold_a_nan":  # only a run can see that
                    continue
                with self.subTest(name):
                    folder = copy_model(model, os.path.join(holder, name))
                    change(folder)
                    self.assert_stopped(named, folder)

    def test_each_part_that_stops_a_checkpoint_is_named(self):
        with tempfile.TemporaryDirectory() as holder:
            folder = copy_model(SINGLE, os.path.join(holder, "model"))
            self.assertEqual((True, []), (self.inspect(folder, "--device", "none")["runs"],
                                          self.inspect(folder, "--device", "none")["obstacles"]))
            self.assertIn("runs          yes\n", self.succeed("inspect", "--model", folder, "--device", "none"))
            write_bytes(folder, "generation_config.json", b'{"suppress_tokens": [1000000]}')
            self.assertEqual(["generation_config"], list(self.assert_stopped(["suppress_tokens", "1000000"], folder)))
            write_bytes(folder, "generation_config.json", b'{"top_p": 7}')
            self.assertEqual(["generation_config"], list(self.assert_stopped(["top_p"], folder)))
            set_config(architectures=["Mamba2ForCausalLM"])(folder)
            os.remove(os.path.join(folder, "model.safetensors"))
            write_bytes(folder, "tokenizer.json", b'{"model": {"type": "Mystery"}}')
            write_bytes(folder, "chat_template.jinja", b"{% include 'x' %}")
            named = ["Mamba2ForCausalLM", "top_p", "model.safetensors", "Mystery", "{% include %}"]
            self.assertEqual(["config", "generation_config", "weights", "tokenizer", "chat_template"],
                             list(self.assert_stopped(named, folder)))

    def test_hostile_tokenizers_are_refused_and_reach_no_terminal(self):
        with tempfile.TemporaryDirectory() as holder:
            folder = copy_model(SINGLE, os.path.join(holder, "model"))
            for content in (b"", b"[]", b"{}", b"{", b'{"model": 3}', b'{"model": {}, "model": {}}', b"[" * 100000):
                write_bytes(folder, "tokenizer.json", content)
                self.assertEqual(["tokenizer"], list(self.assert_stopped(["tokenizer.json"], folder)))
            write_bytes(folder, "tokenizer.json", b'{"model": {"type": "\\u001b[2J"}, "normalizer": 7}')
            self.assert_stopped(["tokenizer.json"], folder)
            set_config(architectures=["\x1b[2J"])(folder)
            self.assert_stopped(["architecture"], folder)


if __name__ == "__main__":
    print("nodewright: %s on %s" % (PROGRAM, DEVICE), file=sys.stderr)
    unittest.main()
