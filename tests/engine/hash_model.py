"""The small model that the hash kernels run: both kinds of layers twice, every head shared."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from checkpoints import Geometry, Model, random_model, write_hf
from engine.hash_oracle import continuation
from engine.schedules import CONTEXT, Lazy
from mtlqwen import CapacityError, _core

GEOMETRY = Geometry(
    hidden=32,
    intermediate=32,
    vocab=288,
    layers="gaga",
    heads=4,
    kv_heads=2,
    gdn_k_heads=1,
    gdn_v_heads=2,
    context=CONTEXT,
)


def build_hash_kernels(root: Path) -> str:
    """Build tests/hash_kernels for this machine; return the library as engines take it."""
    output = root / "build" / "hash_kernels"
    script = root / "csrc/hostmetal/msl/build_kernels.py"
    options = ["--output", str(output), "--metal-dir", str(root / "tests/hash_kernels")]
    subprocess.run([sys.executable, str(script), *options], check=True, stdout=subprocess.DEVNULL)
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


def hash_references(model: Model, n: int) -> list[Lazy]:
    """N requests: prompts of one token to almost three blocks, many about to need one more."""
    rng = random.Random(n)
    lengths = [1, 100, 115, 127, 250, 120, 2, 128, 129, 256, 110, 300, CONTEXT - 10]
    references = []
    for i in range(n):
        length = lengths[i] if i < len(lengths) else rng.randint(1, 200)
        prompt = [rng.randrange(model.geometry.vocab) for _ in range(length)]
        references.append(Lazy(prompt, i, continuation(model, prompt, i)))
    return references


def least_budget(
    model: str, kernels: str, slots: int, context: int = CONTEXT, *, deterministic: bool = False
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
        )
    found = re.search(r"\(got 1 bytes, want at least (\d+)\)", str(error.value))
    assert found
    return int(found[1])
