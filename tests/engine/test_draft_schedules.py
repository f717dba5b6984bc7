"""Random schedules of engines that draft: every sequence gets the tokens that it gets alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engine.draft_schedules import DraftSchedule
from engine.drafting import DRAFTED, N_PLANES, Drafted, write_drafted
from engine.hash_model import build_hash_kernels, hash_references
from engine.random_engines import ONLY, opener, run_alone, seeds
from engine.schedules import OpenEngine, run_schedules
from engine.tracking import CONTEXT, Lazy, Reference, Tally

SPECS = ("ngram", "mtp", "dflash", "auto")


@pytest.fixture(scope="module")
def hashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Drafted, list[Lazy]]:
    drafted = write_drafted(tmp_path_factory.mktemp("hash"))
    return drafted, hash_references(drafted.model, 12, n_kin=36)


@pytest.fixture(scope="module")
def real(kernels: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Drafted, list[Reference]]:
    geometry = replace(DRAFTED, gdn_k_heads=2, gdn_v_heads=4)
    folder = tmp_path_factory.mktemp("real")
    drafted = write_drafted(folder, dtype="BF16", geometry=geometry, seed=2)
    return drafted, run_alone(drafted.path, kernels, geometry.vocab)


def open_drafting(
    drafted: Drafted, spec: str, kernels: str, *, deterministic: bool | None = None
) -> OpenEngine:
    return opener(
        drafted.model.geometry,
        str(drafted.path),
        kernels,
        deterministic=deterministic,
        n_planes=N_PLANES,
        **drafted.options(spec),
    )


def check(tally: Tally, n: int) -> None:
    print(tally)
    if ONLY:
        return
    assert min(tally.all_right, tally.all_wrong, tally.partly_right) > n
    assert min(tally.hits, tally.preemptions, tally.loaded) > n / 10
    assert tally.ends.get("stop", 0) > n / 10


@pytest.mark.parametrize("spec", SPECS)
def test_drafts_change_no_text(hashed: tuple[Drafted, list[Lazy]], root: Path, spec: str) -> None:
    drafted, references = hashed
    open_engine = open_drafting(drafted, spec, build_hash_kernels(root))
    short = [reference for reference in references if len(reference.prompt) < CONTEXT / 2]
    check(run_schedules(seeds(0, 8), short, open_engine, schedule=DraftSchedule), 8)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # for a machine that is busy with other things
@pytest.mark.parametrize("spec", SPECS)
def test_dozens_of_schedules_with_drafts_change_no_text(
    hashed: tuple[Drafted, list[Lazy]], root: Path, spec: str
) -> None:
    drafted, references = hashed
    open_engine = open_drafting(drafted, spec, build_hash_kernels(root))
    check(run_schedules(seeds(1000, 60), references, open_engine, schedule=DraftSchedule), 60)


@pytest.mark.parametrize("spec", SPECS)
def test_drafts_change_no_bit_where_it_is_deterministic(
    real: tuple[Drafted, list[Reference]], kernels: str, spec: str
) -> None:
    drafted, references = real
    open_engine = open_drafting(drafted, spec, kernels, deterministic=True)
    print(run_schedules(seeds(0, 2), references, open_engine, schedule=DraftSchedule))


@pytest.mark.slow
@pytest.mark.timeout(1800)  # for a machine that is busy with other things
@pytest.mark.parametrize("spec", SPECS)
def test_many_schedules_with_drafts_change_no_bit(
    real: tuple[Drafted, list[Reference]], kernels: str, spec: str
) -> None:
    drafted, references = real
    open_engine = open_drafting(drafted, spec, kernels, deterministic=True)
    check(run_schedules(seeds(1000, 10), references, open_engine, schedule=DraftSchedule), 10)
