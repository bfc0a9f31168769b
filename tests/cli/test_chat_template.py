# --chat-template FILE: every command that renders a conversation does so by this template, and not by the checkpoint's.
import json
import os
import shutil
import tempfile
import unittest

from command import DEMO, RUN_TIME, USAGE, CommandTest, on_device
from command import run as execute
from serving import Server

LENGTH = ("--max-tokens", "12", "--greedy")
OURS = "{{ bos_token }}{% for m in messages %}{{ m.content }} {% endfor %}{{ more }}"
COMMANDS = {"generate": ("--prompt", "a", "--chat"), "chat": (), "run": (), "serve": ("--port", "0")}


class ChatTemplate(CommandTest):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = os.path.join(holder.name, "model")
        shutil.copytree(DEMO, self.folder)
        self.file = os.path.join(holder.name, "ours.jinja")
        self.write(self.file, OURS)
        with open(os.path.join(DEMO, "tokenizer.json")) as file:
            bos = next(token["content"] for token in json.load(file)["added_tokens"] if token["id"] == 0)
        self.write(os.path.join(self.folder, "tokenizer_config.json"), json.dumps({"bos_token": bos}))
        # The checkpoint's own files, each with another text.
        self.write(os.path.join(self.folder, "chat_template.jinja"), "{{ bos_token }}The dog {{ messages[0].content }}")
        os.mkdir(os.path.join(self.folder, "additional_chat_templates"))
        self.write(os.path.join(self.folder, "additional_chat_templates", "tool_use.jinja"), "{{ bos_token }}Tools")
        self.ids = self.succeed("tokenize", "--model", DEMO, "--text", "Once upon a time ", "--add-special").strip()

    def write(self, path, text):
        with open(path, "w") as file:
            file.write(text)

    def expected(self):
        """What the model says after the text that the template makes of "Once upon a time"."""
        continued = self.succeed(*on_device("generate", self.folder, "--prompt-ids", self.ids, *LENGTH)).strip()
        return self.succeed("tokenize", "--model", self.folder, "--decode", continued)[:-1]

    def test_generate_chat_and_run_use_it(self):
        expected = self.expected()
        given = ("--chat-template", self.file)
        words = on_device("generate", self.folder, "--prompt", "Once upon a time", "--chat", *LENGTH)
        self.assertNotEqual(expected + "\n", self.succeed(*words))
        self.assertEqual(expected + "\n", self.succeed(*words, *given))
        self.assertEqual(expected + "\n", self.succeed(*words, "--chat-template-file", self.file))  # llama.cpp's word
        self.assertEqual(expected + "\n", self.succeed(*on_device("chat", self.folder, *LENGTH, *given), stdin=b"Once upon a time\n"))
        line = {"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 12}
        run = on_device("run", self.folder, "--greedy", "--tool-call-parser", "hermes", *given)
        result = json.loads(self.succeed(*run, stdin=json.dumps(line).encode()))
        self.assertEqual((expected, self.ids.count(",") + 1), (result["text"], result["usage"]["prompt_tokens"]))
        line["tools"] = [{"type": "function", "function": {"name": "f", "parameters": {}}}]  # no template of theirs is left
        done = execute(*run, stdin=json.dumps(line).encode())
        self.assertEqual(RUN_TIME, done.returncode)
        self.assertIn("tools is not supported", json.loads(done.stdout)["message"])
        changed = self.succeed(*words, *given, "--template-arg", "more=in a land")
        self.assertNotEqual(expected + "\n", changed)

    def test_serve_uses_it_and_says_so(self):
        with Server("--chat-template", self.file, model=self.folder) as server:
            asked = {"messages": [{"role": "user", "content": "Once upon a time"}]}
            self.assertEqual([int(one) for one in self.ids.split(",")], server.call("POST", "/tokenize", asked).json["tokens"])
            answer = server.chat(**asked, max_tokens=12, temperature=0).json
            self.assertEqual(self.expected(), answer["choices"][0]["message"]["content"])
            self.assertEqual(OURS, server.get("/tokenizer_info").json["chat_template"])

    def test_a_checkpoint_without_a_template_has_one_then(self):
        shutil.rmtree(os.path.join(self.folder, "additional_chat_templates"))
        os.remove(os.path.join(self.folder, "chat_template.jinja"))
        words = on_device("generate", self.folder, "--prompt", "Once upon a time", "--chat", *LENGTH)
        self.assert_refused(RUN_TIME, ["chat_template"], *words)
        self.assertEqual(self.expected() + "\n", self.succeed(*words, "--chat-template", self.file))

    def test_what_is_wrong_is_one_error_before_the_model_is_loaded(self):
        os.remove(os.path.join(self.folder, "model.safetensors"))
        for command, words in COMMANDS.items():
            start = on_device(command, self.folder, *words, "--chat-template")
            self.assert_refused(USAGE, ["--chat-template", "there is no file /nowhere/x.jinja"], *start, "/nowhere/x.jinja")
            self.assert_refused(USAGE, ["--chat-template", "is a folder"], *start, self.folder)
            self.assert_refused(USAGE, ["--chat-template", "it is empty"], *start, "")
            for template, named in (("{% include 'x' %}", "{% include %}"), ("{{", "has no end")):
                self.write(self.file, template)
                self.assert_refused(RUN_TIME, ["cannot read the chat template", "ours.jinja", "line 1", named], *start, self.file)
        self.assert_refused(USAGE, ["--chat-template", "it needs --chat"],
                            *on_device("generate", self.folder, "--prompt", "a", "--chat-template", self.file))


if __name__ == "__main__":
    unittest.main()
