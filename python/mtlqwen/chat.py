"""Messages to prompt tokens, and generated tool calls to Python values.

How literals in a user's text stay text: before rendering, an invisible guard character goes behind
each ``<`` of every string that users and tools can write, so that nothing in it reads like
``<|im_end|>`` to the template or to the tokenizer. After rendering, the text is cut at the added
tokens that the template itself wrote; only then the guards are taken out of the runs between them,
which are encoded as plain text. In the content of assistant messages only control tokens are
guarded: their ``</think>`` and ``<tool_call>`` are the model's own.
Knows nothing of engines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from mtlqwen.result import Kind, ToolCall
from mtlqwen.stream import MARKS
from mtlqwen.template import ChatTemplate
from mtlqwen.tokenizer import Tokenizer

ROLES = ("system", "developer", "user", "assistant", "tool")
_PRIVATE_USE = range(0xE000, 0xF8FF)
_MAX_STEPS = 8  # from one schema to another, in a tool's


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
        tools: Sequence[Mapping[str, Any]] | None,
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
        tools: Sequence[Mapping[str, Any]] | None,
        thinking: bool | None,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the prompt's text; what users wrote cannot be told from what the template did."""
        rendered, guard = self._rendered(messages, tools, thinking, options)
        return rendered.replace(guard, "")

    def _rendered(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
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
        tools: Sequence[Mapping[str, Any]] | None,
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


def plain_messages(messages: object) -> list[dict[str, Any]]:
    """Return a deep copy of ``messages`` made of dicts, lists and what they hold.

    Raises:
        TypeError, ValueError: they are not of the form that chats have.
    """
    return [_checked(index, message) for index, message in enumerate(_listed(messages))]


def plain_tools(tools: object) -> list[dict[str, Any]]:
    """Return a deep copy of ``tools``; raises as `check_tools`."""
    return [_plain(tool) for tool in check_tools(tools)]


def check_tools(tools: object) -> list[Mapping[str, Any]]:
    """Return ``tools`` as a list of function schemas.

    Raises:
        TypeError: it is something else.
        ValueError: a schema has no name.
    """
    if not isinstance(tools, Sequence) or isinstance(tools, (str, bytes)):
        raise TypeError(f"[chat] tools: not a list of JSON schemas (got {type(tools).__name__})")
    for index, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise TypeError(f"[chat] tools[{index}]: not a dict (got {type(tool).__name__})")
        if not isinstance(_function(tool).get("name"), str):
            raise ValueError(
                f"[chat] tools[{index}]: no name; want "
                '{"type": "function", "function": {"name": ..., "parameters": ...}}'
            )
    return list(tools)


def parse_tool_calls(
    texts: Iterable[str], tools: Sequence[Mapping[str, Any]] | None = None
) -> list[ToolCall]:
    """Return the calls in the texts between ``<tool_call>`` and ``</tool_call>``.

    Args:
        texts: what the model wrote between the two marks, one text for each pair.
        tools: schemas that type the arguments; without one an argument stays a string.

    Example:
        >>> parse_tool_calls(["<function=add><parameter=a>1</parameter></function>"])
        [ToolCall(name='add', arguments={'a': '1'})]
    """
    schemas = {_function(tool)["name"]: _function(tool) for tool in tools or ()}
    calls = []
    for text in texts:
        for name, body in _FUNCTION.findall(text):
            parameters = schemas.get(name, {}).get("parameters")
            properties = _mapping(_mapping(parameters).get("properties"))
            arguments = {
                key: _typed(value, kinds_of(properties.get(key), parameters))
                for key, value in _parameters(body)
            }
            calls.append(ToolCall(name, arguments))
    return calls


# Names are bounded, and every search begins where the last one ended: the time stays linear in the
# text, whatever a model writes.
_FUNCTION = re.compile(
    r"<function=([^>\n]{1,256})>(.*?)(?:</function>\s*(?=<function=|\Z)|\Z)", re.DOTALL
)
_PARAMETER = re.compile(r"<parameter=([^>\n]{1,256})>")
# A closing tag inside a value is not the end of it.
_VALUE_END = re.compile(r"</parameter>(?=\s*(?:<parameter=|</function>|\Z))")


def _parameters(body: str) -> Iterable[tuple[str, str]]:
    """Yield the name and the text of each parameter; the last one may lack its closing tag."""
    start = _PARAMETER.search(body)
    while start:
        end = _VALUE_END.search(body, start.end())
        value = body[start.end() : end.start() if end else len(body)]
        # One newline on each side belongs to the tags.
        yield start[1], value.removeprefix("\n").removesuffix("\n")
        start = _PARAMETER.search(body, end.end()) if end else None


def _typed(text: str, kinds: Collection[object]) -> Any:
    """Return a parameter's text as one of the types that its schema names, else as it is."""
    if "null" in kinds and text == "null":
        return None
    if "string" in kinds or not kinds:
        return text
    if "boolean" in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return text
    if "integer" in kinds and isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if any(_is_kind(value, name) for name in kinds) else text


def resolved(schema: object, root: object) -> Mapping[str, Any]:
    """Return a schema, or the one in ``root`` that it refers to."""
    for _ in range(_MAX_STEPS):
        name = _mapping(schema).get("$ref")
        if not isinstance(name, str):
            break
        schema = root
        for part in name.removeprefix("#/").split("/"):
            schema = _mapping(schema).get(part.replace("~1", "/").replace("~0", "~"))
    return _mapping(schema)


def kinds_of(schema: object, root: object) -> list[object]:
    """Return the types of JSON values that a schema in ``root`` names; none: it names none."""
    kinds: list[object] = []
    todo = [schema]
    seen: set[int] = set()
    while todo:
        part = resolved(todo.pop(), root)
        if id(part) in seen:
            continue
        seen.add(id(part))
        kind = part.get("type")
        values = part.get("enum", [part["const"]] if "const" in part else None)
        branches = part.get("anyOf", part.get("oneOf"))
        if kind is not None:
            kinds += kind if isinstance(kind, list) else [kind]
        elif isinstance(values, list):
            kinds += map(_kind_of_value, values)
        elif isinstance(branches, list):
            todo += branches
        else:
            return []  # anything fits
    return kinds


def _kind_of_value(value: object) -> str:
    return next((name for name in _TYPES if _is_kind(value, name)), "string")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


_TYPES: dict[str, type | tuple[type, ...]] = {
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def _is_kind(value: object, kind: object) -> bool:
    if isinstance(value, bool) and kind != "boolean":
        return False
    return isinstance(kind, str) and kind in _TYPES and isinstance(value, _TYPES[kind])


def _no_constant(word: str) -> None:
    raise ValueError(word)


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function", tool)
    return function if isinstance(function, Mapping) else {}


def _listed(messages: object) -> list[Any]:
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise TypeError(f"[chat] messages: not a list of dicts (got {type(messages).__name__})")
    if not messages:
        raise ValueError('[chat] messages: empty; want at least {"role": "user", "content": ...}')
    return list(messages)


def _checked(index: int, message: object) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise TypeError(f"[chat] messages[{index}]: not a dict (got {type(message).__name__})")
    if message.get("role") not in ROLES:
        got, want = message.get("role"), ", ".join(ROLES)
        raise ValueError(f"[chat] messages[{index}]: unknown role (got {got!r}, want {want})")
    if not isinstance(message.get("content", ""), (str, Sequence, type(None))):
        got = type(message["content"]).__name__
        raise TypeError(f"[chat] messages[{index}]: content is no string (got {got})")
    plain: dict[str, Any] = _plain(message)
    _check_parts(index, plain.get("content"))
    calls = plain.get("tool_calls") or []
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise TypeError(f"[chat] messages[{index}]: tool_calls are no list of calls")
    for call in calls:
        _parse_arguments(index, call)
    return plain


def _check_parts(index: int, content: object) -> None:
    """Refuse what no text is: templates would write a place for it that nothing fills."""
    for part in content if isinstance(content, list) else ():
        kind = part.get("type", "text") if isinstance(part, dict) else "text"
        if kind != "text" or (isinstance(part, dict) and not isinstance(part.get("text"), str)):
            raise ValueError(
                f"[chat] messages[{index}]: a part of the content is no text (got {kind!r}, want "
                '{"type": "text", "text": ...}); pictures and sounds cannot be read'
            )


def _parse_arguments(index: int, call: dict[str, Any]) -> None:
    """Turn arguments that came as JSON text into a dict: templates want that."""
    function = call.get("function", call)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ValueError(f"[chat] messages[{index}]: a tool call has no name (got {call!r:.80})")
    given = function.get("arguments") or {}
    try:
        arguments = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise ValueError(
            f"[chat] messages[{index}]: arguments of {function['name']} are no JSON object (got "
            f"{given!r:.80})"
        )
    function["arguments"] = arguments


def _plain(value: Any) -> Any:
    """Return a deep copy made of dicts, lists and what they hold."""
    if isinstance(value, ToolCall):
        return _plain(value.as_message())
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
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
