"""Answers cut into text, reasoning and calls, whatever models forget, repeat or write about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long import draws
from mtlqwen import ToolCall
from mtlqwen.result import Kind, Piece
from mtlqwen.stream import Transcript
from mtlqwen.tool_calls import CallTypes

MARKS = {300: "<think>", 301: "</think>", 302: "<tool_call>", 303: "</tool_call>"}
IDS = {mark: token_id for token_id, mark in MARKS.items()}
TOOLS = [
    {
        "name": name,
        "parameters": {"properties": {"s": {"type": "string"}, "i": {"type": "integer"}}},
    }
    for name in ("f", "g")
]


class Read(NamedTuple):
    """What an answer was read as; calls as JSON, with their names."""

    text: str
    reasoning: str
    calls: list[Any]


def tokens_of(text: str) -> list[str]:
    """Cut a text into marks and characters."""
    found: list[str] = []
    while text:
        mark = next((mark for mark in IDS if text.startswith(mark)), text[0])
        found.append(mark)
        text = text[len(mark) :]
    return found


def read_tokens(
    tokens: Sequence[str], kind: Kind = "text", tools: Any = TOOLS
) -> tuple[Read, list[Piece]]:
    """Feed tokens: marks are tokens of their own, all else is text."""
    texts = dict(enumerate(tokens, 1000))
    transcript = Transcript(
        lambda token_id: texts[token_id].encode() if token_id in texts else b"",
        marks=MARKS,
        kind=kind,
        types=CallTypes(tools),
    )
    ids = [IDS.get(token, token_id) for token_id, token in texts.items()]
    pieces = [piece for token_id in ids for piece in transcript.feed([token_id])]
    pieces += transcript.finish()
    for one in ("text", "reasoning", "tool_call"):
        assert "".join(piece for piece in pieces if piece.kind == one) == transcript.text(one)
    assert [piece.tool_call for piece in pieces if piece.tool_call] == transcript.calls
    calls = [[call.name, call.arguments] for call in transcript.calls]
    return Read(transcript.text(), transcript.text("reasoning"), calls), pieces


def read(text: str, kind: Kind = "text", tools: Any = TOOLS) -> Read:
    return read_tokens(tokens_of(text), kind, tools)[0]


def block(name: str, body: str) -> str:
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def argument(key: str, value: object) -> str:
    return f"<parameter={key}>\n{value}\n</parameter>\n"


F = block("f", argument("s", "02134") + argument("i", 7))
G = block("g", argument("s", "x"))
CALLED_F = ["f", {"s": "02134", "i": 7}]
CALLED_G = ["g", {"s": "x"}]
EXAMPLE = f"Write:\n{G}\nand see."
CODE = f"```xml\n{F}\n```"

CASES: list[tuple[str, str, Read]] = [
    ("a call", f"I look.\n\n{F}", Read("I look.", "", [CALLED_F])),
    ("calls", f"{F}\n{G}", Read("", "", [CALLED_F, CALLED_G])),
    ("text between", f"{F}\nand\n{G}\nthen", Read("and\nthen", "", [CALLED_F, CALLED_G])),
    (
        "two functions in a block",
        "<tool_call><function=f></function>\n<function=g></function></tool_call>",
        Read("", "", [["f", {}], ["g", {}]]),
    ),
    ("no end of the block", F.removesuffix("</tool_call>"), Read("", "", [CALLED_F])),
    ("no ends", F.removesuffix("</tool_call>") + G, Read("", "", [CALLED_F, CALLED_G])),
    (
        "no end of the function",
        "<tool_call><function=f>\n<parameter=s>\na\n</parameter>\n</tool_call>\nb",
        Read("b", "", [["f", {"s": "a"}]]),
    ),
    (
        "no end of the first function",
        "<tool_call><function=f><parameter=s>a</parameter><function=g></function></tool_call>",
        Read("", "", [["f", {"s": "a"}], ["g", {}]]),
    ),
    (
        "no end of an argument",
        "<tool_call>\n<function=f>\n<parameter=s>\na\n<parameter=i>\n1\n</parameter>\n</function>",
        Read("", "", [["f", {"s": "a", "i": 1}]]),
    ),
    (
        "no end of the last argument",
        f"<tool_call>\n<function=f>\n<parameter=s>\na\n</function>\n</tool_call>\n{G}\nb",
        Read("b", "", [["f", {"s": "a"}], CALLED_G]),
    ),
    (
        "no end of it, and another function",
        "<tool_call><function=f><parameter=s>\na\n</function>\n<function=g>\n</function></tool_call>",
        Read("", "", [["f", {"s": "a"}], ["g", {}]]),
    ),
    (
        "no end of anything",
        f"<tool_call>\n<function=f>\n<parameter=s>\na\n{G}",
        Read("", "", [["f", {"s": "a"}], CALLED_G]),
    ),
    (
        "cut in a value",
        "<tool_call><function=f><parameter=s>\na",
        Read("", "", [["f", {"s": "a"}]]),
    ),
    (
        "cut in its end",
        "<tool_call><function=f><parameter=s>\na\n</param",
        Read("", "", [["f", {"s": "a"}]]),
    ),
    ("cut in a name", "a\n<tool_call>\n<function=f", Read("a", "", [])),
    ("cut before it", "a\n<tool_call>\n", Read("a", "", [])),
    ("two beginnings", f"<tool_call>\n{F}", Read("", "", [CALLED_F])),
    ("two ends", f"{F}\n</tool_call>\nb", Read("b", "", [CALLED_F])),
    ("more ends", F.replace("</function>", "</function></function>"), Read("", "", [CALLED_F])),
    ("no beginning", F.removeprefix("<tool_call>\n"), Read("", "", [CALLED_F])),
    (
        "no beginning, behind text",
        "Well.\n" + F.removeprefix("<tool_call>\n"),
        Read("Well.", "", [CALLED_F]),
    ),
    (
        "an unknown function without a beginning is text",
        "<function=h></function>",
        Read("<function=h></function>", "", []),
    ),
    ("an unknown function", block("h", argument("s", 1)), Read("", "", [["h", {"s": "1"}]])),
    (
        "JSON",
        '<tool_call>\n{"name": "f", "arguments": {"s": "a", "i": 1}}\n</tool_call>\nb',
        Read("b", "", [["f", {"s": "a", "i": 1}]]),
    ),
    (
        "JSON with a mark",
        '<tool_call>{"name": "f", "arguments": {"s": "</tool_call>"}}</tool_call>',
        Read("", "", [["f", {"s": "</tool_call>"}]]),
    ),
    (
        "broken JSON",
        '<tool_call>{"name": "f", "arguments": {"s": </tool_call>b',
        Read("b", "", [["f", {}]]),
    ),
    ("JSON of something else", '<tool_call>{"a": 1}', Read('<tool_call>{"a": 1}', "", [])),
    (
        "a mark as a value",
        block("f", argument("s", "</tool_call>")),
        Read("", "", [["f", {"s": "</tool_call>"}]]),
    ),
    (
        "marks as a value",
        block("f", argument("s", "<think>a</think><tool_call></tool_call>b")) + "\nc",
        Read("c", "", [["f", {"s": "<think>a</think><tool_call></tool_call>b"}]]),
    ),
    (
        "tags in a value",
        block("f", argument("s", "a </parameter> b </function> <parameter=x> c")),
        Read("", "", [["f", {"s": "a </parameter> b </function> <parameter=x> c"}]]),
    ),
    (
        "a whole call in a value",
        block("f", argument("s", EXAMPLE) + argument("i", 1)) + "\nb",
        Read("b", "", [["f", {"s": EXAMPLE, "i": 1}]]),
    ),
    (
        "a call in a value, then another call",
        block("f", argument("s", EXAMPLE)) + G,
        Read("", "", [["f", {"s": EXAMPLE}], CALLED_G]),
    ),
    ("a call in a code block", f"So:\n{CODE}\nSee?", Read(f"So:\n{CODE}\nSee?", "", [])),
    ("a call behind one", f"{CODE}\n{G}", Read(CODE, "", [CALLED_G])),
    ("a call in one that stays open", f"```\n{F}\n{G}", Read("```", "", [CALLED_F, CALLED_G])),
    ("a call in tildes", f"~~~\n{F}\n```\n~~~\nb", Read(f"~~~\n{F}\n```\n~~~\nb", "", [])),
    (
        "a call in a line of code",
        "Write `<tool_call><function=f>` first.",
        Read("Write `<tool_call><function=f>` first.", "", []),
    ),
    ("a call behind code", f"I use `f`.{F}", Read("I use `f`.", "", [CALLED_F])),
    (
        "marks in prose",
        "The <think> and <tool_call> tags, `</think>` and </tool_call> too.",
        Read("The <think> and <tool_call> tags, `</think>` and </tool_call> too.", "", []),
    ),
    (
        "marks in a code block",
        "```\n<think>\n</think>\n<tool_call>\n</tool_call>\n```",
        Read("```\n<think>\n</think>\n<tool_call>\n</tool_call>\n```", "", []),
    ),
    ("ends of nothing", "</think>\n\na\n</tool_call>\nb", Read("a\nb", "", [])),
    ("reasoning of its own", "<think>\na\n</think>\n\nb", Read("b", "a", [])),
    ("reasoning again", "a\n<think>b</think>\nc", Read("a\nc", "b", [])),
    ("a comparison", "1 < 2, a <b> and </c>", Read("1 < 2, a <b> and </c>", "", [])),
    ("cut in a tag", "a\n<func", Read("a\n<func", "", [])),
]
REASONING: list[tuple[str, str, Read]] = [
    ("an end", "a\n</think>\n\nb", Read("b", "a", [])),
    ("no end", "a", Read("", "a", [])),
    ("a beginning again", "<think>\na</think>b", Read("b", "a", [])),
    ("a call", f"a\n{F}\n</think>\n\nb", Read("b", "a", [CALLED_F])),
    ("a call, and no end", f"a\n{F}\n{G}", Read("", "a", [CALLED_F, CALLED_G])),
    ("a call on both sides", f"{F}\na</think>{G}", Read("", "a", [CALLED_F, CALLED_G])),
    (
        "a call that ends with it",
        F.removesuffix("\n</tool_call>") + "</think>b",
        Read("b", "", [CALLED_F]),
    ),
    (
        "a call whose value is not ended",
        "<tool_call><function=f><parameter=s>\na</tool_call>\n</think>\nb",
        Read("b", "", [["f", {"s": "a"}]]),
    ),
    (
        "tags that are thought about",
        "The `</think>` or '</think>' tag, <tool_call> or <think>.</think>b",
        Read("b", "The `</think>` or '</think>' tag, <tool_call> or <think>.", []),
    ),
    ("an end behind code", "Use `f`</think>b", Read("b", "Use `f`", [])),
    ("an end in a code block", "```\na\n</think>\nb", Read("b", "```\na", [])),
    ("a call that is thought about", f"{CODE}</think>b", Read("b", CODE, [])),
    (
        "a function without a beginning",
        f"<function=f></function>\n</think>\n{G}",
        Read("", "<function=f></function>", [CALLED_G]),
    ),
]


@pytest.mark.parametrize(("_name", "text", "want"), CASES, ids=[case[0] for case in CASES])
def test_answers(_name: str, text: str, want: Read) -> None:
    assert read(text) == want


@pytest.mark.parametrize(("_name", "text", "want"), REASONING, ids=[c[0] for c in REASONING])
def test_answers_that_begin_with_reasoning(_name: str, text: str, want: Read) -> None:
    assert read(text, "reasoning") == want


def test_a_call_is_there_as_soon_as_it_is_complete() -> None:
    _, pieces = read_tokens([*tokens_of(F), *"\n\nand more"])
    at = next(at for at, piece in enumerate(pieces) if piece.tool_call)
    assert pieces[at].strip() == "</function>"
    assert pieces[at].tool_call == ToolCall("f", {"s": "02134", "i": 7})
    assert "".join(pieces[at + 1 :]).strip() == "and more"


def test_text_is_not_held_back_without_need() -> None:
    _, pieces = read_tokens(["Is 1 ", "<", " 2? ", "Yes."])
    assert pieces == ["Is 1 ", "< 2? ", "Yes."]
    _, pieces = read_tokens(["a<", "b"], tools=None)  # no call begins without a mark then
    assert pieces == ["a<", "b"]


def test_tokens_count_as_the_reasoning_they_are() -> None:
    def count(text: str) -> int:
        transcript = Transcript(lambda token: bytes([token]), marks=MARKS, kind="reasoning")
        transcript.feed([IDS.get(token) or ord(token) for token in tokens_of(text)])
        transcript.finish()
        return transcript.reasoning_tokens

    assert count("ab</think>cd") == count("a`</think>\n") == 3
    assert count("'</think>'") == 3
    assert count("a<tool_call>b") == 3
    assert count("a<tool_call><function=f>") == 1


# Reading them a character at a time is slow.
DRAWN = settings(max_examples=draws(100, 2000))
SOUP = st.lists(
    st.sampled_from(
        [
            *IDS,
            *("<function=f>", "<function=h>", "</function>", "</parameter>", '{"name":'),
            *("<parameter=s>", "<parameter=i>", "\n", "\n\n", " ", "a", "1", "`", "```", "'", "<"),
        ]
    ),
    max_size=24,
).map("".join)
TEXT = SOUP | st.sampled_from([text for _, text, _ in CASES + REASONING])


@DRAWN
@given(TEXT, st.sampled_from(["text", "reasoning"]), st.lists(st.integers(0, 400), max_size=12))
def test_parts_do_not_depend_on_how_the_text_is_cut(text: str, kind: Kind, cuts: list[int]) -> None:
    characters = tokens_of(text)
    tokens: list[str] = []
    for start, end in pairwise(sorted({0, *cuts, len(characters)})):
        run = ""
        for token in characters[start:end]:
            if token in IDS:
                tokens += [run] * bool(run) + [token]
                run = ""
            else:
                run += token
        tokens += [run] * bool(run)
    answer = read(text, kind)
    assert read_tokens(tokens, kind)[0] == answer
    assert json.loads(json.dumps(answer.calls)) == answer.calls


VALUE = st.text(alphabet="ab\n <>/1é`", max_size=12) | SOUP.filter(
    lambda text: not any(tag in text for tag in ("tool_call>", "<function=", "</", "<parameter=i"))
)


@DRAWN
@given(st.lists(st.tuples(st.sampled_from("fg"), VALUE, st.integers()), max_size=3), st.booleans())
def test_calls_are_read_as_templates_write_them(
    calls: list[tuple[str, str, int]], reasons: bool
) -> None:
    blocks = [block(name, argument("s", s) + argument("i", i)) for name, s, i in calls]
    text = "\n".join(["First.", *blocks])
    answer = read(
        f"thought\n</think>\n\n{text}" if reasons else text, "reasoning" if reasons else "text"
    )
    assert answer == Read(
        "First.", "thought" * reasons, [[name, {"s": s, "i": i}] for name, s, i in calls]
    )


@DRAWN
@given(st.text(alphabet='ab\n <>/`{"', max_size=30), st.sampled_from(["text", "reasoning"]))
def test_text_without_tags_stays_as_it_is(text: str, kind: Kind) -> None:
    answer = read(text, kind)
    assert (answer.text or answer.reasoning) == text.strip("\n")
    assert answer.calls == []
