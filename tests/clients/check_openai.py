# The openai package, unmodified, against the server: what it parses, and what it raises. In the environment of
# `make check-clients`.
import asyncio
import json
import unittest
from typing import Literal

import openai
from pydantic import BaseModel, Field

from served_demo import STORY, TOOLS_BARE, TOOLS_TAGGED, Server, serve, url, with_template

KEY = "clients-key"
USER = [{"role": "user", "content": STORY}]
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
                   "required": ["city"], "additionalProperties": False}}}
CLOCK = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}


def setUpModule():
    global server, client
    server = serve("--api-key", KEY, "--max-requests", "8")
    client = openai.OpenAI(base_url=url(server) + "/v1", api_key=KEY, max_retries=0, timeout=600)


class Completions(unittest.TestCase):
    def test_sync_stream_and_async_give_the_same_text(self):
        asked = dict(model="demo", prompt=STORY, max_tokens=12, temperature=0)
        whole = client.completions.create(**asked)
        self.assertEqual((12, "length"), (whole.usage.completion_tokens, whole.choices[0].finish_reason))
        chunks = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
        self.assertEqual(whole.choices[0].text, "".join(c.choices[0].text for c in chunks if c.choices))
        self.assertEqual((13, 12), (len(chunks), chunks[-1].usage.completion_tokens))

        async def both():
            async with openai.AsyncOpenAI(base_url=url(server) + "/v1", api_key=KEY, max_retries=0) as other:
                text = (await other.completions.create(**asked)).choices[0].text
                stream = await other.completions.create(**asked, stream=True)
                return text, "".join([c.choices[0].text async for c in stream])
        self.assertEqual((whole.choices[0].text,) * 2, asyncio.run(both()))

    def test_every_parameter_is_taken(self):
        answer = client.completions.create(
            model="demo", prompt=[STORY, "One day"], best_of=2, echo=True, frequency_penalty=0.1, logit_bias={"13": -5},
            logprobs=2, max_tokens=6, n=2, presence_penalty=0.1, seed=3, stop=["\n\n"], stream=False, suffix=None,
            temperature=0.8, top_p=0.9, user="me", extra_body={"top_k": 20, "min_p": 0.01, "ignore_eos": True})
        self.assertEqual([0, 1, 2, 3], [choice.index for choice in answer.choices])
        for choice in answer.choices:
            logprobs = choice.logprobs
            self.assertIsNone(logprobs.token_logprobs[0])
            self.assertEqual(len(logprobs.tokens), len(logprobs.text_offset))
            self.assertTrue(all(token in top for token, top in zip(logprobs.tokens[1:], logprobs.top_logprobs[1:])))

    def test_the_id_of_the_request_is_the_header_s(self):
        answer = client.completions.create(model="demo", prompt=STORY, max_tokens=1,
                                           extra_headers={"x-request-id": "openai-7"})
        self.assertEqual(("openai-7", "cmpl-openai-7"), (answer._request_id, answer.id))
        raw = client.completions.with_raw_response.create(model="demo", prompt=STORY, max_tokens=1)
        self.assertEqual(raw.headers["x-request-id"], raw.parse()._request_id)

    def test_models(self):
        model = client.models.list().data[0]
        self.assertEqual(("demo", "model", "nodewright"), (model.id, model.object, model.owned_by))


class Chat(unittest.TestCase):
    def test_sync_stream_and_the_stream_helper_agree(self):
        asked = dict(model="demo", messages=USER, max_completion_tokens=12, temperature=0)
        whole = client.chat.completions.create(**asked)
        self.assertEqual(("assistant", None), (whole.choices[0].message.role, whole.choices[0].message.tool_calls))
        text = whole.choices[0].message.content
        chunks = list(client.chat.completions.create(**asked, stream=True))
        self.assertEqual(text, "".join(c.choices[0].delta.content or "" for c in chunks))
        self.assertEqual("assistant", chunks[0].choices[0].delta.role)
        # The helper raises where max_tokens cuts the text.
        with client.chat.completions.stream(**asked, stop=text.split()[-1], stream_options={"include_usage": True}) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_completion()
        self.assertEqual(text[:text.rindex(text.split()[-1])], final.choices[0].message.content)
        self.assertEqual((12, "stop"), (final.usage.completion_tokens, final.choices[0].finish_reason))
        self.assertLessEqual({"chunk", "content.delta", "content.done"}, set(kinds))

    def test_every_parameter_is_taken(self):
        answer = client.chat.completions.create(
            model="demo", messages=[{"role": "developer", "content": "Tell."},
                                    {"role": "user", "name": "me", "content": [{"type": "text", "text": STORY}]},
                                    {"role": "assistant", "content": ", there was"}, {"role": "user", "content": "a"}],
            frequency_penalty=0.1, presence_penalty=0.1, logit_bias={"13": -5}, logprobs=True, top_logprobs=3,
            max_tokens=8, n=2, parallel_tool_calls=True, response_format={"type": "text"}, seed=5, stop=None,
            service_tier="auto", store=False, metadata={"a": "b"}, temperature=0.9, top_p=0.9, user="me",
            reasoning_effort="low", modalities=["text"], prompt_cache_key="k",
            safety_identifier="s", verbosity="low")
        self.assertEqual([0, 1], [choice.index for choice in answer.choices])
        for choice in answer.choices:
            content = choice.logprobs.content
            self.assertEqual(choice.message.content, b"".join(bytes(one.bytes) for one in content).decode())
            self.assertTrue(all(len(one.top_logprobs) == 3 and one.logprob <= 0 for one in content))

    def test_two_clients_at_once_do_not_mix_their_streams(self):
        async def told(word):
            async with openai.AsyncOpenAI(base_url=url(server) + "/v1", api_key=KEY, max_retries=0) as other:
                stream = await other.completions.create(model="demo", prompt=word, echo=True, max_tokens=20, stream=True,
                                                        temperature=0)
                return "".join([c.choices[0].text async for c in stream])

        async def all_at_once():
            return await asyncio.gather(*map(told, ["One", "The", "Once"]))
        for word, text in zip(["One", "The", "Once"], asyncio.run(all_at_once())):
            self.assertTrue(text.startswith(word), text)

    def test_a_stream_that_is_closed_is_cancelled(self):
        stream = client.chat.completions.create(model="demo", messages=USER, max_tokens=900, stream=True,
                                                extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        server.until(lambda: server.gauge("vllm:num_requests_running") == 0)
        self.assertLess(server.gauge("vllm:kv_cache_usage_perc"), 0.01)


class Animal(BaseModel):
    kind: Literal["cat", "dog"]
    legs: int = Field(ge=0, le=8)


class Zoo(BaseModel):
    name: Literal["north", "south"]
    animals: list[Animal] = Field(min_length=1, max_length=2)
    is_open: bool


class Structure(unittest.TestCase):
    def test_a_pydantic_model_is_parsed(self):
        answer = client.chat.completions.parse(model="demo", messages=USER, response_format=Animal, max_tokens=60,
                                               temperature=0.8, seed=1)
        self.assertIsInstance(answer.choices[0].message.parsed, Animal)
        self.assertEqual("stop", answer.choices[0].finish_reason)

    def test_a_nested_model_is_parsed_whole_and_in_a_stream(self):
        asked = dict(model="demo", messages=USER, response_format=Zoo, max_tokens=400, temperature=0.5, seed=2)
        parsed = client.chat.completions.parse(**asked).choices[0].message.parsed
        self.assertIsInstance(parsed, Zoo)
        with client.chat.completions.stream(**asked) as stream:
            stream.until_done()
            self.assertEqual(parsed, stream.get_final_completion().choices[0].message.parsed)

    def test_a_schema_that_is_not_supported_is_refused_by_name(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="demo", messages=USER, response_format={
                "type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "integer", "multipleOf": 3}}})
        self.assertEqual("response_format", caught.exception.param)


class Tools(unittest.TestCase):
    """With a template like Llama-3's, where a call is bare JSON."""
    TEMPLATE = TOOLS_BARE
    CALL = r'\{"name": "get_weather", "parameters": \{"city": "(Paris|Rome)"\}\}'

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server("--served-model-name", "demo", model=with_template(cls.TEMPLATE)))
        cls.client = openai.OpenAI(base_url=url(cls.server) + "/v1", api_key="none", max_retries=0, timeout=600)

    def call_of(self, choice, name="get_weather"):
        call, = choice.message.tool_calls
        self.assertEqual(("function", name), (call.type, call.function.name))
        self.assertIn(json.loads(call.function.arguments), ({"city": "Paris"}, {"city": "Rome"}))
        return call

    def create(self, choice, **more):
        return self.client.chat.completions.create(**{**dict(
            model="demo", messages=USER, tools=[WEATHER, CLOCK], tool_choice=choice, max_tokens=80, temperature=0), **more})

    def test_none_and_auto_answer_with_text(self):
        for choice in ("none", "auto"):
            message = self.create(choice, max_tokens=8).choices[0].message
            self.assertTrue(message.content)
            self.assertIsNone(message.tool_calls)

    def test_a_call_that_the_text_holds_is_found_whole_and_in_a_stream(self):
        asked = {"extra_body": {"structured_outputs": {"regex": self.CALL}}}
        choice = self.create("auto", **asked).choices[0]
        self.assertEqual("tool_calls", choice.finish_reason)
        call = self.call_of(choice)
        self.assertFalse(choice.message.content)
        with self.client.chat.completions.stream(model="demo", messages=USER, tools=[WEATHER, CLOCK], temperature=0,
                                                 max_tokens=80, **asked) as stream:
            stream.until_done()
            streamed = stream.get_final_completion().choices[0]
        self.assertEqual(("tool_calls", call.function.arguments),
                         (streamed.finish_reason, self.call_of(streamed).function.arguments))

    def test_the_same_text_stays_text_where_no_call_may_be(self):
        message = self.create("none", extra_body={"structured_outputs": {"regex": self.CALL}}).choices[0].message
        self.assertRegex(message.content, r"\A%s\Z" % self.CALL)
        self.assertIsNone(message.tool_calls)

    def test_required_and_a_named_function_force_a_call(self):
        named = {"type": "function", "function": {"name": "get_weather"}}
        for choice, reason in (("required", "tool_calls"), (named, "stop")):
            found = self.create(choice, tools=[WEATHER], parallel_tool_calls=False).choices[0]
            self.assertEqual(reason, found.finish_reason)
            self.call_of(found)

    def test_the_history_of_a_call_is_taken(self):
        made = self.create("required", tools=[WEATHER], parallel_tool_calls=False).choices[0].message
        answer = self.create("none", max_tokens=8, messages=[
            *USER, made, {"role": "tool", "tool_call_id": made.tool_calls[0].id, "content": "sunny"}])
        self.assertTrue(answer.choices[0].message.content)


class TaggedTools(Tools):
    """With a template like Qwen's, where a call stands between tags."""
    TEMPLATE = TOOLS_TAGGED
    CALL = r'<tool_call>\n\{"name": "get_weather", "arguments": \{"city": "(Paris|Rome)"\}\}\n</tool_call>'


class NoTools(unittest.TestCase):
    def test_a_template_that_does_not_know_tools_is_named(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="demo", messages=USER, tools=[CLOCK], max_tokens=1)
        self.assertEqual("tools", caught.exception.param)
        client.chat.completions.create(model="demo", messages=USER, tools=[], max_tokens=1)


class Errors(unittest.TestCase):
    def test_each_status_is_its_exception(self):
        for kind, status, asked in ((openai.BadRequestError, 400, dict(model="demo", temperature=-1)),
                                    (openai.NotFoundError, 404, dict(model="gpt-5")),
                                    (openai.RateLimitError, 429, dict(model="demo", n=9))):
            with self.assertRaises(kind) as caught:
                client.completions.create(prompt=STORY, max_tokens=1, **asked)
            error = caught.exception
            self.assertEqual((status, str(status)), (error.status_code, str(error.code)))
            self.assertTrue(error.request_id)
            self.assertIn("message", error.body)
        with self.assertRaises(openai.AuthenticationError):
            client.with_options(api_key="other").models.list()

    def test_an_error_within_a_stream_is_raised(self):
        with Server("--shutdown-timeout", "0") as ending:
            other = openai.OpenAI(base_url=url(ending) + "/v1", api_key="none", max_retries=0, timeout=600)
            stream = iter(other.completions.create(model="demo", prompt=STORY, max_tokens=900, stream=True,
                                                   extra_body={"ignore_eos": True}))
            next(stream)
            ending.stop()
            with self.assertRaises(openai.APIError) as caught:
                list(stream)
            self.assertEqual("ServiceUnavailableError", caught.exception.type)

    def test_a_429_is_tried_again_after_retry_after(self):
        with busy():
            patient = client.with_options(max_retries=30)
            tried = patient.completions.with_raw_response.create(model="demo", prompt=STORY, max_tokens=1, n=4)
        self.assertGreater(int(tried.retries_taken), 0)


def busy():
    """A stream that holds 8 of 8 outputs for a moment, and has begun."""
    stream = client.completions.create(model="demo", prompt=STORY, max_tokens=60, n=8, stream=True,
                                       extra_body={"ignore_eos": True})
    next(iter(stream))
    return stream


if __name__ == "__main__":
    unittest.main()
