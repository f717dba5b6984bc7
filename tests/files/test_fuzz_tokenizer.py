"""Tokenizers from changed files: a tokenizer, or an error of ours; never a crash."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkpoints import byte_tokenizer
from long import draws
from mtlqwen.errors import FormatError, ModelError
from mtlqwen.tokenizer import Tokenizer
from python.texts import SCRIPTS, as_gguf, draw_text, train

SECONDS = draws(10, 600)
TELLING: list[Any] = [
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**32 - 1, 2**32, 2**63, -(2**63), 10**30, 0.5, 1e300),
    *("", " ", "a", "a b", "\u0120", "(", "[", "(?:", "\\", "a" * 1000, "\ud800", "\u0000", "BPE"),
    *([], {}, [[]], [1], ["a", "b"], {"type": "BPE"}, {"type": "NFC"}, {"Regex": "("}),
    *([["a", "b"]], [{"id": 0, "content": "a"}], {"a": 0}, {"type": "Sequence"}),
]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) in a tree of lists and dicts."""
    out = []
    todo = [value]
    while todo:
        node = todo.pop()
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        out += [(node, key) for key in keys]
        todo += [node[key] for key in keys if isinstance(node[key], (dict, list))]
    return out


def mutate(value: Any, rng: random.Random) -> None:
    """Change one thing in a tree, few-membered nodes as often as large ones."""
    by_node: dict[int, list[tuple[Any, Any]]] = {}
    for node, key in places(value):
        by_node.setdefault(id(node), []).append((node, key))
    node, key = rng.choice(rng.choice(list(by_node.values())))
    change = rng.randrange(6)
    if change == 0:
        del node[key]
    elif change == 1 and isinstance(node, dict):
        node[rng.choice(["", "type", "id", "content", "vocab", "a" * 99])] = node.pop(key)
    elif change == 2 and isinstance(node, list):
        node.insert(key, json.loads(json.dumps(rng.choice(node))))
    elif change == 3:
        other, place = rng.choice(places(value))
        node[key] = json.loads(json.dumps(other[place]))
    else:
        node[key] = json.loads(json.dumps(rng.choice(TELLING)))


def use(tokenizer: Tokenizer) -> None:
    """Encode and decode; a lone surrogate of an added token is the one thing that may not work."""
    for text in ("", SCRIPTS["emoji"], SCRIPTS["code"], "".join(list(tokenizer.added)[:50])):
        try:
            ids = tokenizer.encode(text)
            tokenizer.decode([*ids, -1, 0, 2**31])
        except (ValueError, OverflowError):
            pass


def fuzz(seeds: list[Any], read: Callable[[Any], Tokenizer]) -> int:
    """Change seeds and what was answered anew until the time is up; return how many answers."""
    rng = random.Random(1)
    kept = [json.dumps(seed) for seed in seeds]
    answers = set()
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        value = json.loads(rng.choice(kept))
        for _ in range(rng.randint(1, 3)):
            if value:
                mutate(value, rng)
        try:
            use(read(value))
            answer = "fine"
        except (FormatError, ModelError) as error:
            answer = "".join(c for c in str(error)[:300] if c.isalpha())
        if answer not in answers and len(kept) < 1000:
            kept.append(json.dumps(value))
        answers.add(answer)
    return len(answers)


def seeds() -> list[dict[str, Any]]:
    """Return a tokenizer of bytes, and a small trained one with flags."""
    rng = random.Random(1)
    added = [
        {"content": "<|im_end|>", "special": True, "lstrip": True},
        {"content": "<think>", "special": False, "single_word": True, "rstrip": True},
    ]
    trained = train(lambda: draw_text(rng, []), 320, added)
    return [byte_tokenizer(288), trained]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_changed_tokenizer_json(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"

    def read(value: Any) -> Tokenizer:
        text = json.dumps(value)
        path.write_text(text, encoding="utf-8")
        return Tokenizer.from_json(path)

    assert fuzz(seeds(), read) > 20


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_changed_arrays_of_a_gguf(tmp_path: Path) -> None:
    assert fuzz([as_gguf(seed, padding=3) for seed in seeds()], Tokenizer.from_gguf) > 10
