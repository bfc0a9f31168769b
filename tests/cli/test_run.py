# nodewright run as a black box: many requests at once get what each gets from generate.
import ast
import json
import math
import os
import pty
import random
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest

from command import DEMO, PROGRAM, RUN_TIME, USAGE, CommandTest, golden_model, on_device, run, without_first_start

ODD = golden_model("odd_sizes")
REQUESTS = [
    {"id": "a", "prompt_ids": [1, 2, 3], "max_tokens": 9},
    {"id": "b", "prompt_ids": [5] * 70, "max_tokens": 3},
    {"id": "c", "prompt_ids": [5] * 70 + [6], "max_tokens": 12},
    {"id": "d", "prompt_ids": [7], "max_tokens": 1},
    {"id": {"any": "JSON"}, "prompt_ids": [8, 9], "max_tokens": 20},
    {"prompt_ids": [10, 11, 12, 13], "max_tokens": 5},
]


def lines_of(requests):
    return "".join(json.dumps(request) + "\n" for request in requests).encode()


def matrix(path):
    """The rows of a float32 .npy file."""
    with open(path, "rb") as file:
        data = file.read()
    start = 10 + struct.unpack_from("<H", data, 8)[0]
    header = ast.literal_eval(data[10:start].decode())
    rows, columns = header["shape"]
    assert header["descr"] == "<f4" and len(data) == start + 4 * rows * columns, header
    return [list(struct.unpack_from("<%df" % columns, data, start + 4 * row * columns)) for row in range(rows)]


class Run(CommandTest):
    def serve(self, requests, *words, model=ODD, unserved=0):
        """Results by the JSON of their id. `unserved`: how many of them have no full result, which the end reports."""
        done = run(*on_device("run", model, "--greedy", *words), stdin=lines_of(requests))
        told = "nodewright: cannot serve '%d of %d requests': the first" % (unserved, len(requests)) if unserved else ""
        self.assertEqual((RUN_TIME if unserved else 0, told), (done.returncode, done.stderr.decode()[:len(told) or None]))
        results = [json.loads(line) for line in done.stdout.decode().splitlines()]
        self.assertEqual(len(requests), len(results))
        return {json.dumps(result["id"]): result for result in results}

    def test_each_request_gets_what_generate_gives_it(self):
        expected = [self.succeed(*on_device("generate", ODD, "--prompt-ids", ",".join(map(str, r["prompt_ids"])), "--greedy",
                                            "--max-tokens", str(r["max_tokens"]), "--ignore-eos")).strip()
                    for r in REQUESTS]
        requests = [{**request, "ignore_eos": True} for request in REQUESTS]
        for words in ([], ["--max-batch", "2", "--no-pipelining"], ["--max-batch", "4", "--no-prefix-cache", "--rate", "200"],
                      ["--pages", "4", "--buckets", "8"], ["--buckets", "exact", "--max-batch", "3"], ["--prefill", "piecewise"], ["--prefill", "eager"],
                      ["--speculate", "3", "--max-batch", "2", "--buckets", "8"]):
            results = self.serve(requests, "--chunk", "8", *words)
            for i, (request, ids) in enumerate(zip(requests, expected)):
                result = results[json.dumps(request.get("id", i + 1))]
                self.assertEqual((ids, "length"), (",".join(map(str, result["token_ids"])), result["finish_reason"]), words)

    # One bucket, in which the bits of a row depend on its own request alone.
    def test_two_hundred_requests_get_the_same_tokens_in_every_setting(self):
        draw = random.Random(1)
        shared = [draw.randrange(1003) for _ in range(64)]  # a page
        requests = [{"id": i, "prompt_ids": (shared if i % 40 == 0 else []) + [draw.randrange(1003) for _ in range(1 + i % 4)],
                     "max_tokens": 1 + i % 3, "ignore_eos": True, "temperature": draw.choice([0, 1.0]), "seed": i}
                    for i in range(200)]
        results = [{name: (result["token_ids"], result["finish_reason"]) for name, result in
                    self.serve(requests, "--buckets", "8", "--chunk", "8", *words).items()}
                   for words in ([], ["--no-prefix-cache", "--no-pipelining", "--max-batch", "5"],
                                 ["--reserve", "prompt", "--pages", "5", "--speculate", "2", "--rate", "300"])]
        self.assertEqual([1 + i % 3 for i in range(200)], [len(results[0][str(i)][0]) for i in range(200)])
        for other in results[1:]:
            self.assertEqual(results[0], other)

    def test_a_line_that_says_how_to_sample_is_not_greedy(self):
        line = {"prompt_ids": [1, 2], "max_tokens": 8, "ignore_eos": True}
        results = self.serve([{**line, "id": 1}, {**line, "id": 2, "temperature": 50.0}, {**line, "id": 3, "top_k": 900}],
                             "--buckets", "8", "--chunk", "8")
        self.assertEqual(3, len({json.dumps(result["token_ids"]) for result in results.values()}))

    def test_texts_stops_and_what_is_refused(self):
        first = self.serve([{"prompt": "Once upon a time", "max_tokens": 4}], model=DEMO)["1"]
        self.assertEqual(self.succeed("tokenize", "--model", DEMO, "--decode", ",".join(map(str, first["token_ids"])))[:-1],
                         first["text"])
        stop = first["token_ids"][2]
        results = self.serve([{"id": 1, "prompt": "Once upon a time", "stop_ids": [stop]},
                              {"id": 2, "prompt_ids": [100000]}, {"id": 3, "prompt_ids": []}], model=DEMO, unserved=2)
        self.assertEqual(("stop", first["token_ids"][:first["token_ids"].index(stop) + 1]), (results["1"]["finish_reason"], results["1"]["token_ids"]))
        self.assertEqual("refused", results["2"]["finish_reason"])
        self.assertIn("token 100000", results["2"]["message"])
        self.assertEqual("refused", results["3"]["finish_reason"])

    def test_grammars_stop_strings_and_log_probabilities(self):
        prompt = {"prompt": "Once upon a time", "max_tokens": 60}
        schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "old": {"type": "boolean"},
                                                   "note": {"type": "string", "maxLength": 4}},
                  "required": ["name", "old"]}
        plain = {**prompt, "max_tokens": 12}
        results = self.serve([{**prompt, "id": "regex", "regex": "[ a-z]{5,9}!"},
                              {**prompt, "id": "schema", "json_schema": schema, "temperature": 1.0, "seed": 3},
                              {**plain, "id": "plain"}, {**plain, "id": "likely", "logprobs": 2}], model=DEMO)
        self.assertRegex(results['"regex"']["text"], "^[ a-z]{5,9}!$")
        self.assertEqual(("stop", False), (results['"regex"']["finish_reason"], "stop_reason" in results['"regex"']))
        answer = json.loads(results['"schema"']["text"])
        self.assertEqual((["name", "old"], str, bool), (list(answer)[:2], type(answer["name"]), type(answer["old"])))
        self.assertLessEqual(set(answer), {"name", "old", "note"})
        text, ids = results['"plain"']["text"], results['"plain"']["token_ids"]
        likely = results['"likely"']
        self.assertEqual((ids, ids), (likely["token_ids"], [one["id"] for one in likely["logprobs"]]))
        for one in likely["logprobs"]:  # greedy: the token is the likeliest
            self.assertEqual([one["id"], one["logprob"]], one["top"][0])
            self.assertGreater(0, one["top"][0][1])
            self.assertGreaterEqual(one["top"][0][1], one["top"][1][1])

        middle, word = text[5:9], text.split()[3]
        results = self.serve([{**plain, "id": "stop", "stop": ["~~~", middle]}, {**plain, "id": "bad", "bad_ids": [ids[0]]},
                              {**plain, "id": "late", "stop": middle, "min_tokens": 12},
                              {**plain, "id": "penalised", "repetition_penalty": 30.0},
                              {**plain, "id": "word", "bad_words": [word]}, {**plain, "id": "ids", "bad_sequences": [ids[4:6]]},
                              {**plain, "id": "refused", "logit_bias": {"100000": 1}}], model=DEMO, unserved=1)
        self.assertEqual(("stop", middle, text[:text.index(middle)]),
                         tuple(results['"stop"'][field] for field in ("finish_reason", "stop_reason", "text")))
        self.assertEqual(("length", text), (results['"late"']["finish_reason"], results['"late"']["text"]))
        completes = len(results['"stop"']["token_ids"])  # a later token than that must end it
        late = self.serve([{**plain, "id": n, "stop": middle, "min_tokens": n} for n in (completes - 1, completes)], model=DEMO)
        self.assertEqual(["stop", "length"], [late[str(n)]["finish_reason"] for n in (completes - 1, completes)])
        self.assertNotIn(ids[0], results['"bad"']["token_ids"])
        self.assertEqual(12, len(set(results['"penalised"']["token_ids"])))
        self.assertEqual(text[:text.index(word)], results['"word"']["text"][:text.index(word)])
        self.assertNotIn(word, results['"word"']["text"].split())
        self.assertEqual(ids[:5], results['"ids"']["token_ids"][:5])
        self.assertNotEqual(ids[5], results['"ids"']["token_ids"][5])
        self.assertIn("token 100000", results['"refused"']["message"])

    def test_hidden_states_and_log_probabilities_of_prompts(self):
        with tempfile.TemporaryDirectory() as folder:
            prompt, logits = [3, 1, 4, 1, 5, 9, 2, 6], os.path.join(folder, "logits.npy")
            places = os.path.join(folder, "new", "hidden")
            results = self.serve([{"id": "full", "prompt_ids": prompt, "max_tokens": 3, "hidden": "full", "prompt_logprobs": 2},
                                  {"id": "last", "prompt_ids": prompt, "max_tokens": 3, "hidden": "last"},
                                  {"id": "none", "prompt_ids": prompt, "max_tokens": 3, "hidden": "none"}],
                                 "--hidden-dir", places, "--max-batch", "3", "--buckets", "8", "--chunk", "8", "--numerics", "invariant")
            self.assertEqual([os.path.join(places, "1.npy"), os.path.join(places, "2.npy")],
                             [results['"full"']["hidden"], results['"last"']["hidden"]])
            self.assertNotIn("hidden", results['"none"'])
            full, last = matrix(results['"full"']["hidden"]), matrix(results['"last"']["hidden"])
            self.assertEqual((10, 3, 192), (len(full), len(last), len(last[0])))
            self.assertEqual(full[7:], last)
            self.succeed(*on_device("logits", ODD, "--prompt-ids", str(prompt[0]), "--continue", ",".join(map(str, prompt[1:])),
                                    "--numerics", "invariant", "--out", logits))
            told = results['"full"']["prompt_logprobs"]
            self.assertEqual(prompt[1:], [one["id"] for one in told])
            for row, one in zip(matrix(logits), told):
                log_sum = math.log(sum(math.exp(v) for v in row))
                likeliest = sorted(range(len(row)), key=lambda i: -row[i])[:2]
                self.assertAlmostEqual(row[one["id"]] - log_sum, one["logprob"], 3)
                self.assertEqual(likeliest, [token for token, _ in one["top"]])
            results = self.serve([{"id": "asks", "prompt_ids": prompt, "hidden": "last"}, {"id": "not", "prompt_ids": [1], "max_tokens": 1}], unserved=1)
            self.assertEqual(("refused", "length"), (results['"asks"']["finish_reason"], results['"not"']["finish_reason"]))
            for words in ('"last"', "--hidden-dir"):
                self.assertIn(words, results['"asks"']["message"])
            os.mkdir(os.path.join(folder, "1.npy"))  # stands in the way of the first file
            done = run(*on_device("run", ODD, "--buckets", "8", "--chunk", "8", "--hidden-dir", folder),
                       stdin=lines_of([{"prompt_ids": [1], "max_tokens": 2, "hidden": "last"}] * 2))
            first, second = sorted(map(json.loads, done.stdout.decode().splitlines()), key=lambda result: result["id"])
            self.assertEqual((1, None, 2, 2), (done.returncode, first["hidden"], len(first["token_ids"]), len(matrix(second["hidden"]))))
            self.assertIn("1.npy", first["message"])
            self.assertIn("1.npy", done.stderr.decode())
            self.assert_refused(USAGE, ["--hidden-dir", logits], *on_device("run", ODD, "--hidden-dir", logits),
                                stdin=b'{"prompt_ids": [1]}\n')

    # The line before it is served, and so is the one after it.
    def assert_each_refused(self, model, lines):
        text = b"".join(line + b"\n" for line, _ in lines)
        first, last = (b'{"id": "%s", "prompt_ids": [1], "max_tokens": 2, "ignore_eos": true}\n' % name for name in (b"first", b"last"))
        done = run(*on_device("run", model), stdin=first + text + last)
        results = {json.dumps(result["id"]): result for result in map(json.loads, done.stdout.decode().splitlines())}
        self.assertEqual((RUN_TIME, len(lines) + 2), (done.returncode, len(results)), done.stderr)
        for name in ('"first"', '"last"'):
            self.assertEqual(("length", 2), (results[name]["finish_reason"], len(results[name]["token_ids"])))
        for i, (line, named) in enumerate(lines):
            result = results[str(i + 2)]
            self.assertEqual("refused", result["finish_reason"], line)
            for word in named:
                self.assertIn(word, result["message"], line)
            self.assertNotIn("json.exception", result["message"])
        for words in ("'%d of %d requests'" % (len(lines), len(lines) + 2), "line 2 was refused"):
            self.assertIn(words, done.stderr.decode())

    def test_a_line_that_cannot_be_served_is_one_refused_result_that_names_its_field(self):
        self.assert_each_refused(ODD, (
            (b"{", ["no JSON", "line 1, column 2"]), (b"[1]", ["[1]", "JSON object"]),
            (b'{"prompt_ids": [1], "top": 1}', ['"top"', "not known"]),
            (b'{"prompt_ids": [1], "temprature": 1}', ['"temprature"', "did you mean temperature?"]),
            (b'{"max_tokens": 3}', ["prompt", "messages", "prompt_token_ids"]), (b'{"prompt_ids": ["a"]}', ["prompt_ids", '"a"']),
            (b'{"prompt_ids": [1.5]}', ["prompt_ids", "1.5"]), (b'{"prompt_ids": [1e10]}', ["prompt_ids"]),
            (b'{"prompt_ids": [99999999999]}', ["99999999999"]), (b'{"prompt_ids": 1}', ["prompt_ids is 1"]),
            (b'{"prompt_ids": [1], "max_tokens": 2.5}', ["max_tokens", "2.5"]),
            (b'{"prompt_ids": [1], "max_tokens": 0}', ["max_tokens is 0", "1 to"]),
            (b'{"prompt_ids": [1], "max_tokens": 1, "max_new_tokens": 1}', ["max_tokens", "one field: drop max_new_tokens"]),
            (b'{"prompt": "a", "prompt_ids": [1]}', ["both prompt and prompt_ids", "drop prompt_ids, or prompt where"]),
            (b'{"messages": [], "prompt_token_ids": [1]}', ["both prompt_token_ids and messages", "drop messages, or"]),
            (b'{"prompt": "a", "messages": []}', ["both prompt and messages", "drop messages, or prompt where"]),
            (b'{"prompt_ids": [1], "regex": "a", "guided_json": {}}', ["both regex and guided_json", "drop guided_json"]),
            (b'{"prompt_ids": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", ["nests deeper than 160 levels"]),
            (b'{"id": ' + b"[" * 160 + b"]" * 160 + b', "prompt_ids": [1]}', ["nests deeper than 160 levels"]),
            (b'{"prompt_ids": [1], "top_k": -2}', ["top_k"]), (b'{"prompt_ids": [1], "top_p": 3}', ["top_p: 3"]),
            (b'{"prompt_ids": [1], "temperature": "hot"}', ['temperature is "hot", expected a number']),
            (b'{"prompt_ids": [1], "temperature": -1}', ["temperature: -1"]),
            (b'{"prompt_ids": [1], "seed": -1}', ["seed is -1", "18446744073709551615"]),
            (b'{"prompt_ids": [1], "seed": 18446744073709551616}', ["seed is"]),
            (b'{"prompt_ids": [1], "stream": 1}', ["stream is 1"]), (b'{"prompt_ids": [1], "n": 0}', ["n is 0"]),
            (b'{"prompt_ids": [1], "ignore_eos": "yes"}', ["ignore_eos"]),
            (b'{"prompt_ids": [1], "stop_ids": [99999]}', ["stop_ids", "99999", "1003 tokens"]),
            (b'{"prompt_ids": [1], "repetition_penalty": 0}', ["repetition_penalty of 0"]),
            (b'{"prompt_ids": [1], "repetition_penalty": []}', ["repetition_penalty is []"]),
            (b'{"prompt_ids": [1], "max_tokens": 4, "tools": []}', ["tools", "messages"]),
            (b'{"prompt": "text"}', ["tokenizer.json"]), (b'{"prompt_ids": [1], "stop": "x"}', ["stop", "tokenizer.json"]),
            (b'{"prompt_ids": [1], "logprobs": 21}', ["logprobs", "21"]),
            (b'{"prompt_ids": [1], "prompt_logprobs": 21}', ["prompt_logprobs", "21"]),
            (b'{"prompt_ids": [1], "hidden": "first"}', ["hidden", "first", "full"]),
            (b'{"prompt_ids": [1], "min_p": "a"}', ["min_p"]), (b'{"prompt_ids": [1], "logit_bias": {"x": 1}}', ["logit_bias", "x"]),
            (b'{"prompt_ids": [1], "bad_sequences": [1]}', ["bad_sequences", "1"]),
            (b'{"prompt_ids": [1], "bad_sequences": [[1, -1]]}', ["bad_sequences", "-1"]),
            (b'{"prompt_ids": [1], "bad_words": ["a"]}', ["bad_words", "tokenizer.json"])))
        self.assert_each_refused(DEMO, (
            (b'{"prompt": 5}', ["prompt is 5, expected a string"]),
            (b'{"prompt": "a", "regex": "a("}', ["a(", "without its )"]),
            (b'{"prompt": "a", "json_schema": {"type": "integer", "multipleOf": 3}}', ["multipleOf"]),
            (b'{"prompt": "a", "json_schema": "x"}', ['json_schema is the string "x", expected an object']),
            (b'{"prompt": "a", "json_schema": {"type": "array", "items": 3}}', ["'#/items'", "a number, expected an object"]),
            (b'{"prompt": "a", "guided_regex": "", "min_tokens": 2}',
             ["what guided_regex and min_tokens ask for cannot be done", "output 0"]),
            (b'{"prompt": "a", "regex": "", "ignore_eos": true}', ["what regex and ignore_eos ask for"]),
            (b'{"prompt": "a", "regex": "b", "bad_words": ["b"]}', ["what regex and bad_words ask for"]),
            (b'{"prompt": "a", "tools": [{"type": "function"}], "messages": []}', ["both prompt and messages"]),
            (b'{"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "function": {}}]}',
             ["tools[0].function.name is missing, expected a string"]),
            (b'{"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "function": {"name": "f"}}]}',
             ["tools is not supported: the model's chat template does not know them"]),
            (b'{"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]}',
             ["messages[0].tool_calls[0].function is missing"]),
            (b'{"prompt": "a", "bad_words": ["a", " "]}', ["bad_words", '" "']), (b'{"prompt": "a", "stop": [""]}', ["stop"]),
            (b'{"messages": []}', ["messages"]), (b'{"messages": [{"content": "a"}]}', ["role"]),
            (b'{"messages": [{"role": "user", "content": [{"type": "image"}]}]}', ['"image"', "only text"])))

    def test_what_the_command_line_gets_wrong_stops_it_before_anything_is_served(self):
        self.assert_refused(USAGE, ["nowhere.jsonl", "No such file"], *on_device("run", ODD, "--requests", "nowhere.jsonl"))
        self.assert_refused(USAGE, ["/", "it is a folder"], *on_device("run", ODD, "--requests", "/"))
        self.assert_refused(USAGE, ["--rate"], *on_device("run", ODD, "--rate", "0"), stdin=b"")
        self.assert_refused(USAGE, ["whole", "piecewise"], *on_device("run", ODD, "--prefill", "whole"), stdin=b"")
        self.assert_refused(USAGE, ["speculate", "17", "16"], *on_device("run", ODD, "--speculate", "17"), stdin=b'{"prompt_ids": [1]}\n')

    def test_no_requests_are_no_results(self):
        self.assertEqual("", self.succeed(*on_device("run", ODD), stdin=b"\n"))

    def test_statistics_count_what_was_done(self):
        done = run(*on_device("run", ODD, "--greedy", "--stats", "--chunk", "8"), stdin=lines_of(REQUESTS))
        self.assertEqual(0, done.returncode, done.stderr)
        text = done.stderr.decode()
        for words in ("bucket    8: 28 nodes", " free before, ", "graphs    8 in 2 slots: 112 nodes", "of key/value pages", "rows      8 (explicit)",
                      "in use at most, 0 preemptions", "idle      ", "buckets   ", "requests  6 in", "6 length", "50 chosen", "first     token", "next      token"):
            self.assertIn(words, text)

    def test_what_has_no_bucket_or_no_page_is_told(self):
        requests = lines_of([{"prompt_ids": [1, i], "max_tokens": 6} for i in range(4)])
        words = on_device("run", ODD, "--greedy", "--stats", "--max-batch", "3", "--buckets", "2")
        self.assert_refused(USAGE, ["--buckets and --max-batch", "--max-batch is 3", "--allow-eager"], *words, stdin=requests)
        done = run(*words, "--allow-eager", stdin=requests)
        self.assertEqual(0, done.returncode, done.stderr)
        told = [line for line in done.stderr.decode().splitlines() if line.startswith("nodewright: ")]
        self.assertEqual(["nodewright: a step runs without a graph: more rows than the largest bucket has, 2"], told)
        words = on_device("run", ODD, "--greedy", "--buckets", "8", "--max-context", "128")
        self.assert_refused(USAGE, ["max context", "memory limit of 1600000", "a memory limit of "], *words,
                            "--memory-limit", "1600000", stdin=requests)
        self.assert_refused(USAGE, ["pages", "memory limit of 4000000"], *words, "--memory-limit", "4000000", "--pages", "1000",
                            stdin=requests)
        for limit in ("x", "1.5", "0", "-1", "1e400"):
            self.assert_refused(USAGE, ["--memory-limit", limit], *words, "--memory-limit=" + limit, stdin=requests)
        self.assert_refused(USAGE, ["step timeout", "3000000000"], *words, "--step-timeout", "3000000000", stdin=requests)
        # Two requests of two pages each in three pages.
        results = self.serve([{"id": i, "prompt_ids": [i] * 50, "max_tokens": 70, "ignore_eos": True} for i in range(2)],
                             "--max-batch", "2", "--buckets", "8", "--reserve", "prompt", "--pages", "3", "--chunk", "8", "--step-timeout", "60000")
        self.assertEqual(["length", "length"], [result["finish_reason"] for result in results.values()])

    def test_ctrl_c_and_sigterm_give_every_request_its_end(self):
        for asked, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "requests.jsonl")
                with open(path, "wb") as file:
                    file.write(lines_of([{"prompt_ids": [1, i], "max_tokens": 200, "ignore_eos": True} for i in range(40)]
                                        + [{"prompt_ids": [1], "max_tokens": 1}]))
                with subprocess.Popen([PROGRAM, *on_device("run", ODD, "--requests", path, "--max-batch", "41", "--buckets", "64",
                                                           "--chunk", "8")],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                    first = process.stdout.readline()
                    process.send_signal(asked)
                    text = first + process.stdout.read()
                    self.assertEqual((code, b""), (process.wait(timeout=600), without_first_start(process.stderr.read())))
            results = [json.loads(line) for line in text.splitlines()]
            self.assertEqual(list(range(1, 42)), sorted(result["id"] for result in results))
            self.assertIn("cancelled", {result["finish_reason"] for result in results})

    def test_a_line_is_served_while_the_pipe_is_open_and_others_join_it(self):
        with subprocess.Popen([PROGRAM, *on_device("run", ODD, "--greedy", "--chunk", "8", "--buckets", "8")], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            def ask(**request):
                process.stdin.write(json.dumps({"prompt_ids": [1, 2], "ignore_eos": True, **request}).encode() + b"\n")
                process.stdin.flush()

            ask(id="first", max_tokens=3)
            self.assertEqual("first", json.loads(process.stdout.readline())["id"])
            ask(id="long", max_tokens=400, stream=True)
            self.assertEqual("long", json.loads(process.stdout.readline())["id"])  # it has begun
            ask(id="short", max_tokens=2, logit_bias={"7": 100})
            while (line := json.loads(process.stdout.readline()))["id"] != "short":
                self.assertNotIn("finish_reason", line)
            self.assertEqual([7, 7], line["token_ids"])
            process.stdin.close()
            last = json.loads(process.stdout.read().splitlines()[-1])
            self.assertEqual(("long", "length", 400), (last["id"], last["finish_reason"], len(last["token_ids"])))
            self.assertEqual((0, b""), (process.wait(timeout=600), without_first_start(process.stderr.read())))

    def test_ctrl_c_ends_it_while_it_waits_for_a_line(self):
        with subprocess.Popen([PROGRAM, *on_device("run", ODD, "--greedy")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            process.stdin.write(b'{"prompt_ids": [1], "max_tokens": 1}\n')
            process.stdin.flush()
            self.assertEqual(1, json.loads(process.stdout.readline())["id"])
            process.send_signal(signal.SIGINT)
            self.assertEqual((130, b"", b""), (process.wait(timeout=600), process.stdout.read(), without_first_start(process.stderr.read())))

    def test_a_stream_is_what_its_result_is(self):
        requests = [{"id": "plain", "prompt": "Once upon a time"}, {"id": "stopped", "prompt": "Once upon a time", "stop": ["girl", "."]},
                    {"id": "sampled", "prompt": "One day", "temperature": 1.0, "seed": 2**64 - 1, "n": 2}]
        done = self.succeed(*on_device("run", DEMO, "--greedy", "--max-tokens", "24"),
                            stdin=lines_of([{**request, "stream": True} for request in requests]))
        deltas, results = {}, {}
        for line in map(json.loads, done.splitlines()):
            name = (line["id"], line.get("index"))
            if "finish_reason" in line:
                results[name] = line
            else:
                self.assertNotIn(name, results)
                deltas.setdefault(name, []).append(line)
        self.assertEqual({("plain", None), ("stopped", None), ("sampled", 0), ("sampled", 1)}, set(results))
        for name, result in results.items():
            self.assertLess(3, len(deltas[name]))
            self.assertEqual(result["text"], "".join(line["delta"] for line in deltas[name]))
            ids = [token for line in deltas[name] for token in line["token_ids"]]
            self.assertEqual(result["token_ids"], ids + result["token_ids"][len(ids):])
        self.assertIn(results["stopped", None]["stop_reason"], ("girl", "."))

    def test_outputs_without_a_seed_differ_and_the_names_of_others_are_known(self):
        line = {"prompt_ids": [1, 2], "max_tokens": 8, "ignore_eos": True, "temperature": 50.0}
        text = self.succeed(*on_device("run", ODD), stdin=lines_of([{**line, "n": 3}, line, line, {**line, "seed": 4}, {**line, "seed": 4}]))
        results = [json.loads(one) for one in text.splitlines()]
        self.assertEqual([0, 1, 2], sorted(one["index"] for one in results if one["id"] == 1))
        self.assertEqual(6, len({json.dumps(one["token_ids"]) for one in results}))
        field = {"custom_id": "a", "prompt_token_ids": [1, 2], "max_completion_tokens": 4, "stop_token_ids": [3], "suppress_tokens": [5]}
        old = {"id": "a", "prompt_ids": [1, 2], "max_tokens": 4, "stop_ids": [3], "bad_ids": [5]}
        self.assertEqual(self.serve([field]), self.serve([old]))

    def test_a_token_without_a_text_prints_nothing_and_ends_nobody(self):
        with tempfile.TemporaryDirectory() as folder:  # as a padded vocabulary: the model has one id more than the tokenizer
            shutil.copytree(DEMO, folder, dirs_exist_ok=True)
            with open(os.path.join(folder, "tokenizer.json")) as file:
                tokenizer = json.load(file)
            vocab = tokenizer["model"]["vocab"]
            tokenizer["model"]["merges"].pop()
            missing = vocab.pop(max(vocab, key=vocab.get))
            with open(os.path.join(folder, "tokenizer.json"), "w") as file:
                json.dump(tokenizer, file)
            plain = {"prompt": "One day", "max_tokens": 4, "temperature": 0}
            results = self.serve([{**plain, "id": "padded", "logit_bias": {str(missing): 100}}, {**plain, "id": "other"}], model=folder)
        self.assertEqual(([missing] * 4, "", "length"),
                         tuple(results['"padded"'][field] for field in ("token_ids", "text", "finish_reason")))
        self.assertEqual((4, "length"), (len(results['"other"']["token_ids"]), results['"other"']["finish_reason"]))

    def test_results_count_their_tokens(self):
        prompt = [5] * 130  # two pages of 64 and some
        text = self.succeed(*on_device("run", ODD, "--greedy", "--max-batch", "1"),
                            stdin=lines_of([{"prompt_ids": prompt, "max_tokens": 3, "ignore_eos": True}] * 2))
        self.assertEqual([{"prompt_tokens": 130, "completion_tokens": 3, "cached_tokens": found} for found in (0, 128)],
                         [json.loads(line)["usage"] for line in text.splitlines()])

    def test_messages_go_through_the_chat_template(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in os.listdir(DEMO):
                if name.endswith((".json", ".safetensors")):
                    os.symlink(os.path.join(DEMO, name), os.path.join(folder, name))
            with open(os.path.join(folder, "chat_template.jinja"), "w") as file:
                file.write("{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}{{ more }}")
            parts = [{"type": "text", "text": "Once upon"}]
            results = self.serve([{"id": "text", "prompt": "[user] Once upon a time", "max_tokens": 6},
                                  {"id": "chat", "messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 6},
                                  {"id": "parts", "messages": [{"role": "user", "content": parts}], "max_tokens": 6,
                                   "chat_template_kwargs": {"more": " a time"}}], model=folder)
        self.assertEqual(results['"chat"']["token_ids"], results['"parts"']["token_ids"])
        bos = results['"text"']["usage"]["prompt_tokens"] - results['"chat"']["usage"]["prompt_tokens"]
        self.assertIn(bos, (0, 1))  # the template writes it, or not

    def test_a_terminal_sees_how_many_requests_are_served(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "requests.jsonl")
            with open(path, "wb") as file:
                file.write(lines_of([{"prompt_ids": [1, i], "max_tokens": 2, "ignore_eos": True} for i in range(20)]))
            ours, theirs = pty.openpty()
            with subprocess.Popen([PROGRAM, *on_device("run", ODD, "--requests", path)], stdout=subprocess.PIPE, stderr=theirs) as process:
                os.close(theirs)
                results = process.stdout.read()
                shown = b""
                try:
                    while part := os.read(ours, 1 << 16):
                        shown += part
                except OSError:  # the end of a terminal
                    pass
                os.close(ours)
                self.assertEqual(0, process.wait(timeout=600), shown)
        self.assertEqual(20, results.count(b"\n"))
        self.assertIn(b"serving requests [##############################] 100 %", shown)
        self.assertTrue(shown.endswith(b"\r\x1b[K"), shown[-100:])

    def test_a_full_disk_is_an_error_that_says_how_many_results_there_are(self):
        with open("/dev/full", "wb") as full:
            done = run(*on_device("run", ODD), stdin=b'{"prompt_ids": [1], "max_tokens": 1}\n', stdout=full)
        self.assertEqual(RUN_TIME, done.returncode)
        for words in ("standard output", "No space left", "0 whole results"):
            self.assertIn(words, done.stderr.decode())

    def test_a_reader_that_is_gone_ends_it_with_an_error_and_no_signal(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "requests.jsonl")
            with open(path, "wb") as file:
                file.write(lines_of([{"prompt_ids": [1], "max_tokens": 1}]
                                    + [{"prompt_ids": [1, i], "max_tokens": 40, "ignore_eos": True} for i in range(20)]))
            with subprocess.Popen([PROGRAM, *on_device("run", ODD, "--requests", path, "--chunk", "8", "--buckets", "8")],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
                process.stdout.readline()
                process.stdout.close()
                self.assertEqual(RUN_TIME, process.wait(timeout=600))
                message = without_first_start(process.stderr.read()).decode()
            self.assertEqual(1, message.count("\n"), message)
            for words in ("standard output", "Broken pipe", "1 whole results were written"):
                self.assertIn(words, message)


if __name__ == "__main__":
    unittest.main()
