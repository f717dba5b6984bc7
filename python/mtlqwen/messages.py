"""Messages and tools as callers give them, checked and brought to one form.

Knows nothing of templates and tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from mtlqwen.result import ToolCall

Tools: TypeAlias = Sequence[Mapping[str, Any] | Callable[..., Any]]

ROLES = ("system", "developer", "user", "assistant", "tool")


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
    """Return ``tools`` as a list of function schemas; functions become `Tool`.

    Raises:
        TypeError: it is something else.
        ValueError: a schema has no name.
    """
    if not isinstance(tools, Sequence) or isinstance(tools, (str, bytes)):
        raise TypeError(f"[chat] tools: not a list of JSON schemas (got {type(tools).__name__})")
    listed = [tool if isinstance(tool, Mapping) else _made(tool) for tool in tools]
    for index, tool in enumerate(listed):
        if not isinstance(tool, Mapping):
            raise TypeError(f"[chat] tools[{index}]: not a dict (got {type(tool).__name__})")
        if not isinstance(function_of(tool).get("name"), str):
            raise ValueError(
                f"[chat] tools[{index}]: no name; want "
                '{"type": "function", "function": {"name": ..., "parameters": ...}}'
            )
    return listed


def _made(tool: Any) -> Any:
    """Return a function as a tool."""
    if not callable(tool):
        return tool
    from mtlqwen.tools import Tool

    return Tool(tool)


def function_of(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of the function that ``tool`` holds, or is."""
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
