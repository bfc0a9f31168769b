# Tests of checkpoint_tokenizer.py: every id has a text, and nodewright reads, generates and chats with what it writes.
import json
import os
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cli"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from checkpoint_tokenizer import LEAST_VOCAB, tokenizer_of, write_tokenizer  # noqa: E402
from command import CommandTest, golden_model, on_device, run  # noqa: E402

TEXT = "Once upon a time there was a little girl who lived near the forest. She wrote: \"naïve café, 12345 trees!\"\n"


class CheckpointTokenizer(CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def checkpoint(self, vocab=None):
        """The golden model of 1003 tokens; with another size, files without weights."""
        for name in os.listdir(golden_model("odd_sizes")):
            shutil.copy(os.path.join(golden_model("odd_sizes"), name), self.folder)
        with open(os.path.join(self.folder, "config.json")) as file:
            config = json.load(file)
        write_tokenizer(self.folder, vocab or config["vocab_size"], config["max_position_embeddings"])
        return self.folder

    def test_every_id_of_the_vocabulary_has_a_token_and_every_merge_its_parts(self):
        for size in (LEAST_VOCAB, LEAST_VOCAB + 1, 1003, 2048, 2049, 50257):
            model = tokenizer_of(size)["model"]
            self.assertEqual(list(range(size)), sorted(model["vocab"].values()))
            self.assertEqual(size - LEAST_VOCAB, len(model["merges"]))
            for number, pair in enumerate(model["merges"]):
                self.assertEqual(LEAST_VOCAB + number, model["vocab"]["".join(pair)])
                self.assertTrue(all(model["vocab"][part] < LEAST_VOCAB + number for part in pair), pair)
        self.assertRaises(SystemExit, tokenizer_of, LEAST_VOCAB - 1)

    def test_texts_survive_and_a_larger_vocabulary_takes_fewer_tokens(self):
        counts = []
        for size in (LEAST_VOCAB, 1003, 50257):
            model = self.checkpoint(size)
            ids = self.succeed("tokenize", "--model", model, "--text", TEXT).strip()
            self.assertEqual(TEXT, self.succeed("tokenize", "--model", model, "--decode", ids)[:len(TEXT)])
            counts.append(len(ids.split(",")))
        self.assertEqual(len(TEXT.encode()), counts[0])
        self.assertEqual(sorted(counts, reverse=True), counts)

    def test_a_prompt_of_200_tokens_is_continued_and_a_chat_answered(self):
        model = self.checkpoint()
        prompt = os.path.join(self.folder, "prompt.txt")
        with open(prompt, "w") as file:
            file.write(TEXT * 6)
        done = run(*on_device("generate", model, "-f", prompt, "--max-tokens", "20", "--greedy", "--ignore-eos", "--stats"))
        self.assertRegex(done.stderr.decode(), r"(?m)^prompt +(2\d\d|1[5-9]\d) tokens, 0 found in the cache")
        self.assertGreater(len(done.stdout.decode(errors="replace")), len(TEXT * 6) + 20)
        answer = run(*on_device("chat", model, "--max-tokens", "8", "--greedy"), stdin=b"Tell me a story\n")
        self.assertEqual((0, b""), (answer.returncode, answer.stderr))
        self.assertGreater(len(answer.stdout), 1)


if __name__ == "__main__":
    unittest.main()
