# litellm, unmodified, against the server, as a provider of OpenAI's and of vLLM's interface. In the environment of
# `make check-clients`.
import asyncio
import os
import unittest

from served_demo import OFFLINE, STORY, TOOLS_TAGGED, serve, url, with_template

os.environ.update(OFFLINE)
import litellm  # noqa: E402

USER = [{"role": "user", "content": STORY}]
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}}, "required": ["city"]}}}


def setUpModule():
    global server
    server = serve("--api-key", "k", "--served-model-name", "demo", model=with_template(TOOLS_TAGGED))


def asked(provider="openai", **more):
    return {"model": provider + "/demo", "api_base": url(server) + "/v1", "api_key": "k", "messages": USER, "temperature": 0,
            "max_tokens": 12, "num_retries": 0, **more}


class LiteLlm(unittest.TestCase):
    def test_completion_and_stream_of_both_providers_agree(self):
        texts = set()
        for provider in ("openai", "hosted_vllm"):
            whole = litellm.completion(**asked(provider))
            self.assertEqual((12, "length"), (whole.usage.completion_tokens, whole.choices[0].finish_reason))
            texts.add(whole.choices[0].message.content)
            chunks = list(litellm.completion(**asked(provider, stream=True)))
            texts.add("".join(chunk.choices[0].delta.content or "" for chunk in chunks))
            self.assertEqual("length", chunks[-1].choices[0].finish_reason)
        self.assertEqual(1, len(texts), texts)

    def test_async_and_text_completion(self):
        whole = asyncio.run(litellm.acompletion(**asked()))
        self.assertTrue(whole.choices[0].message.content)
        text = litellm.text_completion(model="text-completion-openai/demo", api_base=url(server) + "/v1", api_key="k",
                                       prompt=STORY, max_tokens=12, temperature=0)
        self.assertEqual(whole.choices[0].message.content, text.choices[0].text)

    def test_usage_of_a_stream(self):
        chunks = list(litellm.completion(**asked(stream=True, stream_options={"include_usage": True})))
        usages = [chunk.usage for chunk in chunks if getattr(chunk, "usage", None)]
        self.assertEqual([12], [usage.completion_tokens for usage in usages])

    def test_tools(self):
        message = litellm.completion(**asked(tools=[TOOL], tool_choice="required", parallel_tool_calls=False,
                                             max_tokens=80)).choices[0].message
        self.assertEqual("get_weather", message.tool_calls[0].function.name)

    def test_errors_are_their_exceptions(self):
        with self.assertRaises(litellm.BadRequestError):
            litellm.completion(**asked(temperature=-1))
        with self.assertRaises(litellm.AuthenticationError):
            litellm.completion(**{**asked(), "api_key": "other"})
        with self.assertRaises(litellm.NotFoundError):
            litellm.completion(**{**asked(), "model": "openai/gpt-none"})


if __name__ == "__main__":
    unittest.main()
