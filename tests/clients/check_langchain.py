# langchain-openai, unmodified, against the server: chat, streams, tools, structured output. In the environment of
# `make check-clients`.
import asyncio
import unittest
from typing import Literal

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel

from served_demo import STORY, TOOLS_TAGGED, serve, url, with_template


class Mood(BaseModel):
    """How a story ends."""
    mood: Literal["happy", "sad"]


@tool
def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """The weather of a city."""
    return city + ": sunny"


def setUpModule():
    global server
    server = serve("--served-model-name", "demo", model=with_template(TOOLS_TAGGED))


def chat(**more):
    return ChatOpenAI(model="demo", base_url=url(server) + "/v1", api_key="none", temperature=0, max_retries=0,
                      **{"max_tokens": 16, **more})


class LangChain(unittest.TestCase):
    def test_invoke_stream_and_async_agree(self):
        model = chat()
        whole = model.invoke([SystemMessage("Tell."), HumanMessage(STORY)])
        self.assertEqual((16, "length"), (whole.usage_metadata["output_tokens"], whole.response_metadata["finish_reason"]))
        pieces = list(model.stream([SystemMessage("Tell."), HumanMessage(STORY)]))
        self.assertEqual(whole.content, "".join(piece.content for piece in pieces))
        self.assertGreaterEqual(len(pieces), 16)

        async def later():
            return "".join([piece.content async for piece in model.astream([SystemMessage("Tell."), HumanMessage(STORY)])])
        self.assertEqual(whole.content, asyncio.run(later()))

    def test_usage_of_a_stream_is_there_if_it_is_asked_for(self):
        total = None
        for piece in chat(stream_usage=True).stream(STORY):
            total = piece if total is None else total + piece
        self.assertEqual(16, total.usage_metadata["output_tokens"])

    def test_batch(self):
        self.assertEqual(3, len(chat().batch([STORY, "One day", "The cat"])))

    def test_completions(self):
        model = OpenAI(model="demo", base_url=url(server) + "/v1", api_key="none", temperature=0, max_tokens=8)
        self.assertEqual(model.invoke(STORY), "".join(model.stream(STORY)))

    def test_bound_tools_are_called_and_the_answer_goes_on(self):
        model = chat(max_tokens=80).bind_tools([get_weather], tool_choice="required", parallel_tool_calls=False)
        first = model.invoke(STORY)
        call, = first.tool_calls
        self.assertEqual("get_weather", call["name"])
        result = get_weather.invoke(call)
        self.assertIsInstance(result, ToolMessage)
        last = chat().bind_tools([get_weather]).invoke([HumanMessage(STORY), first, result])
        self.assertIsInstance(last, AIMessage)
        self.assertTrue(last.content)

    def test_a_call_in_a_stream_is_put_together(self):
        total = None
        for piece in chat(max_tokens=80).bind_tools([get_weather], tool_choice="required", parallel_tool_calls=False).stream(STORY):
            total = piece if total is None else total + piece
        call, = total.tool_calls
        self.assertIn(call["args"]["city"], ("Paris", "Rome"))

    def test_structured_output_by_schema_and_by_a_function(self):
        for method in ("json_schema", "function_calling"):
            found = chat(max_tokens=400).with_structured_output(Mood, method=method).invoke(STORY)
            self.assertIsInstance(found, Mood, method)

    def test_log_probabilities_come_with_the_metadata(self):
        message = chat(logprobs=True, top_logprobs=2).invoke(STORY)
        self.assertEqual(16, len(message.response_metadata["logprobs"]["content"]))


if __name__ == "__main__":
    unittest.main()
