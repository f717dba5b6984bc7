"""The small model that the hash kernels run: both kinds of layers twice, every head shared.

Its requests come in families: what one begins with, others begin with, too.
"""

from __future__ import annotations

import fcntl
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checkpoints import Geometry, Model, random_model, write_hf
from engine.hash_oracle import Continuations
from engine.tracking import CONTEXT, Lazy
from mtlqwen import CapacityError, _core

GEOMETRY = Geometry(
    hidden=32,
    intermediate=32,
    vocab=288,
    layers="gaga",
    heads=4,
    kv_heads=2,
    head_dim=64,  # a block of 64 tokens is a whole page
    gdn_k_heads=1,
    gdn_v_heads=2,
    context=CONTEXT,
)


def build_hash_kernels(root: Path) -> str:
    """Build tests/hash_kernels for this machine; return the library as engines take it.

    Test processes that run side by side share one build: the first makes it.
    """
    output = root / "build" / "hash_kernels"
    output.mkdir(parents=True, exist_ok=True)
    script = root / "csrc/hostmetal/msl/build_kernels.py"
    options = ["--output", str(output), "--metal-dir", str(root / "tests/hash_kernels")]
    with (output / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, str(script), *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return str(output / "kernels.metallib")


def write_hash_model(directory: Path) -> tuple[Model, Path]:
    model = random_model(GEOMETRY, seed=1)
    return model, write_hf(directory, model, dtype="F32")


def bank_bytes(geometry: Geometry, bundle_bytes: int) -> int:
    """Bytes of one sequence's GDN states, in whole bundles."""
    state = geometry.gdn_v_heads * geometry.gdn_head_dim**2
    conv = 3 * (geometry.key_channels + geometry.value_channels)
    n_bytes = 4 * geometry.layers.count("g") * (state + conv)
    return -(-n_bytes // bundle_bytes) * bundle_bytes


def hash_references(model: Model, n: int, *, n_kin: int = 0) -> list[Lazy]:
    """N requests: prompts of one token to almost three blocks, many about to need one more.

    And n_kin that begin like others of them.
    """
    rng = random.Random(n)
    follow = Continuations(model)
    lengths = [1, 100, 115, 127, 250, 120, 2, 128, 129, 256, 110, 300, CONTEXT - 10]
    references = []
    for i in range(n):
        length = lengths[i] if i < len(lengths) else rng.randint(1, 200)
        prompt = draw_tokens(rng, model, length)
        references.append(Lazy(prompt, i, follow(prompt, i)))
    for i in range(n, n + n_kin):
        prompt = draw_kin(rng, model, rng.choice(references))
        references.append(Lazy(prompt, i, follow(prompt, i)))
    return references


def draw_tokens(rng: random.Random, model: Model, n: int) -> list[int]:
    return [rng.randrange(model.geometry.vocab) for _ in range(n)]


def draw_kin(rng: random.Random, model: Model, other: Lazy) -> list[int]:
    """A prompt that goes on behind what the other gives, forks from it, or is an edit of it."""
    n = len(other.prompt)
    prompt = other.prompt[: rng.randint(min(n, 8), n)]
    how = rng.choice(("go on", "fork", "edit"))
    if how == "go on":
        prompt = other.prompt + other.tokens(rng.randint(1, min(30, CONTEXT - n)))
    prompt += draw_tokens(rng, model, rng.randint(1, 40))
    if how == "edit":
        prompt += other.prompt[len(prompt) :]
    return prompt[: CONTEXT - 10]


def least_budget(
    model: str,
    kernels: str,
    slots: int,
    context: int = CONTEXT,
    *,
    deterministic: bool = False,
    block_tokens: int = 128,
    **drafting: Any,
) -> int:
    """What the engine says that it needs for one sequence of the whole context."""
    with pytest.raises(CapacityError, match="memory_budget: too small") as error:
        _core.Engine(
            model,
            kernels=kernels,
            context=context,
            slots=slots,
            memory_budget=1,
            deterministic=deterministic,
            block_tokens=block_tokens,
            **drafting,
        )
    found = re.search(r"\(got 1 bytes, want at least (\d+)\)", str(error.value))
    assert found
    return int(found[1])
