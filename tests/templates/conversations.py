# The conversations that check_templates.py renders: each a set of a template's variables, by its name.
import copy

TOOLS = [
    {"type": "function", "function": {
        "name": "python", "description": "Runs code in an interpreter & returns <its> \"result\".",
        "parameters": {"type": "object", "properties": {"code": {"type": "string", "description": "The code to run."}},
                       "required": ["code"]}}},
    {"type": "function", "function": {
        "name": "weather", "description": "Forecast — für eine Stadt.",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "enum": ["Köln", "東京"], "description": "Where."},
            "days": {"type": "integer", "default": 3, "minimum": 1}, "units": {"type": ["string", "null"]},
            "places": {"type": "array", "items": {"type": "string"}},
            "detail": {"type": "object", "properties": {"wind": {"type": "boolean"}}, "required": ["wind"]}},
            "required": ["city"]}}},
]

SYSTEM = {"role": "system", "content": "You answer briefly."}
QUESTION = {"role": "user", "content": "What's your favourite framework?"}
ANSWER = {"role": "assistant", "content": "The \"small\" one\nwith <tags>."}
MORE = {"role": "user", "content": " And why?  "}


def call(call_id, name, arguments):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


CALLS = {"role": "assistant", "content": "", "tool_calls": [call("abcdef123", "python", {"code": "print(1 < 2)\n"})]}
RESULT = {"role": "tool", "tool_call_id": "abcdef123", "name": "python", "content": "{\"stdout\": \"True\"}"}
TWO_CALLS = {"role": "assistant", "content": None, "tool_calls": [
    call("aaaaaaaa1", "weather", {"city": "Köln", "days": 2, "detail": {"wind": True}, "units": None, "places": ["a", "b"]}),
    call("aaaaaaaa2", "weather", {"city": "東京", "days": 0.5})]}
TWO_RESULTS = [{"role": "tool", "tool_call_id": "aaaaaaaa1", "name": "weather", "content": "rain"},
               {"role": "tool", "tool_call_id": "aaaaaaaa2", "name": "weather", "content": "sun"}]
THOUGHT = {"role": "assistant", "content": "Four.", "reasoning_content": "Two and two,\nso four.", "thinking": "Two and two."}


def as_text(messages):
    """The same, with the arguments of calls as JSON in a string, as OpenAI's clients send them."""
    changed = copy.deepcopy(messages)
    for message in changed:
        for one in message.get("tool_calls") or []:
            one["function"]["arguments"] = '{"code": "print(1)"}'
    return changed


def conversations():
    """{name: variables}. The first three are those that other projects check templates with."""
    tool_use = [QUESTION, CALLS, RESULT, ANSWER, MORE]
    return {
        "plain": {"messages": [QUESTION, ANSWER]},
        "system": {"messages": [SYSTEM, QUESTION, ANSWER, MORE]},
        "tool_use": {"messages": tool_use, "tools": TOOLS},
        "tools": {"messages": [SYSTEM, QUESTION], "tools": TOOLS},
        "tool_results": {"messages": [SYSTEM, QUESTION, TWO_CALLS, *TWO_RESULTS], "tools": TOOLS},
        "text_arguments": {"messages": as_text(tool_use), "tools": TOOLS},
        "thinking": {"messages": [QUESTION, THOUGHT, MORE], "enable_thinking": True, "thinking": True},
        "not_thinking": {"messages": [SYSTEM, QUESTION, THOUGHT, MORE], "enable_thinking": False, "thinking": False},
        "no_prompt": {"messages": [SYSTEM, QUESTION, ANSWER], "add_generation_prompt": False},
        "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}]}]},
    }
