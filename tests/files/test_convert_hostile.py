"""Sources with anything in them: they become a file, or there is an error of ours."""

from __future__ import annotations

import json
import random
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from checkpoints import Geometry, random_model
from files.sources import write_source
from long import draws
from mtlqwen import FormatError, ModelError, convert

JUNK: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**70, 1.5, float("nan"), float("inf"), "", "x", "\ud800", [], {},
    [[]], {"a": []}, [1, 2], "linear_attention", "F8_E4M3", "U8",
]  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every object or array inside of a value, with a key into it."""
    keys: list[Any] = list(value) if isinstance(value, dict) else []
    if isinstance(value, list):
        keys = list(range(min(len(value), 5)))
    return [(value, key) for key in keys] + [at for key in keys for at in places(value[key])]


def other_json(text: bytes, rng: random.Random) -> bytes:
    """Take something out of a text of JSON, or put something else there."""
    data = json.loads(text)
    holder, key = rng.choice(places(data))
    if rng.random() < 0.3:
        del holder[key]
    else:
        holder[key] = rng.choice(JUNK)
    return json.dumps(data).encode()


def other_bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        changed[rng.randrange(min(len(data), 4000))] = rng.randrange(256)
    return bytes(changed if rng.random() < 0.8 else changed[: rng.randrange(len(data))])


def damage(path: Path, rng: random.Random) -> None:
    data = path.read_bytes()
    if path.suffix == ".jinja" or rng.random() < 0.3:
        path.write_bytes(other_bytes(data, rng))
    elif path.suffix == ".json":
        path.write_bytes(other_json(data, rng))
    else:
        size = struct.unpack("<Q", data[:8])[0]
        head = other_json(data[8 : 8 + size], rng)
        path.write_bytes(struct.pack("<Q", len(head)) + head + data[8 + size :])


def check(folder: Path, seed: int, count: int) -> None:
    source = write_source(folder / "hf", random_model(Geometry(mtp=True)), shards=2)
    whole = {path: path.read_bytes() for path in sorted(source.iterdir())}
    rng = random.Random(seed)
    for _ in range(count):
        for path in rng.sample([*whole], rng.randint(1, 2)):
            damage(path, rng)
        with suppress(FormatError, ModelError):
            convert(source, folder / "m.gguf", "q8_0", overwrite=True, threads=1)
        for path, data in whole.items():
            path.write_bytes(data)
    convert(source, folder / "m.gguf", "q8_0", overwrite=True)


def test_damaged_sources(tmp_path: Path) -> None:
    check(tmp_path, seed=0, count=40)


@pytest.mark.slow
def test_many_damaged_sources(tmp_path: Path) -> None:
    check(tmp_path, seed=1, count=draws(200, 10_000))
