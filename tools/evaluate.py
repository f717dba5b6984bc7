"""Score a model on chat items: exact match of the answer, by kind.

python tools/evaluate.py eval.jsonl [--model tiny] [--every 1] [--slots 32]

An item is a line of JSON with kind, messages, tools, enable_thinking and expected; those whose
expected is null are not scored. The answer is the text behind </think>, tool calls included.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from mtlqwen import Engine

Item = dict[str, Any]


def answer_of(engine: Engine, token_ids: list[int]) -> str:
    """What stands behind the reasoning, calls included."""
    return engine.tokenizer.decode(token_ids).split("</think>")[-1].strip()


def score(engine: Engine, items: list[Item]) -> tuple[Counter[tuple[str, bool]], list[str]]:
    """Right answers by (kind, thinking), and a line for each wrong one."""
    streams = [
        engine.stream(
            item["messages"], tools=item["tools"], thinking=item["enable_thinking"], temperature=0
        )
        for item in items
    ]
    right: Counter[tuple[str, bool]] = Counter()
    wrong = []
    for item, stream in zip(items, streams, strict=True):
        answer = answer_of(engine, stream.result().token_ids)
        right[item["kind"], item["enable_thinking"]] += answer == item["expected"].strip()
        if answer != item["expected"].strip():
            wrong.append(f"{item['id']} {item['kind']}: {answer!r}, expected {item['expected']!r}")
    return right, wrong


def main() -> None:
    """Print a table by kind, then what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("items", type=Path)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--every", type=int, default=1, help="take each n-th scored item")
    parser.add_argument("--slots", type=int, default=32)
    options = parser.parse_args()
    lines = options.items.read_text(encoding="utf-8").splitlines()
    items = [item for item in map(json.loads, lines) if item["expected"] is not None]
    items = items[:: options.every]
    begin = time.monotonic()
    with Engine(options.model, slots=options.slots) as engine:
        right, wrong = score(engine, items)
    total = Counter((item["kind"], item["enable_thinking"]) for item in items)
    print(f"{'kind':<16}{'direct':>10}{'thinking':>10}")
    for kind in sorted({kind for kind, _ in total}):
        cells = (f"{right[kind, mode]}/{total[kind, mode]}" for mode in (False, True))
        print(f"{kind:<16}" + "".join(f"{cell:>10}" for cell in cells))
    print(f"{right.total()}/{total.total()} in {time.monotonic() - begin:.0f} s")
    print("\n".join(wrong))


if __name__ == "__main__":
    main()
