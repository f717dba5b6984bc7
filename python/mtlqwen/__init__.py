"""mtlqwen: Qwen 3.5 language models in your own process.

Importing the package loads nothing else: the public names arrive at first use.

Example:
    >>> import mtlqwen
    >>> mtlqwen.SamplingParams(temperature=0.7, seed=42).temperature
    0.7
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlqwen.errors import CapacityError, DeviceError, FormatError, ModelError, MtlqwenError

if TYPE_CHECKING:
    from mtlqwen._core import __version__ as __version__
    from mtlqwen.areader import AsyncStream
    from mtlqwen.conversion import convert
    from mtlqwen.engine import Engine
    from mtlqwen.reader import Handle, Stream
    from mtlqwen.result import (
        ChatResult,
        Completion,
        Piece,
        Speculation,
        Timings,
        TokenLogprob,
        ToolCall,
        Usage,
    )
    from mtlqwen.sampling import SamplingParams
    from mtlqwen.session import Session
    from mtlqwen.tools import Tool, tool

__all__ = [
    "AsyncStream",
    "CapacityError",
    "ChatResult",
    "Completion",
    "DeviceError",
    "Engine",
    "FormatError",
    "Handle",
    "ModelError",
    "MtlqwenError",
    "Piece",
    "SamplingParams",
    "Session",
    "Speculation",
    "Stream",
    "Timings",
    "TokenLogprob",
    "Tool",
    "ToolCall",
    "Usage",
    "convert",
    "tool",
]

_HOME = {
    "AsyncStream": "areader",
    "ChatResult": "result",
    "Completion": "result",
    "Engine": "engine",
    "Handle": "reader",
    "Piece": "result",
    "SamplingParams": "sampling",
    "Session": "session",
    "Speculation": "result",
    "Stream": "reader",
    "Timings": "result",
    "TokenLogprob": "result",
    "Tool": "tools",
    "ToolCall": "result",
    "Usage": "result",
    "convert": "conversion",
    "tool": "tools",
    "__version__": "_core",
}


def __getattr__(name: str) -> object:
    """Import the module that holds a public name when the name is first asked for."""
    if name not in _HOME:
        raise AttributeError(f"module 'mtlqwen' has no attribute '{name}'")
    import importlib

    value: object = getattr(importlib.import_module(f"mtlqwen.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return [*__all__, "__version__"]
