# Where a command's prompt comes from: an option, a file, a pipe; and a prompt of no text.
import json
import os
import shutil
import tempfile
import unittest

from command import DEMO, USAGE, CommandTest, on_device

GREEDY = ("--max-tokens", "6", "--greedy")
WORDS = on_device("generate", DEMO, *GREEDY)


class Prompts(CommandTest):
    def test_a_pipe_is_read_where_no_prompt_is_given(self):
        story = self.succeed(*WORDS, "--prompt", "Once upon a time")
        for stdin in (b"Once upon a time", b"Once upon a time\n", b"Once upon a time\r\n"):
            self.assertEqual(story, self.succeed(*WORDS, stdin=stdin))
            self.assertEqual(story, self.succeed(*WORDS, "--prompt", "-", stdin=stdin))
        answer = self.succeed(*WORDS, "--chat", "--prompt", "Tell me of a dog")
        self.assertEqual(answer, self.succeed(*WORDS, "--chat", stdin=b"Tell me of a dog\n"))

    def test_a_pipe_is_left_alone_where_a_prompt_is_given(self):
        self.assertEqual(self.succeed(*WORDS, "--prompt", "Once"), self.succeed(*WORDS, "--prompt", "Once", stdin=b"other"))

    def test_an_empty_pipe_is_no_prompt_unless_it_was_asked_for(self):
        self.assert_refused(USAGE, ["--prompt", "--prompt-file", "--prompt-ids", "standard input is empty"], *WORDS)
        self.assert_refused(USAGE, ["--prompt", "standard input is empty"], *WORDS, stdin=b"\n")

    def test_no_text_is_a_prompt_as_it_is_for_run_and_serve(self):
        story = self.succeed(*WORDS, "--prompt", "")
        line = b'{"prompt": "", "max_tokens": 6, "temperature": 0}\n'
        self.assertEqual(story, json.loads(self.succeed(*on_device("run", DEMO), stdin=line))["text"] + "\n")
        self.assertEqual(story, self.succeed(*WORDS, "--prompt", "-"))
        with tempfile.NamedTemporaryFile() as empty:
            self.assertEqual(story, self.succeed(*WORDS, "--prompt-file", empty.name))

    def test_logits_of_a_text_are_those_of_its_ids(self):
        ids = self.succeed("tokenize", "--model", DEMO, "--text", "Once upon", "--add-special").strip()
        with tempfile.TemporaryDirectory() as folder:
            def logits(*prompt, **stdin):
                out = os.path.join(folder, "f.npy")
                self.succeed(*on_device("logits", DEMO, *prompt, "--out", out), **stdin)
                with open(out, "rb") as file:
                    return file.read()
            wanted = logits("--prompt-ids", ids)
            self.assertEqual(wanted, logits("--prompt", "Once upon"))
            self.assertEqual(wanted, logits(stdin=b"Once upon\n"))
            self.assertNotEqual(wanted, logits("--prompt", "Once"))

    def test_no_text_is_no_prompt_where_no_token_begins_a_text(self):
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "model")
            shutil.copytree(DEMO, model)
            path = os.path.join(model, "tokenizer.json")
            with open(path) as file:
                tokenizer = json.load(file)
            tokenizer["post_processor"] = None
            with open(path, "w") as file:
                json.dump(tokenizer, file)
            self.assert_refused(USAGE, ["--prompt", "empty", "begins a text"], *on_device("generate", model, "--prompt", ""))


if __name__ == "__main__":
    unittest.main()
