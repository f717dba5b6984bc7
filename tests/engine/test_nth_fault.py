"""The first, second, third ... allocation, mapping or commit fails, until none is left to fail.

After each: a clear error where it belongs, the engine intact, the next generation right, no leak.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
from engine.drafting import force_width, propose, write_drafted
from engine.driving import Run, step_and_read, submit
from engine.hash_model import build_hash_kernels, least_budget
from engine.hash_oracle import continuation
from engine.schedules import inject_fault
from engine.tracking import CONTEXT
from mtlqwen import CapacityError, DeviceError, _core

N_TOKENS = 12
# A few rows, one block that fills up, a few again, two blocks; the last waits for a slot.
PROMPT_LENGTHS = (3, 124, 7, 150)
SLOTS = 3
WIDTH = 3  # proposals of a draft
KINDS = ("allocation", "mapping", "commit")


class Scenario:
    """Opens an engine, generates with several sequences, closes it."""

    def __init__(
        self,
        model: str,
        kernels: str,
        expected: list[tuple[list[int], list[int]]],
        slots: int = SLOTS,
        **drafting: Any,
    ):
        self.model, self.kernels, self.expected = model, kernels, expected
        self.slots, self.drafting = slots, drafting
        self.budget = least_budget(model, kernels, slots, **drafting) + (1 << 20)

    def open(self, slots: int | None = None) -> _core.Engine:
        engine = _core.Engine(
            self.model,
            kernels=self.kernels,
            context=CONTEXT,
            slots=slots or self.slots,
            memory_budget=self.budget,
            **self.drafting,
        )
        force_width(engine, WIDTH)
        return engine

    def submit(self, engine: _core.Engine) -> list[Run]:
        return [
            submit(engine, prompt, max_tokens=len(tokens), seed=i)
            for i, (prompt, tokens) in enumerate(self.expected)
        ]

    def draft(self, engine: _core.Engine, runs: list[Run]) -> None:
        """What is right, for every second sequence; the drafter says the rest, mostly wrong."""
        if not self.drafting:
            return
        for run, (_, tokens) in list(zip(runs, self.expected, strict=True))[1::2]:
            if run.finish_reason is None:
                n = len(run.token_ids)
                propose(engine, run.sequence, tokens[n : n + WIDTH])

    def check(self, runs: list[Run]) -> None:
        for run, (_, tokens) in zip(runs, self.expected, strict=True):
            assert (run.finish_reason, run.token_ids) == ("length", tokens)


@pytest.fixture(scope="module")
def scenarios(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Scenario]:
    """By who drafts. With drafts there are fewer sequences: the others show the same."""
    drafted, kernels = write_drafted(tmp_path_factory.mktemp("hash")), build_hash_kernels(root)
    model, path = drafted.model, str(drafted.path)
    expected = []
    for seed, length in enumerate(PROMPT_LENGTHS):
        prompt = [(7 * i + length) % model.geometry.vocab for i in range(length)]
        expected.append((prompt, list(islice(continuation(model, prompt, seed), N_TOKENS))))
    few = [(prompt, tokens[:8]) for prompt, tokens in expected[:3]]
    mtp, dflash = drafted.options("mtp"), drafted.options("dflash")
    return {
        "nobody": Scenario(path, kernels, expected),
        "mtp": Scenario(path, kernels, few, 2, **mtp),
        "dflash": Scenario(path, kernels, few, 2, **dflash),
        "mtp, with candidates": Scenario(path, kernels, few, 2, **mtp, candidate_bytes=1 << 30),
    }


@pytest.fixture
def scenario(scenarios: dict[str, Scenario]) -> Scenario:
    return scenarios["nobody"]


@pytest.fixture(autouse=True)
def no_fault_left() -> Iterator[None]:
    yield
    for kind in KINDS:
        inject_fault(kind, 0)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def run_all(
    engine: _core.Engine, runs: list[Run], scenario: Scenario
) -> tuple[int, list[Exception]]:
    """Step until all ended; count the steps that failed and keep what sequences failed with."""
    errors: list[Exception] = []
    failed_steps = 0
    busy = True
    while busy:
        scenario.draft(engine, runs)
        try:
            busy = engine.step()
        except (CapacityError, DeviceError):
            failed_steps += 1
        engine.check_integrity()
        for run in runs:
            if run.finish_reason is not None:
                continue
            try:
                poll = engine.poll(run.sequence)
            except (CapacityError, DeviceError) as error:
                run.finish_reason = "error"
                errors.append(error)
                continue
            run.token_ids += poll.token_ids
            run.finish_reason = poll.finish_reason
    assert all(run.finish_reason for run in runs)
    return failed_steps, errors


def release(engine: _core.Engine, runs: list[Run]) -> None:
    for run in runs:
        engine.release(run.sequence)


def test_an_engine_that_gets_no_memory_says_for_what(scenario: Scenario) -> None:
    inject_fault("allocation", 1)
    with pytest.raises(DeviceError, match=r"\[gpu\] kv 0: the device refused a sparse buffer of"):
        scenario.open()
    inject_fault("allocation", 4)
    with pytest.raises(
        DeviceError, match=r"\[gpu\] \w.*: the device refused a buffer of \d+ bytes"
    ):
        scenario.open()
    scenario.open().close()


@pytest.mark.parametrize("drafter", ["nobody", "mtp", "dflash", "mtp, with candidates"])
@pytest.mark.parametrize("kind", KINDS)
def test_after_the_nth_fault_all_goes_on(
    scenarios: dict[str, Scenario], kind: str, drafter: str
) -> None:
    scenario = scenarios[drafter]
    engine = scenario.open()
    runs = scenario.submit(engine)
    run_all(engine, runs, scenario)
    scenario.check(runs)
    stats = engine.stats()
    assert (int(stats["drafted_tokens"]) > int(stats["accepted_tokens"]) > 0) == (
        drafter != "nobody"
    )
    idle_bytes = engine.stats()["memory_bytes"]
    engine.close()
    files, maps = open_files(), mappings()

    refused = failed = 0
    for n in count(1):
        assert n < 500
        inject_fault(kind, n)
        try:
            engine = scenario.open()
        except (CapacityError, DeviceError):
            refused += 1
            continue
        runs = scenario.submit(engine)
        failed_steps, errors = run_all(engine, runs, scenario)
        check_failure(scenario, kind, failed_steps, errors, runs)
        failed += bool(errors)
        again = scenario.submit(engine)
        failed_steps, errors = run_all(engine, again, scenario)
        if not errors:
            scenario.check(again)
            assert engine.stats()["memory_bytes"] == idle_bytes
        release(engine, runs + again)
        assert not engine.step()
        engine.close()
        assert open_files() == files
        if inject_fault(kind, 0):
            break
    assert failed > 0
    assert (refused > 0) == (kind == "allocation")
    assert mappings() <= maps + 20, "what failed leaves no mapping behind"
    print(f"{kind}: {n - 1} faults, {refused} refused an engine, {failed} failed sequences")


def check_failure(
    scenario: Scenario, kind: str, failed_steps: int, errors: list[Exception], runs: list[Run]
) -> None:
    """One fault is one failed step, or one sequence that got no memory."""
    wanted = DeviceError if kind == "commit" else CapacityError
    assert all(isinstance(error, wanted) for error in errors)
    if kind == "allocation":
        assert failed_steps == 0
        assert len(errors) <= 1
    else:
        assert failed_steps <= 1
        assert len(errors) <= scenario.slots
    for run, (_, tokens) in zip(runs, scenario.expected, strict=True):
        if run.finish_reason == "error":
            assert run.token_ids == tokens[: len(run.token_ids)]
        else:
            assert (run.finish_reason, run.token_ids) == ("length", tokens)


def test_banks_whose_mapping_failed_are_mapped_again(scenario: Scenario) -> None:
    engine = scenario.open()
    prompt, tokens = scenario.expected[0]
    failing = submit(engine, prompt, max_tokens=N_TOKENS)
    inject_fault("mapping", 2)  # the first is that of the keys and values
    with pytest.raises(CapacityError, match="mapped ranges"):
        engine.step()
    with pytest.raises(CapacityError, match="mapped ranges"):
        engine.poll(failing.sequence)
    run = submit(engine, prompt, max_tokens=N_TOKENS)
    while step_and_read(engine, [run]):
        pass
    assert run.token_ids == tokens
    engine.close()


def test_banks_of_a_load_whose_mapping_failed_are_mapped_again(
    scenario: Scenario, tmp_path: Path
) -> None:
    prompt, tokens = scenario.expected[3]
    path = str(tmp_path / "saved")
    engine = scenario.open()
    run_all(engine, [submit(engine, prompt, max_tokens=N_TOKENS, seed=3)], scenario)
    assert engine.save_checkpoint(path, prompt, "", True) > 0
    engine.close()
    for nth in (1, 2):  # of the bank, of keys and values
        engine = scenario.open()
        inject_fault("mapping", nth)
        with pytest.raises(CapacityError, match="mapped ranges"):
            engine.load_checkpoint(path)
        engine.check_integrity()
        again = submit(engine, prompt, max_tokens=N_TOKENS, seed=3)
        run_all(engine, [again], scenario)
        assert again.token_ids == tokens
        engine.close()


def test_who_waits_goes_on_when_all_that_were_planned_get_no_memory(scenario: Scenario) -> None:
    engine = scenario.open(slots=1)
    prompt, tokens = scenario.expected[0]
    failing = submit(engine, prompt, max_tokens=N_TOKENS)
    waiting = submit(engine, prompt, max_tokens=N_TOKENS)
    inject_fault("allocation", 1)
    assert engine.step(), "False would say that nothing is left to do"
    with pytest.raises(CapacityError, match="the device refused a heap"):
        engine.poll(failing.sequence)
    while step_and_read(engine, [waiting]):
        pass
    assert waiting.token_ids == tokens
    engine.close()


def test_a_failed_unmapping_leaves_nothing_bound(scenario: Scenario) -> None:
    engine = scenario.open()
    prompt, _ = scenario.expected[1]
    run = submit(engine, prompt, max_tokens=5, seed=1)
    assert engine.step()
    assert int(engine.stats()["kv_bytes"]) > 0
    inject_fault("mapping", 1)
    engine.cancel(run.sequence)
    engine.step()
    engine.check_integrity()
    assert engine.stats()["kv_bytes"] == 0
    engine.close()
