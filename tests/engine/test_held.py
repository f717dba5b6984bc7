"""Texts whose tokens are chosen under masks: against an oracle, with every drafter, in company.

The grammar is a hash: which ids may come depends on all tokens before.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from checkpoints import random_model, write_gguf
from engine.choice_oracle import Options, choose, edited
from engine.driving import Run, run_all, step_and_read
from engine.hash_model import least_budget
from engine.test_choices import CASES, VARIED, open_engine
from engine.test_memory import BANK_BYTES, GEOMETRY, prompt_of
from engine.test_memory import CONTEXT as SHORT
from mtlqwen import CapacityError, _core

N_TOKENS = 18
WORDS = 256
PROMPTS = [[1000 + i % 7 for i in range(20)], [300 + i for i in range(9)], [77]]
PLAIN = Options()
# What proposals the host knows, and what the device makes; the others are slow tests.
SLOW = [pytest.param(spec, marks=pytest.mark.slow) for spec in ("ngram", "mtp")]
SOME_SPECS = ["off", "dflash", *SLOW]
Item: TypeAlias = tuple[int, int, list[int], list[int], int]
Row: TypeAlias = npt.NDArray[np.uint32]


def row_of(key: int, text: Sequence[int], n_words: int = WORDS) -> Row:
    """Which ids may come behind a text: one of eight for odd keys, seven of eight for even ones."""
    said = hashlib.sha256(np.array([key, *text], np.int64).tobytes()).digest()
    draws = np.random.default_rng(list(said)).integers(0, 2**32, (3, n_words), np.uint32)
    few: Row = draws[0] & draws[1] & draws[2]
    return few if key % 2 else np.invert(few)


def allowed(row: Row) -> npt.NDArray[np.bool_]:
    return np.unpackbits(row.view(np.uint8), bitorder="little").astype(bool)


@dataclass
class Masks:
    """Fills masks, and checks what the core tells."""

    rows: dict[int, Row] = field(default_factory=dict)  # of keys that have the same for ever
    errors: dict[int, tuple[int, Exception]] = field(default_factory=dict)  # from so many tokens on
    raises: list[BaseException] = field(default_factory=list)  # one a call, the last first
    n_words: int = WORDS
    calls: int = 0
    told: dict[int, list[int]] = field(default_factory=dict)
    drafted: int = 0

    def __call__(self, items: list[Item], masks: npt.NDArray[np.uint32]) -> list[Exception | None]:
        self.calls += 1
        said: list[Exception | None] = []
        masks[:] = 0
        for key, n_told, fresh, drafted, first in items:
            text = self.told.setdefault(key, [])
            assert len(text) in (n_told, n_told + len(fresh))
            text[n_told:] = fresh
            self.drafted += len(drafted)
            for i in range(len(drafted) + 1):
                row = self.rows.get(key)
                masks[first + i] = (
                    row_of(key, text + drafted[:i], self.n_words) if row is None else row
                )
            least, error = self.errors.get(key, (1 << 30, None))
            said.append(error if len(text) >= least else None)
        if self.raises:
            raise self.raises.pop()
        return said


def held_engine(kernels: str, spec: str = "off", **options: Any) -> tuple[_core.Engine, Masks]:
    engine, masks = open_engine(kernels, spec, **options), Masks()
    assert engine.mask_words == WORDS
    engine.set_mask_fn(masks)
    return engine, masks


def submit(
    engine: _core.Engine,
    prompt: Sequence[int],
    key: int | None,
    options: Options = PLAIN,
    *,
    behind: int | None = None,
    stops: Sequence[int] = (),
    n_tokens: int = N_TOKENS,
    **more: Any,
) -> Run:
    return Run(
        engine.submit(
            list(prompt),
            max_tokens=n_tokens,
            stop_ids=list(stops),
            constraint=None if key is None else (key, behind),
            **options.arguments(),
            **more,
        )
    )


def finish(engine: _core.Engine, *runs: Run) -> list[list[int]]:
    run_all(engine, runs)
    for run in runs:
        engine.release(run.sequence)
    return [run.token_ids for run in runs]


OPTIONS = {
    **{name: CASES[name] for name in ("greedy", "varied", "all penalties", "min_p")},
    "allowed": replace(VARIED, allowed_ids=range(0, 8000, 3)),
    "words": Options(bad_words=[[i] for i in range(0, 8000, 2)], logit_bias={5: 3.0}),
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_every_token_is_the_oracles(kernels: str, options: Options) -> None:
    engine, _ = held_engine(kernels)
    for key, prompt in enumerate(PROMPTS[:2], 1):
        run = submit(engine, prompt, key, options)
        run_all(engine, [run], logits=True)
        n_firm = 0
        for i, (token, raw) in enumerate(zip(run.token_ids, run.logits, strict=True)):
            logits = edited(raw, options, prompt, run.token_ids[:i], [])
            may = allowed(row_of(key, run.token_ids[:i]))
            logits[~may] = -np.inf
            expected, firm = choose(logits, options, len(prompt) + i)
            assert may[token]
            assert not firm or token == expected, f"token {i}"
            n_firm += firm
        assert n_firm > N_TOKENS * 0.8
    engine.close()


def jobs() -> list[tuple[list[int], int | None, Options]]:
    """Four held texts and as many free ones, with several kinds of options."""
    kinds = [CASES[name] for name in ("greedy", "varied", "top_k", "all penalties")]
    held = [(PROMPTS[i % 3], 1 + i, options) for i, options in enumerate(kinds)]
    free: list[tuple[list[int], int | None, Options]] = [(PROMPTS[0], None, kind) for kind in kinds]
    return [job for pair in zip(held, free, strict=True) for job in pair]


@pytest.fixture(scope="module")
def alone(kernels: str) -> list[list[int]]:
    """Without drafts, one after another."""
    engine, _ = held_engine(kernels, slots=1)
    texts = finish(engine, *(submit(engine, *job) for job in jobs()))
    engine.close()
    return texts


@pytest.mark.parametrize("spec", SOME_SPECS)
def test_drafts_and_company_change_no_text(kernels: str, alone: list[list[int]], spec: str) -> None:
    engine, masks = held_engine(kernels, spec)
    if spec != "off":
        _core._testing.force_width(engine, 5)
    assert finish(engine, *(submit(engine, *job) for job in jobs())) == alone
    assert (masks.drafted > 0) == (spec != "off")
    engine.check_integrity()
    engine.close()


def test_what_is_drafted_right_is_taken_under_masks(kernels: str) -> None:
    engine, masks = held_engine(kernels, "ngram")
    (text,) = finish(engine, submit(engine, PROMPTS[0], 2))
    run = submit(engine, PROMPTS[0], 4)
    masks.told[2] = []
    again = submit(engine, PROMPTS[0], 2)
    while step_and_read(engine, [run, again]):
        _core._testing.propose(engine, again.sequence, text[len(again.token_ids) :])
    assert again.token_ids == text
    assert engine.poll(again.sequence).accepted_tokens > N_TOKENS * 0.7
    engine.close()


@pytest.mark.parametrize("spec", SOME_SPECS)
def test_before_its_opening_a_text_is_free(kernels: str, spec: str) -> None:
    engine, masks = held_engine(kernels, spec)
    if spec != "off":
        _core._testing.force_width(engine, 7)
    options = Options(temperature=0.9, seed=3)
    (free,) = finish(engine, submit(engine, PROMPTS[1], None, options))
    at = next(i for i in range(5, N_TOKENS) if free.index(free[i]) == i)
    (text,) = finish(engine, submit(engine, PROMPTS[1], 1, options, behind=free[at]))
    assert text[: at + 1] == free[: at + 1]
    assert len(text) == N_TOKENS
    for i in range(at + 1, N_TOKENS):
        assert allowed(row_of(1, text[:i]))[text[i]]
    assert text[at + 1 :] != free[at + 1 :]
    calls = masks.calls
    finish(engine, submit(engine, PROMPTS[1], 3, options, behind=8000))
    assert masks.calls == calls, "it never came"
    engine.close()


@pytest.mark.parametrize("spec", ["off", "dflash"])
def test_an_error_ends_its_own_text(kernels: str, spec: str) -> None:
    kinds = {1: CapacityError("too much"), 3: ValueError("no"), 5: OSError("odd")}
    engine, masks = held_engine(kernels, spec)
    expected = finish(engine, *(submit(engine, PROMPTS[0], key, logprobs=2) for key in (2, None)))
    masks.told.clear()
    masks.errors = {key: (key, error) for key, error in kinds.items()}
    failing = {key: submit(engine, PROMPTS[0], key, logprobs=3) for key in kinds}
    others = [submit(engine, PROMPTS[0], key, logprobs=2) for key in (2, None)]
    assert finish(engine, *others) == expected
    for key, run in failing.items():
        want = type(kinds[key]) if key < 5 else RuntimeError
        for _ in range(2):
            with pytest.raises(want, match=str(kinds[key])):
                engine.poll(run.sequence)
        assert len(masks.told[key]) >= key
    engine.check_integrity()
    engine.close()


@pytest.mark.parametrize("spec", SOME_SPECS)
def test_a_pass_is_made_again_when_masks_raise(kernels: str, spec: str) -> None:
    engine, masks = held_engine(kernels, spec)
    expected = finish(engine, *(submit(engine, PROMPTS[0], key, VARIED) for key in (2, None)))
    masks.told.clear()
    runs = [submit(engine, PROMPTS[0], key, VARIED) for key in (2, None)]
    stopped = int(engine.stats()["passes_stopped"])
    for n in range(1, 4):
        masks.raises = [KeyboardInterrupt("now"), MemoryError()]
        with pytest.raises(MemoryError):
            engine.step()
        with pytest.raises(KeyboardInterrupt, match="now"):
            engine.step()
        assert int(engine.stats()["passes_stopped"]) == stopped + 2 * n
        step_and_read(engine, runs)
        assert len(runs[0].token_ids) >= n
        engine.check_integrity()
    assert finish(engine, *runs) == expected
    engine.close()


def test_a_text_that_is_cancelled_meanwhile(kernels: str) -> None:
    engine, masks = held_engine(kernels)
    (expected,) = finish(engine, submit(engine, PROMPTS[0], 2))
    masks.told.clear()
    runs = [submit(engine, PROMPTS[0], 2), submit(engine, PROMPTS[1], 1)]

    class Cancel(BaseException):
        pass

    class Cancelling(dict[int, Row]):
        def get(self, key: int, default: Any = None) -> Any:
            if key == 1 and len(masks.told[1]) == 3:
                engine.cancel(runs[1].sequence)
            return default

    masks.rows = Cancelling()
    assert finish(engine, *runs)[0] == expected
    assert (len(runs[1].token_ids), runs[1].finish_reason) == (3, "cancelled")
    engine.close()


def test_what_forbids_the_rest(kernels: str) -> None:
    """Where no token is left, that text fails; but a least length gives way to the only end."""
    engine, masks = held_engine(kernels)
    (expected,) = finish(engine, submit(engine, PROMPTS[0], 2))
    row = np.zeros(WORDS, np.uint32)
    row[3] = 1 << 7  # id 103
    masks.rows = {1: row, 3: row, 5: row, 7: row | np.uint32(1)}
    masks.told.clear()
    other = submit(engine, PROMPTS[0], 2)
    none = [
        submit(engine, PROMPTS[0], 1, Options(allowed_ids=[7, 9])),
        submit(engine, PROMPTS[0], 1, Options(bad_words=[[103]])),
        submit(engine, PROMPTS[0], 1, Options(logit_bias={103: -np.inf})),
    ]
    ended = submit(engine, PROMPTS[0], 3, Options(min_tokens=5), stops=[103])
    goes_on = submit(engine, PROMPTS[0], 5, Options(min_tokens=5))
    free = submit(engine, PROMPTS[0], 7, Options(min_tokens=5, logit_bias={103: 99}), stops=[103])
    assert finish(engine, other, ended, goes_on, free)[0] == expected
    for run in none:
        with pytest.raises(ValueError, match=r"\[structured\] sampling: no token is left"):
            engine.poll(run.sequence)
    assert (ended.token_ids, ended.finish_reason) == ([103], "stop")
    assert goes_on.token_ids == [103] * N_TOKENS
    assert 103 not in free.token_ids[:5]
    assert free.token_ids[5:] == [103]
    engine.close()


def test_memory_that_runs_short_changes_no_text(kernels: str, tmp_path: Path) -> None:
    path = str(write_gguf(tmp_path / "model.gguf", random_model(GEOMETRY, seed=3)))
    prompts = [prompt_of(120), prompt_of(200, start=3)]
    # Three blocks, and both banks of each sequence.
    budget = least_budget(path, kernels, slots=2, deterministic=True) + 2 * BANK_BYTES
    texts = []
    kinds: list[dict[str, Any]] = [{}, {"context": SHORT, "memory_budget": budget}]
    for options in kinds:
        engine = _core.Engine(path, kernels=kernels, slots=2, deterministic=True, **options)
        masks = Masks(n_words=12)
        engine.set_mask_fn(masks)
        runs = [submit(engine, prompt, key, n_tokens=20) for key, prompt in enumerate(prompts, 1)]
        texts.append(finish(engine, *runs))
        for key, text in enumerate(texts[-1], 1):
            for i, token in enumerate(text):
                assert allowed(row_of(key, text[:i], 12))[token]
        assert engine.stats()["preemptions"] == len(options) / 2
        engine.close()
    assert texts[0] == texts[1]


def test_calls_from_inside_of_a_step(kernels: str) -> None:
    """Those that need the device say so; a close takes effect when the step ends."""
    engine = open_engine(kernels, "off")
    seen: list[str] = []

    def fill(items: list[Item], masks: npt.NDArray[np.uint32]) -> list[Exception | None]:
        masks[:] = 0xFFFFFFFF
        for call in (engine.check_integrity, engine.step):
            with pytest.raises(RuntimeError, match="the thread inside step"):
                call()
        seen.append(str(engine.stats()["live"]))
        if len(seen) == 3:
            engine.close()
            with pytest.raises(RuntimeError, match="closed"):
                engine.stats()
        return [None] * len(items)

    engine.set_mask_fn(fill)
    run = submit(engine, PROMPTS[0], 1)
    for _ in range(3):
        engine.step()
    with pytest.raises(RuntimeError, match=r"\[engine\] closed"):
        engine.poll(run.sequence)
    engine.close()
    assert seen == ["1"] * 3


def test_other_threads_go_on_while_masks_are_filled(kernels: str) -> None:
    """None that holds the GIL may wait for the device, and none that has the device for the GIL."""
    engine, masks = held_engine(kernels)
    run, ends = submit(engine, PROMPTS[0], 2, n_tokens=30), threading.Event()

    def look() -> None:
        while not ends.is_set():
            engine.check_integrity()
            time.sleep(1e-3)

    others = [threading.Thread(target=look) for _ in range(2)]
    for other in others:
        other.start()
    run_all(engine, [run])
    ends.set()
    for other in others:
        other.join()
    assert len(run.token_ids) == masks.calls == 30
    engine.close()


def test_a_pass_of_several_rounds_is_traced_whole(kernels: str, tmp_path: Path) -> None:
    engine, _ = held_engine(kernels, "dflash")
    _core._testing.force_width(engine, 4)
    engine.start_trace(str(tmp_path / "t.json"))
    finish(engine, submit(engine, PROMPTS[0], 2, n_tokens=6))
    stats = engine.stats()
    assert engine.stop_trace()
    engine.close()
    events = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    groups = [e["args"]["kernels"] for e in events if "kernels" in e.get("args", {})]
    names = [kernel["kernel"] for group in groups for kernel in group]
    assert 0 < int(stats["draft_passes"]) == names.count("verify")
    drafted_and_made = int(stats["draft_passes"]) + int(stats["passes"])
    assert names.count("sample_pick") == names.count("embed_q8_0") == drafted_and_made
    assert all(e["dur"] >= 0 for e in events if e["ph"] == "X")


def test_a_text_that_nobody_holds_is_refused(kernels: str) -> None:
    engine = open_engine(kernels, "off")
    with pytest.raises(RuntimeError, match=r"\[engine\] constraint: nobody fills masks"):
        submit(engine, PROMPTS[0], 1)
    engine.set_mask_fn(lambda items, masks: [])
    with pytest.raises(RuntimeError, match=r"\[engine\] set_mask_fn: called before"):
        engine.set_mask_fn(lambda items, masks: [])
    with pytest.raises(ValueError, match=r"\[sampling\] begins_behind: token id out of range"):
        submit(engine, PROMPTS[0], 1, behind=9000)
    submit(engine, PROMPTS[0], 1)
    with pytest.raises(ValueError, match=r"want an error or none for each item \(got 0, want 1\)"):
        engine.step()
    engine.close()
