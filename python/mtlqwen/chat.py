"""Messages to prompt tokens.

How literals in a user's text stay text: before rendering, an invisible guard character goes behind
each ``<`` of every string that users and tools can write, so that nothing in it reads like
``<|im_end|>`` to the template or to the tokenizer. After rendering, the text is cut at the added
tokens that the template itself wrote; only then the guards are taken out of the runs between them,
which are encoded as plain text. In the content of assistant messages only control tokens are
guarded: their ``</think>`` and ``<tool_call>`` are the model's own.
Knows nothing of engines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from mtlqwen.messages import Tools, plain_messages, plain_tools
from mtlqwen.result import Kind
from mtlqwen.stream import MARKS
from mtlqwen.template import ChatTemplate
from mtlqwen.tokenizer import Tokenizer

_PRIVATE_USE = range(0xE000, 0xF8FF)


class ChatFormat:
    """The chat template and the tokenizer of one model, together."""

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        """Pair a template with its tokenizer."""
        self._template = template
        self._tokenizer = tokenizer
        control = [token.literal for token in tokenizer.added.values() if token.control]
        self._control = re.compile("|".join(map(re.escape, control)) or r"(?!)")
        firsts = sorted({literal[0] for literal in tokenizer.added})
        self._first = re.compile("[" + re.escape("".join(firsts)) + "]" if firsts else r"(?!)")
        ids = {mark: tokenizer.token_id(mark) for mark in MARKS}
        self.marks = {token_id: mark for mark, token_id in ids.items() if token_id is not None}
        self._turn = tokenizer.token_id("<|im_start|>")

    def encode(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Tools | None,
        thinking: bool | None,
        options: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Return the prompt's token ids, up to where the assistant begins to write.

        Args:
            messages: what was said.
            tools: schemas of functions.
            thinking: what the template calls ``enable_thinking``.
            options: other variables of the template, such as ``reasoning_effort``.

        Raises:
            TypeError: messages or tools are not of the form that chats have.
            ValueError: they are empty, the template refuses them, or does not know an option.
            ModelError: the template itself fails.
        """
        rendered, guard = self._rendered(messages, tools, thinking, options)
        return self._tokenizer.encode_parts(rendered, lambda run: run.replace(guard, ""))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Tools | None,
        thinking: bool | None,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the prompt's text; what users wrote cannot be told from what the template did."""
        rendered, guard = self._rendered(messages, tools, thinking, options)
        return rendered.replace(guard, "")

    def _rendered(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Tools | None,
        thinking: bool | None,
        options: Mapping[str, Any] | None,
    ) -> tuple[str, str]:
        """Return the text of a prompt with its guards, and the guard."""
        plain = plain_messages(messages)
        listed_tools = None if tools is None else plain_tools(tools)
        guard = self._unused_character((plain, listed_tools))
        variables: dict[str, Any] = {
            "messages": [self._guarded_message(message, guard) for message in plain],
            "tools": self._guarded(listed_tools, guard) or None,
            "documents": None,
            "add_generation_prompt": True,
        }
        if thinking is not None:
            variables["enable_thinking"] = thinking
        for name, value in (options or {}).items():
            if name not in self._template.variables:
                known = ", ".join(sorted(self._template.variables - variables.keys()))
                raise ValueError(
                    f"[chat] {name}: unknown to this model's template (got {value!r}; it reads "
                    f"{known or 'no options'}); leave it out"
                )
            variables[name] = value
        return self._template.render(variables), guard

    def shared_prefix(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Tools | None,
        thinking: bool | None,
        options: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Return the tokens that the next prompt of a conversation begins with, whatever is said.

        What is said next decides how templates render the answers before it: after a call they
        expect a tool's result, else a user.
        """
        called = bool(messages) and bool(messages[-1].get("tool_calls"))
        said = [] if called else [{"role": "user", "content": "."}]
        token_ids = self.encode([*messages, *said], tools, thinking, options)
        ends = [0, 0, *self.boundaries(token_ids)]
        return token_ids[: ends[-1] if called else ends[-2]]

    def boundaries(self, token_ids: Sequence[int]) -> list[int]:
        """Return the positions of an encoded prompt where another prompt may part from it.

        Those before each ``<|im_start|>`` but the first: the ends of system and tools, and of every
        message up to the generation prompt, behind which a later prompt says something else. An
        added token ends a run of BPE, so what stands before it is encoded alike in every prompt
        that begins with the same turns. The template wrote them all, for users cannot; one that
        writes none gives no positions.
        """
        turn = self._turn
        return [at for at, token_id in enumerate(token_ids) if token_id == turn and at > 0]

    def open_kind(self, token_ids: Sequence[int]) -> Kind:
        """Return the kind of text that a prompt leaves open: reasoning inside ``<think>``."""
        for token_id in reversed(token_ids):
            mark = self.marks.get(token_id)
            if mark in ("<think>", "</think>"):
                return "reasoning" if mark == "<think>" else "text"
            if token_id == self._turn:
                break
        return "text"

    @cached_property
    def closing(self) -> tuple[int, ...]:
        """The tokens between reasoning and answer: what ends it first."""
        return tuple(self._tokenizer.encode("</think>\n\n"))

    def thinking_budget(
        self, token_ids: Sequence[int], n_tokens: int
    ) -> tuple[int, int, list[int]]:
        """Return ``n_tokens`` of reasoning, the token that ends it, and the ids that cut it off.

        Raises:
            ValueError: the prompt in ``token_ids`` does not open ``<think>``, so that nobody knows
                what of the answer will be reasoning.
        """
        end = self._tokenizer.token_id("</think>")
        if end is None or self.open_kind(token_ids) != "reasoning":
            raise ValueError(
                "[sampling] thinking: a budget is only for models whose template opens <think> "
                f"(got {n_tokens} tokens, want True or False)"
            )
        return n_tokens, end, self._tokenizer.encode("\n</think>\n\n")

    def _unused_character(self, value: object) -> str:
        used = set(self._template.source).union(*_texts(value))
        for code in _PRIVATE_USE:
            if chr(code) not in used:
                return chr(code)
        raise ValueError(
            "[chat] messages: every private-use character of Unicode's first plane is in use; "
            "leave one of U+E000 to U+F8FF out"
        )

    def _guarded_message(self, message: dict[str, Any], guard: str) -> dict[str, Any]:
        mine = ("content", "reasoning_content") if message["role"] == "assistant" else ()
        return {
            key: self._guarded(value, guard, self._control if key in mine else self._first)
            for key, value in message.items()
        }

    def _guarded(self, value: Any, guard: str, pattern: re.Pattern[str] | None = None) -> Any:
        """Return ``value`` with a guard behind the first character of each match in its strings."""
        pattern = pattern or self._first
        if isinstance(value, str):
            return pattern.sub(lambda match: match[0][0] + guard + match[0][1:], value)
        if isinstance(value, dict):
            return {
                self._guarded(key, guard, pattern): self._guarded(item, guard, pattern)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._guarded(item, guard, pattern) for item in value]
        return value


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
