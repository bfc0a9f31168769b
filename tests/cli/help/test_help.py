# What --help says, the answer to a slip on the command line, and the page that has what no --help does.
import os
import re
import shlex
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import option_words
from command import DEMO, RUN_TIME, SOURCE, USAGE, CommandTest, golden_model, run

COMMANDS = ("generate", "chat", "run", "serve", "logits", "eval", "graph", "tokenize", "inspect", "quantize", "bench", "tune", "report",
            "doctor", "completion", "man")
DEVELOPERS = {"--mode", "--edges", "--numerics", "--tuning", "--trace", "--bucket", "--steps-per-launch", "--until-ended"}


class Help(CommandTest):
    def test_users_options_come_first_and_developers_last(self):
        for command in ("generate", "chat", "run", "logits", "eval", "graph", "bench decode"):
            text = self.succeed(*command.split(), "--help")
            groups = re.split(r"(?m)^(Options|How tokens are chosen|Batches and memory|Several devices|For developers|Examples):\n", text)
            named = {name: set(re.findall(r"(?m)^  (?:-\w, )?(--[\w-]+)", options)) for name, options in zip(groups[1::2], groups[2::2])}
            self.assertEqual([name for name in groups[1::2] if name != "Examples"][-1], "For developers", command)
            self.assertIn("--model", named["Options"])
            self.assertLessEqual(DEVELOPERS & set().union(*named.values()), named["For developers"], command)
            self.assertLessEqual(max(map(len, text.splitlines())), 120, command)

    def test_every_command_has_examples_that_its_parser_takes(self):
        for command in COMMANDS:
            examples = re.findall(r"(?m)^  (?:.*\| )?nodewright ([^\n]*)", self.succeed(command, "--help").partition("Examples:\n")[2])
            self.assertTrue(examples, command)
            for example in examples:
                if command in ("completion", "man"):  # they name no model
                    continue
                words = shlex.split(example.partition(" > ")[0].replace("DIR", "/nowhere"))
                message = run(*words).stderr.decode()
                if command != "doctor":
                    self.assertRegex(message, r"/nowhere|steps\.jsonl", example)
                self.assertNotIn("--help", message, example)

    def test_help_of_a_command_that_is_not_there_is_a_slip_with_a_suggestion(self):
        for words, named in ((["help", "bogus"], "bogus"), (["help", "genrate"], "did you mean generate?"), (["genrate", "--help"], "generate?"),
                             (["bogus", "-h"], "bogus"), (["--help", "bogus"], "bogus"), (["-V", "bogus"], "bogus"),
                             (["help", "bench", "decod"], "bench command of this name; did you mean decode?"),
                             (["bench", "bogus", "--help"], "bench command"), (["help", "generate", "bogus"], "help is followed"),
                             (["help", "--bogus"], "--bogus")):
            self.assert_refused(USAGE, [named, "(see nodewright "], *words)
        for words in (["help"], ["help", "help"], ["help", "-h"]):
            self.assertEqual(self.succeed("--help"), self.succeed(*words))

    def test_help_that_cannot_be_written_is_a_failure(self):
        for words in (["--help"], ["-V"], ["help", "bench", "decode"], ["completion", "fish"], ["man"], ["doctor"],
                      ["inspect", DEMO, "--device", "none"], ["tokenize", DEMO, "--text", "a"], ["graph", DEMO, "--device", "cpu"],
                      ["bench", "decode", DEMO, "--device", "cpu", "--batch", "1", "--context", "8"]):
            with open("/dev/full", "wb") as full:
                done = run(*words, stdout=full)
            self.assertEqual(RUN_TIME, done.returncode, words)
            self.assertRegex(done.stderr.decode(), r"\Anodewright: cannot write to 'standard output': [^\n]+\n\Z", words)

    def test_a_slip_is_told_in_words_of_ours(self):
        for words, told in (
                (["generate", "m", "--model", "n"], "--model is given twice, as 'm' and 'n', and has one value"),
                (["generate", "m", "-n", "1", "-n", "2", "-n", "3"], "--max-tokens is given 3 times, as '1', '2' and '3'"),
                (["generate", "m", "n"], "n: generate takes one DIR, and 'm' was given before it"),
                (["report", "a", "b"], "b: report takes one LOG, and 'a'"),
                (["generate", "m", "--device"], "--device needs a value, and none is given: --device auto|cuda|cuda:N|cpu"),
                (["generate", "m", "--numerics="], "--numerics needs a value"),
                (["generate"], "generate needs --model DIR: Hugging Face"), (["completion"], "completion needs SHELL"),
                (["completion", "csh"], "SHELL: 'csh' is none of bash, zsh, fish; did you mean zsh?"),
                (["generate", "m", "--mode", "x"], "--mode: 'x' is none of explicit, captured, eager"),
                (["tokenize", "m", "--text", "a", "--decode", "1"], "--text and --decode cannot be used together"),
                (["report", "a", "--count", "0"], "--count: '0' is not a whole number from 1 to 1000"),
                (["bench", "decode", "m", "--batch", "1", "2", "x"], "--batch: 'x' is not a number")):
            message = self.assert_refused(USAGE, [told], *words)
            self.assertNotRegex(message, r"At [Mm]ost|required|excludes|not in|Could not")

    def test_a_group_of_commands_alone_shows_its_help(self):
        for words, named in ((["bench"], ["Usage: nodewright bench ", "decode", "Examples:"]), ([], ["generate", "docs/command.md"])):
            done = run(*words)
            self.assertEqual((USAGE, b""), (done.returncode, done.stdout))
            for name in (*named, "nodewright: a command is missing\n"):
                self.assertIn(name, done.stderr.decode())

    def test_a_value_is_named_by_what_it_is(self):
        for command, heads in (("generate", ["-m, --model DIR", "-f, --prompt-file FILE", "--prompt-ids IDS", "--memory-limit SIZE",
                                             "--adapter, --lora-modules NAME=DIR ...", "--device auto|cuda|cuda:N|cpu", "--prompt TEXT",
                                             "--tuning auto|none|FILE", "--prefill graph|piecewise|eager", "--log FILE"]),
                               ("serve", ["--host HOST", "--api-key KEY", "--rendezvous HOST:PORT", "--uds FILE"]),
                               ("logits", ["--prompt TEXT", "--prompt-ids IDS", "--out FILE"]), ("report", ["LOG FILE", "--plot FILE"]),
                               ("run", ["--requests FILE", "--hidden-dir DIR"]), ("bench serve", ["--requests N", "--url URL"])):
            text = self.succeed(*command.split(), "--help")
            for head in heads:
                self.assertRegex(text, r"(?m)^  (?:-\w, )?%s(  |$)" % re.escape(head), command)
        texts = {path + " " + names[-1] for path in option_words.commands(self) for names in option_words.options(self, path)
                 if re.search(r"(?m)^  [^\n]*%s TEXT" % names[-1], self.succeed(*path.split(), "--help"))}
        self.assertEqual({"--bad-word", "--prompt", "--rendezvous-secret", "--stop", "--system", "--text"}, {text.split()[-1] for text in texts})

    def test_options_of_several_devices_have_a_group(self):
        text = self.succeed("serve", "--help").partition("\nSeveral devices:\n")[2].partition("\n\n")[0]
        for option in ("--tp", "--pp", "--replicas", "--rank", "--rendezvous", "--overlap"):
            self.assertRegex(text, r"(?m)^  %s\b" % option)

    def test_defaults_are_told(self):
        text = re.sub(r"\n {20,}", " ", self.succeed("run", "--help"))
        for option, told in (("--top-k", "the checkpoint's"), ("--top-p", "the checkpoint's"), ("--max-batch", "8"), ("--max-tokens", "128"),
                             ("--device", "auto"), ("--memory-limit", "none")):
            self.assertRegex(text, r"(?m)^  (?:-\w, )?%s\b[^\n]*\(default: %s" % (option, told))
        self.assertRegex(text, r"(?m)^  -m, --model [^\n]*\(required\)")


class Slips(CommandTest):
    def test_a_name_that_is_not_known_is_told_with_the_one_that_was_meant(self):
        for words, named in (("generate --modle x", ["--modle", "generate has no such option", "did you mean --model?"]),
                             ("run --max-tokns 3", ["--max-tokns", "did you mean --max-tokens?"]),
                             ("run --max-model-length=3 --model x", ["--max-model-length:", "did you mean --max-model-len?"]),
                             ("genrate", ["genrate", "did you mean generate?"]), ("bench decde", ["decde", "bench command", "did you mean decode?"]),
                             ("doctor --device cpu", ["--device: doctor has no such option; ", "serve", "have it (see nodewright doctor --help)"]),
                             ("doctor foo", ["foo: doctor takes options and no such word"]),
                             ("inspect --tp 2 --model x", ["--tp: inspect has no such option; ", "serve", "have it"])):
            self.assertNotIn("following argument", self.assert_refused(USAGE, named, *words.split()))
        self.assertNotIn("mean", self.assert_refused(USAGE, ["--zzzz"], "run", "--zzzz", "--model", "x"))

    def test_a_number_below_the_least_is_told_with_it(self):
        for option, least in (("--max-tokens", "1"), ("--max-batch", "1")):
            self.assert_refused(USAGE, [option, "'0' is not a whole number from %s to" % least], "run", "--model", "x", option, "0")

    def test_what_is_no_number_is_told_with_the_option(self):
        for words, told in (("serve --port 99999", "--port: '99999' is not a whole number from 0 to 65535"),
                            ("generate --temperature hot", "--temperature: 'hot' is not a number (see"),
                            ("bench decode --context 1.5", "--context: '1.5' is not a whole number in its range (see"),
                            ("serve --max-requests many", "--max-requests: 'many' is not a whole number from 1 to"),
                            ("generate --max-tokens 0", "--max-tokens: '0' is not a whole number from 1 to"),
                            ("chat --max-tokens 0", "--max-tokens: '0' is not a whole number from 1 to")):
            self.assert_refused(USAGE, [told], *words.split(), "--model", DEMO)

    def test_the_names_of_others_are_the_same_options(self):
        model = golden_model("odd_sizes")
        self.assert_refused(USAGE, ["--max-context and --model", "513"], "run", "-m", model, "--max-model-len", "513")
        self.assert_refused(USAGE, ["--buckets and --max-batch", "--max-batch is 3"], "run", "-m", model, "--max-num-seqs", "3", "--buckets", "2")

    def test_a_memory_limit_is_a_share_or_a_size_with_a_unit(self):
        words = ("run", "-m", DEMO, "--device", "cpu", "--memory-limit")
        request = b'{"prompt": "One day", "max_tokens": 1}\n'
        for size in ("1.5 GiB", "2g", "0.5", "2000000000"):
            self.succeed(*words, size, stdin=request)
        for size, named in (("9PB", "nor a size"), ("2 apples", "nor a size"), ("900TB", "more than the"), ("GB", "nor a size"), ("1.5", "nor a size")):
            self.assert_refused(USAGE, ["--memory-limit", size, named], *words, size, stdin=request)

    def test_sizes_have_one_vocabulary(self):
        for words in (["doctor"], ["inspect", "-m", DEMO, "--device", "cpu"]):
            text = self.succeed(*words)
            self.assertRegex(text, r"[\d.]+ (M|G|T)B free")
            self.assertNotRegex(text, r"[KMG]iB")


class OtherPrograms(CommandTest):
    """Command lines of vLLM and llama.cpp."""

    def outcome(self, *words, **environment):
        done = run(*words, **environment)
        return done.returncode, done.stderr.decode()

    def test_the_model_may_be_a_bare_word(self):
        ids = self.succeed("tokenize", DEMO, "--text", "The dog")
        self.assertEqual(ids, self.succeed("tokenize", "--text", "The dog", "-m", DEMO))
        self.assert_refused(USAGE, ["/nowhere", "no such folder"], "serve", "/nowhere", "--port", "0")
        self.assert_refused(USAGE, ["--model"], "tokenize", DEMO, "--model", DEMO, "--text", "a")

    def test_a_model_of_the_hub_s_cache_is_found_by_its_name_and_by_its_folder(self):
        with tempfile.TemporaryDirectory() as home:
            folder = os.path.join(home, "hub", "models--some--tiny-model")
            snapshot = os.path.join(folder, "snapshots", "0123abcd")
            os.makedirs(os.path.join(folder, "refs"))
            shutil.copytree(DEMO, snapshot)
            os.mkdir(os.path.join(folder, "snapshots", "another"))
            with open(os.path.join(folder, "refs", "main"), "w") as file:
                file.write("0123abcd")
            ids = self.succeed("tokenize", DEMO, "--text", "The dog").encode()
            for name, environment in (("some/tiny-model", {"HF_HOME": home}), ("some/tiny-model", {"HF_HUB_CACHE": home + "/hub", "HF_HOME": "/x"}),
                                      (folder, {}), (folder + "/", {}), (snapshot, {})):
                done = run("tokenize", name, "--text", "The dog", **environment)
                self.assertEqual((0, ids), (done.returncode, done.stdout), done.stderr)
            code, told = self.outcome("tokenize", "some/other", "--text", "a", HF_HOME=home)
            self.assertEqual(USAGE, code)
            for part in ("'some/other'", home, "hf download some/other --local-dir other"):
                self.assertIn(part, told)
            os.remove(os.path.join(folder, "refs", "main"))
            code, told = self.outcome("inspect", folder, "--device", "none")
            self.assertEqual((True, True), (code != 0, "snapshots" in told), told)

    def test_options_with_another_name_are_ours(self):
        model = golden_model("odd_sizes")
        for words, named in (("--ctx-size 513", "--max-context and --model"), ("-c 513", "--max-context and --model"),
                             ("--gpu-memory-utilization 2", "--gpu-memory-utilization: '2' is not a share"), ("-np 0", "--max-batch"),
                             ("--max-num-batched-tokens x", "--step-tokens"), ("--temp -1", "--temperature"), ("--n-predict -1", "--n-predict"),
                             ("--repeat-penalty 0", "repetition"), ("--default-chat-template-kwargs 3", "is not a JSON object"),
                             ("--parallel", "--parallel: it needs a value")):
            code, told = self.outcome("run", model, *words.split())
            self.assertEqual(USAGE, code, told)
            self.assertIn(named, told)

    def test_options_that_change_nothing_are_told_and_their_wrong_values_refused(self):
        words = ("--enforce-eager --dtype auto --trust-remote-code --enable-prefix-caching --enable-auto-tool-choice --enable-lora "
                 "--enable-chunked-prefill --disable-log-requests --swap-space 4 -ngl 99 --n-gpu-layers=9 -fa on --jinja").split()
        code, told = self.outcome("serve", "/nowhere", *words, "--port", "0")
        lines = told.splitlines()
        self.assertEqual((USAGE, 13), (code, sum(" changes nothing: " in line for line in lines)), told)
        self.assertIn("/nowhere", lines[-1])
        for words, named in (("--dtype float16", "float16"), ("--kv-cache-dtype fp8_e5m2", "fp8_e5m2"), ("--block-size 16", "16"), ("--dtype", "needs a value")):
            code, told = self.outcome("serve", "/nowhere", *words.split())
            self.assertEqual((USAGE, True), (code, words.split()[0] in told and named in told), told)
        self.assert_refused(USAGE, ["--enforce-eager", "doctor has no such option"], "doctor", "--enforce-eager")

    def test_a_value_that_looks_like_an_option_of_others_stays_a_value(self):
        self.assertEqual(self.succeed("tokenize", DEMO, "--text=--temp"), self.succeed("tokenize", DEMO, "--text", "--temp"))

    def test_help_is_a_command(self):
        self.assertEqual(self.succeed("chat", "--help"), self.succeed("help", "chat"))
        self.assertEqual(self.succeed("bench", "decode", "--help"), self.succeed("help", "bench", "decode"))
        self.assertEqual(self.succeed("--help"), self.succeed("help"))
        self.assertEqual(self.succeed("--version"), self.succeed("-V"))


class Page(CommandTest):
    def setUp(self):
        with open(os.path.join(SOURCE, "docs", "command.md")) as file:
            self.page = file.read()

    def test_every_environment_variable_of_the_sources_stands_on_it(self):
        found = set()
        for folder in ("base", "cli", "cpu_driver", "engine", "graph", "models", "runtime", "text", "bench", "tests", "examples"):
            for place, _, names in os.walk(os.path.join(SOURCE, folder)):
                for name in names:
                    if name.endswith((".cpp", ".h", ".cc", ".py")):
                        with open(os.path.join(place, name)) as file:
                            found |= set(re.findall(r"""["'](NODEWRIGHT_[A-Z_]+)["']""", file.read()))
        self.assertLess({"NODEWRIGHT_CACHE", "NODEWRIGHT_CXX", "NODEWRIGHT_NVRTC", "NODEWRIGHT_CUBLASLT", "NODEWRIGHT_CPU_DRIVER"}, found)
        no_variables = {"NODEWRIGHT_KERNEL", "NODEWRIGHT_KERNEL_OF", "NODEWRIGHT_CUDA_INCLUDE_DIR"}  # macros, one of CMake's
        self.assertEqual([], sorted(name for name in found - no_variables if "`%s`" % name not in self.page))

    def test_every_word_behind_cpu_stands_on_it(self):
        words = re.search(r"it has ([^;\n]+);", self.assert_refused(USAGE, ["nonsense"], "run", "-m", DEMO, "--device", "cpu:nonsense"))
        for word in words.group(1).split(", "):
            self.assertIn("`%s`" % word, self.page)


if __name__ == "__main__":
    unittest.main()
