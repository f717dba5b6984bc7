"""The process that one engine runs in: a JSON line asks, a JSON line answers, else it sleeps.

Imports the standard library alone, since the peer's virtual environment holds little more.

A request is one of
    {"do": "open", "model": path, "threads": n, "sequences": n, "context": tokens of a sequence}
    {"do": "run", "prompts": [[token id, ...], ...], "passes": n, "limit_s": seconds}
and the answer to the second, where decoding ends early once limit_s are over:
    {"prompt_s": seconds, "decode_s": seconds, "passes": n, "token_ids": [[token id, ...], ...]}
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Side(Protocol):
    """One of the engines that are compared."""

    def forget(self) -> None:
        """End all sequences."""

    def prompt(self, prompts: Sequence[Sequence[int]]) -> None:
        """Run the prompts until each has its first token."""

    def decode(self) -> None:
        """One pass: the next token of every sequence, greedy."""

    def token_ids(self) -> list[list[int]]:
        """What has been generated since `prompt`."""


def measure(side: Side, prompts: Sequence[Sequence[int]], passes: int, limit_s: float) -> object:
    """Time the prompts together, then the passes together."""
    side.forget()
    begin = time.perf_counter()
    side.prompt(prompts)
    decoding = time.perf_counter()
    done = 0
    while done < passes and time.perf_counter() - decoding < limit_s:
        side.decode()
        done += 1
    end = time.perf_counter()
    return {
        "prompt_s": decoding - begin,
        "decode_s": end - decoding,
        "passes": done,
        "token_ids": side.token_ids(),
    }


def pin(threads: int) -> None:
    """Keep the process on as many cores as it has threads, the same ones for both sides."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def serve(name: str, version: str, open_side: Callable[..., Side]) -> None:
    """Answer until stdin ends; what libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    side: Side | None = None
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        answer: object
        try:
            if request.pop("do") == "open":
                pin(request["threads"])
                side = open_side(**request)
                answer = {"name": name, "version": version}
            else:
                assert side is not None
                answer = measure(side, **request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)
