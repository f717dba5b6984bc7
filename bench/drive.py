"""Drives `_core.Engine` by hand, as the benchmarks need it."""

from __future__ import annotations

import time
from pathlib import Path

import mtlqwen
from mtlqwen import _core

TINY = Path(mtlqwen.__file__).parent / "models/tiny/tiny-qwen3.5-Q8_0.gguf"
CONTEXT = 2560  # tokens: the longest prompt of a benchmark and what follows it


def open_engine(model: str = "", *, slots: int = 8, prefill_share: float = 1.0) -> _core.Engine:
    """Load a model, the bundled one unless named, and let it touch its memory once."""
    engine = _core.Engine(
        model or str(TINY),
        kernels=str(Path(str(_core.__file__)).with_name("kernels.metallib")),
        context=CONTEXT,
        slots=slots,
        cache_memory=0,  # rounds repeat their prompts
        prefill_share=prefill_share,
    )
    warm = [submit(engine, 64, 4, seed) for seed in range(slots)]
    drain(engine)
    for sequence in warm:
        engine.release(sequence)
    return engine


def prompt(n_tokens: int, seed: int = 0) -> list[int]:
    """Tokens that no other seed has; what they say does not change how long a pass takes."""
    return [(7 * seed + 3 * i) % 1000 + 10 for i in range(n_tokens)]


def submit(engine: _core.Engine, n_prompt: int, max_tokens: int, seed: int = 0) -> int:
    """Queue a greedy request that nothing but its length ends."""
    return engine.submit(
        prompt(n_prompt, seed), max_tokens=max_tokens, temperature=0.0, seed=0, stop_ids=[]
    )


def drain(engine: _core.Engine) -> None:
    """Run passes until there is nothing to do."""
    while engine.step():
        pass


def until_decoding(engine: _core.Engine, sequences: list[int]) -> None:
    """Run passes until every sequence has its first token."""
    while any(engine.poll(sequence).completion_tokens == 0 for sequence in sequences):
        engine.step()


def counter(engine: _core.Engine, key: str) -> float:
    """One number of the engine's stats."""
    return float(engine.stats()[key])


def step_seconds(engine: _core.Engine) -> float:
    """Run one pass and return how long it took."""
    begin = time.perf_counter()
    engine.step()
    return time.perf_counter() - begin
