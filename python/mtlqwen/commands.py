"""The small commands of the console script: run, pull, doctor, bench.

Uses the public surface, and what finds files.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import runpy
import stat
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mtlqwen.errors import MtlqwenError

if TYPE_CHECKING:
    from mtlqwen.engine import Engine
    from mtlqwen.result import ChatResult, Completion
    from mtlqwen.screen import Screen
    from mtlqwen.tools import Tool


def result_json(result: ChatResult) -> str:
    """Return all that a result knows, but its tokens, as a line of JSON."""
    calls = [{"name": call.name, "arguments": call.arguments} for call in result.tool_calls]
    facts = {
        "content": result.content,
        "reasoning": result.reasoning,
        "tool_calls": calls,
        "rounds": result.rounds,
        "finish_reason": result.finish_reason,
        "usage": dataclasses.asdict(result.usage),
        "timings": dataclasses.asdict(result.timings),
    }
    return json.dumps(facts, ensure_ascii=False)


def load_tools(path: str | None) -> list[Tool]:
    """Return the tools that a Python file defines.

    Raises:
        OSError: the file cannot be read.
        ValueError: it defines none, or fails.
    """
    from mtlqwen.tools import Tool

    if path is None:
        return []
    try:
        names = runpy.run_path(path)
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"[tools] {path}: fails ({type(error).__name__}: {error})") from error
    found = [value for value in names.values() if isinstance(value, Tool)]
    if not found:
        raise ValueError(f"[tools] {path}: no tools (want functions with @mtlqwen.tool)")
    return found


def pull(model: str, drafter: str | None) -> Iterator[str]:
    """Bring a model's files here, and yield their paths."""
    from mtlqwen.download import Downloads
    from mtlqwen.hub import resolve, resolve_drafter
    from mtlqwen.progress import make_progress

    how = Downloads(progress=make_progress(None))
    files = resolve(model, how)
    yield str(files.weights)
    beside = resolve_drafter(files, drafter, how)
    if beside is not None:
        yield str(beside)


def doctor(screen: Screen) -> bool:
    """Check what the engine needs, and whether it works; return whether all is well."""
    from mtlqwen import __version__

    screen.write(f"mtlqwen {__version__}, Python {platform.python_version()}, ")
    screen.write(f"{platform.system()} {platform.machine()}\n")
    good = True
    for name, check in (("engine", _check_engine), ("hub", _check_hub), ("extras", _check_extras)):
        try:
            screen.write(f"ok       {name:<8} {check()}\n")
        except (MtlqwenError, OSError, RuntimeError, ImportError, ValueError) as error:
            screen.write(f"problem  {name:<8} {error}\n", "bold")
            good = False
    return good


def _check_engine() -> str:
    from mtlqwen.engine import Engine

    with Engine("tiny", progress=False) as engine:
        said = engine.chat([{"role": "user", "content": "Good morning"}], thinking=False)
        stats = engine.stats()
        if said != "Hello! How can I help you today?":
            raise RuntimeError(f"the bundled model says something else (got {said.content!r})")
        budget = float(stats["budget_bytes"]) / 2**30
        return f"{stats['device']}, {budget:.1f} GiB to use, {said.timings.decode_tps:.0f} tokens/s"


def _check_hub() -> str:
    import huggingface_hub.constants

    offline = huggingface_hub.constants.HF_HUB_OFFLINE
    return f"{huggingface_hub.constants.HF_HUB_CACHE}{' (offline)' * offline}"


def _check_extras() -> str:
    from importlib.util import find_spec

    found = [name for name in ("rich", "pydantic", "llguidance") if find_spec(name)]
    return ", ".join(found) or "none; pip install mtlqwen[cli] shows Markdown in mtlqwen chat"


def bench(engine: Engine, prompt_tokens: int, tokens: int) -> dict[str, float]:
    """Measure a model: a long prompt, one sequence alone, and as many as there are slots."""
    text = "The quick brown fox jumps over the lazy dog near the old stone bridge. "
    unit = engine.tokenizer.encode(text)
    ids = (unit * (prompt_tokens // len(unit) + 1))[:prompt_tokens]
    options: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "max_tokens": tokens}
    engine.generate(ids[:8], max_tokens=4, ignore_eos=True)  # weights are read, kernels are ready
    alone = engine.generate(ids, **options)
    # Each begins with something else, so that nothing is found in the cache.
    prompts = [[*engine.tokenizer.encode(f"{at}. "), *unit] for at in range(engine.slots)]
    started = time.perf_counter()
    together: list[Completion] = engine.generate(prompts, **options)
    seconds = time.perf_counter() - started
    made = sum(one.usage.completion_tokens for one in together)
    return {
        "prompt_tps": round(alone.timings.prefill_tps, 1),
        "decode_tps": round(alone.timings.decode_tps, 1),
        "together_tps": round(made / seconds, 1),
        "sequences": engine.slots,
    }


def read_text(text: str | None, *, behind: bool = False) -> str:
    """Return a text from the command line, or from standard input.

    With ``behind``, what is piped in follows the text.
    """
    if text is None:
        if sys.stdin is None:
            raise ValueError("no text, and standard input is closed (want one of them)")
        return sys.stdin.read()
    if behind and _is_piped():
        piped = sys.stdin.read()
        return f"{text}\n\n{piped}" if piped.strip() else text
    return text


def _is_piped() -> bool:
    """Whether standard input is a pipe or a file: of others nobody knows where they end."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # none, or something of a notebook's
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)
