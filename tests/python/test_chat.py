"""Messages to tokens: what users write stays text; and tool calls to values."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mtlqwen import ToolCall
from mtlqwen.chat import ChatFormat
from mtlqwen.parts import parse_tool_calls
from mtlqwen.template import ChatTemplate
from mtlqwen.tokenizer import Tokenizer
from python.conftest import CONTROL, TEMPLATE, USER_DEFINED


@pytest.fixture(scope="module")
def chat(tokenizer: Tokenizer) -> ChatFormat:
    return ChatFormat(ChatTemplate(TEMPLATE), tokenizer)


def user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def count(tokenizer: Tokenizer, token_ids: Sequence[int], literal: str) -> int:
    return list(token_ids).count(tokenizer.token_id(literal) or -1)


def test_a_plain_chat_is_encoded_as_it_renders(chat: ChatFormat, tokenizer: Tokenizer) -> None:
    ids = chat.encode([user("a < b")], None, True)
    text = "<|im_start|>user\na < b<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert ids == tokenizer.encode(text)


def test_a_text_of_every_private_use_character_is_refused(chat: ChatFormat) -> None:
    text = "".join(map(chr, range(0xE000, 0xF900)))
    with pytest.raises(ValueError, match="private-use"):
        chat.encode([user(text)], None, True)


@given(
    st.lists(
        st.text(max_size=5) | st.sampled_from([*CONTROL, *USER_DEFINED, "<|im_", "end|>", "\ue000"])
    ).map("".join)
)
def test_literals_of_a_user_stay_text(chat: ChatFormat, tokenizer: Tokenizer, content: str) -> None:
    messages = [user(content), {"role": "tool", "content": content}]
    tools = [{"name": "f", "description": content}]
    ids = chat.encode(messages, tools, True)
    plain = chat.encode([user("x"), {"role": "tool", "content": "x"}], [{"name": "f"}], True)
    for literal in [*CONTROL, *USER_DEFINED]:
        assert count(tokenizer, ids, literal) == count(tokenizer, plain, literal)
    only = ChatFormat(ChatTemplate("{{ messages[0].content }}"), tokenizer)
    restored = only.encode([user(content)], None, None)
    assert tokenizer.decode(restored) == tokenizer.decode(tokenizer._encode_run(content))


def test_parts_of_a_content_cannot_form_a_literal_together(tokenizer: Tokenizer) -> None:
    source = "{% for part in messages[0].content %}{{ part.text }}{% endfor %}"
    parts = [{"text": "<|im_"}, {"text": "end|>"}]
    ids = ChatFormat(ChatTemplate(source), tokenizer).encode([user(parts)], None, None)
    assert count(tokenizer, ids, "<|im_end|>") == 0
    assert tokenizer.decode(ids) == "<|im_end|>"


def test_marks_of_the_assistant_are_its_own(tokenizer: Tokenizer) -> None:
    source = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}|{% endfor %}"
    messages = [
        {"role": "assistant", "content": "a</think>b<|im_end|><tool_call>"},
        user("</think>"),
    ]
    ids = ChatFormat(ChatTemplate(source), tokenizer).encode(messages, None, None)
    assert count(tokenizer, ids, "<tool_call>") == 1
    assert count(tokenizer, ids, "<|im_end|>") == 0
    assert tokenizer.decode(ids) == "b<|im_end|><tool_call>|</think>|"


def test_the_prompt_tells_the_kind_that_it_leaves_open(chat: ChatFormat) -> None:
    said = {"role": "assistant", "content": "<think>"}
    assert chat.open_kind(chat.encode([user("x")], None, True)) == "reasoning"
    assert chat.open_kind(chat.encode([user("x")], None, False)) == "text"
    assert chat.open_kind(chat.encode([user("x"), said, user("y")], None, False)) == "text"


def test_messages_are_not_changed_and_arguments_may_be_json(tokenizer: Tokenizer) -> None:
    source = "{{ messages[0].tool_calls[0].function.arguments.city }}"
    call = {"type": "function", "function": {"name": "f", "arguments": '{"city": "Oslo"}'}}
    messages: list[dict[str, Any]] = [{"role": "assistant", "content": "", "tool_calls": [call]}]
    before = json.dumps(messages)
    format_ = ChatFormat(ChatTemplate(source), tokenizer)
    assert tokenizer.decode(format_.encode(messages, None, None)) == "Oslo"
    assert json.dumps(messages) == before
    messages[0]["tool_calls"] = [ToolCall("f", {"city": "Rome"})]
    assert tokenizer.decode(format_.encode(messages, None, None)) == "Rome"


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {
                "properties": {
                    "s": {"type": "string"},
                    "i": {"type": "integer"},
                    "n": {"type": "number"},
                    "b": {"type": "boolean"},
                    "a": {"type": "array"},
                    "o": {"type": "object"},
                    "z": {"type": ["integer", "null"]},
                    "e": {"enum": ["x", "y"]},
                }
            },
        },
    }
]


def call_text(**arguments: str) -> str:
    lines = [f"<parameter={key}>\n{value}\n</parameter>" for key, value in arguments.items()]
    return "\n".join(["", "<function=f>", *lines, "</function>", ""])


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("s", "02134", "02134"),
        ("s", "true", "true"),
        ("s", "1e5", "1e5"),
        ("s", "two\n\nlines ", "two\n\nlines "),
        ("s", "a </parameter> b", "a </parameter> b"),
        ("s", "", ""),
        ("i", "45", 45),
        ("i", "45.0", 45),
        ("i", "45.5", "45.5"),
        ("i", "many", "many"),
        ("n", "45", 45),
        ("n", "4.5", 4.5),
        ("n", "NaN", "NaN"),
        ("n", "true", "true"),
        ("b", "True", True),
        ("b", "false", False),
        ("b", "yes", "yes"),
        ("a", '["x", 1]', ["x", 1]),
        ("a", "[" * 100_000, "[" * 100_000),
        ("o", '{"k": null}', {"k": None}),
        ("o", "[1]", "[1]"),
        ("z", "null", None),
        ("z", "3", 3),
        ("e", "x", "x"),
        ("unknown", "1", "1"),
    ],
)
def test_arguments_are_typed_by_the_schema(key: str, text: str, value: object) -> None:
    (call,) = parse_tool_calls([call_text(**{key: text})], TOOLS)
    assert call == ToolCall("f", {key: value})
    assert type(call.arguments[key]) is type(value)


@pytest.mark.parametrize(
    ("text", "value"), [("5", 5), ("null", None), ("[1]", [1]), ("x", "x"), ("1.5", "1.5")]
)
def test_arguments_are_typed_by_what_their_schema_refers_to(text: str, value: object) -> None:
    parts = [{"type": "integer"}, {"$ref": "#/$defs/a~1b"}, {"enum": [None]}]
    parameters: dict[str, Any] = {
        "properties": {"x": {"anyOf": parts}, "s": {"anyOf": [*parts, {"const": "s"}]}},
        "$defs": {"a/b": {"type": "array"}, "self": {"$ref": "#/$defs/self"}},
    }
    parameters["properties"]["self"] = {"$ref": "#/$defs/self"}
    parameters["properties"]["loop"] = {"anyOf": [{"$ref": "#/properties/loop"}] * 50}
    (call,) = parse_tool_calls(
        [call_text(x=text, s=text, loop=text, self=text)], [{"name": "f", "parameters": parameters}]
    )
    as_text = None if text == "null" else text
    assert call.arguments == {"x": value, "s": as_text, "loop": text, "self": text}


def test_several_calls_and_broken_ones() -> None:
    one = call_text(s="a", i="1")
    assert parse_tool_calls([one, one], TOOLS) == [ToolCall("f", {"s": "a", "i": 1})] * 2
    assert len(parse_tool_calls([one + one], TOOLS)) == 2
    assert parse_tool_calls(["", "no call", "<function=", "<parameter=s>\na\n</parameter>"]) == []
    assert parse_tool_calls(["<function=f>\n<parameter=s>\na\n</parameter>"]) == [
        ToolCall("f", {"s": "a"})
    ]
    assert parse_tool_calls(["<function=f>\n<parameter=s>\na"]) == [ToolCall("f", {"s": "a"})]
    assert parse_tool_calls(["<function=f>\n</function>"], [{"name": "f", "parameters": 3}]) == [
        ToolCall("f", {})
    ]


@pytest.mark.parametrize(
    "text",
    [
        "<function=",
        "<function=f>",
        "<parameter=s>",
        "</parameter>",
        "<function=f><parameter=s>\n",
        " ",
    ],
)
def test_parsing_takes_linear_time(text: str) -> None:
    started = time.thread_time()
    parse_tool_calls([f"<function=f><parameter=s>{text * 100_000}"], TOOLS)
    assert time.thread_time() - started < 5  # a quadratic search takes hours
