# The command as a black box: what it prints and writes when it is used well. Standard library only.
import array
import base64
import json
import math
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

from command import DEMO, DEVICE, GOLDEN, PROGRAM, SOURCE, USAGE, CommandTest, golden_model, on_device, run

sys.path.insert(0, os.path.join(SOURCE, "tests", "reference"))
import check_plan  # noqa: E402

MODELS = ("odd_sizes", "one_kv_head", "unaligned", "qwen3/normed_heads", "gemma3/window_16",
          "gpt2/learned_positions")
MODES = ("explicit", "captured", "eager")
LIMIT_OVER_ERROR = 2.5  # as kLimitOverError in tests/engine/parity/parity_limits.h


def read_npy(path):
    """(shape, values) of a version 1.0 file, which must hold float32 in C order and nothing after it."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError("not a .npy file of version 1.0: %r" % data[:8])
    (header_bytes,) = struct.unpack("<H", data[8:10])
    header = data[10:10 + header_bytes].decode("ascii")
    found = re.fullmatch(r"\{'descr': '<f4', 'fortran_order': False, 'shape': \((\d+), (\d+)\), \} *\n", header)
    if not found or (10 + header_bytes) % 64 != 0:
        raise ValueError("header %r" % header)
    values = array.array("f", data[10 + header_bytes:])
    shape = tuple(map(int, found.groups()))
    if len(values) != shape[0] * shape[1]:
        raise ValueError("%d values for the shape %s" % (len(values), shape))
    return shape, values


def relative_error(ours, reference):
    mean = math.fsum(reference) / len(reference)
    variance = math.fsum((x - mean) ** 2 for x in reference)
    return math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(ours, reference)) / variance)


def golden_cases(model):
    with open(os.path.join(golden_model(model), "cases.json")) as file:
        return {len(case["prompt"]): case for case in json.load(file)["cases"]}


def largest_error(model, case):
    """Of logits, in steps of one to eight rows, as a part of the reference's standard deviation."""
    with open(os.path.join(GOLDEN, "parity.json")) as file:
        percent = json.load(file)["percent"][model if "/" in model else "llama/" + model]
    place = list(golden_cases(model)).index(len(case["prompt"]))
    return LIMIT_OVER_ERROR * max(percent[form][place] for form in ("one_row", "eight_rows")) / 100


def comma_separated(ids):
    return ",".join(map(str, ids))


class Generate(CommandTest):
    STORY = on_device("generate", DEMO, "--prompt", "Once upon a time", "--max-tokens", "40")

    def test_a_story_starts_with_its_prompt_and_depends_on_the_seed_alone(self):
        story = self.succeed(*self.STORY, "--seed", "1")
        self.assertRegex(story, r"\AOnce upon a time\b")
        self.assertGreater(len(story), len("Once upon a time") + 40)
        self.assertTrue(story.endswith("\n"))
        self.assertEqual(story, self.succeed(*self.STORY, "--seed", "1"))
        self.assertNotEqual(story, self.succeed(*self.STORY, "--seed", "2"))

    def test_without_a_seed_each_story_is_another(self):
        words = ("generate", DEMO, "--prompt", "Once", "--max-tokens", "30", "--temperature", "2")
        self.assertNotEqual(self.succeed(*on_device(*words)), self.succeed(*on_device(*words)))
        self.assertEqual(1, len({self.succeed(*on_device(*words, "--seed", "7")) for _ in range(2)}))

    def test_greedy_choices_ignore_the_seed_and_equal_those_of_one_candidate(self):
        greedy = self.succeed(*self.STORY, "--greedy")
        for words in (["--greedy", "--seed", "7"], ["--top-k", "1", "--seed", "7"], ["--temperature", "0"],
                      ["--top-p", "1e-6", "--seed", "9"]):
            self.assertEqual(greedy, self.succeed(*self.STORY, *words), words)

    def test_sampling_options_are_honoured(self):
        model = golden_model("unaligned")
        words = on_device("generate", model, "--prompt-ids", "1,2", "--max-tokens", "20", "--ignore-eos", "--seed", "3")
        hot = self.succeed(*words, "--temperature", "100")
        self.assertNotEqual(hot, self.succeed(*words, "--temperature", "1"))
        self.assertNotEqual(hot, self.succeed(*words, "--temperature", "100", "--top-k", "2"))
        self.assertNotEqual(hot, self.succeed(*words, "--temperature", "100", "--top-p", "0.05"))
        # A random checkpoint's generation_config.json does not sample.
        self.assertEqual(self.succeed(*words), self.succeed(*words, "--greedy"))

    def test_stats_stand_on_stderr_and_leave_the_text_alone(self):
        done = run(*self.STORY, "--seed", "1", "--stats")
        self.assertEqual(0, done.returncode)
        self.assertEqual(self.succeed(*self.STORY, "--seed", "1"), done.stdout.decode())
        stats = done.stderr.decode()
        for line in (r"^load .* MB of weights$", r"^sampling +temperature=[\d.]+(,\w+=[\d.]+)*, seed 1$", r"^bucket +1: \d+ nodes", r"^graphs +4 in 2 slots: \d+ nodes",
                     r"^prompt +5 tokens, 0 found in the cache and 5 computed$",
                     r"^first +token after [\d.]+ ms, [\d.]+ tokens/s of the prompt$",
                     r"^decode +39 tokens, [\d.]+ tokens/s, [\d.]+ ms/token$",
                     r"^end +length: as many tokens as --max-tokens allows, after 40 tokens$"):
            self.assertRegex(stats, re.compile(line, re.MULTILINE))

    def test_it_says_why_it_ended(self):
        words = on_device("generate", DEMO, "--prompt", "Once upon a time", "--greedy", "--stats")
        for more, reason in ((["--max-tokens", "400"], "stop: a token that ends a text"),
                             (["--max-tokens", "400", "--stop", "was"], "stop string: a stop string"),
                             (["--max-tokens", "400", "--regex", " was"], "complete: all that the grammar asks for"),
                             (["--max-tokens", "30", "--max-context", "8"], "length: the context is full: see --max-context")):
            self.assertRegex(run(*words, *more).stderr.decode(), re.compile("^end +%s" % reason, re.MULTILINE))

    def test_what_a_request_line_may_ask_the_options_ask_too(self):
        line = {"prompt": "Once upon a time", "max_tokens": 30, "temperature": 0.8, "top_k": 50, "seed": 4}
        words = on_device("generate", DEMO, "--prompt", "Once upon a time", "--max-tokens", "30", "--temperature", "0.8",
                          "--top-k", "50", "--seed", "4")
        asked = ((["--min-p", "0.2"], {"min_p": 0.2}),
                 (["--repetition-penalty", "1.5"], {"repetition_penalty": 1.5}),
                 (["--presence-penalty", "2", "--frequency-penalty", "1"],
                  {"presence_penalty": 2, "frequency_penalty": 1}),
                 (["--stop", "was", "--stop", "the"], {"stop": ["was", "the"]}),
                 (["--logit-bias", "300=5,301=-2"], {"logit_bias": {"300": 5, "301": -2}}),
                 (["--bad-word", "was"], {"bad_words": ["was"]}),
                 (["--stop-token-ids", "13,14,15", "--min-tokens", "9"], {"stop_ids": [13, 14, 15], "min_tokens": 9}),
                 (["--json-schema", '{"type": "integer"}'], {"json_schema": {"type": "integer"}}))
        lines = "".join(json.dumps({**line, **fields, "id": at}) + "\n" for at, (_, fields) in enumerate(asked))
        results = [json.loads(result) for result in self.succeed(*on_device("run", DEMO), stdin=lines.encode()).splitlines()]
        served = {result["id"]: result["text"] for result in results}
        for at, (more, _) in enumerate(asked):
            self.assertEqual("Once upon a time" + served[at] + "\n", self.succeed(*words, *more), more)

    def test_the_prompt_may_come_from_standard_input_or_a_file(self):
        story = self.succeed(*self.STORY, "--seed", "1")
        rest = ("-n", "40", "--seed", "1")
        self.assertEqual(story, self.succeed(*on_device("generate", DEMO, "-p", "-", *rest), stdin=b"Once upon a time\n"))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "prompt.txt")
            with open(path, "w") as file:
                file.write("Once upon a time\n")
            self.assertEqual(story, self.succeed(*on_device("generate", DEMO, "-f", path, *rest)))
            self.assert_refused(USAGE, ["--prompt-file", folder], *on_device("generate", DEMO, "-f", folder))
        self.assert_refused(USAGE, ["--prompt-file", "/nowhere"], *on_device("generate", DEMO, "-f", "/nowhere"))

    def test_a_signal_ends_the_line_and_the_statistics_are_told(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            words = on_device("generate", DEMO, "--prompt", "Once upon a time", "--ignore-eos", "--max-tokens", "900", "--stats")
            with subprocess.Popen([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                found = process.stdout.read(len("Once upon a time"))
                process.send_signal(number)
                found += process.stdout.read()
                told = process.stderr.read().decode()
                self.assertEqual(128 + number, process.wait(timeout=600), told)
            self.assertRegex(found.decode(), r"\AOnce upon a time[^\n]*\n\Z")
            self.assertRegex(told, r"(?m)^end +cancelled: interrupted, after \d+ tokens$")

    def test_graphs_are_built_for_what_the_prompt_needs(self):
        for tokens, buckets in ((1, ["1"]), (9, ["12", "1"]), (64, ["64", "1"]), (100, ["64", "48", "1"])):
            ids = ",".join(["5"] * tokens)
            done = run(*on_device("generate", DEMO, "--prompt-ids", ids, "--max-tokens", "2", "--stats"))
            self.assertEqual(buckets, re.findall(r"(?m)^bucket +(\d+):", done.stderr.decode()), tokens)

    def test_ids_need_no_tokenizer_and_continue_as_the_text_does(self):
        prompt = self.succeed("tokenize", "--model", DEMO, "--text", "Once upon a time", "--add-special").strip()
        words = ("--max-tokens", "20", "--greedy", "--ignore-eos")
        text = self.succeed(*on_device("generate", DEMO, "--prompt", "Once upon a time", *words))
        with tempfile.TemporaryDirectory() as folder:
            for name in ("config.json", "generation_config.json", "model.safetensors"):
                shutil.copy(os.path.join(DEMO, name), folder)
            ids = self.succeed(*on_device("generate", folder, "--prompt-ids", prompt, *words))
        self.assertRegex(ids, r"\A\d+(,\d+){19}\n\Z")
        decoded = self.succeed("tokenize", "--model", DEMO, "--decode", ids.strip())
        self.assertEqual(text, "Once upon a time" + decoded)

    def test_the_longest_context_ends_a_text_without_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(golden_model("unaligned"), folder, dirs_exist_ok=True)
            path = os.path.join(folder, "config.json")
            with open(path) as file:
                config = json.load(file)
            with open(path, "w") as file:
                json.dump({**config, "max_position_embeddings": 32}, file)
            words = on_device("generate", folder, "--prompt-ids", "1,2", "--ignore-eos")
            self.assertRegex(self.succeed(*words, "--max-context", "6"), r"\A\d+(,\d+){3}\n\Z")
            full = self.succeed(*words, "--max-tokens", "100000")
        self.assertEqual(4 * 32 - 2, len(full.split(",")))  # max_position_embeddings, scaled by 4, less the prompt

    def test_every_mode_tells_the_same_story(self):
        stories = {self.succeed(*self.STORY, "--seed", "5", "--mode", mode) for mode in MODES}
        self.assertEqual(1, len(stories))

    def test_several_steps_in_a_launch_tell_the_same_story_to_its_end(self):
        words = on_device("generate", DEMO, "--prompt", "Once upon a time", "--max-tokens", "300", "--seed", "5",
                          "--min-p", "0.02")
        done = run(*words, "--stats")
        self.assertRegex(done.stderr.decode(), r"(?m)^end +stop: ")  # an end of its own
        self.assertEqual(done.stdout.decode(), self.succeed(*words, "--steps-per-launch", "64", "--until-ended"))
        short = ["24" if word == "300" else word for word in words]
        self.assertEqual(self.succeed(*short), self.succeed(*short, "--steps-per-launch", "7"))
        for steps, named in ((["0"], ["--steps-per-launch", "from 1 to"]), (["65537"], ["steps per launch", "1 to 65536"]), (["4", "--until-ended", "--mode", "captured"], ["--until-ended and --mode"]),
                             (["1", "--until-ended"], ["--until-ended and --steps-per-launch"]),
                             (["4", "--repetition-penalty", "1.1"], ["--steps-per-launch and", "penalties"]),
                             *((["4", *option.split()], ["--steps-per-launch and " + option.split()[0]]) for option in
                               ("--log steps.jsonl", "--step-tokens 8", "--prefill eager", "--schedule drained", "--pages 9",
                                "--products-from 1", "--step-timeout 5", "--no-prefix-cache", "--no-pipelining"))):
            self.assert_refused(USAGE, named, *self.STORY, "--steps-per-launch", *steps)


class GenerationConfig(CommandTest):
    """What the checkpoint asks for is what the options would ask for; they go before it."""

    WORDS = ("--prompt", "Once upon a time", "--max-tokens", "20", "--seed", "3")

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        shutil.copytree(DEMO, self.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "__pycache__"))

    def ask_for(self, **fields):
        with open(os.path.join(DEMO, "generation_config.json")) as file:
            config = json.load(file)
        with open(os.path.join(self.folder, "generation_config.json"), "w") as file:
            json.dump({**config, **fields}, file)

    def story(self, *words, model=None):
        return self.succeed(*on_device("generate", model or self.folder, *self.WORDS, *words))

    def test_what_it_asks_for_is_honoured(self):
        plain = self.story(model=DEMO)
        the = self.succeed("tokenize", "--model", DEMO, "--text", " the").strip()
        for fields, words in (({"min_p": 0.3}, ["--min-p", "0.3"]),
                              ({"repetition_penalty": 1.5}, ["--repetition-penalty", "1.5"]),
                              ({"suppress_tokens": [int(the)]}, ["--logit-bias", the + "=-100"]),
                              ({"bad_words_ids": [[int(the)]]}, ["--logit-bias", the + "=-100"]),
                              ({"temperature": 1.5, "top_k": 30}, ["--temperature", "1.5", "--top-k", "30"]),
                              ({"do_sample": False}, ["--greedy"])):
            self.ask_for(**fields)
            told = self.story()
            self.assertEqual(self.story(*words, model=DEMO), told, fields)
            self.assertNotEqual(plain, told, fields)

    def test_options_go_before_it(self):
        self.ask_for(min_p=0.3, repetition_penalty=1.5)
        self.assertEqual(self.story(model=DEMO), self.story("--min-p", "0", "--repetition-penalty", "1"))
        self.assertEqual(self.story("--greedy", model=DEMO), self.story("--greedy"))

    def test_every_command_honours_it(self):
        self.ask_for(repetition_penalty=1.5, min_p=0.2)
        line = {"prompt": "Once upon a time", "max_tokens": 30, "seed": 3}
        served = [json.loads(self.succeed(*on_device("run", model), stdin=json.dumps({**line, **more}).encode()))["text"]
                  for model, more in ((self.folder, {}), (DEMO, {"repetition_penalty": 1.5, "min_p": 0.2}), (DEMO, {}))]
        self.assertEqual(served[0], served[1])
        self.assertNotEqual(served[0], served[2])
        words = ("--max-tokens", "30", "--seed", "3")
        said = [self.succeed(*on_device("chat", model, *words, *more), stdin=b"Once upon a time\n")
                for model, more in ((self.folder, ()), (DEMO, ("--repetition-penalty", "1.5", "--min-p", "0.2")))]
        self.assertEqual(said[0], said[1])
        self.assertEqual(served[0] + "\n", said[0])

    def test_what_nobody_honours_is_named_once(self):
        self.ask_for(typical_p=0.9, num_beams=4)
        for command, stdin, words in (("generate", b"", self.WORDS), ("chat", b"Once\nOnce\n", ("--max-tokens", "4")),
                                      ("run", b'{"prompt": "Once", "max_tokens": 4}\n' * 3, ())):
            done = run(*on_device(command, self.folder, *words), stdin=stdin)
            self.assertEqual((0, "nodewright: generation_config.json asks for num_beams 4, typical_p 0.9, which is ignored\n"),
                             (done.returncode, done.stderr.decode()), command)


class Logits(CommandTest):
    def logits(self, model, case, *words):
        """The bytes of the file, which must be the only one left, and its values."""
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual("", self.succeed(*on_device(
                "logits", golden_model(model), "--prompt-ids", comma_separated(case["prompt"]), "--continue",
                comma_separated(case["continuation"]), "--out", "f.npy", *words), cwd=folder))
            self.assertEqual(["f.npy"], os.listdir(folder))
            path = os.path.join(folder, "f.npy")
            with open(path, "rb") as file:
                return file.read(), read_npy(path)

    def assert_near_reference(self, model, case, found):
        shape, reference = read_npy(os.path.join(golden_model(model), case["logits"]))
        self.assertEqual(shape, found[0])
        self.assertEqual(1 + len(case["continuation"]), shape[0])
        self.assertLessEqual(relative_error(found[1], reference), largest_error(model, case), (model, case["logits"]))

    def test_logits_agree_with_the_reference_in_every_model_and_the_modes_to_the_byte(self):
        for model in MODELS:
            cases = golden_cases(model)
            for length in (1, 5):
                files = {}
                for mode in MODES if length == 5 else MODES[:1]:
                    files[mode], found = self.logits(model, cases[length], "--mode", mode)
                self.assert_near_reference(model, cases[length], found)
                self.assertEqual(1, len(set(files.values())), (model, length))

    def test_logits_agree_with_the_reference_in_every_bucket(self):
        case = golden_cases("odd_sizes")[5]
        for bucket in ("1", "2", "4"):
            self.assert_near_reference("odd_sizes", case, self.logits("odd_sizes", case, "--bucket", bucket)[1])

    def test_without_forced_tokens_one_row_is_written_over_an_older_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "f.npy")
            with open(path, "w") as file:
                file.write("older")
            self.succeed(*on_device("logits", golden_model("unaligned"), "--prompt-ids", "7, 8", "--out", path))
            self.assertEqual((1, 301), read_npy(path)[0])


class Graph(CommandTest):
    def test_the_json_of_every_bucket_has_the_contract_s_keys_and_passes_the_hazard_check(self):
        for bucket in (1, 2, 4, 8):
            plan = json.loads(self.succeed(*on_device("graph", golden_model("odd_sizes"), "--bucket", str(bucket),
                                                      "--format", "json")))
            self.assertEqual({"name", "facts", "hash", "device", "about", "peak", "buffers", "nodes", "edges", "folds", "timings"}, set(plan))
            self.assertEqual({"bucket": str(bucket)}, plan["facts"])
            violations, _ = check_plan.check_plan(plan)
            self.assertEqual([], violations)
            for node in plan["nodes"]:
                self.assertLessEqual({"id", "name", "kind", "kernel", "layer", "grid", "block", "shared_bytes",
                                      "bytes_read", "bytes_written", "uses"}, set(node), node["name"])
            self.assertTrue(any(node["kind"] == "kernel" for node in plan["nodes"]))

    def test_a_file_holds_what_standard_output_shows(self):
        for form, start in (("json", "{"), ("dot", "digraph "), ("text", "plan ")):
            words = on_device("graph", golden_model("odd_sizes"), "--format", form)
            shown = self.succeed(*words)
            self.assertTrue(shown.startswith(start), shown[:40])
            self.assertTrue(shown.endswith("\n"))
            with tempfile.TemporaryDirectory() as folder:
                self.assertEqual("", self.succeed(*words, "--out", "plan", cwd=folder))
                self.assertEqual(["plan"], os.listdir(folder))
                with open(os.path.join(folder, "plan")) as file:
                    self.assertEqual(shown, file.read())

    def test_why_tells_the_operations_and_the_kernels_that_take_them(self):
        one, eight = (self.succeed(*on_device("graph", DEMO, "--why", "--bucket", rows)) for rows in ("1", "8"))
        self.assertRegex(one, r"v3 = product\(v2, qkv\) \[192 -> \d+\]\n")
        self.assertIn("\nnorm attention_norm product qkv: norm_project\n  norm_project[", one)
        self.assertIn("\n  not tile_norm_project: not a step of tiles: 1 rows of 3 to 16\n", one)
        self.assertIn("\nnorm attention_norm product qkv: tile_norm_project\n  tile_norm_project[", eight)
        self.assertIn("8 rows; the residual travels gained\n", eight)

    def test_a_plan_of_several_steps_has_their_nodes_and_is_what_the_driver_holds(self):
        words = on_device("graph", DEMO, "--verify", "--out", "plan.json", "--format", "json", "--steps-per-launch")
        for steps in (["3"], ["9", "--until-ended"]):
            with tempfile.TemporaryDirectory() as folder:
                self.assertRegex(self.succeed(*words, *steps, cwd=folder), r"\Averified: \d+ nodes")
                with open(os.path.join(folder, "plan.json")) as file:
                    plan = json.load(file)
            names = [node["name"] for node in plan["nodes"]]
            if len(steps) == 1:
                self.assertEqual(["s0.advance", "s1.advance", "s2.advance"], [n for n in names if n.endswith("advance")])
                violations, _ = check_plan.check_plan(plan)
                self.assertEqual([], violations)
            else:
                self.assertEqual(["inputs", "steps"], names)
                body = plan["nodes"][1]["bodies"][0]
                told = run(*on_device("generate", DEMO, "--prompt", "Once", "--max-tokens", "2", "--stats", "--steps-per-launch", *steps))
                self.assertRegex(told.stderr.decode(), r"(?m)^graph +2 nodes, 1 edges; inside steps %d nodes, %d edges, built in"
                                 % (len(body["nodes"]), len(body["edges"])))

    def test_edges_follow_their_option(self):
        types = {}
        for edges in ("programmatic", "full", "serial"):
            plan = json.loads(self.succeed(*on_device("graph", golden_model("odd_sizes"), "--edges", edges, "--format",
                                                      "json")))
            types[edges] = {edge["type"] for edge in plan["edges"]}
        self.assertIn("programmatic", types["programmatic"])
        self.assertEqual({"full"}, types["full"])
        self.assertEqual({"full"}, types["serial"])

    def test_a_mode_that_there_is_not_is_refused_with_those_there_are(self):
        self.assert_refused(USAGE, ["--mode", "fast", "explicit, captured, eager"], *on_device(
            "generate", golden_model("odd_sizes"), "--prompt-ids", "1", "--mode", "fast"))


class Trace(CommandTest):
    def test_the_three_modes_are_three_different_sequences_of_driver_calls(self):
        ids = set()
        calls, launched = {}, {}
        for mode in MODES:
            done = run(*on_device("generate", golden_model("unaligned"), "--prompt-ids", "1,2,3", "--max-tokens", "3",
                                  "--mode", mode, "--trace"))
            self.assertEqual(0, done.returncode)
            ids.add(done.stdout)
            calls[mode] = set(re.findall(r"^\d+ (cu\w+)\(.*\) = CUDA_SUCCESS", done.stderr.decode(), re.MULTILINE))
            launched[mode] = len(re.findall(r"(?m)^\d+ cuLaunchKernel", done.stderr.decode()))
        self.assertEqual(1, len(ids))

        def has(mode, prefix):
            return any(call.startswith(prefix) for call in calls[mode])

        seen = {mode: (has(mode, "cuGraphAdd"), has(mode, "cuStreamBeginCapture"), has(mode, "cuGraphLaunch"))
                for mode in MODES}
        self.assertEqual({"explicit": (True, False, True), "captured": (False, True, True),
                          "eager": (False, False, False)}, seen)
        # No kernel of a step: only the one that tells the device the sequence's pages, where they change.
        self.assertEqual(1, launched["explicit"])
        for mode in ("captured", "eager"):
            self.assertGreater(launched[mode], 20)


class Tokenize(CommandTest):
    FOLDER = os.path.join(GOLDEN, "tokenizers", "llama3")

    @classmethod
    def setUpClass(cls):
        with open(os.path.join(cls.FOLDER, "cases.json")) as file:
            cls.cases = json.load(file)

    @staticmethod
    def sample(cases, count):
        return cases[::max(1, len(cases) // count)][:count]

    def test_fifty_texts_get_the_ids_of_the_reference(self):
        for case in self.sample(self.cases["encode"], 50):
            text = base64.b64decode(case["base64"]) if "base64" in case else case["text"].encode()
            ids = self.succeed("tokenize", "--model", self.FOLDER, stdin=text)
            self.assertEqual(comma_separated(case["ids"]) + "\n", ids, case)
        for case in self.sample([case for case in self.cases["encode"] if "parsed" in case], 5):
            words = ("tokenize", "--model", self.FOLDER, "--text", case["text"])
            self.assertEqual(comma_separated(case["parsed"]) + "\n", self.succeed(*words, "--parse-special"))
            whole = self.succeed(*words, "--parse-special", "--add-special")
            self.assertEqual(comma_separated(case["whole"]) + "\n", whole)

    def test_decoding_gives_the_text_of_the_reference_back(self):
        for case in self.sample([case for case in self.cases["decode"] if case["ids"]], 25):
            text = self.succeed("tokenize", "--model", self.FOLDER, "--decode", comma_separated(case["ids"]))
            self.assertEqual(case["kept"] + "\n", text)

    def test_a_text_survives_the_round_trip_through_the_demo_s_tokenizer(self):
        for text in ("Once upon a time, there was a girl.", "naïve  café\n\t🙂 123456", " "):
            ids = self.succeed("tokenize", "--model", DEMO, "--text", text).strip()
            self.assertEqual(text + "\n", self.succeed("tokenize", "--model", DEMO, "--decode", ids))

    def test_a_batch_takes_token_ids_alone_and_names_the_line(self):
        lines = self.succeed("tokenize", "--model", DEMO, "--batch", stdin=b'\n{"text": "Once"}\n{"ids": [2]}\n').splitlines()
        self.assertEqual([{"ids": [557]}, {"text": "!"}], [json.loads(line) for line in lines])
        for line, reason in (('{"ids": [4294967298]}', "ids has 4294967298, which is no token id"),
                             ('{"ids": [2.5]}', "ids has 2.5, which"), ('{"ids": [true]}', "ids has true, which"),
                             ('{"ids": [[2]]}', "ids has a list, which"), ('{"ids": 2}', "ids is no list"),
                             ('{"text": 5}', "text is no string"), ('{"ids": [1e400]}', "beyond the range"),
                             ("{", "not valid JSON at byte 2"), ("[]", "no object with text or ids alone"),
                             ('{"text": "a", "ids": [2]}', "no object with text or ids alone")):
            done = run("tokenize", "--model", DEMO, "--batch", stdin=b'{"text": "a"}\n' + line.encode())
            told = done.stderr.decode().splitlines()
            self.assertEqual((1, 1), (done.returncode, len(told)), line)
            self.assertIn("cannot read 'line 2 of standard input': ", told[0])
            self.assertIn(reason, told[0])


class Doctor(CommandTest):
    def test_it_names_what_is_there_and_what_is_missing(self):
        report = self.succeed("doctor")
        for what in ("CUDA device", "NVRTC", "cuBLASLt", "CPU driver", "host compiler", "kernel cache"):
            self.assertRegex(report, re.compile(r"^(ok|missing) +%s +\S" % what, re.MULTILINE))
        self.assertRegex(report, re.compile(r"^ok +optional calls CPU driver: cuGraphGetId, .*cuFuncGetParamCount, .*cuStreamBeginRecaptureToGraph", re.MULTILINE))
        self.assertRegex(report, r"\nready: --device (cuda|cpu only)\n\Z")

    def test_it_names_the_forms_of_kernels_that_a_device_gets(self):
        report = self.succeed("doctor")
        forms = re.search(r"^ok +forms +CPU driver.*\n((?: {24}\S.*\n)+)", report, re.MULTILINE)
        self.assertIsNotNone(forms, report)
        names = [line.strip().split(":")[0] for line in forms[1].splitlines()]
        self.assertEqual(names, ["edges", "clusters", "tiles of weights", "products", "products in FP8", "products in int4",
                                 "attention", "sums over ranks", "kernels"])
        self.assertNotIn("untried", forms[1])
        self.assertNotIn("bulk copies", forms[1])

    def test_it_says_how_to_mend_what_is_missing(self):
        report = self.succeed("doctor", NODEWRIGHT_CACHE="/proc/nowhere", CUDA_VISIBLE_DEVICES="")
        self.assertRegex(report, re.compile(r"^missing +kernel cache .*/proc/nowhere.*NODEWRIGHT_CACHE", re.MULTILINE))
        self.assertRegex(report, re.compile(r"^missing +CUDA device .*--device cpu", re.MULTILINE))


class Program(CommandTest):
    def test_version_and_help_are_answered(self):
        self.assertRegex(self.succeed("--version"), r"\Anodewright \d+\.\d+\.\d+\n")
        for command in ("generate", "chat", "logits", "graph", "tokenize", "doctor"):
            self.assertIn(command, self.succeed("--help"))
            self.assertIn("--help", self.succeed(command, "--help"))

    def test_a_reader_that_goes_away_ends_it_quietly(self):
        words = [PROGRAM, *on_device("generate", golden_model("unaligned"), "--prompt-ids", "1", "--max-tokens", "400",
                                     "--ignore-eos")]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
            self.assertTrue(writer.stdout.read(1))
            writer.stdout.close()
            message = writer.stderr.read().decode()
        # Ended by SIGPIPE as any filter, or by the error of the write.
        self.assertIn(writer.returncode, (-13, 1), message)
        self.assertRegex(message, r"\A(nodewright: [^\n]*\n)?\Z")


if __name__ == "__main__":
    print("nodewright: %s on %s" % (PROGRAM, DEVICE), file=sys.stderr)
    unittest.main()
