"""What a session writes into its file beside the engine's state: JSON, checked when it is read.

Knows nothing of engines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtlqwen.conversation import Message
from mtlqwen.errors import FormatError
from mtlqwen.messages import plain_messages, plain_tools
from mtlqwen.sampling import SamplingParams

KIND = "mtlqwen session"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a session says the same way in every turn."""

    tools: list[dict[str, Any]] | None
    sampling: SamplingParams


def write_note(messages: Sequence[Message], settings: Settings) -> str:
    """Return messages and settings as JSON.

    Raises:
        TypeError: they hold something that JSON does not know.
    """
    state = {
        "kind": KIND,
        "version": VERSION,
        "messages": list(messages),
        "tools": settings.tools,
        "sampling": _plain_sampling(settings.sampling.given()),
    }
    try:
        note = json.dumps(state, allow_nan=False)
        if json.loads(note) != _listed(state):
            raise ValueError("a key that is no string")
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"[session] messages: hold what a file cannot keep ({error}); want what JSON knows"
        ) from error
    return note


def read_note(note: str, path: Path) -> tuple[list[Message], Settings]:
    """Return the messages and settings of a note from the file ``path``.

    Raises:
        FormatError: it is not what `write_note` writes.
    """
    try:
        state = json.loads(note, parse_constant=_no_constant)
        _check_keys("note", state, {"kind", "version", "messages", "tools", "sampling"})
        if state["kind"] != KIND:
            raise ValueError(f"no session's (got {state['kind']!r}, want {KIND!r})")
        if type(state["version"]) is not int or state["version"] != VERSION:
            raise ValueError(f"version unknown (got {state['version']!r}, want {VERSION})")
        _check_object("sampling", state["sampling"])
        sampling = SamplingParams(**_whole_sampling(state["sampling"]))
        tools = None if state["tools"] is None else plain_tools(state["tools"])
        messages = plain_messages(state["messages"]) if state["messages"] != [] else []
    except (TypeError, ValueError, RecursionError) as error:
        raise FormatError(
            f"[session] {path}: its note is damaged or not a session's ({error})"
        ) from error
    return messages, Settings(tools=tools, sampling=sampling)


def _plain_sampling(given: dict[str, Any]) -> dict[str, Any]:
    """Return sampling parameters as JSON knows them: it has no infinity, so null forbids."""
    if "logit_bias" not in given:
        return given
    pairs = [(token, None if bias == -math.inf else bias) for token, bias in given["logit_bias"]]
    return given | {"logit_bias": pairs}


def _whole_sampling(plain: dict[str, Any]) -> dict[str, Any]:
    """Return what `_plain_sampling` was given."""
    if not isinstance(plain.get("logit_bias"), list):
        return plain
    pairs = [(token, -math.inf if bias is None else bias) for token, bias in plain["logit_bias"]]
    return plain | {"logit_bias": pairs}


def _check_keys(name: str, value: object, want: set[str]) -> None:
    keys = _check_object(name, value)
    if keys != want:
        raise ValueError(f"{name}: other keys (got {sorted(keys)}, want {sorted(want)})")


def _check_object(name: str, value: object) -> set[str]:
    if not isinstance(value, dict):
        raise TypeError(f"{name}: not an object (got {type(value).__name__})")
    return set(value)


def _listed(value: Any) -> Any:
    """Return ``value`` with its tuples as lists."""
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, (list, tuple)) else value


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no number")
