"""Templates with the behaviour of three model families, and conversations to render with them.

The words are ours; what the families do with turns, reasoning and tools is theirs: 3.5 keeps the
reasoning since the last user message and writes scalars as Python does, 3.6 can keep all of it and
writes JSON, 3.8 keeps all of it unless told otherwise and tells the model how hard to think.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

_SOURCE = """\
{%- set seen = namespace(pictures=0) %}
{%- macro text_of(content, counted, first=false) %}
    {%- if content is string %}
        {{- content }}
    {%- elif content is iterable and content is not mapping %}
        {%- for part in content %}
            {%- if 'image' in part or part.type == 'image' %}
                {%- if first %}{{ raise_exception('A picture in the system message.') }}{% endif %}
                {%- if counted %}{% set seen.pictures = seen.pictures + 1 %}{% endif %}
                {{- 'Picture ' ~ seen.pictures }}
            {%- elif 'text' in part %}
                {{- part.text }}
            {%- else %}
                {{- raise_exception('A part of an unknown kind.') }}
            {%- endif %}
        {%- endfor %}
    {%- elif content is none or content is undefined %}
        {{- '' }}
    {%- else %}
        {{- raise_exception('Content of an unknown kind.') }}
    {%- endif %}
{%- endmacro %}
@EFFORT@
{%- if tools and tools is iterable and tools is not mapping %}
    {{- '<|im_start|>system\\n' + effort }}
    {{- "Functions:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\nA call:\\n<tool_call>\\n<function=name>\\n</function>\\n</tool_call>" }}
    {%- if messages[0].role == 'system' %}
        {%- set content = text_of(messages[0].content, false, true)|trim %}
        {%- if content %}
            {{- '\\n\\n' + content }}
        {%- endif %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' or effort %}
    {%- set content = text_of(messages[0].content, false, true)|trim %}
    {{- '<|im_start|>system\\n' + effort + (content if messages[0].role == 'system' else '') }}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" %}
        {%- set content = text_of(message.content, false)|trim %}
        {%- set result = content.startswith('<tool_response>') %}
        {%- if not(result and content.endswith('</tool_response>')) %}
            {%- set ns.searching = false %}
            {%- set ns.last = index %}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if ns.searching %}
    {{- raise_exception('No message of a user.') }}
{%- endif %}
{%- for message in messages %}
    {%- set content = text_of(message.content, true)|trim %}
    {%- if message.role == "system" %}
        {%- if not loop.first %}
            {{- raise_exception('The system message comes first.') }}
        {%- endif %}
    {%- elif message.role == "user" %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        @SPLIT@
        {%- endif %}
        {%- set reasoning = reasoning|trim %}
        {%- if @KEEP@ %}
            {{- '<|im_start|>' ~ message.role ~ '\\n<think>\\n' ~ reasoning ~ '\\n</think>\\n\\n' }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' }}
        {%- endif %}
        {{- content }}
        {%- if message.tool_calls and message.tool_calls is not mapping %}
            {%- for tool_call in message.tool_calls %}
                {%- if tool_call.function is defined %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '\\n' * (2 if content|trim else 0) if loop.first else '\\n' }}
                {{- '<tool_call>\\n<function=' + tool_call.name + '>\\n' }}
                {%- if tool_call.arguments is defined %}
                    {%- for name, value in tool_call.arguments|items %}
                        {{- '<parameter=' + name + '>\\n' }}
                        {%- set value = @VALUE@ %}
                        {{- value }}
                        {{- '\\n</parameter>\\n' }}
                    {%- endfor %}
                {%- endif %}
                {{- '</function>\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- content }}
        {{- '\\n</tool_response>' }}
        {%- if not loop.last and loop.nextitem.role != "tool" %}
            {{- '<|im_end|>\\n' }}
        {%- elif loop.last %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- else %}
        {{- raise_exception('A role that is unknown: ' ~ message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- else %}
        {{- '<think>\\n' }}
    {%- endif %}
{%- endif %}"""

_EFFORT = """\
{%- set effort = '' %}
{%- if enable_thinking is undefined or enable_thinking is true %}
    {%- set effort = reasoning_effort|default('xhigh') %}
    {%- if effort not in ('xhigh', 'medium', 'low') %}
        {{- raise_exception('An effort that is unknown: ' ~ effort) }}
    {%- endif %}
    {%- set effort = '' if effort == 'medium' else 'Think: ' ~ effort ~ '.\\n\\n' %}
{%- endif %}"""
_SPLIT = """\
{%- elif '</think>' in content %}
    {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1] %}
    {%- set content = content.split('</think>')[-1].lstrip('\\n') %}"""
_SINCE = "(loop.index0 > ns.last)"
_PYTHON = (
    "value | tojson | safe if value is mapping or (value is sequence and value is not string) "
    "else value | string"
)
_JSON = "value | string if value is string else value | tojson | safe"


def _template(effort: str, split: str, keep: str, value: str) -> str:
    source = _SOURCE.replace("@EFFORT@", effort).replace("@SPLIT@", split)
    return source.replace("@KEEP@", keep).replace("@VALUE@", value)


_NONE = "{%- set effort = '' %}"
_ASKED = "(preserve_thinking is defined and preserve_thinking is true) or "
_UNLESS = "preserve_thinking is undefined or preserve_thinking is true or "
TEMPLATES = {
    "3.5": _template(_NONE, _SPLIT, _SINCE, _PYTHON),
    "3.6": _template(_NONE, _SPLIT, _ASKED + _SINCE, _JSON),
    "3.8": _template(_EFFORT, "", _UNLESS + _SINCE, _JSON),
}

# What each family's template reads, and the values to render it with; None leaves the name out.
_SWITCHES: dict[str, tuple[Any, ...]] = {
    "enable_thinking": (None, True, False),
    "preserve_thinking": (None, True, False),
    "reasoning_effort": (None, "low", "medium", "xhigh", "high"),
}
SWITCHES = {
    "3.5": dict(list(_SWITCHES.items())[:1]),
    "3.6": dict(list(_SWITCHES.items())[:2]),
    "3.8": _SWITCHES,
}


def _call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def _said(content: Any, **others: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **others}


SYSTEM = {"role": "system", "content": "  Be terse, né?\n"}
USER = {"role": "user", "content": " What is 61 \N{MULTIPLICATION SIGN} 11?\n\n"}
AGAIN = {"role": "user", "content": "And <b>12</b> & 'more'?"}
THOUGHT = _said(" 671\n", reasoning_content="\n60 and 1 times 11.\n\n")
TWICE = [_call("f", {"a": 1, "s": "02134"}), _call("g", {"b": True, "n": None, "x": 1e-7})]
DEEP = [_call("f", {"o": {"k": ["é", 1.5, None]}, "l": [], "t": "two\n\nlines ", "e": ""})]
RESULT = {"role": "tool", "content": '{"temperature": 21}'}
PARTS = {
    "role": "user",
    "content": [{"type": "text", "text": " a"}, {"type": "text", "text": "b "}],
}

CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "user": [USER],
    "system": [SYSTEM, USER],
    "empty system": [{"role": "system", "content": ""}, USER],
    "parts": [{"role": "system", "content": PARTS["content"]}, PARTS],
    "two turns": [USER, THOUGHT, AGAIN],
    "no reasoning": [SYSTEM, USER, _said("671"), AGAIN, _said("672"), USER],
    "reasoning inside": [USER, _said("<think>\n60\n</think>\n\n671"), AGAIN, _said("a</think>b")],
    "call": [USER, _said("", reasoning_content="Look.", tool_calls=TWICE[:1]), RESULT],
    "calls": [SYSTEM, USER, _said("I look.", tool_calls=TWICE), RESULT, RESULT],
    "no content": [USER, _said(None, tool_calls=DEEP), {"role": "tool", "content": None}],
    "loop": [
        *(USER, _said("", reasoning_content="One.", tool_calls=DEEP), RESULT),
        *(_said("Then", reasoning_content="Two.", tool_calls=TWICE), RESULT, RESULT),
        _said("Both.", reasoning_content="Three."),
        *(AGAIN, _said("", reasoning_content="Four.", tool_calls=TWICE[:1]), RESULT),
    ],
    "bare call": [USER, _said("", tool_calls=[TWICE[0]["function"], {"name": "g"}]), RESULT],
    "refused: system second": [USER, SYSTEM],
    "refused: two systems": [SYSTEM, SYSTEM, USER],
    "refused: nobody asks": [SYSTEM, THOUGHT],
    "refused: developer": [{"role": "developer", "content": "x"}, USER],
}
TOOLS: dict[str, list[dict[str, Any]] | None] = {
    "none": None,
    "two": [
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": "Größe <in> cm & 'more'.",
                "parameters": {"type": "object", "properties": {"a": {"enum": ["é", 1, None]}}},
            },
        },
        {"name": "g", "parameters": {}},
    ],
}


def cases(family: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the names of a conversation and of its tools, and the switches that are set."""
    switches = SWITCHES[family]
    for conversation, tools, values in product(CONVERSATIONS, TOOLS, product(*switches.values())):
        given = zip(switches, values, strict=True)
        yield conversation, tools, {name: value for name, value in given if value is not None}
