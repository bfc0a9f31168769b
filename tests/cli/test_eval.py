# `nodewright eval` as a black box, against transformers (tests/reference/make_eval_golden.py).
import json
import os
import shutil
import sys
import tempfile
import unittest

from command import DEMO, GOLDEN, USAGE, CommandTest, golden_model, on_device

with open(os.path.join(GOLDEN, "eval.json")) as golden_file:
    EXPECTED = json.load(golden_file)
TEXT = EXPECTED["text"]


def copy_of_demo(folder, rope_theta=None):
    """The demo's checkpoint in `folder`, with another rope_theta."""
    copy = os.path.join(folder, "other")
    shutil.copytree(DEMO, copy)
    if rope_theta is not None:
        path = os.path.join(copy, "config.json")
        with open(path) as file:
            config = json.load(file)
        config["rope_parameters"]["rope_theta"] = rope_theta
        with open(path, "w") as file:
            json.dump(config, file)
    return copy


class Eval(CommandTest):
    def report(self, *words, model=DEMO):
        return json.loads(self.succeed(*on_device("eval", model, "--json", *words)))

    # Weights are bf16 on both sides, activations here alone. That moved log-likelihoods by up to 0.0004 nats a token, KL
    # divergences by 2 % and one likeliest token (CPU driver): the bounds are two and a half times as wide.
    def test_figures_are_those_of_transformers(self):
        with tempfile.TemporaryDirectory() as folder:
            other = copy_of_demo(folder, EXPECTED["rope_theta"])
            for case in EXPECTED["cases"]:
                found = self.report("--prompt", TEXT, "--against", other, "--max-context", str(case["window"]))
                against = found["against"]
                tokens = case["tokens"]
                self.assertEqual((tokens, case["window"]), (found["tokens"], found["window"]))
                self.assertEqual(1 if tokens < case["window"] else 3, found["windows"])
                self.assertAlmostEqual(case["log_likelihood"], found["log_likelihood"], delta=0.001 * tokens)
                self.assertAlmostEqual(-found["log_likelihood"] / tokens, found["nats_per_token"], places=12)
                self.assertAlmostEqual(case["reference_log_likelihood"], against["log_likelihood"], delta=0.001 * tokens)
                self.assertAlmostEqual(case["kl_divergence"], against["kl_divergence"], delta=0.05 * case["kl_divergence"])
                self.assertAlmostEqual(case["largest_kl_divergence"], against["largest_kl_divergence"],
                                       delta=0.05 * case["largest_kl_divergence"])
                self.assertAlmostEqual(case["same_likeliest"], against["same_likeliest"], delta=2.5 / tokens)
                self.assertEqual(os.path.realpath(other), os.path.realpath(against["model"]))

    def test_a_model_is_as_far_from_itself_as_nothing(self):
        found = self.report("--prompt", TEXT, "--against", DEMO)
        self.assertEqual((0, 0, 1), tuple(found["against"][key] for key in ("kl_divergence", "largest_kl_divergence", "same_likeliest")))
        self.assertEqual(found["log_likelihood"], found["against"]["log_likelihood"])

    def test_figures_do_not_depend_on_the_rows_of_a_step_with_invariant_numerics(self):
        one, many = (self.report("--prompt", TEXT[:100], "--numerics", "invariant", "--bucket", rows) for rows in ("1", "7"))
        self.assertEqual(one, many)

    def test_ids_and_files_are_scored_as_the_text(self):
        ids = self.succeed("tokenize", "--model", DEMO, "--text", TEXT, "--add-special").strip()
        expected = self.report("--prompt", TEXT)
        self.assertEqual(expected, self.report("--prompt-ids", ids))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "text.txt")
            with open(path, "w") as file:
                file.write(TEXT + "\n")
            self.assertEqual(expected, self.report("--prompt-file", path))

    def test_windows_without_a_bos_share_no_token(self):
        found = self.report("--prompt-ids", ",".join(str(5 + i) for i in range(17)), "--max-context", "8")
        self.assertEqual((2, 14, 8), (found["windows"], found["tokens"], found["window"]))  # the 17th follows none

    def test_people_read_lines(self):
        text = self.succeed(*on_device("eval", DEMO, "--prompt", TEXT, "--against", DEMO))
        figures = self.report("--prompt", TEXT)
        self.assertEqual(5, len(text.splitlines()))
        self.assertIn("112 tokens scored, in 1 window of at most 1024", text)
        self.assertIn("perplexity %.4f, %.5f nats a token" % (figures["perplexity"], figures["nats_per_token"]), text)
        self.assertIn("0.000000 nats a token, 0.000000 at most", text)
        self.assertIn("the same likeliest token: 100.00 %", text)

    def test_what_cannot_be_compared_is_refused_by_name(self):
        def refused(named, *words):
            self.assert_refused(USAGE, named, *on_device("eval", DEMO, *words))

        refused(["odd_sizes", "1003 tokens", "2048"], "--prompt", TEXT, "--against", golden_model("odd_sizes"))
        refused(["--against '/nowhere'"], "--prompt", TEXT, "--against", "/nowhere")
        refused(["fewer than two tokens"], "--prompt-ids", "5")
        refused(["--max-context", "2 at least"], "--prompt", TEXT, "--max-context", "1")
        for ids, bad in (("1,2048,2", "2048"), ("1,2,2048", "2048"), ("1,5,-5", "-5"), ("1," * 32 + "2048,2", "2048")):
            refused(["token '%s'" % bad, "2048 tokens"], "--prompt-ids", ids)
        refused(["--prompt"])
        with tempfile.TemporaryDirectory() as folder:
            other = copy_of_demo(folder)
            path = os.path.join(other, "tokenizer.json")
            with open(path) as file:
                tokenizer = json.load(file)
            vocab = tokenizer["model"]["vocab"]
            one, two = [word for word in vocab if len(word) == 1][:2]
            vocab[one], vocab[two] = vocab[two], vocab[one]
            with open(path, "w") as file:
                json.dump(tokenizer, file)
            first = min(vocab[one], vocab[two])
            refused([other, "token %d has another text" % first], "--prompt", TEXT, "--against", other)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
