"""Thousands of random schedules give every sequence the tokens that it gets alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoints import Geometry, random_model, write_gguf
from engine.hash_model import GEOMETRY, build_hash_kernels, hash_references, write_hash_model
from engine.random_engines import ONLY, opener, run_alone, seeds
from engine.schedules import OpenEngine, run_schedules
from engine.tracking import CONTEXT, Lazy, Reference, Tally
from long import draws


@pytest.fixture(scope="module")
def hash_engine(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Lazy], OpenEngine]:
    model, path = write_hash_model(tmp_path_factory.mktemp("hash"))
    return hash_references(model, 12, n_kin=36), opener(
        GEOMETRY, str(path), build_hash_kernels(root)
    )


def check(tally: Tally, n: int) -> None:
    print(tally)
    if ONLY:
        return
    assert tally.preemptions > n / 10
    assert tally.faults > n / 10
    assert tally.interrupts > n / 2
    assert min(tally.ends.get(end, 0) for end in ("length", "stop", "cancelled", "error")) > n / 10
    assert tally.hits > n
    assert tally.partial_hits > n / 10
    assert tally.mid_block_hits > n / 2
    assert tally.evictions > n / 4
    assert min(tally.saved, tally.loaded) > n / 4
    assert min(tally.loaded_hits, tally.file_faults) > n / 40


def near(references: list[Lazy]) -> list[Lazy]:
    """The shorter ones: quick to compute."""
    return sorted(references, key=lambda reference: len(reference.prompt))[:24]


def test_schedules_give_what_each_sequence_gives_alone(
    hash_engine: tuple[list[Lazy], OpenEngine],
) -> None:
    references, open_engine = hash_engine
    check(run_schedules(seeds(0, 40), near(references), open_engine), 40)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # for a machine that is busy with other things
def test_many_schedules_give_what_each_sequence_gives_alone(
    hash_engine: tuple[list[Lazy], OpenEngine],
) -> None:
    references, open_engine = hash_engine
    n = draws(600, 2000)
    check(run_schedules(seeds(1000, n), references, open_engine), n)


@pytest.fixture(scope="module")
def real_engine(
    kernels: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Reference], OpenEngine]:
    geometry = Geometry(
        layers="gaga",
        heads=4,
        kv_heads=2,
        head_dim=64,
        gdn_k_heads=2,
        gdn_v_heads=4,
        context=CONTEXT,
    )
    path = tmp_path_factory.mktemp("real") / "model.gguf"
    write_gguf(path, random_model(geometry, seed=2))
    references = run_alone(path, kernels, geometry.vocab)
    return references, opener(geometry, str(path), kernels, deterministic=True)


def test_deterministic_bits_are_those_of_the_sequence_alone(
    real_engine: tuple[list[Reference], OpenEngine],
) -> None:
    references, open_engine = real_engine
    print(run_schedules(seeds(0, 6), references, open_engine))


@pytest.mark.slow
@pytest.mark.timeout(1800)  # for a machine that is busy with other things
def test_a_hundred_schedules_keep_the_bits_of_the_sequence_alone(
    real_engine: tuple[list[Reference], OpenEngine],
) -> None:
    references, open_engine = real_engine
    check(run_schedules(seeds(1000, 100), references, open_engine), 100)
