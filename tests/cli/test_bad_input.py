# Bad input to the command: each case gives one line that names the thing, exit 1 or 2, no other output, no crash.
# The same file runs against a program built with the address sanitizer.
import os
import random
import re
import shutil
import struct
import sys
import tempfile
import unittest

from command import DEMO, DEVICE, GOLDEN, PROGRAM, RUN_TIME, USAGE, CommandTest, golden_model, on_device, run
from hostile_checkpoints import HOSTILE, SHARDED, SINGLE, WEIGHTS, copy_model, read_bytes, write_bytes

MODEL = golden_model(SINGLE)  # vocabulary 301, context 512 scaled to 2048


def generate(*words):
    return on_device("generate", MODEL, *words)


def logits(*words, prompt="1,2"):
    return on_device("logits", MODEL, "--prompt-ids", prompt, "--out", "f.npy", *words)


class Usage(CommandTest):
    def assert_usage(self, named, *words):
        self.assert_refused(USAGE, named, *words)

    def test_unknown_words_are_named(self):
        self.assert_usage(["bogus"], "bogus")
        self.assert_usage(["two lines"], "two\nlines")
        self.assert_usage(["--bogus"], "--bogus")
        self.assert_usage(["--bogus"], *generate("--prompt-ids", "1", "--bogus"))
        self.assert_usage(["stray"], *generate("--prompt-ids", "1", "stray"))
        self.assert_usage(["bogus"], "bench", "bogus")

    def test_what_is_missing_is_named(self):
        self.assert_usage(["--model"], "generate", "--prompt", "a")
        self.assert_usage(["--prompt-ids"], *on_device("logits", MODEL, "--out", "f.npy"))
        self.assert_usage(["--out"], *on_device("logits", MODEL, "--prompt-ids", "1"))
        self.assert_usage(["--out"], *on_device("logits", MODEL, "--prompt-ids", "1", "--out", ""))
        self.assert_usage(["--seed"], *generate("--prompt-ids", "1", "--seed"))

    def test_prompts_are_checked(self):
        self.assert_usage(["--prompt", "standard input is empty"], *generate())
        self.assert_usage(["--prompt-ids"], *generate("--prompt-ids", ""))
        self.assert_usage(["--prompt-ids"], *generate("--prompt", "a", "--prompt-ids", "1"))
        for ids, named in (("1,,2", "1,,2"), (",", ","), ("1,2,", "1,2,"), ("1,x", "x"), ("1 2", "1 2"), ("1.5", "1.5"),
                           ("99999999999", "99999999999"), ("0x10", "0x10")):
            self.assert_usage(["--prompt-ids", "'%s'" % named], *generate("--prompt-ids", ids))
            self.assert_usage(["--prompt", "'%s'" % named], *logits(prompt=ids))
            self.assert_usage(["--continue", "'%s'" % named], *logits("--continue", ids))
        self.assert_usage(["--prompt-ids"], *logits(prompt=""))

    def test_a_prompt_that_is_not_utf8_is_read_with_replacement_characters(self):
        for prompt in (b"Once \xff upon", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98"):
            text = os.fsdecode(prompt)
            replaced = self.succeed("tokenize", "--model", DEMO, "--text", prompt.decode(errors="replace"))
            self.assertEqual(replaced, self.succeed("tokenize", "--model", DEMO, "--text", text))
            done = run(*on_device("generate", DEMO, "--prompt", text, "--max-tokens", "4", "--greedy"))
            self.assertEqual((0, b""), (done.returncode, done.stderr))
            self.assertTrue(done.stdout.startswith(prompt), done.stdout)  # as it was typed

    def test_token_ids_outside_the_vocabulary_are_named(self):
        for token in ("301", "2147483647", "-1", "-2147483648"):
            self.assert_usage(["token %s " % token, "301 tokens"], *generate("--prompt-ids", "1," + token))
            self.assert_usage(["token %s " % token, "301 tokens"], *generate("--prompt-ids", token + ",1"))
            self.assert_usage(["'%s'" % token, "301"], *logits("--continue", "1," + token))

    def test_prompts_that_do_not_fit_are_refused_with_both_numbers(self):
        self.assert_usage(["2049", "2048"], *generate("--prompt-ids", ",".join(["1"] * 2048)))
        self.assert_usage(["2050", "2048"], *logits("--continue", "1", prompt=",".join(["1"] * 2049)))
        self.assert_usage(["3", "--max-context"], *generate("--prompt-ids", "1,2", "--max-context", "2"))
        self.assert_usage(["context"], *on_device("generate", DEMO, "--prompt", "a story " * 2000))

    def test_numbers_outside_their_range_are_named_with_their_option(self):
        for option, values in {
                "--max-tokens": ("0", "-1", "x", "1.5", "99999999999999999999"),
                "--temperature": ("nan", "-1", "inf", "1e9", "warm"),
                "--top-p": ("2", "nan", "-0.5", "x"),
                "--min-p": ("2", "nan", "-0.5", "x"),
                "--top-k": ("-1", "99999999999", "x"),
                "--seed": ("-1", "x", "99999999999999999999"),
                "--max-context": ("-1", "x", "99999999999")}.items():
            for value in values:
                self.assert_usage([option, value[:1]], *generate("--prompt-ids", "1", option, value))
        for option, value in (("--repetition-penalty", "0"), ("--presence-penalty", "1000")):
            self.assert_usage([option[2:].replace("-", "_"), value], *generate("--prompt-ids", "1", option, value))
            self.assert_usage([option[2:].replace("-", "_"), value], *on_device("run", MODEL, option, value))
        self.assert_usage(["--logit-bias", "token 5 has two biases"],
                          *on_device("generate", DEMO, "--prompt", "a", "--logit-bias", "5=3", "--logit-bias", "6=1,5=4"))
        for option, value in (("--logit-bias", "5"), ("--logit-bias", "5=x"), ("--stop-token-ids", "9999"),
                              ("--json-schema", "/nowhere.json"), ("--json-schema", "{"), ("--regex", "(")):
            self.assert_usage([value], *on_device("generate", DEMO, "--prompt", "a", option, value))
        for bucket in ("0", "-1", "100000"):
            for words in (logits(), on_device("graph", MODEL)):
                self.assert_usage(["bucket", bucket], *words, "--bucket", bucket)
        self.assert_usage(["--bucket", "two"], *on_device("graph", MODEL, "--bucket", "two"))
        self.assert_usage(["--max-context", "2049", "2048"], *generate("--prompt-ids", "1", "--max-context", "2049"))
        self.assert_usage(["max context", "2049"], *logits("--max-context", "2049"))

    def test_an_empty_value_is_refused_wherever_it_means_nothing(self):
        for option in ("--temperature", "--top-p", "--min-p", "--repetition-penalty", "--presence-penalty", "--regex", "--stop", "--bad-word",
                       "--memory-limit", "--log", "--device", "--tuning", "--adapter", "--stop-token-ids", "--logit-bias", "--pages"):
            self.assert_usage([option], *on_device("generate", MODEL, "--prompt-ids", "1", option, ""))
        for option in ("--host", "--uds", "--cors-origin", "--allowed-host", "--served-model-name", "--kv-events-topic",
                       "--adapter-memory", "--rendezvous-secret"):
            self.assert_usage([option, "it is empty"], *on_device("serve", MODEL, option, ""))
        self.assert_usage(["--continue", "it is empty"], *logits("--continue", ""))
        self.assert_usage(["--parts", "it is empty"], *on_device("tune", MODEL, "--parts", ""))
        self.assert_usage(["--prompt", "64", "--batch"], *on_device("tune", MODEL, "--batch", "64", "--prompt", "32", "64"))

    def test_a_value_that_would_have_no_effect_is_refused(self):
        for option in ("--pages", "--max-context", "--step-timeout", "--step-tokens", "--steps-per-launch", "--tp", "--buckets"):
            for value in ("0", "-1"):
                self.assert_usage([option, "'%s' is not a whole number from 1" % value],
                                  *on_device("generate", MODEL, "--prompt-ids", "1", "%s=%s" % (option, value)))
        self.assert_usage(["--stats is a flag, which has no value"], *generate("--prompt-ids", "1", "--stats=3"))
        self.assert_usage(["--greedy is a flag"], *generate("--prompt-ids", "1", "--greedy=false"))
        self.assert_usage(["--skip-special", "--decode IDS"], "tokenize", "--model", DEMO, "--text", "a", "--skip-special")
        self.assert_usage(["--skip-special"], "tokenize", "--model", DEMO, "--skip-special")
        for flag in ("--add-special", "--parse-special"):
            self.assert_usage([flag, "--decode", "together"], "tokenize", "--model", DEMO, "--decode", "1", flag)
        for device in ("cpu:workers=0", "cpu:sms=0", "cpu:memory_mb=0", "cpu:sm80,sm90"):
            self.assert_usage([device], "generate", "--model", MODEL, "--prompt-ids", "1", "--device", device)
        for option, value in (("--rendezvous-secret", "a"), ("--rendezvous-timeout", "5")):
            self.assert_usage(["%s has no effect without --rank" % option], *on_device("serve", MODEL, option, value))
        self.assert_usage(["--min-tokens and --max-tokens", "at least 5 tokens, and at most 2"],
                          *generate("--prompt-ids", "1", "--max-tokens", "2", "--min-tokens", "5"))
        self.assert_usage(["--min-tokens and --max-tokens"], *on_device("chat", DEMO, "--max-tokens", "2", "--min-tokens", "5"))
        for option in (("--batch", "4"), ("--context", "8"), ("--parts", "down"), ("--samples", "3"), ("--steps", "2")):
            self.assert_usage([option[0], "--remove", "together"], *on_device("tune", MODEL, "--remove", *option))
        for option in (("--format", "json"), ("--full",), ("--commit", "a"), ("--verify",)):
            self.assert_usage([option[0], "--why", "together"], *on_device("graph", MODEL, "--why", *option))
        for option in ("--api-key", "--served-model-name", "--idle-connections"):
            self.assert_usage(["%s has no effect without --url" % option], "bench", "serve", "--model", MODEL, "--device", DEVICE,
                              "--rate", "1", option, "1")
        self.assert_usage(["--adapter-memory", "above 0"], *on_device("serve", MODEL, "--adapter-memory", "0"))
        self.assert_usage(["--commit and --format text"], *on_device("graph", MODEL, "--commit", "a"))
        self.assert_usage(["--full and --format json"], *on_device("graph", MODEL, "--format", "json", "--full"))
        for place in (("--port", "8000"), ("--host", "::1")):
            self.assert_usage(["--uds", place[0], "together"], *on_device("serve", MODEL, "--uds", "/tmp/socket", *place))

    def test_a_number_beyond_all_integers_is_refused_in_every_command(self):
        found = 0
        for command in ("generate", "chat", "run", "serve", "logits", "eval", "graph", "inspect", "tune", "report", "bench decode", "bench serve",
                        "bench engine", "bench prefill", "bench nodes", "bench graph", "bench load", "bench nanogpt"):
            for option in re.findall(r"(?m)^  (?:-\w, )?(--[\w-]+)(?:, --[\w-]+)* N\b", self.succeed(*command.split(), "--help")):
                self.assert_usage([option, "'99999999999999999999'"], *command.split(), option, "99999999999999999999")
                found += 1
        self.assertGreater(found, 100)

    def test_an_origin_or_a_host_that_no_browser_sends_is_refused(self):
        for origin, why in (("nonsense", "no scheme"), ("localhost:3000", "no scheme"), ("http://localhost:3000/", "a path"),
                            ("http://Localhost", "small letters"), ("http://a:80", "usual port"), ("https://a:443", "usual port"),
                            ("http://a:x", "its port"), ("http://", "its host"), ("http://a b", "its host"), ("://a", "no scheme")):
            self.assert_usage(["--cors-origin", "'%s' is no origin" % origin, why], *on_device("serve", MODEL, "--cors-origin", origin))
        for name in ("http://a.example", "a.example:8000", "a/b", "..", "a b"):
            self.assert_usage(["--allowed-host", "'%s'" % name], *on_device("serve", MODEL, "--allowed-host", name))
        for option, value in (("--cors-origin", "*"), ("--cors-origin", "null"), ("--cors-origin", "https://chat.example:8443"),
                              ("--cors-origin", "http://[::1]:3000"), ("--allowed-host", "*"), ("--allowed-host", ".models.example")):
            self.assert_usage(["/nowhere"], *on_device("serve", "/nowhere", option, value))

    def test_unknown_choices_are_named_beside_the_known_ones(self):
        self.assert_usage(["--mode", "bogus", "explicit", "captured", "eager"], *logits("--mode", "bogus"))
        self.assert_usage(["--edges", "bogus", "programmatic"], *logits("--edges", "bogus"))
        self.assert_usage(["--format", "bogus", "json"], *on_device("graph", MODEL, "--format", "bogus"))
        for device in ("bogus", "cpu:bogus", "cuda:x", "cuda:-1"):
            self.assert_usage(["device", device, "cpu"], "generate", "--model", MODEL, "--prompt-ids", "1", "--device",
                              device)

    def test_tokenize_takes_one_kind_of_input(self):
        self.assert_usage(["--decode", "empty"], "tokenize", "--model", DEMO, "--decode", "")
        self.assert_usage(["--decode", "'x'"], "tokenize", "--model", DEMO, "--decode", "1,x")
        self.assert_usage(["-3"], "tokenize", "--model", DEMO, "--decode=-3")
        self.assert_usage(["--decode", "--text"], "tokenize", "--model", DEMO, "--decode", "1", "--text", "a")
        self.assert_refused(RUN_TIME, ["99999"], "tokenize", "--model", DEMO, "--decode", "99999")


class Files(CommandTest):
    def test_a_model_that_is_no_folder_is_named(self):
        for model in ("/nonexistent/model", os.path.join(MODEL, "config.json"), "", "x" * 5000):
            for words in (on_device("generate", model, "--prompt", "a"),
                          on_device("generate", model, "--prompt-ids", "1"), on_device("graph", model),
                          on_device("logits", model, "--prompt-ids", "1", "--out", "f.npy"),
                          ("tokenize", "--model", model, "--text", "a")):
                self.assert_refused(USAGE, ["--model", model], *words)

    def test_without_a_gpu_the_error_names_the_cpu_driver(self):
        for device in ("cuda", "auto", "cuda:0"):
            self.assert_refused(RUN_TIME, ["--device cpu"], "generate", "--model", MODEL, "--prompt-ids", "1", "--device",
                                device, CUDA_VISIBLE_DEVICES="")

    def test_output_that_cannot_be_written_is_named_and_leaves_nothing(self):
        for code, out in ((USAGE, "missing/folder/f"), (RUN_TIME, "/dev/full"), (RUN_TIME, "/proc/f"), (RUN_TIME, "/proc/version"),
                          (USAGE, "."), (RUN_TIME, "f" * 300)):
            self.assert_refused(code, [out], *on_device("logits", MODEL, "--prompt-ids", "1", "--out", out))
            self.assert_refused(code, [out], *on_device("graph", MODEL, "--out", out))

    def test_a_file_of_a_model_is_not_written_over_and_one_that_is_missing_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(MODEL, folder, dirs_exist_ok=True)
            before = {name: os.stat(os.path.join(folder, name)).st_mtime_ns for name in os.listdir(folder)}
            for name in ("config.json", WEIGHTS):
                out = os.path.join(folder, name)
                self.assert_refused(USAGE, ["--out", out, "file of a model"], *on_device("graph", folder, "--out", out))
                self.assert_refused(USAGE, ["--out", out], *on_device("logits", folder, "--prompt-ids", "1", "--out", out))
            self.assertEqual(before, {name: os.stat(os.path.join(folder, name)).st_mtime_ns for name in os.listdir(folder)})
        for option in ("--tuning", "--timings"):
            self.assert_refused(USAGE, [option, "there is no file /nowhere.json"],
                                *on_device("graph", MODEL, "--format", "html", option, "/nowhere.json"))

    def test_a_full_disk_behind_standard_output_is_an_error(self):
        for words in (generate("--prompt-ids", "1"), on_device("graph", MODEL), ("doctor",),
                      ("tokenize", "--model", DEMO, "--text", "a")):
            with open("/dev/full", "wb") as full:
                done = run(*words, stdout=full)
            self.assertEqual(RUN_TIME, done.returncode, words)
            self.assertRegex(done.stderr.decode(), r"\Anodewright: [^\n]*standard output[^\n]*\n\Z", words)

    def test_tokenizers_that_cannot_be_read_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("config.json", "generation_config.json", WEIGHTS):
                shutil.copy(os.path.join(DEMO, name), folder)
            whole = read_bytes(DEMO, "tokenizer.json")
            for content in (None, b"", b"{}", b"[]", b"not json", whole[:len(whole) // 2], b"[" * 100000,
                            whole.replace(b'"BPE"', b'"WordPiece"')):
                if content is not None:
                    write_bytes(folder, "tokenizer.json", content)
                self.assert_refused(RUN_TIME, ["tokenizer.json"], *on_device("generate", folder, "--prompt", "a"))
                self.assert_refused(RUN_TIME, ["tokenizer.json"], "tokenize", "--model", folder, "--text", "a")

    def test_tokenizers_that_are_no_regular_file_neither_hang_nor_fill_the_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tokenizer.json")
            for make in (os.mkfifo, os.mkdir, lambda p: os.symlink("/dev/zero", p), lambda p: os.symlink(p, p)):
                make(path)
                self.assert_refused(RUN_TIME, ["tokenizer.json"], "tokenize", "--model", folder, "--text", "a")
                (os.rmdir if os.path.isdir(path) else os.remove)(path)
            with open(path, "wb") as file:
                file.truncate(1 << 40)
            self.assert_refused(RUN_TIME, ["tokenizer.json", str(1 << 40)], "tokenize", "--model", folder, "--text", "a")

    def test_no_control_character_of_a_file_reaches_the_terminal(self):
        with tempfile.TemporaryDirectory() as folder:
            write_bytes(folder, "tokenizer.json", b'{"\\u001b[2J\\u0007\\u0000": 1}')
            message = self.assert_refused(RUN_TIME, ["tokenizer.json"], "tokenize", "--model", folder, "--text", "a")
            self.assertNotRegex(message[:-1], r"[\x00-\x1f\x7f]")


class Checkpoints(CommandTest):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name

    def test_every_hostile_checkpoint_is_refused_by_name(self):
        for name, model, change, named in HOSTILE:
            with self.subTest(name):
                folder = copy_model(model, os.path.join(self.folder, name))
                change(folder)
                self.assert_refused(RUN_TIME, named,
                                    *on_device("logits", folder, "--prompt-ids", "1,2", "--out", "f.npy"))

    def commands(self, folder):
        return (on_device("generate", folder, "--prompt", "a"), on_device("generate", folder, "--prompt-ids", "1"),
                on_device("chat", folder), on_device("run", folder), on_device("logits", folder, "--prompt-ids", "1", "--out", "f.npy"),
                on_device("graph", folder), on_device("bench", folder)[:1] + ["decode"] + on_device("bench", folder)[1:],
                on_device("tune", folder), ("tokenize", "--model", folder, "--text", "a"))

    def test_a_git_lfs_pointer_is_named_in_every_command(self):
        pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 2471645608\n"
        for name in (WEIGHTS, "tokenizer.json"):
            folder = os.path.join(self.folder, name)
            shutil.copytree(DEMO, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
            write_bytes(folder, name, pointer)
            reads_text = [words for words in self.commands(folder)
                          if words[0] in ("chat", "run", "tokenize") or "--prompt" in words and words[0] == "generate"]
            refused = reads_text if name != WEIGHTS else [w for w in self.commands(folder) if w[0] != "tokenize"]
            self.assertGreater(len(refused), 3)
            for words in refused:
                self.assert_refused(RUN_TIME, [name, "Git LFS pointer", "git lfs pull"], *words,
                                    stdin=b'{"prompt": "a"}\n')
        self.assertIn("Git LFS pointer", run("inspect", "--model", os.path.join(self.folder, WEIGHTS), "--device", "none")
                      .stdout.decode())

    def test_what_stands_in_the_place_of_a_file_is_named(self):
        """In one way, whichever file of a checkpoint it is; and none is passed over as if it were not there."""
        served = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "added_tokens.json",
                  "special_tokens_map.json", "chat_template.jinja", WEIGHTS]
        kinds = ((os.mkdir, "it is a folder, not a file"), (os.mkfifo, "named pipe (FIFO), not a file"),
                 (lambda path: os.symlink("/dev/zero", path), "it is a device, not a file"),
                 (lambda path: os.symlink("/nowhere/blob", path), "it is a link to /nowhere/blob, where there is no file"))
        for name in served:
            for make, told in kinds:
                with self.subTest(name=name, told=told), tempfile.TemporaryDirectory() as folder:
                    shutil.copytree(DEMO, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"), dirs_exist_ok=True)
                    if os.path.exists(os.path.join(folder, name)):
                        os.remove(os.path.join(folder, name))
                    make(os.path.join(folder, name))
                    # A text without a template needs no template, and a prompt of ids no tokenizer.
                    message = self.assert_refused(RUN_TIME, [os.path.join(folder, name), told], *on_device("chat", folder))
                    self.assertRegex(message, r"; try: ")
                    done = run("inspect", "--model", folder, "--device", "none")
                    self.assertEqual((RUN_TIME, b""), (done.returncode, done.stderr))
                    self.assertRegex(done.stdout.decode(), r"(?m)^runs +no\n(  .*\n)*?  \w+ .*%s.*%s" % (re.escape(name), re.escape(told)))

    def test_what_stands_in_the_place_of_an_adapter_s_file_or_a_shard_is_named(self):
        folder = copy_model(SHARDED, os.path.join(self.folder, "shards"))
        for name in ("model-00005-of-00014.safetensors", "model.safetensors.index.json"):
            os.rename(os.path.join(folder, name), os.path.join(folder, "kept"))
            os.mkdir(os.path.join(folder, name))
            self.assert_refused(RUN_TIME, [name, "it is a folder, not a file"], *on_device("generate", folder, "--prompt-ids", "1"))
            os.rmdir(os.path.join(folder, name))
            os.rename(os.path.join(folder, "kept"), os.path.join(folder, name))
        adapter = os.path.join(self.folder, "adapter")
        os.makedirs(os.path.join(adapter, "adapter_config.json"))
        words = on_device("generate", folder, "--prompt-ids", "1", "--adapter", "a=" + adapter)
        self.assert_refused(RUN_TIME, ["adapter_config.json", "it is a folder, not a file"], *words)
        os.rmdir(os.path.join(adapter, "adapter_config.json"))
        write_bytes(adapter, "adapter_config.json", b'{"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["q_proj"]}')
        os.makedirs(os.path.join(adapter, "adapter_model.safetensors"))
        self.assert_refused(RUN_TIME, ["adapter_model.safetensors", "it is a folder, not a file"], *words)

    def test_an_adapter_that_is_no_folder_is_named(self):
        for place, told in (("/nowhere", "there is no such folder"), (os.path.join(DEMO, "config.json"), "it is a file")):
            for command in ("generate", "logits"):
                self.assert_refused(RUN_TIME, ["adapter '%s'" % place, told],
                                    *on_device(command, MODEL, "--prompt-ids", "1", "--adapter", "a=" + place),
                                    *(("--out", "f.npy") if command == "logits" else ()))

    def test_a_folder_that_is_no_checkpoint_says_what_it_is(self):
        def made(name, *files):
            folder = os.path.join(self.folder, name)
            for file in files:
                os.makedirs(os.path.dirname(os.path.join(folder, file)), exist_ok=True)
                write_bytes(folder, file, b"x")
            os.makedirs(folder, exist_ok=True)
            return folder
        for folder, named in (
                (made("none"), ["it is empty"]), (made("notes", "a.txt", "b.txt"), ["config.json is missing", "'a.txt', 'b.txt'"]),
                (made("many", *("%d.txt" % i for i in range(10))), ["'5.txt' and 4 more"]),
                (made("outer", "inner/config.json"), ["one has it: 'inner'", "try: --model " + os.path.join(self.folder, "outer/inner")]),
                (made("weights", "model.safetensors"), ["config.json is missing", "beside the weights"]),
                (made("maker", "params.json", "consolidated.00.pth"), ["config.json is missing", "not in that of its maker"]),
                (made("lora", "adapter_config.json"), ["a LoRA adapter, not a model", "--adapter NAME="]),
                (made("cached", "snapshots/a/x", "snapshots/b/x"), ["Hugging Face's cache"])):
            has_weights = os.path.basename(folder) in ("weights", "maker")
            for words in (*self.commands(folder), ("inspect", "--model", folder), on_device("serve", folder)):
                if words[0] == "inspect" and has_weights:  # it lists what is missing
                    self.assertRegex(run(*words).stdout.decode(), r"(?m)^  config .*config\.json.*No such file")
                    continue
                self.assert_refused(RUN_TIME if has_weights else USAGE, ["--model", folder, *named], *words)

    def test_a_broken_gguf_file_and_a_folder_of_one_are_named_in_every_command(self):
        folder = os.path.join(self.folder, "gguf")
        os.mkdir(folder)
        write_bytes(folder, "model.Q4_K_M.gguf", b"GGUF" + bytes(100))
        file = os.path.join(folder, "model.Q4_K_M.gguf")
        for words in self.commands(folder):
            self.assert_refused(USAGE, ["holds no config.json", "model.Q4_K_M.gguf", "--model " + file], *words)
        for words in self.commands(file):
            self.assert_refused(RUN_TIME, ["model.Q4_K_M.gguf", "its version is 0, expected 2 or 3"], *words)
        self.assert_refused(USAGE, ["--model", "it is a file"], *on_device("chat", os.path.join(DEMO, WEIGHTS)))
        whole = copy_model(golden_model("unaligned"), os.path.join(self.folder, "renamed"))
        write_bytes(whole, WEIGHTS, b"GGUF" + bytes(100))
        self.assert_refused(RUN_TIME, [WEIGHTS, "GGUF file"], *on_device("generate", whole, "--prompt-ids", "1"))

    def test_a_missing_tokenizer_is_named_with_what_is_there_instead(self):
        folder = os.path.join(self.folder, "bare")
        shutil.copytree(DEMO, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__", "tokenizer.json"))
        for words in (on_device("generate", folder, "--prompt", "a"), on_device("chat", folder),
                      ("tokenize", "--model", folder, "--text", "a")):
            self.assert_refused(RUN_TIME, ["tokenizer.json", "there is no such file"], *words)
            write_bytes(folder, "vocab.txt", b"x")
            self.assert_refused(RUN_TIME, ["tokenizer.json", "only vocab.txt"], *words)
            os.remove(os.path.join(folder, "vocab.txt"))

    def test_tokenizers_of_other_formats_that_cannot_be_read_are_named(self):
        for kind, name in (("pieces_bpe", "tokenizer.model"), ("tekken", "tekken.json")):
            with tempfile.TemporaryDirectory() as folder:
                shutil.copy(os.path.join(DEMO, "config.json"), folder)
                whole = read_bytes(os.path.join(GOLDEN, "pipelines", kind), name)
                for content in (b"", b"x", b"{}", whole[:len(whole) // 2], b"\xff" * 1000, bytes(1000)):
                    write_bytes(folder, name, content)
                    self.assert_refused(RUN_TIME, [name], "tokenize", "--model", folder, "--text", "a")
                write_bytes(folder, name, whole)
                self.succeed("tokenize", "--model", folder, "--text", "a")

    def test_a_checkpoint_without_a_chat_template_says_what_it_is_for(self):
        folder = os.path.join(self.folder, "base")
        shutil.copytree(DEMO, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__", "*.jinja"))
        for words in (on_device("chat", folder), on_device("generate", folder, "--prompt", "a", "--chat")):
            self.assert_refused(RUN_TIME, ["chat_template", "made for conversation", "nodewright generate"], *words)

    def test_a_checkpoint_of_links_is_as_good_as_one_of_files(self):
        """As the Hugging Face cache keeps them: every file a link into a folder beside it."""
        blobs, links = copy_model(SHARDED, os.path.join(self.folder, "blobs")), os.path.join(self.folder, "snapshot")
        os.mkdir(links)
        for name in os.listdir(blobs):
            os.symlink(os.path.join("..", "blobs", name), os.path.join(links, name))
        words = ("--prompt-ids", "1,2", "--max-tokens", "8", "--greedy", "--ignore-eos")
        self.assertEqual(self.succeed(*on_device("generate", blobs, *words)),
                         self.succeed(*on_device("generate", links, *words)))

    def test_a_nan_in_the_weights_leaves_no_text_behind(self):
        for name, model, change, named in HOSTILE:
            if name == "weights_hold_a_nan":
                folder = copy_model(model, os.path.join(self.folder, name))
                change(folder)
                self.assert_refused(RUN_TIME, named, *on_device("generate", folder, "--prompt-ids", "1,2"))

    def test_generation_defaults_that_are_wrong_are_named(self):
        folder = copy_model(SINGLE, os.path.join(self.folder, "defaults"))
        for content, named in ((b"{", "JSON"), (b'{"temperature": "hot"}', "temperature"), (b'{"top_p": 7}', "top_p")):
            write_bytes(folder, "generation_config.json", content)
            self.assert_refused(RUN_TIME, ["generation_config.json", named],
                                *on_device("generate", folder, "--prompt-ids", "1"))

    def test_damaged_headers_end_in_success_or_in_one_line(self):
        folder = copy_model(SINGLE, os.path.join(self.folder, "damaged"))
        whole = read_bytes(folder, WEIGHTS)
        (header_bytes,) = struct.unpack("<Q", whole[:8])
        draw = random.Random(20)
        for case in range(40):
            data = bytearray(whole)
            for _ in range(draw.randint(1, 3)):
                data[draw.randrange(8 + header_bytes)] = draw.choice(b'{}[]",:0123456789\0\xff' + bytes([draw.randrange(256)]))
            write_bytes(folder, WEIGHTS, data)
            done = run(*on_device("logits", folder, "--prompt-ids", "1", "--out", "f.npy"))
            message = done.stderr.decode(errors="replace")
            self.assertIn(done.returncode, (0, RUN_TIME), "case %d: %s" % (case, message))
            self.assertRegex(message, r"\A(nodewright: [^\n]+\n)?\Z", "case %d" % case)


if __name__ == "__main__":
    print("nodewright: %s on %s" % (PROGRAM, DEVICE), file=sys.stderr)
    unittest.main()
