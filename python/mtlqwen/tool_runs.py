"""Runs the tools that a turn calls, and makes messages of what they return.

What goes wrong in a tool is an answer to the model, which can try again. Knows nothing of engines.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from mtlqwen.messages import check_tools
from mtlqwen.result import ToolCall
from mtlqwen.tools import Tool


class ToolRuns:
    """The tools of one chat that runs them itself."""

    def __init__(self, tools: Sequence[Mapping[str, Any] | Callable[..., Any]] | None) -> None:
        """Take the tools.

        Raises:
            TypeError, ValueError: there are none, or one of them is a schema without a function.
        """
        self._tools: dict[str, Tool] = {}
        for index, one in enumerate(check_tools(tools or [])):
            if not isinstance(one, Tool):
                raise ValueError(
                    f"[chat] run_tools: tools[{index}] is a schema, and nothing can be run for it; "
                    "give a function, or call it yourself without run_tools"
                )
            self._tools[one.name] = one
        if not self._tools:
            raise ValueError("[chat] run_tools: no tools (want functions in tools=)")

    @property
    def tools(self) -> list[Tool]:
        """The tools; so that no round makes them anew from functions."""
        return list(self._tools.values())

    def run(self, calls: Sequence[ToolCall]) -> list[str]:
        """Run calls, one after the other; asynchronous tools together, in a loop of their own.

        Raises:
            RuntimeError: a tool is asynchronous, and this thread has a running loop.
        """
        results = [self._start(call) for call in calls]
        if not any(map(inspect.isawaitable, results)):
            return [_told(result) for result in results]
        import asyncio

        whole = _gather(results)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(whole)
        whole.close()
        for result in results:
            if inspect.iscoroutine(result):
                result.close()
        raise RuntimeError(
            "[chat] run_tools: an asynchronous tool in a thread whose event loop runs; use achat "
            "or astream"
        )

    async def arun(self, calls: Sequence[ToolCall]) -> list[str]:
        """Run calls together: asynchronous tools in this loop, others in threads."""
        import asyncio

        async def start(call: ToolCall) -> object:
            one = self._tools.get(call.name)
            if one is None or inspect.iscoroutinefunction(one.function):
                return self._start(call)
            return await asyncio.to_thread(self._start, call)

        return await _gather([start(call) for call in calls])

    def _start(self, call: ToolCall) -> object:
        """Return what a tool returns, something to await, or the words for its error."""
        one = self._tools.get(call.name)
        if one is None:
            return f"error: no such tool (got {call.name}, want {', '.join(self._tools)})"
        try:
            return one.run(call.arguments)
        except Exception as error:
            return error_text(error)


async def _gather(results: Sequence[object]) -> list[str]:
    import asyncio

    async def end(result: object) -> str:
        try:
            while inspect.isawaitable(result):
                result = await _awaited(result)
        except Exception as error:
            return error_text(error)
        return _told(result)

    return list(await asyncio.gather(*map(end, results)))


async def _awaited(result: Awaitable[object]) -> object:
    return await result


def error_text(error: Exception) -> str:
    """Return what the model is told of an error."""
    try:
        return _whole(f"error: {type(error).__name__}: {error}")
    except Exception:  # of its own __str__
        return f"error: {type(error).__name__}"


def _told(result: object) -> str:
    try:
        return text_of(result)
    except Exception as error:  # of its own __str__, or of what makes JSON of it
        return error_text(error)


def _whole(text: str) -> str:
    """Return ``text`` with "?" for halves of characters: no model can read them."""
    return text.encode("utf-8", "replace").decode()


def text_of(result: object) -> str:
    """Return what a tool returned as the text that the model reads: strings, else JSON."""
    if isinstance(result, str):
        return _whole(str(result))
    try:
        return _whole(json.dumps(result, ensure_ascii=False, default=_plain))
    except (TypeError, ValueError, RecursionError):
        return _whole(str(result))


def _plain(value: Any) -> Any:
    """Return what JSON does not know as something that it does."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    dump = getattr(value, "model_dump", None)  # pydantic
    if dump is not None:
        return dump(mode="json")
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    return str(value)
