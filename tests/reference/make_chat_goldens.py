#!/usr/bin/env python3
"""Writes tests/golden/chat/: conversations, and what `transformers` makes of them with the released templates; small
templates, one construct each, and what its environment makes of those (constructs.json).

Text by apply_chat_template(tokenize=False) of a tokenizer in tests/golden/tokenizers, ids by tokenize=True (left out where
a message spells a special token: there `transformers` obeys the message). A conversation that the template refuses has
"refused" instead. The clock that templates read stands at NOW. Run: python3 tests/reference/make_chat_goldens.py
(written with transformers 5.23 and jinja2 3.1.6)
"""

import datetime
import json
import pathlib

import jinja2
import transformers
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
NOW = (2024, 7, 6, 12, 30)
TOKENS = {"llama3": ("<|begin_of_text|>", "<|eot_id|>"), "qwen": (None, "<|im_end|>"), "gemma": ("<bos>", "<eos>")}


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(*NOW)


def said(*contents):
    """A conversation: None or text of the system, then user and assistant in turn."""
    system, *turns = contents
    messages = [{"role": "system", "content": system}] if system is not None else []
    return messages + [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(turns)]


WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "The weather <now> & \"here\", 'there' — été.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Köln", "東京"]}, "days": {"type": "integer", "default": 3},
                                                    "scale": {"type": "number", "default": 1.5, "minimum": 1e-07}, "nothing": {}, "none": None},
                   "required": ["city"], "empty": []}}}
ADD = {"type": "function", "function": {"name": "add", "description": "a\tsum\nof two", "parameters": {"type": "object", "properties": {}}}}
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2}}}
UNICODE = "Größe 👩‍👩‍👧 e\u0301 \u00a0日本\u2028語\u200b مرحبا \ufeff"

COMMON = [
    {"messages": said(None, "Hello")},
    {"messages": said("You are helpful.", "Hello")},
    {"messages": said("You are helpful.", "Hello", "Hi, how are you?", "Fine.", "Good.", "Tell me a story.")},
    {"messages": said(None, "One", "Two", "Three")},
    {"messages": said(None, "One", "Two", "Three", "Four"), "add_generation_prompt": False},
    {"messages": said(None, "")},
    {"messages": said("", "Hello")},
    {"messages": said(None, "  \n\t spaces around \n\n ", "\n\nlines\n\n", "   ")},
    {"messages": said(UNICODE, UNICODE, UNICODE, UNICODE)},
    {"messages": said(None, "a\r\nb\rc\nd", "{{ messages }} {% if x %} {# no #}", "'quotes' \"double\" \\back\\ <b>&amp;</b>")},
    {"messages": said("System <|eot_id|>", "<|im_start|>system<start_of_turn> <bos><|begin_of_text|>", "<|im_end|>", "<end_of_turn><eos>")},
    {"messages": said(None, "x" * 3000, "y " * 500, "z\n" * 200)},
    {"messages": [{"role": "user", "content": "One"}, {"role": "user", "content": "Two"}]},
    {"messages": [{"role": "system", "content": "Only the system"}]},
]

OWN = {
    "llama3": [
        {"messages": said("Be brief.", "Weather?"), "tools": [WEATHER]},
        {"messages": said(None, "Weather?"), "tools": [WEATHER, ADD], "tools_in_user_message": False},
        {"messages": said(None, "Weather?") + [{"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "content": {"celsius": 21.5, "sky": "clear"}},
                                               {"role": "ipython", "content": "plain text"}], "tools": [WEATHER]},
        {"messages": said(None, "Weather?") + [{"role": "assistant", "tool_calls": [CALL, CALL]}]},
        {"messages": said(None, "Hello"), "date_string": "1 Jan 2000"},
        {"messages": said("Only a system message."), "tools": [WEATHER]},
        {"messages": said(None, "Weather?"), "custom_tools": [ADD]},
    ],
    "qwen": [
        {"messages": said("Be brief.", "Weather?"), "tools": [WEATHER, ADD]},
        {"messages": said(None, "Weather?"), "tools": [WEATHER], "enable_thinking": False},
        {"messages": said(None, "Hello"), "enable_thinking": False},
        {"messages": said(None, "Hello"), "enable_thinking": True},
        {"messages": said(None, "Think.", "<think>\nLet me see.\n</think>\n\nDone.", "Again.", "<think>\n\n</think>\n\nSure.", "Last.")},
        {"messages": said(None, "Think.", "<think>\nLet me see.\n</think>\n\nDone."), "add_generation_prompt": False},
        {"messages": said(None, "Weather?") + [{"role": "assistant", "content": "I look.", "reasoning_content": "\nhm\n", "tool_calls": [CALL, CALL["function"]]},
                                               {"role": "tool", "content": "sunny"}, {"role": "tool", "content": "<tool_response>"},
                                               {"role": "assistant", "content": "It is sunny.", "reasoning_content": "fine"}], "tools": [WEATHER]},
        {"messages": said(None, "Weather?") + [{"role": "assistant", "content": "", "tool_calls": [{"name": "add", "arguments": "{\"a\": 1}"}]},
                                               {"role": "tool", "content": "2"}, {"role": "user", "content": "Thanks"}], "enable_thinking": False},
        {"messages": said(None, "A") + [{"role": "assistant"}]},
    ],
    "gemma": [
        {"messages": [{"role": "system", "content": [{"type": "text", "text": "Parts."}]},
                      {"role": "user", "content": [{"type": "text", "text": " one "}, {"type": "image"}, {"type": "text", "text": "two"}]}]},
        {"messages": [{"role": "user", "content": 7}]},
        {"messages": [{"role": "assistant", "content": "First"}]},
        {"messages": said("System", "Hello"), "add_generation_prompt": False},
        {"messages": [{"role": "user"}]},
        {"messages": said(None, "Hello"), "tools": [WEATHER], "documents": None},
    ],
}


# Variables of every one of these: VALUES. What jinja2 refuses must be refused here.
VALUES = {"s": "Straße <b> & 'x'", "n": 7, "f": 2.5, "t": True, "none": None, "l": [3, 1, 2], "w": ["b", "a", "C"], "e": [], "d": {"b": 1, "a": {"c": [1, 2]}, "items": 9},
          "m": [{"role": "user", "content": "hi", "n": 1}, {"role": "tool", "content": "x\ny", "n": 2}, {"role": "user", "n": 3}], "sp": "  a  b\t\n", "u": "é日😀"}
CONSTRUCTS = r"""
{{ s }} {{ n }} {{ f }} {{ t }} {{ none }} {{ missing }}|{{ l }} {{ d }} {{ w }} {{ e }} {{ [true, none, 1.0, 'a\'b', "c\"d"] }} {{ {} }}
{{ 1e20 }} {{ 1e-5 }} {{ 123456789.125 }} {{ 1e15 }} {{ 1e16 }} {{ 0.1 + 0.2 }} {{ 1_000 }} {{ -n }} {{ +f }} {{ - -n }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 * 3 + 4 }} {{ 2 + 3 * 4 }} {{ t + 1 }}
{{ 1 / 0 }}
{{ 9223372036854775807 + 0 }}
{{ 'a' ~ 1 ~ none ~ 2.0 }} {{ 'a' + 'b' * 3 }} {{ 3 * 'ab' }} {{ 'x' * -1 }}|{{ [1] + [2] }}
{{ 'a' + 1 }}
{{ 'a' + none }}
{{ 'a' + missing }}
{{ missing + 'a' }}
{{ 'a' 'b' "c" }} {{ '\n\t\\\'\x41\u00e9\q' }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' == 'a' }} {{ 'a' != 'b' }} {{ 'a' < 'b' }} {{ none == none }} {{ [1, [2]] == [1, [2.0]] }} {{ 1 == '1' }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ missing == none }} {{ missing == other }} {{ missing != 1 }}
{{ not t }} {{ not e }} {{ not none and 'x' }} {{ e or 'y' }} {{ 0 or 0.0 or '' or 'z' }} {{ t and n }} {{ not 1 == 2 }}
{{ 1 in l }} {{ 9 not in l }} {{ 'b' in d }} {{ 'tr' in s }} {{ 'q' in w }} {{ 1 in missing }} {{ '' in 'a' }}
{{ 1 in 'a' }}
{{ 1 in none }}
{{ 'yes' if t else 'no' }} {{ 'yes' if e }}| {{ 1 if e else 2 if none else 3 }} {{ ('a' if t else 'b') ~ 'c' }}
{{ l[0] }} {{ l[-1] }} {{ l[9] }}| {{ l[-9] }}| {{ s[0] }} {{ u[1] }} {{ u[-1] }} {{ u[9] }}| {{ d['b'] }} {{ d['q'] }}| {{ d.b }} {{ d.a.c[1] }} {{ d['items'] }} {{ d.q }}| {{ d[0] }}|
{{ d.q.r }}
{{ missing.q }}
{{ missing['q'] }}
{{ none.q }}| {{ n.q }}| {{ s.q }}| {{ none['q'] }}| {{ s['q'] }}|
{{ l[1:] }} {{ l[:1] }} {{ l[::-1] }} {{ l[-2:] }} {{ l[5:] }} {{ l[::2] }} {{ l[2:0:-1] }} {{ u[1:] }} {{ u[::-1] }} {{ s[2:4] }} {{ l[none:2] }}
{{ missing[1:] }}
{{ none[1:] }}
{{ l.0 }} {{ m.1.role }} {{ d.items() | list }} {{ d.keys() | list }} {{ d.values() | list }} {{ d.get('b') }} {{ d.get('q') }} {{ d.get('q', 4) }}
{{ sp.strip() }}| {{ sp.lstrip() }}| {{ sp.rstrip() }}| {{ 'xxaxx'.strip('x') }} {{ 'xyaxy'.lstrip('yx') }} {{ 'a\n\n'.rstrip('\n') }} {{ '\x1ca\xa0'.strip() }}|
{{ sp.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b c '.split(none, 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'abc'.split('bc') }}
{{ 'a'.split('') }}
{{ s.startswith('St') }} {{ s.endswith('q') }} {{ s.startswith(('q', 'S')) }} {{ 'aXb'.upper() }} {{ 'aXb'.lower() }} {{ 'hELLO wORLD'.capitalize() }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.replace('', '-') }} {{ 'abcabc'.find('ca') }} {{ 'é日x'.find('x') }} {{ 'abab'.count('ab') }} {{ ','.join(['a', 'b']) }}
{{ missing.strip() }}
{{ none.strip() }}
{{ n.strip() }}
{{ sp | trim }}| {{ none | trim }} {{ 5 | trim }} {{ 'xax' | trim('x') }} {{ missing | trim }}|
{{ s | length }} {{ u | length }} {{ l | count }} {{ d | length }} {{ missing | length }}
{{ none | length }}
{{ n | length }}
{{ s | upper }} {{ 'É' | lower }} {{ 'hELLO' | capitalize }} {{ w | first }} {{ w | last }} {{ e | first }}| {{ 'abc' | first }} {{ l | reverse | list }} {{ 'abc' | reverse }} {{ d | list }} {{ 'ab' | list }}
{{ l | join }} {{ l | join(', ') }} {{ m | join(';', attribute='n') }} {{ missing | join }}|
{{ none | join }}
{{ missing | default('x') }} {{ none | default('x') }} {{ '' | default('x', true) }} {{ '' | d('x') }}| {{ none | default('x', boolean=true) }} {{ missing | default }}|
{{ missing.x | default('y') }}
{{ 'a' | replace('a', 'b') }} {{ 12 | replace('1', 'x') }} {{ 'aaa' | replace('a', 'b', 1) }}
{{ '12' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ 3.9 | int }} {{ '3.9' | int }} {{ '1.5' | float }} {{ 'x' | float }} {{ none | int }} {{ true | int }} {{ -3 | abs }} {{ 5 | string }} {{ none | string }}
{{ d | items | list }} {{ d | dictsort }} {{ missing | items | list }}
{{ m | map(attribute='role') | list }} {{ m | map(attribute='content', default='-') | join(',') }} {{ w | map('upper') | join }} {{ m | selectattr('role', 'equalto', 'user') | map(attribute='n') | list }} {{ m | rejectattr('content') | list | length }} {{ l | select('odd') | list }} {{ l | reject('gt', 1) | list }} {{ m | selectattr('content', 'defined') | list | length }} {{ [0, 1, ''] | select | list }}
{{ m | map(attribute='content') | list }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb' | indent(width=1, blank=true) }}|{{ 'a\nb' | indent('> ') }}
{{ s | tojson }} {{ d | tojson }} {{ l | tojson }} {{ none | tojson }} {{ t | tojson }} {{ f | tojson }} {{ 1e20 | tojson }} {{ {} | tojson(indent=2) }} {{ '\x01\x7f\u2028\"\\/' | tojson }} {{ d | tojson(separators=(',', ':')) }}
{{ d | tojson(indent=2) }} {{ [[], [1, {}]] | tojson(indent=4) }} {{ m | tojson(indent=1, ensure_ascii=false) }}
{{ missing | tojson }}
{{ s is string }} {{ n is string }} {{ d is mapping }} {{ l is iterable }} {{ s is sequence }} {{ n is iterable }} {{ n is number }} {{ t is number }} {{ t is integer }} {{ n is integer }} {{ f is float }} {{ t is boolean }} {{ t is true }} {{ n is true }} {{ none is none }} {{ missing is defined }} {{ missing is undefined }} {{ missing is none }} {{ missing is iterable }} {{ none is not none }} {{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }} {{ n is eq 7 }} {{ n is ne(7) }} {{ n is gt 3 }} {{ n is in [7] }} {{ d.q is defined }} {{ s.strip is callable }}
{{ not s is string }} {{ s is not string or t }} {{ n is number and t }} {{ 'a' if s is string else 'b' }} {{ s is string | string }}
{% set x = 1 %}{{ x }}{% set x = x + 1 %}{{ x }} {% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }} {% if t %}{% set x = 'if' %}{% endif %}{{ x }}
{% set ns = namespace(a=1, b='x') %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }} {{ ns.b }} {{ ns.q }}| {% set ns.new = [1] %}{{ ns.new }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a + ns.b }}{{ dict(a=1, b='x') }}
{% set d.x = 1 %}
{% set x %}a {{ n }}{% set y = 2 %} b{% endset %}{{ x }}|{{ y }}|{{ x | length }}
{% set x = 1, 2 %}{{ x[1] }} {% for a in 1, 2 %}{{ a }}{% endfor %} {% for a, b in d.items() %}{{ a }}={{ b }};{% endfor %} {% for (a, b) in [[1, 2]] %}{{ a }}{{ b }}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}
{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }} {% endfor %}
{% for i in l if i > 1 %}{{ loop.index }}:{{ i }} {% else %}none{% endfor %} {% for i in e %}x{% else %}empty{% endfor %} {% for i in l if i > 9 %}x{% else %}empty{% endfor %} {% for i in missing %}x{% else %}empty{% endfor %}
{% for i in none %}x{% endfor %}
{% for i in range(6) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %} {{ range(3) | list }} {{ range(1, 7, 2) | list }} {{ range(3, 0, -1) | list }} {{ range(0) | list }}
{% for a in l %}{% for b in w %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %} {% for c in u %}[{{ c }}]{% endfor %} {% for k in d %}{{ k }}{% endfor %}
{% macro f(a, b=2, c=b) %}[{{ a }}{{ b }}{{ c }}{{ n }}]{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(b='x', a='y') }} {{ f() }} {% for i in l %}{{ f(i) }}{% endfor %}
{% macro f(a) %}x{% endmacro %}{{ f(1, 2) }}
{% macro f(a) %}{% if a > 0 %}{{ a }}{{ f(a - 1) }}{% endif %}{% endmacro %}{{ f(5) }}{% set x = f(2) %}{{ x | length }}
{% macro f() %}{{ x }}{{ y }}{% endmacro %}{% set x = 1 %}{% for y in l %}{{ f() }}{% endfor %}
{% if missing %}a{% elif none %}b{% elif n == 7 %}c{% else %}d{% endif %} {% if not missing %}e{% endif %} {% if l %}f{% endif %}
a {%- if t -%} b {%- endif %} c  {%+ if t %} d {% endif +%} e {{- n -}} f {{ n }} g {#- x -#} h {# y #} i
{% if t %}¶  x¶{% endif %}¶y¶
a¶  {% if t %}¶  b¶  {% endif %}¶c¶
a¶   {{ n }}¶  {# c #}¶ d {% if t %}¶{% endif %} e¶¶
  {%+ if t %}x{% endif %}¶  {% set x = 1 %}  ¶  {% set y = 2 %}¶z
{{ n }}  {% if t %}a{% endif %}¶  {% if t %}¶  {% if t %}b{% endif %}¶  {% endif %}c
¶¶a¶¶
{% generation %}x{{ n }}{% endgeneration %} {{ strftime_now('%d %b %Y %H:%M') }} {{ strftime_now is defined }} {{ raise_exception is defined }}
{{ raise_exception('no ' ~ n) }}
{{ n() }}
{{ s | trim | upper | length + 1 }} {{ (s | trim)[0] }} {{ s.strip().split('<')[0] | trim }} {{ -n | abs }} {{ 2 ~ 3 * 2 }}
{{ 1 + 2 ~ 3 }}
{{ {'a': 1, 'b': [1, 2,],} }} {{ [1, 2,] }} {{ (1) }} {{ ('a') }} {{ (1,) }} {{ () }} {{ (1, 2)[0] }} {{ {'a': {'b': 'c'}}.a.b }} {{ [[1, 2], [3]][0][1] }}
{{ m[0].role == 'user' and m[1]['content'] }} {{ m | length - 1 }} {{ m[m | length - 1].n }} {{ (m | last).n }} {{ m[1:] | map(attribute='n') | join }}
{{ '{{' }} {{ '%}' }} { { } } {% set x = {'a': '}}'} %}{{ x.a }} {{ {'a': {'b': 1}} }}
{% if none %}{{ 1 | from_json }}{% endif %}a {{ 'b' | from_json if none else 'c' }}
{% if none %}{% for i in l %}{{ i | from_json }}{% endfor %}{% endif %}
{{ e | from_json if t else 1 }}
{% macro f() %}{{ 1 | from_json }}{% endmacro %}
{{ l | sort }} {{ w | sort }} {{ w | sort(case_sensitive=true) }} {{ l | sort(reverse=true) }} {{ m | sort(attribute='role') | map(attribute='n') | list }} {{ m | sort(attribute='role,n', reverse=true) | map(attribute='n') | list }} {{ d | sort }} {{ 'cab' | sort }}
{{ [1, 'a'] | sort }}
{{ [none, none] | sort }} {{ [[2, 1], [1, 9], [1]] | sort }}
{{ none | sort }}
{{ ['b', 'A', 'a', 'B'] | unique | list }} {{ ['b', 'B'] | unique(true) | list }} {{ m | unique(attribute='role') | map(attribute='n') | list }} {{ [1, 1.0, true, 2] | unique | list }} {{ 'aAb' | unique | join }}
{{ [[1], [1]] | unique | list }}
{{ l | min }} {{ l | max }} {{ ['b', 'A'] | min }} {{ ['b', 'A'] | min(case_sensitive=true) }} {{ (m | max(attribute='n')).role }} {{ e | min }}| {{ [2.0, 2] | max }} {{ [2, 2.0] | min }}
{{ [1, 'a'] | min }}
{{ '<{}>'.format(n) }} {{ '{1} {0} {{}}'.format('a', s) }} {{ '{x}-{y}'.format(x=1, y=none) }} {{ '{:>5}|{:<4}|{:^5}|{:*^7}|{:05d}|{:+d}|{:.2f}|{:8.3f}|{:x}|{!r}|{:.2}'.format('é', 'b', 'c', 'd', n, n, f, f, 255, 'q', 'abc') }}
{{ '{}'.format() }}
{{ '{} {0}'.format(1) }}
{{ '{:d}'.format('a') }}
{{ '{' .format(1) }}
{{ {1: 'a', 2.5: 'b', none: 'c', (1, 2): 'd', true: 'e'} }} {{ {1: 'a'}[1] }} {{ {1: 'a'}[1.0] }} {{ {1: 'a'}['1'] }}| {{ {1: 'a'}.get(1) }} {{ 1 in {1: 'a'} }} {{ '1' in {1: 'a'} }} {% for k, v in {512: 128, 0: 1} | dictsort %}{{ k + v }},{% endfor %} {{ {2: 1, 1: 2} | tojson }} {{ {none: 1, true: 2, 1.5: 3} | tojson }}
{{ {(1, 2): 1} | tojson }}
{{ {[1]: 1} }}
{{ [1] in d }}
{{ {1: 0, 'a': 0} | dictsort }}
{{ d | dictsort(reverse=true) }} {{ {'a': 2, 'b': 1} | dictsort(by='value') }} {{ {'b': 2, 'A': 1, 'a': 3} | dictsort }} {{ {'b': 2, 'A': 1, 'a': 3} | dictsort(true) }}
{{ 'é日😀"\x7f' | tojson(ensure_ascii=true) }} {{ {'é': 'ß'} | tojson(ensure_ascii=true) }} {{ u | tojson(ensure_ascii=false) }} {{ d | tojson(sort_keys=true) }} {{ {2: 0, 1.5: 0} | tojson(sort_keys=true) }}
{{ {1: 0, 'a': 0} | tojson(sort_keys=true) }}
{{ none | select | list }} {{ none | reject('odd') | list }} {{ none | map('upper') | list }} {{ none | selectattr('x') | list }} {{ none | map(attribute='x') | join }} {{ 0 | rejectattr('x') | list }} {{ missing | map('upper') | list }}|
{{ 1 | select | list }}
{% if e | select %}always{% endif %} {{ 'a' if l | select('gt', 9) else 'b' }} {% set g = l | map('string') %}{{ g | join }}{{ g | join }}| {% set g = l | select %}{{ g | first }}{{ g | list }} {% set g = l | select %}{{ 3 in g }}{{ g | list }} {{ l | reverse is sequence }} {{ l | map('string') is iterable }}
{{ l | select | length }}
{{ l | select | tojson }}
{{ l | reverse | last }}
{{ l | map('string') + ['a'] }}
{{ (l | map('string'))[0] }}|
{{ d.keys() }} {{ d.items() }} {{ d.values() }} {{ d.keys() | length }} {{ d.keys()[0] }}| {{ 'b' in d.keys() }} {% if {}.items() %}x{% else %}y{% endif %}
{{ d.items() | tojson }}
{{ (1, 2) + (3,) }} {{ (1, 2)[:1] }} {{ [1] == (1,) }} {{ (1, 2) < (1, 3) }} {{ [1] < [1, 2] }}
{{ [1] + (2,) }}
{% filter upper %}a {{ s }}{% endfilter %} {% filter replace('a', 'b') | trim %}  a{% if t %}a{% endif %} {% endfilter %}|
{% filter length %}abc{% endfilter %}
{% filter upper %}{% set n = 1 %}{{ n }}{% endfilter %}{{ n }} {% set x | upper | trim %} a {{ n }} {% endset %}{{ x }}
{% filter from_json %}a{% endfilter %}
{{ 'x: ' | safe + s }} {{ s + '!' | safe }} {{ ('<' | safe) ~ s }} {{ (s | safe)[:8] + '<' }} {{ s | safe | upper + '&' }} {{ s | e }} {{ s | escape | e }} {{ s | escape | forceescape }} {{ ('<a> <b>' | safe).split()[0] + '<' }} {{ ('a' | safe).replace('a', '<') }} {{ ('<' | safe) * 2 + '<' }} {{ ['<' | safe, '<'] | join }} {{ '<' | safe | tojson }} {{ ('<' | safe | string) + '<' }} {{ '<' | safe | replace('<', '>') + '<' }}
""".strip("\n").split("\n")


def construct_of(source):
    source = source.replace("¶", "\n")
    try:
        return {"source": source, "text": chat_template_utils.render_jinja_template([[]], chat_template=source, **VALUES)[0][0]}
    except Exception as error:  # of any kind: ours must refuse, too
        return {"source": source, "refused": f"{type(error).__name__}: {error}"}


def case_of(tokenizer, conversation, specials):
    variables = dict(conversation)
    messages = variables.pop("messages")
    variables.setdefault("add_generation_prompt", True)
    case = {"variables": {"messages": messages, **variables}}
    try:
        case["text"] = tokenizer.apply_chat_template(messages, tokenize=False, **variables)
    except (jinja2.TemplateError, TypeError) as error:
        case["refused"] = str(error)
        return case
    if not any(special in json.dumps(messages, ensure_ascii=False) for special in specials):
        case["ids"] = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **variables)
    return case


def main():
    chat_template_utils.datetime = Clock
    for family, (bos, eos) in TOKENS.items():
        folder = GOLDEN / "chat" / family
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(GOLDEN / "tokenizers" / family / "tokenizer.json"), bos_token=bos, eos_token=eos)
        tokenizer.chat_template = (folder / "chat_template.jinja").read_text()
        specials = [token.content for token in tokenizer.backend_tokenizer.get_added_tokens_decoder().values() if token.special]
        cases = [case_of(tokenizer, conversation, specials) for conversation in COMMON + OWN[family]]
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        (folder / "cases.json").write_text(
            f'{{"transformers":"{transformers.__version__}","now":{json.dumps(NOW)},"bos_token":{json.dumps(bos)},"eos_token":{json.dumps(eos)},"cases":[\n{lines}\n]}}\n')
        print(f"{family}: {len(cases)} conversations, {sum('refused' in case for case in cases)} refused, {sum('ids' in case for case in cases)} with ids")
    lines = ",\n".join(json.dumps(construct_of(source), separators=(",", ":")) for source in CONSTRUCTS)
    (GOLDEN / "chat" / "constructs.json").write_text(f'{{"values":{json.dumps(VALUES)},"now":{json.dumps(NOW)},"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
