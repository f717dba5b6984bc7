"""Random small models of every head geometry, in both file formats, against float64."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from checkpoints import Geometry, Model, random_model, write_gguf, write_hf
from engine.driving import run_all, submit
from engine.reference_model import Float64, ReferenceModel
from file_formats import Array, round_to
from mtlqwen import _core

N_TOKENS = 3

GDN_HEADS = [(1, 1), (2, 4), (1, 3), (2, 6), (4, 4)]  # keys, values: 1, 2 or 3 values a key
ATTENTION_HEADS = [(2, 2), (4, 2), (6, 2), (4, 1), (5, 1), (12, 2), (7, 1), (8, 1)]  # 1 to 8


def geometry(seed: int) -> Geometry:
    """One of all combinations of head ratios by seed, with other shapes at random."""
    pairs = list(product(ATTENTION_HEADS, GDN_HEADS))
    (heads, kv_heads), (k_heads, v_heads) = pairs[seed * 7 % len(pairs)]
    rng = random.Random(seed)
    return Geometry(
        hidden=rng.choice([32, 64, 96]),
        intermediate=rng.choice([32, 64, 160]),
        vocab=rng.choice([288, 300, 512]),
        layers=rng.choice(["ga", "gga", "ag", "gaga"]),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=64 if kv_heads == 1 else rng.choice([32, 64]),
        rotary_dim=rng.choice([8, 16, 32]),
        gdn_k_heads=k_heads,
        gdn_v_heads=v_heads,
        gdn_head_dim=rng.choice([64, 128]),
        tied=rng.random() < 0.5,
    )


def prompt_of(g: Geometry, seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(g.vocab) for _ in range(rng.choice([1, 5, 33, 140]))]


def run(model: str, kernels: str, prompt: list[int]) -> tuple[list[int], npt.NDArray[np.float32]]:
    """Greedy tokens and the logits behind each."""
    engine = _core.Engine(model, kernels=kernels, slots=1)
    one = submit(engine, prompt, max_tokens=N_TOKENS)
    run_all(engine, [one], logits=True)
    engine.close()
    return one.token_ids, np.asarray(one.logits, np.float32)


@dataclass
class Checked:
    """What the engine gave, and how far it may be off."""

    tokens: list[int]
    logits: npt.NDArray[np.float32]
    tolerance: float


def check(model: Model, path: Path, kernels: str, seed: int, matrices: str) -> Checked:
    """Compare the logits of a prompt and of what follows it with float64.

    Tolerance: the engine rounds as float32 does, and where that moves a key or value across the
    middle between two halves, stores the other half. So it may part from float64 with the same
    halves by what float32 makes of the same equations in another order (times 8, for sums of
    other shapes), and by what all halves together change (times 2: a half instead of its neighbour
    moves a value by two roundings). The same goes for the int16 rows that linears of Q8_0 read.
    """

    def stored(value: Array) -> Array:
        return round_to(value, matrices)

    prompt = prompt_of(model.geometry, seed)
    tokens, logits = run(str(path), kernels, prompt)
    request = prompt + tokens[:-1]

    def reference(**options: Any) -> Float64:
        whole = ReferenceModel(model, stored, **options).logits(request)
        return np.asarray(whole[len(prompt) - 1 :], np.float64)

    expected, unrounded = reference(), reference(half_cache=False)
    halves = np.abs(expected - unrounded).max()
    noise = np.abs(reference(dtype=np.float32, half_cache=False) - unrounded).max()
    tolerance = 2 * halves + 8 * noise
    if matrices == "Q8_0":
        tolerance += 2 * np.abs(reference(int16_rows=True) - expected).max()
    assert tolerance < 0.02 * np.abs(expected).max(), "too wide to find a fault"
    np.testing.assert_allclose(
        logits, expected, rtol=0, atol=tolerance, err_msg=str(model.geometry)
    )
    return Checked(tokens, logits, tolerance)


def check_both_formats(seed: int, kernels: str, folder: Path) -> None:
    g = geometry(seed)
    model = random_model(g, seed)
    matrices = ["Q8_0", "BF16", "F32", "F16"][seed % 4]
    gguf = write_gguf(folder / "model.gguf", model, matrices=matrices)
    check(model, gguf, kernels, seed, matrices)
    dtype = ["F32", "BF16"][seed % 2]
    directory = write_hf(folder / "hf", model, dtype=dtype, shards=1 + seed % 3)
    check(model, directory, kernels, seed, dtype)


@pytest.mark.parametrize("seed", range(10))
def test_logits_equal_float64_in_both_formats(seed: int, kernels: str, tmp_path: Path) -> None:
    check_both_formats(seed, kernels, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 100))
def test_logits_of_every_head_ratio_equal_float64(seed: int, kernels: str, tmp_path: Path) -> None:
    check_both_formats(seed, kernels, tmp_path)


def test_every_head_ratio_is_among_the_random_models() -> None:
    models = [geometry(seed) for seed in range(10, 100)]
    assert {g.heads // g.kv_heads for g in models} == set(range(1, 9))
    assert {g.gdn_v_heads // g.gdn_k_heads for g in models} == {1, 2, 3}
    assert {g.tied for g in models} == {True, False}


@pytest.mark.parametrize("seed", range(3))
def test_gguf_and_safetensors_of_one_model_give_the_same(
    seed: int, kernels: str, tmp_path: Path
) -> None:
    model = random_model(geometry(seed), seed)
    gguf = write_gguf(tmp_path / "model.gguf", model, matrices="BF16")
    one = check(model, gguf, kernels, seed, "BF16")
    other = check(model, write_hf(tmp_path / "hf", model), kernels, seed, "BF16")
    assert one.tokens == other.tokens
    # Value heads stand in another order, so that out_proj adds in another order.
    np.testing.assert_allclose(one.logits, other.logits, rtol=0, atol=2 * one.tolerance)
