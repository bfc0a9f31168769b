# The demo model behind `nodewright serve`, for the tests of this folder: one server a program.
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cli"))
from command import DEMO, DEVICE, PROGRAM, SOURCE, on_device, run  # noqa: E402, F401
from serving import Server  # noqa: E402

HERE = os.path.join(SOURCE, "tests", "clients")
STORY = "Once upon a time"

# What clients would otherwise ask of the world outside.
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
           "LANGCHAIN_TRACING_V2": "false", "LANGSMITH_TRACING": "false", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
           "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


# Chat templates that know tools, as Llama-3's and as Qwen's do; the demo model's own does not.
MESSAGES = ("{% for message in messages %}{{ (message.content or '').strip() }}{% for call in message.tool_calls or [] %} "
            "{{ call.function.name }}{{ call.function.arguments | tojson }}{% endfor %}{% if not loop.last %} {% endif %}"
            "{% endfor %}")
TOOLS_BARE = ('{{ bos_token }}{% if tools %}Answer with {"name": "", "parameters": {}} of {{ tools | tojson }}{% endif %}' +
              MESSAGES)
TOOLS_TAGGED = "{{ bos_token }}{% if tools %}Answer with <tool_call>{{ tools | tojson }}</tool_call>{% endif %}" + MESSAGES


def with_template(template):
    """A folder of the demo model with this chat template; it lives as long as the module."""
    holder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(holder.cleanup)
    for name in os.listdir(DEMO):
        if name != "chat_template.jinja":
            os.symlink(os.path.join(DEMO, name), os.path.join(holder.name, name))
    with open(os.path.join(holder.name, "chat_template.jinja"), "w") as file:
        file.write(template)
    return holder.name


def serve(*words, **environment):
    """For setUpModule: a server that ends with the module."""
    os.environ.update(OFFLINE)
    server = Server(*words, **environment)
    unittest.addModuleCleanup(server.__exit__)
    return server


def url(server):
    return "http://%s:%d" % (server.host, server.port)
