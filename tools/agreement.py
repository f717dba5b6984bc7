"""How often int16 activations choose the token that float chooses, given the same tokens before it.

python tools/agreement.py eval.jsonl [--model tiny] [--every 1] [--tokens 256] [--slots 32]

Items are those of tools/evaluate.py. An engine that keeps to the kernels of metal/, which compute
in float and take their time, writes the text. The other one continues every prompt greedily; where
it chooses another token that is counted, and it goes on behind the token that float chose. So each
position is judged behind the same tokens, as if they were forced upon it.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mtlqwen import Engine


@contextmanager
def in_float() -> Iterator[None]:
    """Engines that are opened meanwhile compute in float, by the kernels of metal/."""
    name = "MTLQWEN_HOST_KERNELS"
    before = os.environ.get(name)
    os.environ[name] = "msl"
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def encode(engine: Engine, line: str) -> list[int]:
    """Token ids of an item's prompt."""
    item = json.loads(line)
    return engine._prepare.format.encode(item["messages"], item["tools"], item["enable_thinking"])


def continuations(engine: Engine, prompts: Sequence[list[int]], n: int) -> list[list[int]]:
    """Greedy tokens behind each prompt, up to a stop id or n of them."""
    results = engine.generate(list(prompts), max_tokens=n, temperature=0)
    return [list(result.token_ids) for result in results]


def disagreements(
    engine: Engine, prompts: Sequence[list[int]], forced: Sequence[list[int]]
) -> list[tuple[int, int]]:
    """(item, position) wherever the engine chooses another token than the forced one."""
    found = []
    open_items = [(i, 0) for i in range(len(prompts)) if forced[i]]
    while open_items:
        behind = [prompts[i] + forced[i][:start] for i, start in open_items]
        chosen = engine.generate(
            behind, max_tokens=max(len(forced[i]) - s for i, s in open_items), temperature=0
        )
        following = []
        for (i, start), result in zip(open_items, chosen, strict=True):
            want = forced[i][start:]
            pairs = enumerate(zip(want, result.token_ids, strict=False))
            at = next((j for j, (a, b) in pairs if a != b), None)
            if at is None:
                continue
            found.append((i, start + at))
            if start + at + 1 < len(forced[i]):
                following.append((i, start + at + 1))
        open_items = following
    return sorted(found)


def main() -> None:
    """Print the share of equal choices, and where they differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("items", type=Path)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--every", type=int, default=1, help="take each n-th item")
    parser.add_argument("--tokens", type=int, default=256, help="of a continuation, at most")
    parser.add_argument("--slots", type=int, default=32)
    options = parser.parse_args()
    lines = options.items.read_text(encoding="utf-8").splitlines()[:: options.every]
    begin = time.monotonic()
    with in_float():
        exact = Engine(options.model, slots=options.slots)
    with exact:
        prompts = [encode(exact, line) for line in lines]
        forced = continuations(exact, prompts, options.tokens)
    with Engine(options.model, slots=options.slots) as engine:
        different = disagreements(engine, prompts, forced)
    total = sum(map(len, forced))
    print(f"{total - len(different)} of {total} choices equal", end=" ")
    print(f"({100 * (1 - len(different) / total):.3f} %) in {time.monotonic() - begin:.0f} s")
    for item, position in different:
        print(f"item {item}, token {position}")


if __name__ == "__main__":
    main()
