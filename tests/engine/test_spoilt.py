"""Numbers that are not finite: an error that names the layer, for the sequences that have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import Geometry, Model, random_model, write_gguf, write_hf
from drafters import DrafterGeometry, random_drafter, write_drafter_hf
from engine.drafting import MOST_WIDTH, force_width, propose
from engine.driving import Run, submit
from mtlqwen import DeviceError, _core

# Attention twice, of one value a key and of three; an embedding that is not the head.
GEOMETRY = Geometry(
    layers="gaga", heads=4, kv_heads=2, head_dim=64, context=512, tied=False, mtp=True
)
DRAFTER = DrafterGeometry(
    heads=4, kv_heads=2, head_dim=64, taps=(0, 3), target_layers=4, block_size=16
)
BAD = 77  # a token whose embedding is spoilt
N_TOKENS = 12


@dataclass(frozen=True)
class Files:
    """A model and a drafter for it."""

    model: Path
    drafter: Path

    @contextmanager
    def open(self, kernels: str, spec: str = "off", **options: Any) -> Iterator[_core.Engine]:
        """Deterministic, with small blocks, so that prompts leave checkpoints."""
        drafter = str(self.drafter) if spec == "dflash" else ""
        engine = _core.Engine(
            str(self.model),
            kernels=kernels,
            deterministic=True,
            block_tokens=64,
            spec=spec,
            drafter=drafter,
            **{"slots": 8, **options},
        )
        yield engine
        engine.check_integrity()
        engine.close()


def write(folder: Path, model: Model, drafter: Path) -> Files:
    return Files(write_hf(folder, model, dtype="F32"), drafter)


def planted(model: Model, name: str, value: float, at: int | tuple[int, ...] = 0) -> Model:
    tensor = model.tensors[name].copy()
    if isinstance(at, tuple):
        tensor[at] = value
    else:
        tensor.reshape(-1)[at] = value
    return replace(model, tensors=model.tensors | {name: tensor})


@pytest.fixture(scope="module")
def sound() -> Model:
    return random_model(GEOMETRY, seed=2)


@pytest.fixture(scope="module")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_drafter_hf(tmp_path_factory.mktemp("drafter"), random_drafter(DRAFTER, 1))


SLOW = pytest.mark.slow


@pytest.fixture(scope="module", params=[np.nan, pytest.param(-np.inf, marks=SLOW), 1e30], ids=str)
def bad_token(
    request: pytest.FixtureRequest,
    sound: Model,
    drafter: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Files:
    """A model with one bad token, which it does not say by itself."""
    model = planted(sound, "embed_tokens.weight", request.param, (BAD, 5))
    model.tensors["lm_head.weight"] = sound.tensors["lm_head.weight"].copy()
    model.tensors["lm_head.weight"][BAD] = 0
    return write(tmp_path_factory.mktemp("bad"), model, drafter)


def ends(engine: _core.Engine, runs: Sequence[Run]) -> list[str | None]:
    """Step until all have ended; what each failed with."""
    errors: dict[int, str] = {}
    while engine.step():
        engine.check_integrity()
        for run in runs:
            if run.finish_reason is not None:
                continue
            try:
                poll = engine.poll(run.sequence)
            except (DeviceError, ValueError) as error:
                errors[run.sequence] = str(error)
                run.finish_reason = "error"
                continue
            run.token_ids += poll.token_ids
            run.finish_reason = poll.finish_reason
    assert all(run.finish_reason for run in runs)
    return [errors.get(run.sequence) for run in runs]


def prompt_of(n: int, seed: int) -> list[int]:
    """Without the bad token."""
    return [(seed * 31 + 7 * i * (1 + i % 3)) % BAD for i in range(n)]


def part_of(name: str) -> str:
    """What a tensor belongs to, as the error says."""
    if name in ("norm.weight", "lm_head.weight"):
        return "lm_head"
    first, *rest = name.split(".")
    if first != "layers":
        return first
    layer, part = rest[0], rest[1]
    kind = "linear_attn" if GEOMETRY.layers[int(layer)] == "g" else "self_attn"
    norms = {"input_layernorm": kind, "post_attention_layernorm": "mlp"}
    return f"layers.{layer}.{norms.get(part, part)}"


def texts_of(files: Files, kernels: str, prompts: Sequence[list[int]], **options: Any) -> list[Run]:
    """What prompts give by themselves, one after another, in an engine that saw nothing else."""
    runs = []
    with files.open(kernels, slots=1) as engine:
        for prompt in prompts:
            runs.append(submit(engine, prompt, max_tokens=N_TOKENS, **options))
            assert ends(engine, runs[-1:]) == [None]
    return runs


SPECS = ("off", "ngram", "mtp", "dflash")


@pytest.mark.parametrize("spec", SPECS)
def test_only_sequences_with_the_bad_token_fail(kernels: str, bad_token: Files, spec: str) -> None:
    """In prompts of one pass and of several, again and again, whoever shares blocks with them."""
    good = [prompt_of(n, seed) for seed, n in enumerate((1, 5, 70, 150, 300))]
    alone = texts_of(bad_token, kernels, good)
    bad = [[*good[3][:100], BAD, *good[3][101:]], [BAD], [*good[2], BAD], good[4][:290] + [BAD] * 3]
    places = [100, 0, 70, 290]
    with bad_token.open(kernels, spec) as engine:
        if spec != "off":
            force_width(engine, MOST_WIDTH)
        for turn in range(3):
            mixed = [prompt for pair in zip(good, [*bad, good[0]], strict=True) for prompt in pair]
            runs = [submit(engine, prompt, max_tokens=N_TOKENS) for prompt in mixed[turn:]]
            errors = dict(zip(map(tuple, mixed[turn:]), ends(engine, runs), strict=True))
            for prompt, place in zip(bad, places, strict=True):
                if tuple(prompt) in errors:
                    message = errors[tuple(prompt)]
                    assert message is not None
                    assert message.startswith("[engine] embed_tokens: gave no number (got NaN or ")
                    assert f" for token {place} of" in message
            for run, prompt in zip(runs, mixed[turn:], strict=True):
                if prompt in good:
                    assert run.token_ids == alone[good.index(prompt)].token_ids
                else:
                    assert not run.token_ids
        assert engine.stats()["passes_failed"] == 0


@pytest.mark.parametrize("spec", SPECS)
def test_a_bad_token_that_is_generated_is_the_last(
    kernels: str, bad_token: Files, spec: str
) -> None:
    """Its text is what it would be, up to it; the others go on."""
    prompts = [prompt_of(20, seed) for seed in range(3)]
    alone = texts_of(bad_token, kernels, prompts)
    bias: Any = {"temperature": 0.0, "seed": 0, "stop_ids": [], "logit_bias": [(BAD, 1000.0)]}
    with bad_token.open(kernels, spec) as engine:
        if spec != "off":
            force_width(engine, MOST_WIDTH)
        failing = Run(engine.submit(prompts[0], max_tokens=N_TOKENS, **bias))
        runs = [submit(engine, prompt, max_tokens=N_TOKENS) for prompt in prompts]
        message, *none = ends(engine, [failing, *runs])
        assert none == [None] * 3
        assert message is not None
        assert message.startswith("[engine] embed_tokens: gave no number")
        assert "token 20 of" in message
        assert failing.token_ids == [BAD]
        assert [run.token_ids for run in runs] == [run.token_ids for run in alone]


@pytest.mark.parametrize("candidate_bytes", [0, 1 << 30])
def test_a_bad_proposal_fails_nobody(kernels: str, bad_token: Files, candidate_bytes: int) -> None:
    """Alone, behind right ones and before them."""
    prompts = [prompt_of(20, seed) for seed in range(3)]
    alone = texts_of(bad_token, kernels, prompts)
    options = {"candidate_bytes": candidate_bytes}
    with bad_token.open(kernels, "ngram", **options) as engine:
        runs = [submit(engine, prompt, max_tokens=N_TOKENS) for prompt in prompts]
        for step in count():
            for run, expected in zip(runs, alone, strict=True):
                right = expected.token_ids[len(run.token_ids) :]
                if run.finish_reason is None and run.token_ids:
                    at = step % 3
                    propose(engine, run.sequence, [*right[:at], BAD, *right[at:]])
            busy = engine.step()
            for run in runs:
                poll = engine.poll(run.sequence)
                run.token_ids += poll.token_ids
                run.finish_reason = poll.finish_reason
            if not busy:
                break
        assert [run.token_ids for run in runs] == [run.token_ids for run in alone]
        stats = engine.stats()
        assert 0 < int(stats["accepted_tokens"]) < int(stats["drafted_tokens"])


def test_what_came_before_a_bad_token_is_kept_and_nothing_behind(
    kernels: str, bad_token: Files
) -> None:
    prompt = prompt_of(200, 1)
    alone = texts_of(bad_token, kernels, [prompt[:150], prompt])
    with bad_token.open(kernels, checkpoint_interval=16) as engine:
        bad = [*prompt[:140], BAD, *prompt[141:]]
        for tries in range(2):
            failing = submit(engine, bad, max_tokens=1)
            assert ends(engine, [failing])[0] is not None
            assert int(engine.stats()["cached_tokens"]) == 128 * tries
        runs = [submit(engine, part, max_tokens=N_TOKENS) for part in (prompt[:150], prompt)]
        assert ends(engine, runs) == [None, None]
        assert [run.token_ids for run in runs] == [run.token_ids for run in alone]
        assert engine.stats()["kv_bytes"] == 0


@pytest.mark.parametrize(
    ("matrices", "value"),
    [
        ("F32", np.nan),
        pytest.param("F32", np.inf, marks=SLOW),
        pytest.param("Q8_0", np.nan, marks=SLOW),
        ("Q8_0", np.inf),
    ],
)
def test_every_tensor_is_named_by_what_it_belongs_to(
    kernels: str, sound: Model, tmp_path: Path, matrices: str, value: float
) -> None:
    """One element, in the first place and in the last; prompts of one row and of more.

    An infinite decay or gate is as good as a large one.
    """
    others = ("mtp", "embed")
    gates = ("in_proj_a", "in_proj_b", "A_log", "dt_bias", "q_proj")
    saturating = gates if np.isinf(value) else ()
    names = [name for name in GEOMETRY.tensor_shapes() if not name.startswith(others)]
    for i, name in enumerate(names):
        if any(part in name for part in saturating):
            continue
        model = planted(sound, name, value, -1 if i % 2 else 0)
        with np.errstate(invalid="ignore", over="ignore"):
            path = write_gguf(tmp_path / "model.gguf", model, matrices=matrices)
        engine = _core.Engine(str(path), kernels=kernels, slots=2, deterministic=i % 3 == 0)
        runs = [submit(engine, prompt_of(n, 3), max_tokens=3) for n in (1, 40)]
        for message in ends(engine, runs):
            assert message is not None, name
            assert message.startswith(f"[engine] {part_of(name)}: gave no number"), (name, message)
        engine.close()


def test_a_head_is_seen_whatever_is_forbidden(kernels: str, sound: Model, tmp_path: Path) -> None:
    files = write(tmp_path, planted(sound, "lm_head.weight", np.nan, (200, 1)), tmp_path)
    with files.open(kernels) as engine:
        options: list[dict[str, Any]] = [
            {"logit_bias": [(200, -np.inf)]},
            {"allowed_ids": [3, 4]},
            {"bad_words": [[200]]},
            {"temperature": 0.8, "top_k": 3},
            {"temperature": 0.8, "top_p": 0.2, "frequency_penalty": 1.0},
            {"logprobs": 5},
        ]
        runs = [
            Run(
                engine.submit(
                    [5], max_tokens=2, **{"temperature": 0.0, "seed": 0} | one, stop_ids=[]
                )
            )
            for one in options
        ]
        for message in ends(engine, runs):
            assert message is not None
            assert message.startswith("[engine] lm_head: gave no number")


@pytest.mark.parametrize("name", ["mtp.fc.weight", "mtp.layers.0.mlp.down_proj.weight"])
@pytest.mark.parametrize("value", [np.nan, 1e38])
def test_a_prediction_head_of_nonsense_harms_no_text(
    kernels: str, sound: Model, tmp_path: Path, name: str, value: float
) -> None:
    prompts = [prompt_of(20, seed) for seed in range(3)]
    alone = texts_of(write(tmp_path / "sound", sound, tmp_path), kernels, prompts)
    files = write(tmp_path / "spoilt", planted(sound, name, value), tmp_path)
    with files.open(kernels, "mtp") as engine:
        force_width(engine, 4)
        runs = [submit(engine, prompt, max_tokens=N_TOKENS) for prompt in prompts]
        assert ends(engine, runs) == [None] * 3
        assert [run.token_ids for run in runs] == [run.token_ids for run in alone]
        assert int(engine.stats()["drafted_tokens"]) > 0


@pytest.mark.parametrize("name", ["fc.weight", "layers.1.self_attn.v_proj.weight"])
@pytest.mark.parametrize("value", [np.nan, 1e38])
def test_a_drafter_of_nonsense_harms_no_text(
    kernels: str, sound: Model, tmp_path: Path, name: str, value: float
) -> None:
    prompts = [prompt_of(20, seed) for seed in range(3)]
    made = random_drafter(DRAFTER, 1)
    tensor = made.tensors[name].copy()
    tensor.reshape(-1)[3] = value
    spoilt = replace(made, tensors=made.tensors | {name: tensor})
    files = write(tmp_path / "sound", sound, write_drafter_hf(tmp_path / "drafter", spoilt))
    alone = texts_of(files, kernels, prompts)
    with files.open(kernels, "dflash") as engine:
        force_width(engine, MOST_WIDTH)
        runs = [submit(engine, prompt, max_tokens=N_TOKENS) for prompt in prompts]
        assert ends(engine, runs) == [None] * 3
        assert [run.token_ids for run in runs] == [run.token_ids for run in alone]
        assert int(engine.stats()["drafted_tokens"]) > 0


def test_options_that_leave_no_token_are_an_error_that_says_so(
    kernels: str, sound: Model, tmp_path: Path
) -> None:
    files = write(tmp_path, sound, tmp_path)
    with files.open(kernels) as engine:
        run = Run(
            engine.submit(
                [5],
                max_tokens=2,
                temperature=0.0,
                seed=0,
                stop_ids=[],
                allowed_ids=[3],
                logit_bias=[(3, -np.inf)],
            )
        )
        (message,) = ends(engine, [run])
        assert message is not None
        assert message.startswith("[sampling] tokens: all are forbidden")
