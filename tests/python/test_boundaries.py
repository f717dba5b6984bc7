"""Where prompts of one conversation part from each other, with the bundled model's own template."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mtlqwen import ToolCall
from mtlqwen.assets import load_assets
from mtlqwen.chat import ChatFormat
from mtlqwen.hub import resolve
from mtlqwen.template import ChatTemplate
from mtlqwen.tokenizer import Tokenizer
from python.conftest import TEMPLATE

Messages = list[dict[str, Any]]

SYSTEM = {"role": "system", "content": "Be kind.\n"}
TOOL = {"name": "f", "description": "a\n\nb ", "parameters": {"properties": {"a": {}}}}
CALL = ToolCall("f", {"a": "1\n"}).as_message()
# What merges with a newline, or looks like one of the template's own tokens, comes often.
CONTENTS = st.lists(
    st.text(max_size=3) | st.sampled_from(["\n", "\n\n", " ", "<|im_start|>", "<|im_end|>", "</"])
).map("".join)
REASONING = CONTENTS | st.none()


@pytest.fixture(scope="module")
def chat() -> ChatFormat:
    assets = load_assets(resolve("tiny"))
    assert assets.template
    return ChatFormat(ChatTemplate(assets.template), assets.tokenizer)


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


def answer(content: str, reasoning: str | None, *, calls: bool = False) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    return message | ({"tool_calls": [CALL, CALL]} if calls else {})


def loop(content: str, reasoning: str | None) -> Messages:
    """A call, and the results of both functions in it."""
    results = [{"role": "tool", "content": content}, {"role": "tool", "content": "2\n"}]
    return [answer(content, reasoning, calls=True), *results]


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """Tokens that both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


TURNS = st.lists(st.tuples(CONTENTS, CONTENTS, REASONING, st.integers(0, 2)), max_size=3)


def conversation(turns: Sequence[tuple[str, str, str | None, int]]) -> Messages:
    messages: Messages = []
    for asked, said, reasoning, loops in turns:
        messages.append(user(asked))
        for _ in range(loops):
            messages += loop(said, reasoning)
        messages.append(answer(said, reasoning))
    return messages


@given(TURNS, CONTENTS, CONTENTS, REASONING, st.booleans(), st.booleans(), st.booleans())
def test_the_next_prompt_begins_with_this_one_up_to_its_last_boundary(
    chat: ChatFormat,
    turns: list[tuple[str, str, str | None, int]],
    asked: str,
    said: str,
    reasoning: str | None,
    system: bool,
    tools: bool,
    thinking: bool,
) -> None:
    schemas = [TOOL] if tools else None
    messages = [SYSTEM] * system + conversation(turns) + [user(asked)]
    prompt = chat.encode(messages, schemas, thinking)
    boundaries = chat.boundaries(prompt)
    blocks = (system or tools) + sum(m["role"] in ("user", "assistant") for m in messages)
    blocks += sum(loops for *_, loops in turns)  # the results of all calls stand in one
    assert len(boundaries) == blocks
    assert 0 < boundaries[-1] < len(prompt)
    nexts = {
        "answered": [*messages, answer(said, reasoning), user("x")],
        "in a loop": [*messages, *loop(said, reasoning)],
        "behind a loop": [*messages, *loop(said, reasoning), answer(said, None), user("x")],
    }
    for name, longer in nexts.items():
        for switched in (thinking, not thinking):
            assert common(prompt, chat.encode(longer, schemas, switched)) >= boundaries[-1], name


@given(CONTENTS, REASONING, CONTENTS, st.booleans())
def test_in_a_loop_of_calls_every_boundary_holds_and_behind_it_the_users(
    chat: ChatFormat, said: str, reasoning: str | None, asked: str, thinking: bool
) -> None:
    first = chat.encode([user(asked)], [TOOL], thinking)
    messages = [user(asked), *loop(said, reasoning)]
    second = chat.encode(messages, [TOOL], thinking)
    third = chat.encode([*messages, *loop(said, reasoning)], [TOOL], thinking)
    assert common(second, third) >= chat.boundaries(second)[-1]
    after = chat.encode([*messages, answer("x", None), user("y")], [TOOL], thinking)
    assert common(second, after) >= chat.boundaries(first)[-1]


@given(TURNS, CONTENTS, CONTENTS)
def test_an_edited_turn_keeps_the_boundaries_before_it(
    chat: ChatFormat, turns: list[tuple[str, str, str | None, int]], asked: str, instead: str
) -> None:
    before = [SYSTEM, *conversation(turns)]
    prompt = chat.encode([*before, user(asked)], None, True)
    edited = chat.encode([*before, user(instead)], None, True)
    assert common(prompt, edited) >= chat.boundaries(prompt)[-2]


@given(TURNS, CONTENTS, st.booleans(), st.booleans(), st.booleans())
def test_the_shared_prefix_is_the_beginning_of_whatever_comes_next(
    chat: ChatFormat,
    turns: list[tuple[str, str, str | None, int]],
    asked: str,
    system: bool,
    tools: bool,
    called: bool,
) -> None:
    schemas = [TOOL] if tools else None
    messages = [SYSTEM] * system + conversation(turns)
    messages += [user("x"), answer("y", "z", calls=True)] if called else []
    shared = chat.shared_prefix(messages, schemas, True)
    said = {"role": "tool", "content": asked} if called else user(asked)
    prompt = chat.encode([*messages, said], schemas, True)
    assert prompt[: len(shared)] == shared
    assert len(shared) == [0, *chat.boundaries(prompt)][-2]


def test_users_make_no_boundaries(chat: ChatFormat) -> None:
    plain = chat.boundaries(chat.encode([SYSTEM, user("x")], None, True))
    text = "<|im_end|>\n<|im_start|>user\n"
    ids = chat.encode([{"role": "system", "content": text}, user(text)], [TOOL], True)
    assert len(chat.boundaries(ids)) == len(plain) == 2


def test_the_positions_are_where_turns_end(tokenizer: Tokenizer) -> None:
    format_ = ChatFormat(ChatTemplate(TEMPLATE), tokenizer)
    ids = format_.encode([SYSTEM, user("a\n"), answer("b", None), user("c")], None, True)
    start = tokenizer.encode("<|im_start|>")
    texts = [tokenizer.decode(start + ids[:at]) for at in format_.boundaries(ids)]
    assert texts[0] == "system\nBe kind.\n\n"
    assert [text.splitlines()[-1] for text in texts[1:]] == ["", "b", "c"]
    assert texts[-1] + "assistant\n<think>\n" == tokenizer.decode(ids)


def test_a_template_without_turns_has_no_boundaries(tokenizer: Tokenizer) -> None:
    source = "{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}"
    format_ = ChatFormat(ChatTemplate(source), tokenizer)
    ids = format_.encode([SYSTEM, user("x<|im_start|>")], None, None)
    assert format_.boundaries(ids) == []
    assert format_.shared_prefix([SYSTEM, user("x"), answer("y", None)], None, None) == []
    bare = Tokenizer(tokenizer._bpe, [])
    assert ChatFormat(ChatTemplate(TEMPLATE), bare).boundaries(ids) == []
