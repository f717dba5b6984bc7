"""Tokens to pieces: whole characters, no stop string, kinds; whatever arrives at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mtlqwen.result import Kind, Piece, ToolCall
from mtlqwen.stream import StopMatcher, Transcript

THINK, END_THINK, CALL, END_CALL, STOP = 300, 301, 302, 303, 304
MARKS = {THINK: "<think>", END_THINK: "</think>", CALL: "<tool_call>", END_CALL: "</tool_call>"}
MULTI = {400: b"ab", 401: "€".encode()[:2], 402: "€".encode()[2:], 403: b"STOP"}


def token_bytes(token_id: int) -> bytes:
    """A token below 256 is its byte; some have more; marks and the stop token have none."""
    return bytes([token_id]) if token_id < 256 else MULTI.get(token_id, b"")


def read(
    token_ids: Sequence[int],
    *,
    stop: tuple[str, ...] = (),
    chat: bool = False,
    kind: Kind = "text",
    cuts: Sequence[int] = (),
) -> tuple[Transcript, list[Piece]]:
    """Feed tokens cut at some places and return the transcript and its pieces."""
    transcript = Transcript(token_bytes, stop=stop, marks=MARKS if chat else None, kind=kind)
    pieces: list[Piece] = []
    for start, end in pairwise([0, *sorted(cuts), len(token_ids)]):
        pieces += transcript.feed(token_ids[start:end])
    return transcript, pieces + transcript.finish()


def text_of(pieces: list[Piece], kind: Kind = "text") -> str:
    return "".join(piece for piece in pieces if piece.kind == kind)


def test_a_character_is_shown_whole() -> None:
    _, pieces = read(list("a€😀b".encode()))
    assert pieces == ["a", "€", "😀", "b"]
    assert [len(piece.token_ids) for piece in pieces] == [1, 3, 4, 1]


def test_an_unfinished_character_is_replaced_only_at_the_end() -> None:
    transcript = Transcript(token_bytes)
    assert transcript.feed(list("€".encode()[:2])) == []
    assert transcript.finish() == ["\ufffd"]


@given(st.lists(st.integers(0, 255) | st.sampled_from(sorted(MULTI)), max_size=40))
def test_joined_pieces_are_the_text_decoded_at_once(token_ids: list[int]) -> None:
    transcript, pieces = read(token_ids)
    whole = b"".join(map(token_bytes, token_ids)).decode("utf-8", "replace")
    assert "".join(pieces) == whole == transcript.text()


@pytest.mark.parametrize(
    ("text", "stop", "shown"),
    [
        ("hello world", ("wor",), "hello "),
        ("aab", ("ab",), "a"),
        ("ababac", ("abac",), "ab"),
        ("abcd", ("abcd", "c"), "ab"),  # the one that is complete first
        ("xabc", ("bc", "abc"), "x"),  # of two that end together the longer one
        ("hello wo", ("world",), "hello wo"),  # the beginning of a stop string is text
        ("€€", ("€",), ""),
        ("no stop", ("zzz",), "no stop"),
    ],
)
def test_stop_string(text: str, stop: tuple[str, ...], shown: str) -> None:
    transcript, pieces = read(list(text.encode()), stop=stop)
    assert text_of(pieces) == shown
    assert transcript.stopped == (shown != text)


def test_tokens_after_a_stop_string_are_not_taken_in() -> None:
    transcript, pieces = read([97, 403, 98, 99], stop=("TO",))
    assert text_of(pieces) == "aS"
    assert transcript.token_ids == [97, 403]


def test_text_that_may_begin_a_stop_string_is_held_back() -> None:
    matcher = StopMatcher(("stop",))
    assert matcher.feed("a st") == "a "
    assert matcher.feed("o") == ""
    assert matcher.feed("re") == "store"
    assert matcher.flush() == ""
    assert not matcher.stopped


@given(
    st.lists(st.sampled_from([97, 98, 10, *MARKS, *MULTI, STOP]), max_size=30),
    st.lists(st.integers(0, 30), max_size=5),
    st.sampled_from([(), ("ab",), ("b\n", "ba"), ("€",)]),
    st.booleans(),
)
def test_pieces_do_not_depend_on_what_arrives_at_a_time(
    token_ids: list[int], cuts: list[int], stop: tuple[str, ...], chat: bool
) -> None:
    cuts = [cut for cut in cuts if cut <= len(token_ids)]
    one, pieces = read(token_ids, stop=stop, chat=chat)
    other, cut_pieces = read(token_ids, stop=stop, chat=chat, cuts=cuts)
    assert pieces == cut_pieces
    assert [piece.token_ids for piece in pieces] == [piece.token_ids for piece in cut_pieces]
    assert (one.token_ids, one.calls, one.stopped) == (other.token_ids, other.calls, other.stopped)
    for kind in ("text", "reasoning", "tool_call"):
        assert text_of(pieces, kind) == one.text(kind)
    assert all(piece or piece.tool_call for piece in pieces)
    assert [piece.tool_call for piece in pieces if piece.tool_call] == one.calls
    if not chat:
        assert not any(text in one.text() for text in stop)


def test_marks_cut_a_chat_into_kinds() -> None:
    call = b"\n<function=f>\n</function>\n"
    tokens = [*b"why\n", END_THINK, *b"\n\nsays\n\n", CALL, *call, END_CALL, STOP]
    transcript, pieces = read(tokens, chat=True, kind="reasoning")
    assert transcript.text("reasoning") == "why"
    assert transcript.text() == "says"
    assert transcript.calls == [ToolCall("f", {})]
    assert transcript.reasoning_tokens == 5
    assert {piece.kind for piece in pieces} == {"reasoning", "text", "tool_call"}


def test_marks_are_text_without_a_chat() -> None:
    transcript = Transcript(lambda token_id: MARKS[token_id].encode())
    assert transcript.feed([THINK, END_THINK]) == ["<think>", "</think>"]


def test_a_call_inside_reasoning_returns_to_reasoning() -> None:
    tokens = [*b"a", CALL, *b"<function=f>", END_CALL, *b"b", END_THINK, *b"c"]
    transcript, _ = read(tokens, chat=True, kind="reasoning")
    assert transcript.text("reasoning") == "a\nb"
    assert transcript.text() == "c"
    assert transcript.calls == [ToolCall("f", {})]
    assert transcript.reasoning_tokens == 3


def test_calls_without_closing_marks_are_kept() -> None:
    transcript, _ = read([CALL, *b"<function=f>", CALL, *b"<function=g>"], chat=True)
    assert transcript.calls == [ToolCall("f", {}), ToolCall("g", {})]


def test_newlines_around_an_answer_do_not_show_and_inside_do() -> None:
    _, pieces = read(list(b"\n\na\n\nb\n"), chat=True)
    assert text_of(pieces) == "a\n\nb"


def test_a_stop_string_in_a_chat_is_looked_for_in_the_answer_only() -> None:
    tokens = [*b"a\n\nb", END_THINK, *b"\n\nc\n\nd"]
    transcript, _ = read(tokens, chat=True, kind="reasoning", stop=("\n\n",))
    assert transcript.text("reasoning") == "a\n\nb"
    assert transcript.text() == "c"
    assert transcript.stopped
