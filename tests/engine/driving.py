"""Drives `_core.Engine` by hand: submit, step, read. What the tests of this folder share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import mtlqwen
import numpy as np
import numpy.typing as npt
from mtlqwen import _core
from mtlqwen.hub import resolve, resolve_drafter

TINY = Path(mtlqwen.__file__).parent / "models" / "tiny" / "tiny-qwen3.5-Q8_0.gguf"


def open_tiny(
    kernels: str,
    *,
    context: int = 1024,
    slots: int = 8,
    threads: int = 0,
    deterministic: bool = False,
    spec: str = "off",
) -> _core.Engine:
    drafter = resolve_drafter(resolve("tiny")) if spec == "dflash" else None
    return _core.Engine(
        str(TINY),
        kernels=kernels,
        context=context,
        slots=slots,
        threads=threads,
        deterministic=deterministic,
        spec=spec,
        drafter=str(drafter or ""),
    )


@dataclass
class Run:
    """What one sequence produced: its tokens, and the logits that each of them was chosen from."""

    sequence: int
    token_ids: list[int] = field(default_factory=list)
    logits: list[npt.NDArray[np.float32]] = field(default_factory=list)
    finish_reason: str | None = None


def submit(
    engine: _core.Engine,
    token_ids: Sequence[int],
    *,
    max_tokens: int = 16,
    temperature: float = 0.0,
    seed: int = 0,
    stop_ids: Sequence[int] = (),
) -> Run:
    return Run(
        engine.submit(
            list(token_ids),
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
            stop_ids=list(stop_ids),
        )
    )


def step_and_read(engine: _core.Engine, runs: Sequence[Run], *, logits: bool = False) -> bool:
    """One step, then the news of every run; False when there was nothing to do."""
    busy = engine.step()
    for run in runs:
        if run.finish_reason is not None:
            continue
        poll = engine.poll(run.sequence)
        if logits and poll.token_ids:
            run.logits.append(np.asarray(_core._testing.last_logits(engine, run.sequence)))
        run.token_ids += poll.token_ids
        run.finish_reason = poll.finish_reason
    return busy


def run_all(engine: _core.Engine, runs: Sequence[Run], *, logits: bool = False) -> None:
    while step_and_read(engine, runs, logits=logits):
        pass


def generate(
    engine: _core.Engine, token_ids: Sequence[int], *, max_tokens: int = 16, **options: float
) -> list[int]:
    run = submit(engine, token_ids, max_tokens=max_tokens, **options)  # type: ignore[arg-type]
    run_all(engine, [run])
    engine.release(run.sequence)
    return run.token_ids
