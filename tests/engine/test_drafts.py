"""What drafters propose behind random texts of random small models, against float64."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import Geometry, Model, random_model, write_gguf, write_hf
from drafters import (
    Drafter,
    DrafterGeometry,
    random_drafter,
    write_drafter_gguf,
    write_drafter_hf,
)
from engine.drafting import MOST_WIDTH, MTP_STEPS, Watched, force_width, propose, spoil
from engine.driving import generate
from engine.reference_drafters import ReferenceDFlash, ReferenceDrafter, ReferenceMtp
from engine.reference_model import Float64, ReferenceModel
from engine.test_random_models import geometry
from file_formats import Array, round_to
from mtlqwen import _core

MATRICES = ("Q8_0", "BF16", "F32", "F16")
CONTEXT = 512
N_TOKENS = 30
N_CHECKED = 4  # drafts of one text: the reference is slow


def drafter_geometry(g: Geometry, seed: int) -> DrafterGeometry:
    """Any of what both generations have, for a target."""
    rng = random.Random(seed)
    heads, kv_heads, head_dim = rng.choice(
        [(2, 1, 64), (4, 2, 64), (2, 2, 32), (6, 1, 64), (8, 2, 128)]
    )
    n_layers = len(g.layers)
    return DrafterGeometry(
        hidden=g.hidden,
        intermediate=rng.choice([32, 96]),
        vocab=g.vocab,
        layers=rng.choice(["f", "ff", "sf", "ssf", "ss"]),
        window=rng.choice([3, 20, 60, 130]),
        causal=rng.choice([None, None, True, False]),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        taps=tuple(sorted(rng.sample(range(n_layers), rng.randint(1, n_layers)))),
        target_layers=n_layers,
        block_size=rng.choice([5, 8, 16, 16]),
        mask_id=rng.randrange(g.vocab),
        rope_theta=rng.choice([1e4, 1e7]),
    )


@dataclass
class Case:
    """A model on disk that is drafted for, and its drafter at any precision."""

    path: Path
    options: dict[str, Any]  # of an engine
    most_width: int
    reference: Callable[..., ReferenceDrafter]
    int16_rows: bool  # linears of some of the weights see such


def write_model(folder: Path, model: Model, seed: int) -> tuple[Path, str]:
    """A file in any format, and the format of its matrices."""
    matrices = MATRICES[seed % 4]
    if seed // 4 % 2 == 0:
        return write_gguf(folder / "model.gguf", model, matrices=matrices), matrices
    dtype = MATRICES[1 + seed % 2]
    return write_hf(folder / "hf", model, dtype=dtype), dtype


def write_drafter(folder: Path, drafter: Drafter, seed: int) -> tuple[Path, str]:
    matrices = MATRICES[seed // 2 % 4]
    if seed % 3 != 0:
        return write_drafter_gguf(folder / "drafter.gguf", drafter, matrices=matrices), matrices
    dtype = MATRICES[1 + seed % 2]
    return write_drafter_hf(folder / "drafter", drafter, dtype=dtype, legacy=seed % 2 == 0), dtype


def stored(format_name: str) -> Callable[[Array], Array]:
    return partial(round_to, format_name=format_name)


def mtp_case(folder: Path, seed: int) -> Case:
    model = random_model(replace(geometry(seed), mtp=True), seed)
    path, matrices = write_model(folder, model, seed)

    def reference(**precision: Any) -> ReferenceDrafter:
        return ReferenceMtp(ReferenceModel(model, stored(matrices), **precision))

    return Case(path, {"spec": "mtp"}, MTP_STEPS, reference, matrices == "Q8_0")


def dflash_case(folder: Path, seed: int) -> Case:
    model = random_model(geometry(seed), seed)
    path, matrices = write_model(folder, model, seed)
    drafter = random_drafter(drafter_geometry(model.geometry, seed), seed)
    drafter_path, drafter_matrices = write_drafter(folder, drafter, seed)

    def reference(**precision: Any) -> ReferenceDrafter:
        target = ReferenceModel(model, stored(matrices), **precision)
        return ReferenceDFlash(target, drafter, stored(drafter_matrices))

    options = {"spec": "dflash", "drafter": str(drafter_path)}
    most_width = drafter.geometry.block_size - 1
    return Case(path, options, most_width, reference, "Q8_0" in (matrices, drafter_matrices))


@dataclass(frozen=True)
class Draft:
    """Proposals behind the first `n_before` tokens of a text."""

    n_before: int
    proposals: list[int]


def run_drafting(
    engine: _core.Engine,
    case: Case,
    prompts: list[list[int]],
    rng: random.Random,
    expected: list[list[int]],
) -> list[tuple[list[int], list[Draft]]]:
    """Texts with their drafts; now and then the next tokens are proposed from here instead."""
    out: list[tuple[list[int], list[Draft]]] = []
    all_watched = [Watched(engine, prompt, max_tokens=N_TOKENS) for prompt in prompts]
    drafts: list[list[Draft]] = [[] for _ in all_watched]
    busy = True
    while busy:
        force_width(engine, rng.randint(1, case.most_width))
        proposed = set()
        for i, one in enumerate(all_watched):
            n = len(one.run.token_ids)
            if 0 < n < N_TOKENS and rng.random() < 0.4:
                proposals = expected[i][n : n + rng.randint(1, MOST_WIDTH)]
                proposals = spoil(proposals, rng.randrange(MOST_WIDTH), engine.vocab_size)
                propose(engine, one.run.sequence, proposals)
                proposed.add(i)
        busy = engine.step()
        for i, one in enumerate(all_watched):
            one.read()
            if one.draft and i not in proposed:
                drafts[i].append(Draft(len(one.before), one.draft))
    for one, kept, tokens in zip(all_watched, drafts, expected, strict=True):
        assert one.run.token_ids == tokens
        out.append((one.text, kept))
        engine.release(one.run.sequence)
    return out


@dataclass
class Judge:
    """Tells how far proposals may be from the best.

    As in test_random_models, logits may part from float64 with the same halves by what float32
    and all halves make of them. A proposal is right if no other token is better by twice that.
    """

    case: Case
    exact: int = 0
    near: int = 0

    def check(self, text: list[int], drafts: list[Draft]) -> None:
        precisions: list[dict[str, Any]] = [
            {},
            {"half_cache": False},
            {"half_cache": False, "dtype": np.float32},
        ]
        precisions += [{"int16_rows": True}] if self.case.int16_rows else []
        references = [self.case.reference(**precision) for precision in precisions]
        contexts = [reference.context(text) for reference in references]
        for draft in drafts:
            before = text[: draft.n_before]
            logits = [
                np.asarray(reference.logits(context, before, draft.proposals), np.float64)
                for reference, context in zip(references, contexts, strict=True)
            ]
            self.check_one(logits, draft)

    def check_one(self, logits: list[Float64], draft: Draft) -> None:
        expected, unrounded, single = logits[:3]
        tolerance = 2 * np.abs(expected - unrounded).max() + 8 * np.abs(single - unrounded).max()
        if self.case.int16_rows:
            tolerance += 2 * np.abs(logits[3] - expected).max()
        assert tolerance < 0.05 * np.abs(expected).max(), "too wide to find a fault"
        chosen = expected[np.arange(len(expected)), draft.proposals]
        assert (expected.max(axis=-1) - chosen <= 2 * tolerance).all(), draft
        exact = int((expected.argmax(axis=-1) == draft.proposals).sum())
        self.exact += exact
        self.near += len(expected) - exact


def check_case(case: Case, kernels: str, seed: int) -> None:
    rng = random.Random(seed)
    plain = _core.Engine(
        str(case.path), kernels=kernels, context=CONTEXT, slots=1, deterministic=True
    )
    vocab = plain.vocab_size
    prompts = [[rng.randrange(vocab) for _ in range(n)] for n in (2, rng.randint(3, 60), 110)]
    # What is recalled from checkpoints of the others, a stretch of their answers included.
    answers = [generate(plain, prompt, max_tokens=N_TOKENS) for prompt in prompts]
    kin = [prompts[i] + answers[i][:20] + [rng.randrange(vocab)] for i in (1, 2)]
    kin_answers = [generate(plain, prompt, max_tokens=N_TOKENS) for prompt in kin]
    plain.close()

    engine = _core.Engine(
        str(case.path),
        kernels=kernels,
        context=CONTEXT,
        slots=3,
        deterministic=True,
        checkpoint_interval=32,  # which drafts don't pass
        candidate_bytes=rng.choice([0, 1 << 30]),
        **case.options,
    )
    _core._testing.set_pass_rows(engine, rng.choice([50, 64, 128]))
    runs = run_drafting(engine, case, prompts, rng, answers)
    hits = int(engine.stats()["cache_hits"])
    runs += run_drafting(engine, case, kin, rng, kin_answers)
    assert int(engine.stats()["cache_hits"]) > hits
    engine.close()
    judge = Judge(case)
    for text, drafts in runs:
        judge.check(text, rng.sample(drafts, min(len(drafts), N_CHECKED)))
    print(f"{judge.exact} proposals are the best, {judge.near} are as good")
    assert judge.exact > 20
    assert judge.exact > 10 * judge.near


@pytest.mark.parametrize("seed", range(6))
def test_block_drafts_equal_float64(seed: int, kernels: str, tmp_path: Path) -> None:
    check_case(dflash_case(tmp_path, seed), kernels, seed)


@pytest.mark.parametrize("seed", range(3))
def test_chained_drafts_equal_float64(seed: int, kernels: str, tmp_path: Path) -> None:
    check_case(mtp_case(tmp_path, seed), kernels, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_block_drafts_of_many_shapes_equal_float64(seed: int, kernels: str, tmp_path: Path) -> None:
    check_case(dflash_case(tmp_path, seed), kernels, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_chained_drafts_of_many_shapes_equal_float64(
    seed: int, kernels: str, tmp_path: Path
) -> None:
    check_case(mtp_case(tmp_path, seed), kernels, seed)
