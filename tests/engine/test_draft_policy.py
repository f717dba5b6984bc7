"""The draft policy on simulated machines and texts: close to the best fixed width."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from mtlqwen import _core

testing: Any = _core._testing
MOST_ROWS = 64
ENOUGH = 0.97
LEARNING = 400  # passes before a policy is compared with who knows the laws

Conditionals = tuple[float, ...]  # probability that a proposal is accepted if those before it were
Text = Callable[[int], Conditionals]  # by how many tokens there are


@dataclass(frozen=True)
class Machine:
    """True times of passes, in units of a pass of one row."""

    row: float = 0.08
    mtp_step: float = 0.15
    dflash: float = 0.35
    jumps: tuple[tuple[int, float], ...] = ()  # (more rows than that, further time)
    slower: Callable[[int], float] = lambda at: 1.0  # by how many passes there were

    def seconds(self, kind: str, rows: int, steps: int) -> float:
        """Of a pass, while the machine is not slower."""
        time = 1 + self.row * (rows - 1) + sum(more for least, more in self.jumps if rows > least)
        if kind == "mtp":
            time += self.mtp_step * steps
        elif kind == "dflash":
            time += self.dflash + 0.1 * self.row * rows
        return 1e-3 * time


def steady(first: float, keeps: float = 1.0) -> Text:
    """One law for all of the text."""
    conditionals = tuple(first * keeps**i for i in range(testing.MOST_WIDTH))
    return lambda at: conditionals


def changing(one: float, other: float, every: int) -> Text:
    """Two laws, taking turns."""
    texts = steady(one), steady(other)
    return lambda at: texts[at // every % 2](at)


def expected(conditionals: Conditionals, width: int) -> float:
    """Tokens of a draft, the target's own included."""
    return 1 + sum(itertools.accumulate(conditionals[:width], lambda a, b: a * b))


def accepted_of(rng: random.Random, conditionals: Conditionals, width: int) -> int:
    """Proposals accepted of a draft."""
    accepted = 0
    while accepted < width and rng.random() < conditionals[accepted]:
        accepted += 1
    return accepted


class Run:
    """A policy, or a fixed width, that decodes texts side by side on a machine."""

    def __init__(self, machine: Machine, texts: list[Text], drafters: dict[str, int]) -> None:
        self.machine, self.texts = machine, texts
        self.policy = testing.DraftPolicy(list(drafters.items()))
        self.histories = [testing.DraftHistory() for _ in texts]
        self.matches = [0] * len(texts)
        self.laws: dict[str, list[Text]] = {}  # of single drafters, else the texts'
        self.tokens = [0] * len(texts)
        self.rng = random.Random(20)
        self.noise = random.Random(21)
        self.rates: list[tuple[float, float]] = []  # expected tokens and true seconds of a pass
        self.widths: list[list[int]] = []
        self.kinds: list[str] = []  # of the first sequence

    def law(self, kind: str, i: int) -> Conditionals:
        """Of sequence i, as its text stands."""
        return self.laws.get(kind, self.texts)[i](self.tokens[i])

    def measured(self, seconds: float) -> float:
        """A time as a machine with other work shows it."""
        seconds *= self.machine.slower(len(self.rates)) * (1 + abs(self.noise.gauss(0, 0.03)))
        return seconds * (self.noise.uniform(2, 6) if self.noise.random() < 0.01 else 1)

    def step(self, fixed: tuple[str, int] | None = None) -> None:
        """One pass."""
        choices = [fixed] * len(self.texts) if fixed else self.choose()
        kind, n, rows, steps = testing.describe_pass(choices)
        seconds = self.machine.seconds(kind, rows, steps)
        tokens, promised = 0, 0.0
        for i, (drafter, width) in enumerate(choices):
            law = self.law(drafter, i)
            promised += expected(law, width)
            accepted = accepted_of(self.rng, law, width)
            if not fixed:
                self.policy.observe_draft(
                    self.histories[i], (drafter, width), self.matches[i], accepted
                )
            self.tokens[i] += 1 + accepted
            tokens += 1 + accepted
        if not fixed:
            self.policy.observe_pass(kind, n, rows, steps, self.measured(seconds), tokens)
        self.rates.append((promised, seconds))
        self.widths.append([width for _, width in choices])
        self.kinds.append(choices[0][0])

    def choose(self) -> list[tuple[str, int]]:
        """What the policy says."""
        candidates = [
            (history, match, 10**6, 0)
            for history, match in zip(self.histories, self.matches, strict=True)
        ]
        choices: list[tuple[str, int]] = self.policy.choose(candidates, MOST_ROWS)
        return choices

    def rate(self, n_tokens: int, fixed: tuple[str, int] | None = None) -> float:
        """Expected tokens a second until there are so many a sequence."""
        while sum(self.tokens) < n_tokens * len(self.texts):
            self.step(fixed)
        tokens, seconds = map(sum, zip(*self.rates, strict=True))
        return tokens / seconds


MACHINES = {
    "a CPU": Machine(),
    "steep": Machine(row=0.5, dflash=0.5, mtp_step=0.3),
    "flat": Machine(row=0.01, dflash=0.1, mtp_step=0.05),
    "with jumps": Machine(row=0.02, dflash=0.3, jumps=((4, 0.3), (8, 0.5), (16, 1.0))),
    "with a slow drafter": Machine(row=0.05, dflash=6, mtp_step=3),
    "that slows down and recovers": Machine(slower=lambda at: 2.0 if at // 1500 % 2 else 1.0),
}
TEXTS = {
    "copied": steady(0.95),
    "easy": steady(0.85, 0.97),
    "middling": steady(0.6, 0.95),
    "hard": steady(0.15),
    "hopeless": steady(0.0),
}


def best_fixed(machine: Machine, text: Text, n: int, drafters: dict[str, int]) -> float:
    """Tokens a second of the best width that all sequences have, plain decoding included."""
    law = text(0)
    return max(
        n * expected(law, width) / machine.seconds(kind if width else "off", n * (1 + width), width)
        for kind, most in drafters.items()
        for width in range(most + 1)
        if n * (1 + width) <= MOST_ROWS
    )


@pytest.mark.parametrize("n", [1, 4, 8])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("machine", MACHINES)
def test_close_to_the_best_fixed_width_and_to_plain_decoding(
    machine: str, text: str, n: int
) -> None:
    true = MACHINES[machine]
    drafters = {"mtp": 4} if n == 4 else {"dflash": 15}
    run = Run(true, [TEXTS[text]] * n, drafters)
    for _ in range(LEARNING):
        run.step()
    run.rates.clear()
    rate = run.rate(run.tokens[0] + 3000)
    assert rate >= ENOUGH * best_fixed(true, TEXTS[text], n, drafters)


@pytest.mark.parametrize("n", [1, 4, 8])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("every", [60, 600])
def test_text_that_changes_does_not_make_it_slower(machine: str, every: int, n: int) -> None:
    true = MACHINES[machine]
    run = Run(true, [changing(0.95, 0.1, every)] * n, {"dflash": 15})
    assert run.rate(6000) >= ENOUGH * n / true.seconds("off", n, 0)


@pytest.mark.parametrize("kind", ["dflash", "mtp"])
def test_what_it_costs_to_learn_that_drafts_do_not_pay(kind: str) -> None:
    run = Run(MACHINES["a CPU"], [steady(0.0)], {kind: 4 if kind == "mtp" else 15})
    run.rate(60)
    lost = sum(seconds for _, seconds in run.rates) - 60 * 1e-3
    assert lost < 10 * 1e-3  # passes of plain decoding, once an engine


def test_widths_come_back_when_the_text_becomes_predictable() -> None:
    run = Run(MACHINES["a CPU"], [changing(0.0, 0.95, 1000)], {"dflash": 15})
    run.rate(1000)
    assert sum(widths[0] for widths in run.widths[-100:]) < 30
    n_passes = len(run.widths)
    run.rate(1300)
    assert len(run.widths) - n_passes < 150
    assert run.widths[-1][0] > 6


def test_one_predictable_sequence_among_others_gets_the_rows() -> None:
    run = Run(MACHINES["a CPU"], [steady(0.95), *[steady(0.05)] * 3], {"dflash": 15})
    run.rate(3000)
    mean = [sum(column) / 200 for column in zip(*run.widths[-200:], strict=True)]
    assert mean[0] > 5
    assert max(mean[1:]) < 1


def test_more_sequences_get_narrower_drafts() -> None:
    machine = Machine(row=0.08, dflash=0.35)
    widths = []
    for n in (1, 4, 16):
        run = Run(machine, [steady(0.85)] * n, {"dflash": 15})
        run.rate(1500)
        widths.append(sum(map(sum, run.widths[-100:])) / 100 / n)
    assert widths[0] > widths[1] > widths[2]


def test_a_good_match_comes_before_the_drafter_and_a_bad_one_after() -> None:
    for good, match in ((True, 12), (False, 2)):
        run = Run(MACHINES["a CPU"], [steady(0.6)], {"ngram": 15, "dflash": 15})
        run.laws["ngram"] = [steady(0.97 if good else 0.1)]
        run.matches = [match]
        for _ in range(600):
            run.step()
        assert (run.kinds[300:].count("ngram") > 250) == good
        assert (run.kinds[300:].count("dflash") > 250) != good


def test_without_a_match_there_is_no_proposal() -> None:
    run = Run(MACHINES["flat"], [steady(0.95)] * 2, {"ngram": 15})
    run.matches = [0, 9]
    for _ in range(300):
        run.step()
    assert all(widths[0] == 0 for widths in run.widths)
    assert run.widths[-1][1] > 10


@pytest.mark.parametrize("n", [1, 3, 31, 32])
def test_limits_of_sequences_and_of_the_pass_are_kept(n: int) -> None:
    rng = random.Random(n)
    drafters = {"ngram": 15, "mtp": 4, "dflash": 15}
    policy = testing.DraftPolicy(list(drafters.items()))
    histories = [testing.DraftHistory() for _ in range(n)]
    machine = MACHINES["flat"]
    for _ in range(300):
        most = [rng.choice([0, 1, 3, 100]) for _ in range(n)]
        matches = [rng.choice([0, 2, 5, 16]) for _ in range(n)]
        unsettled = [rng.choice([0, 50, 1000]) for _ in range(n)]
        candidates = list(zip(histories, matches, most, unsettled, strict=True))
        choices = policy.choose(candidates, MOST_ROWS)
        kinds = {kind for kind, _ in choices} - {"off", "ngram"}
        assert len(kinds) <= 1
        assert n + sum(width for _, width in choices) <= MOST_ROWS
        for i, (kind, width) in enumerate(choices):
            assert width <= min(most[i], drafters.get(kind, 0))
            assert (kind == "off") == (width == 0)
            assert kind != "ngram" or matches[i] > 0
            policy.observe_draft(histories[i], (kind, width), matches[i], rng.randint(0, width))
        kind, _, rows, steps = testing.describe_pass(choices)
        policy.observe_pass(kind, n, rows, steps, machine.seconds(kind, rows, steps), n)


def test_the_same_calls_give_the_same_choices() -> None:
    runs = [Run(MACHINES["a CPU"], [steady(0.7)] * 4, {"ngram": 15, "dflash": 15}) for _ in "ab"]
    for run in runs:
        run.matches = [0, 3, 9, 16]
        run.rate(500)
    assert runs[0].widths == runs[1].widths


def test_every_drafter_is_tried_and_the_best_one_stays() -> None:
    run = Run(MACHINES["a CPU"], [steady(0.5)], {"mtp": 4, "dflash": 15})
    run.laws = {"mtp": [steady(0.95)], "dflash": [steady(0.3)]}
    for _ in range(1500):
        run.step()
    assert {"off", "mtp", "dflash"} <= set(run.kinds)
    assert run.kinds[-200:].count("mtp") > 150


def test_a_drafter_that_proves_better_in_its_trials_takes_over_soon() -> None:
    run = Run(MACHINES["a CPU"], [steady(0.98)], {"mtp": 4, "dflash": 15})
    run.laws = {"mtp": [steady(0.98)], "dflash": [steady(0.95)]}
    for _ in range(300):
        run.step()
    assert run.kinds[-100:].count("dflash") > 80


def passes_until_it_drafts(unsettled: int, seconds_a_row: float) -> int:
    """Of a text whose drafts pay, where its drafter's context lacks so many rows."""
    run = Run(MACHINES["a CPU"], [TEXTS["easy"]] * 8, {"dflash": 15})
    for _ in range(LEARNING):
        run.step()
    run.policy.observe_settling(10**6, seconds_a_row * 10**6)
    new = testing.DraftHistory()
    for n_passes in range(1000):
        ((_, width),) = run.policy.choose([(new, 0, 10**6, unsettled)], MOST_ROWS)
        if width > 0:
            return n_passes
        run.policy.observe_draft(new, ("off", 0), 0, 0)
    raise AssertionError("it never drafts")


def test_a_context_waits_until_drafts_would_have_paid_for_it() -> None:
    own = 1 + testing.MOST_WIDTH  # rows that every pass of drafts settles
    assert passes_until_it_drafts(0, 1.0) == 0
    assert passes_until_it_drafts(own, 1.0) == 0
    assert passes_until_it_drafts(own + 100, 0.0) == 0
    waited = passes_until_it_drafts(own + 100, 0.001)
    assert waited > 5
    assert abs(passes_until_it_drafts(own + 100, 0.002) - 2 * waited) <= 2
    assert abs(passes_until_it_drafts(own + 200, 0.001) - 2 * waited) <= 2


def test_whoever_drafts_is_not_held_up_by_those_who_wait() -> None:
    run = Run(MACHINES["flat"], [TEXTS["easy"]] * 8, {"dflash": 15})
    for _ in range(LEARNING):
        run.step()
    run.policy.observe_settling(10**6, 10.0 * 10**6)
    candidates = [(history, 0, 10**6, 0) for history in run.histories[:4]]
    candidates += [(testing.DraftHistory(), 0, 10**6, 500) for _ in range(4)]
    widths = [width for _, width in run.policy.choose(candidates, MOST_ROWS)]
    assert all(width > 0 for width in widths[:4])
    assert widths[4:] == [0] * 4
