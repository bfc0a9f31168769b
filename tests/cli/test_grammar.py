#!/usr/bin/env python3
# Answers that follow context-free grammars, of nodewright run with the embedded model on the CPU driver: at any seed
# they are JSON of their schema, or of the grammar. Registered where the build has xgrammar.
import json
import os
import re
import subprocess
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.environ.get("NODEWRIGHT_PROGRAM", os.path.join(ROOT, "build", "nodewright"))
DEMO = os.path.join(ROOT, "models", "demo")
SEEDS = range(20)

TREE = {"$ref": "#/$defs/node", "$defs": {"node": {
    "type": "object", "required": ["name", "size", "children"], "properties": {
        "name": {"type": "string", "pattern": "[a-z]{1,8}"},
        "size": {"type": "number", "minimum": 0, "exclusiveMaximum": 2.5},
        "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}}}}}
OPEN = {"type": "object", "properties": {"day": {"type": "string", "format": "date"}}, "required": ["day"],
        "additionalProperties": {"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "integer"}}]}}


def ending_bias():
    """Makes the tokens likelier that end strings, lists and objects: the model has learned stories."""
    with open(os.path.join(DEMO, "tokenizer.json"), encoding="utf-8") as file:
        vocab = json.load(file)["model"]["vocab"]
    return {str(vocab[word]): 8 for word in ('"', "}", "]", ")") if word in vocab}


def serve(lines):
    """The results of these requests, by id; all must end by themselves or by their length."""
    done = subprocess.run([PROGRAM, "run", "--model", DEMO, "--device", "cpu", "--max-batch", "8"], capture_output=True, text=True,
                          input="".join(json.dumps(line) + "\n" for line in lines), timeout=600)
    if done.returncode != 0:
        raise AssertionError(done.stderr + done.stdout)
    return {result["id"]: result for result in map(json.loads, done.stdout.splitlines())}


def is_node(value):
    return (set(value) == {"name", "size", "children"} and re.fullmatch("[a-z]{1,8}", value["name"]) is not None
            and not isinstance(value["size"], bool) and 0 <= value["size"] < 2.5
            and len(value["children"]) <= 2 and all(map(is_node, value["children"])))


def is_open(value):
    others = [one for key, one in value.items() if key != "day"]
    return (re.fullmatch("[0-9]{4}-[01][0-9]-[0-3][0-9]", value["day"]) is not None
            and all(isinstance(one, bool) or all(type(item) is int for item in one) for one in others))


def is_balanced(text):
    return re.fullmatch("[()a-z]+", text) is not None and all(
        text[:end].count("(") >= text[:end].count(")") for end in range(len(text))) and text.count("(") == text.count(")")


class Grammars(unittest.TestCase):
    def test_answers_of_any_seed_follow_their_grammar(self):
        base = {"prompt": "Once upon a time", "max_tokens": 150, "temperature": 1.0, "logit_bias": ending_bias()}
        kinds = {"tree": ({"json_schema": TREE}, lambda text: is_node(json.loads(text))),
                 "open": ({"json_schema": OPEN}, lambda text: is_open(json.loads(text))),
                 "free": ({"json_schema": {"type": "object"}}, lambda text: isinstance(json.loads(text), dict)),
                 "rules": ({"grammar": 'root ::= "(" root ")" root? | [a-z]{1,3}'}, is_balanced)}
        lines = [{**base, **fields, "id": "%s %d" % (kind, seed), "seed": seed}
                 for kind, (fields, _) in kinds.items() for seed in SEEDS]
        results = serve(lines)
        self.assertEqual(len(lines), len(results))
        for kind, (_, follows) in kinds.items():
            ended = [one for name, one in results.items() if name.startswith(kind) and one["finish_reason"] == "stop"]
            self.assertGreaterEqual(len(ended), 5, kind)
            for one in ended:
                self.assertTrue(follows(one["text"]), one)

    def test_drafts_follow_the_grammar_too(self):
        lines = [{"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0.7, "seed": seed, "id": seed,
                  "json_schema": TREE} for seed in range(4)]
        plain = serve(lines)
        done = subprocess.run([PROGRAM, "run", "--model", DEMO, "--device", "cpu", "--max-batch", "4", "--speculate", "2"],
                              input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True, text=True, timeout=600)
        self.assertEqual(0, done.returncode, done.stderr)
        for result in map(json.loads, done.stdout.splitlines()):
            self.assertEqual(plain[result["id"]]["token_ids"], result["token_ids"])

    def test_grammars_that_cannot_be_are_refused(self):
        lines = [{"id": "rules", "prompt": "a", "grammar": "root ::= other"},
                 {"id": "two", "prompt": "a", "grammar": "root ::= \"a\"", "regex": "a"},
                 {"id": "keyword", "prompt": "a", "json_schema": {"type": "array", "uniqueItems": True}},
                 {"id": "type", "prompt": "a", "grammar": 5}]
        done = subprocess.run([PROGRAM, "run", "--model", DEMO, "--device", "cpu"], capture_output=True, text=True,
                              input="".join(json.dumps(line) + "\n" for line in lines), timeout=600)
        self.assertEqual(1, done.returncode)
        results = {one["id"]: one for one in map(json.loads, done.stdout.splitlines())}
        for name, word in (("rules", "other"), ("two", "both regex and grammar"), ("keyword", "uniqueItems"), ("type", "grammar is 5")):
            self.assertEqual("refused", results[name]["finish_reason"])
            self.assertIn(word, results[name]["message"])


if __name__ == "__main__":
    unittest.main()
