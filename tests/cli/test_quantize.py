# `nodewright quantize` and `--quantization fp8` as black boxes.
import json
import math
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from command import DEMO, GOLDEN, PROGRAM, RUN_TIME, USAGE, CommandTest, golden_model, on_device, run

with open(os.path.join(GOLDEN, "eval.json")) as golden_file:
    TEXT = json.load(golden_file)["text"]
FORMATS = ("fp8-block", "fp8-row", "int4-g128")
# Nats a token of TEXT between the demo and each copy of it, three times what the CPU driver found.
MOST_DIVERGENCE = {"fp8-block": 3 * 3.70e-5, "fp8-row": 3 * 5.36e-5, "int4-g128": 3 * 8.35e-4}
MATRIX = "model.layers.1.mlp.down_proj.weight"  # [192, 512]


def tensors_of(folder):
    """Name to (dtype, shape, bytes) of model.safetensors."""
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__")
    return {name: (one["dtype"], one["shape"], data[slice(*one["data_offsets"])]) for name, one in header.items()}


def bf16_values(data):
    return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]


def e4m3(code):
    exponent, fraction = code >> 3 & 15, code & 7
    size = math.ldexp(fraction, -9) if exponent == 0 else math.ldexp(8 + fraction, exponent - 10)
    return -size if code & 0x80 else size


def next_bf16(value):
    """The least bf16 that is not below a positive value, as which it is first rounded to fp32."""
    [bits] = struct.unpack("<I", struct.pack("<f", value))
    return struct.unpack("<f", struct.pack("<I", -(-bits >> 16) << 16))[0]


def as_fp32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class Quantize(CommandTest):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = scratch.name
        cls.said = {}
        for name in FORMATS:
            done = run("quantize", "--model", DEMO, "--out", cls.made(name), "--format", name)
            cls.said[name] = (done.returncode, done.stdout, done.stderr.decode())

    @classmethod
    def made(cls, name):
        return os.path.join(cls.folder, name)

    def divergence(self, *words):
        done = run(*on_device("eval", *words, "--against", DEMO, "--prompt", TEXT, "--json"))
        self.assertEqual(0, done.returncode, done.stderr)
        return json.loads(done.stdout)["against"]["kl_divergence"], done.stderr.decode()

    def test_a_copy_is_close_to_its_source(self):
        for name in FORMATS:
            code, out, said = self.said[name]
            self.assertEqual((0, b""), (code, out))
            self.assertRegex(said, r"\Anodewright: 28 matrices in %s; 3\.94 MB of tensors became \d\.\d\d MB in [^\n]+\n\Z" % name)
            nats, _ = self.divergence(self.made(name))
            self.assertGreater(nats, MOST_DIVERGENCE[name] / 30, name)
            self.assertLess(nats, MOST_DIVERGENCE[name], name)

    def test_other_files_are_copied(self):
        for name in FORMATS:
            self.assertEqual(sorted(os.listdir(DEMO)), sorted(os.listdir(self.made(name))))
            for file in os.listdir(DEMO):
                with open(os.path.join(DEMO, file), "rb") as one, open(os.path.join(self.made(name), file), "rb") as other:
                    self.assertEqual(file not in ("config.json", "model.safetensors"), one.read() == other.read(), file)

    def test_codes_are_the_nearest_and_config_says_what_they_are(self):
        source = tensors_of(DEMO)
        weights = bf16_values(source[MATRIX][2])
        rows, cols = source[MATRIX][1]
        table = sorted({e4m3(code) for code in range(256) if code & 0x7f != 0x7f})
        for name, block_rows, block_cols, ending in (("fp8-row", 1, cols, "_scale"), ("fp8-block", 128, 128, "_scale_inv")):
            made = tensors_of(self.made(name))
            grid = [-(-rows // block_rows), -(-cols // block_cols)]
            self.assertEqual(("F8_E4M3", [rows, cols]), made[MATRIX][:2])
            self.assertEqual(("F32", grid), made[MATRIX + ending][:2])
            scales = struct.unpack("<%df" % (grid[0] * grid[1]), made[MATRIX + ending][2])
            for i in range(grid[0]):
                for j in range(grid[1]):
                    places = [row * cols + col for row in range(i * block_rows, min(rows, (i + 1) * block_rows))
                              for col in range(j * block_cols, min(cols, (j + 1) * block_cols))]
                    scale = scales[i * grid[1] + j]
                    self.assertEqual(next_bf16(max(abs(weights[at]) for at in places) / 448), scale)
                    for at in places[::7]:
                        exact = as_fp32(weights[at] / scale)
                        least = min(abs(value - exact) for value in table)
                        self.assertEqual(least, abs(e4m3(made[MATRIX][2][at]) - exact))
            self.assertEqual(source["model.embed_tokens.weight"], made["model.embed_tokens.weight"])
        made = tensors_of(self.made("int4-g128"))
        self.assertNotIn(MATRIX, made)
        self.assertEqual(("I64", [2], struct.pack("<2q", rows, cols)), made[MATRIX + "_shape"])
        self.assertEqual(("I32", [rows, cols // 8]), made[MATRIX + "_packed"][:2])
        self.assertEqual(("BF16", [rows, cols // 128]), made[MATRIX + "_scale"][:2])
        scales = bf16_values(made[MATRIX + "_scale"][2])
        packed = made[MATRIX + "_packed"][2]
        for at, weight in enumerate(weights):
            code = (packed[at // 2] >> 4 * (at % 2) & 15) - 8
            self.assertEqual(max(-8, min(7, round(as_fp32(weight / scales[at // 128])))), code)

    def test_configs_are_those_of_the_formats(self):
        def config(name):
            with open(os.path.join(self.made(name), "config.json")) as file:
                return json.load(file)

        with open(os.path.join(DEMO, "config.json")) as file:
            source = json.load(file)
        found = {name: config(name) for name in FORMATS}
        quantization = {name: one.pop("quantization_config") for name, one in found.items()}
        for name in FORMATS:
            self.assertEqual(source, found[name])
        self.assertEqual({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
                          "modules_to_not_convert": ["lm_head"]}, quantization["fp8-block"])
        for name, form, kind, bits, strategy in (("fp8-row", "float-quantized", "float", 8, "channel"),
                                                 ("int4-g128", "pack-quantized", "int", 4, "group")):
            self.assertEqual(("compressed-tensors", form, ["lm_head"]), tuple(quantization[name][key] for key in ("quant_method", "format", "ignore")))
            for group in quantization[name]["config_groups"].values():
                self.assertEqual((kind, bits, strategy, True), tuple(group["weights"][key] for key in ("type", "num_bits", "strategy", "symmetric")))
        groups = quantization["int4-g128"]["config_groups"].values()
        self.assertEqual([128, 64], [group["weights"]["group_size"] for group in groups])  # 192 columns have whole groups of 64
        self.assertEqual([4, 24], [len(group["targets"]) for group in groups])

    # The checkpoint has the same scales and codes.
    def test_rounding_while_loading_is_loading_what_was_rounded(self):
        logits, tokens = [], []
        for words in ((DEMO, "--quantization", "fp8"), (self.made("fp8-row"),)):
            out = os.path.join(self.folder, "logits.npy")
            self.assertEqual(0, run(*on_device("logits", *words, "--prompt-ids", "5,6,7", "--continue", "8,9,10", "--out", out)).returncode)
            with open(out, "rb") as file:
                logits.append(file.read())
            done = run(*on_device("generate", *words, "--prompt", "Once upon a time", "--greedy", "--max-tokens", "24"))
            tokens.append(done.stdout)
        self.assertEqual(logits[0], logits[1])
        self.assertEqual(tokens[0], tokens[1])
        self.assertEqual(*(self.divergence(*words)[0] for words in ((DEMO, "--quantization", "fp8"), (self.made("fp8-row"),))))

    def test_a_load_says_what_it_rounded(self):
        _, said = self.divergence(DEMO, "--quantization", "fp8")
        self.assertRegex(said, r"\Anodewright: weights: qkv, out, gate_up, down rounded to FP8 with a scale for each row; bf16: embedding, head \([^\n]+\)\n\Z")
        odd = golden_model("odd_sizes")
        done = run(*on_device("generate", odd, "--quantization", "fp8", "--prompt-ids", "1,2", "--max-tokens", "2"))
        with open(os.path.join(odd, "config.json")) as file:
            config = json.load(file)
        if config["intermediate_size"] % 16:
            self.assertRegex(done.stderr.decode(), r"down \(its %d columns are no multiple of 16\)" % config["intermediate_size"])
        self.assertEqual("", self.divergence(DEMO)[1])

    def test_a_head_is_rounded_on_request_and_the_tokens_stay(self):
        words = on_device("generate", DEMO, "--prompt", "The dog", "--greedy", "--max-tokens", "24")
        plain, rounded = run(*words), run(*words, "--quantize-head", "fp8")
        self.assertEqual(plain.stdout, rounded.stdout)
        self.assertRegex(rounded.stderr.decode(), r"\Anodewright: head: rounded to FP8 with a scale for each row "
                                                  r"\(401 kB beside the embedding in bf16\)\n\Z")
        nats, _ = self.divergence(DEMO, "--quantize-head", "fp8")
        self.assertGreater(nats, 1e-6)
        self.assertLess(nats, 0.002)
        self.assertIn("bf16: embedding (", self.divergence(DEMO, "--quantize-head", "fp8", "--quantization", "fp8")[1])
        plain, rounded = (json.loads(self.succeed("inspect", DEMO, "--device", "none", "--json", *words))
                          for words in ((), ("--quantize-head", "fp8")))
        head = 2048 * (192 + 4)
        self.assertEqual(plain["device_bytes"] + head, rounded["device_bytes"])
        self.assertEqual(plain["weight_bytes_per_token"] - 2048 * 192 * 2 + head, rounded["weight_bytes_per_token"])
        self.assertIn(", head fp8", self.succeed(*on_device("tune", DEMO, "--quantize-head", "fp8", "--remove"), NODEWRIGHT_CACHE=self.folder))
        self.assert_refused(USAGE, ["--tp", "--quantize-head"], "run", DEMO, "--device", "cpu:devices=2", "--tp", "2", "--quantize-head", "fp8")
        self.assert_refused(USAGE, ["60 columns", "multiple of 16", "--quantize-head"],
                            *on_device("generate", golden_model("qwen3/normed_heads"), "--prompt-ids", "1,2", "--quantize-head", "fp8"))
        self.assert_refused(USAGE, ["--quantize-head: 'int4' is none of none, fp8"],
                            *on_device("generate", DEMO, "--prompt-ids", "1", "--quantize-head", "int4"))

    def test_inspect_and_tune_know_of_it(self):
        plain, rounded = (json.loads(self.succeed("inspect", DEMO, "--device", "none", "--json", *words)) for words in ((), ("--quantization", "fp8")))
        stored = json.loads(self.succeed("inspect", self.made("fp8-row"), "--device", "none", "--json"))
        for key in ("device_bytes", "weight_bytes_per_token"):
            self.assertEqual(stored[key], rounded[key])
            self.assertLess(rounded[key], 0.65 * plain[key])
        self.assertIn("fp8", self.succeed(*on_device("tune", DEMO, "--quantization", "fp8", "--remove"), NODEWRIGHT_CACHE=self.folder))
        self.assertNotIn("fp8", self.succeed(*on_device("tune", DEMO, "--remove"), NODEWRIGHT_CACHE=self.folder))

    def test_int4_stays_int4_where_128_divide_the_columns(self):
        _, said = self.divergence(self.made("int4-g128"))
        self.assertRegex(said, r"\Anodewright: weights: [^\n]+; down multiplied in int4; bf16: embedding, head, qkv, out, gate_up \([^\n]+\)\n\Z")
        plain, stored = (json.loads(self.succeed("inspect", model, "--device", "none", "--json")) for model in (DEMO, self.made("int4-g128")))
        saved = 4 * 192 * 512 * (2 - 0.5 - 4 / 128)  # of four layers' matrices
        for key in ("device_bytes", "weight_bytes_per_token"):
            self.assertEqual(saved, plain[key] - stored[key])
        self.assertIn("int4, groups of 128", self.succeed(*on_device("tune", self.made("int4-g128"), "--remove"), NODEWRIGHT_CACHE=self.folder))

    def test_what_cannot_be_rounded_is_refused(self):
        def refused(named, model, *words):
            self.assert_refused(USAGE, named, *on_device("generate", model, "--prompt-ids", "1,2", "--quantization", "fp8", *words))

        refused(["stored as fp8, a scale for each row"], self.made("fp8-row"))
        refused(["multiple of 16"], golden_model("qwen3_moe/normed"))
        refused(["inputs first"], golden_model("gpt2/exacting"))
        self.assert_refused(USAGE, ["--tp", "head in bf16"], "run", DEMO, "--device", "cpu:devices=2", "--tp", "2", "--quantize-head", "fp8")
        refused(["--quantization: 'int4' is none of none, fp8"], DEMO, "--quantization", "int4")
        report = run("inspect", golden_model("qwen3_moe/normed"), "--device", "none", "--quantization", "fp8")
        self.assertEqual((RUN_TIME, True), (report.returncode, b"multiple of 16" in report.stdout))

    def test_what_cannot_be_quantized_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out")

            def refused(code, named, model, path=out, form="fp8-row"):
                self.assert_refused(code, named, "quantize", "--model", model, "--out", path, "--format", form)
                self.assertEqual([], os.listdir(folder))

            refused(USAGE, ["quantized already", "int4"], self.made("int4-g128"))
            refused(USAGE, ["a GGUF file"], golden_model("gguf/llama/model.gguf"))
            refused(USAGE, ["inputs first"], golden_model("gpt2/exacting"))
            refused(USAGE, ["--format: 'fp4' is none of fp8-block, fp8-row, int4-g128"], DEMO, form="fp4")
            refused(USAGE, ["--out", "exists already"], DEMO, DEMO)
            refused(USAGE, ["--out", "exists already"], DEMO, DEMO + "/")
            refused(USAGE, ["there is no folder"], DEMO, os.path.join(folder, "no", "out"))
            refused(USAGE, ["/nowhere"], "/nowhere")
            copy = os.path.join(self.folder, "unknown")
            shutil.copytree(DEMO, copy)
            path = os.path.join(copy, "config.json")
            with open(path) as file:
                text = file.read()
            with open(path, "w") as file:
                file.write(text.replace("LlamaForCausalLM", "LlamoForCausalLM"))
            refused(RUN_TIME, ["LlamoForCausalLM"], copy)

    def test_an_end_midway_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            large = os.path.join(folder, "large")
            shutil.copytree(DEMO, large)
            self.widen(large, 1 << 15)
            for asked, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
                with subprocess.Popen([PROGRAM, "quantize", large, "--out", os.path.join(folder, "out"), "--format", "int4-g128"],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                    until = time.monotonic() + 60
                    while len(os.listdir(folder)) < 2 and time.monotonic() < until:
                        time.sleep(0.001)
                    self.assertEqual(2, len(os.listdir(folder)))
                    process.send_signal(asked)
                    self.assertEqual(b"nodewright: interrupted\n", process.stderr.read())
                    self.assertEqual(code, process.wait(timeout=600))
                self.assertEqual(["large"], os.listdir(folder))

    def test_a_file_that_cannot_be_written_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([PROGRAM, "quantize", DEMO, "--out", os.path.join(folder, "out"), "--format", "fp8-row"], capture_output=True,
                                  restore_signals=False,  # Python ignores SIGXFSZ, and so does what it starts
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
            self.assertEqual((RUN_TIME, b""), (done.returncode, done.stdout))
            self.assertRegex(done.stderr.decode(), r"\Anodewright: cannot write [^\n]*model\.safetensors[^\n]*: File too large[^\n]*\n\Z")
            self.assertEqual([], os.listdir(folder))

    @staticmethod
    def widen(folder, width):
        """The demo in `folder` with an MLP of `width`, all of whose weights are zero and take no room on the disk."""
        path = os.path.join(folder, "config.json")
        with open(path) as file:
            config = json.load(file)
        hidden, config["intermediate_size"] = config["hidden_size"], width
        with open(path, "w") as file:
            json.dump(config, file)
        header, end = {}, 0
        for name, (_, shape, _) in tensors_of(folder).items():
            if ".mlp." in name:
                shape = [hidden, width] if "down" in name else [width, hidden]
            begin, end = end, end + 2 * math.prod(shape)
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        with open(os.path.join(folder, "model.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + end)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
