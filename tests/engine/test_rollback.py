"""After any number of accepted proposals all is as if each token had come alone.

On the hash kernels, where what follows tells of every key, value and state of every token before,
and of the order that they came in.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine.drafting import (
    MOST_WIDTH,
    MTP_STEPS,
    Drafted,
    FreshDrafts,
    Watched,
    force_width,
    propose,
    spoil,
    write_drafted,
)
from engine.hash_model import bank_bytes, build_hash_kernels, draw_tokens
from engine.hash_oracle import Continuations
from engine.tracking import CONTEXT
from mtlqwen import _core

PAIRS = [(width, right) for width in range(1, MOST_WIDTH + 1) for right in range(width + 1)]
SEED = 3
WAYS_BACK = (0, 1 << 30)  # candidate_bytes: the tape, or the state behind every row
SPECS = ("ngram", "mtp", "dflash")


class Setup:
    """The hash model, and what follows texts of it."""

    def __init__(self, drafted: Drafted, kernels: str) -> None:
        self.drafted, self.kernels = drafted, kernels
        self._follow = Continuations(drafted.model)
        # Tokens of a prompt, with all that is known to follow, and what comes next.
        self._known: list[tuple[int, list[int], Iterator[int]]] = []

    def open(self, spec: str, **options: Any) -> _core.Engine:
        options = {"checkpoint_interval": 0, "slots": 4} | self.drafted.options(spec) | options
        return _core.Engine(
            str(self.drafted.path), kernels=self.kernels, context=CONTEXT, **options
        )

    def behind(self, text: list[int], n: int) -> list[int]:
        """The n tokens behind a text."""
        same = (
            (whole, follow)
            for n_prompt, whole, follow in self._known
            if n_prompt <= len(text) and whole[: len(text)] == text
        )
        found = next(same, None)
        if found is None:
            found = (list(text), self._follow(text, SEED))
            self._known.append((len(text), *found))
        whole, follow = found
        whole += itertools.islice(follow, max(0, len(text) + n - len(whole)))
        return whole[len(text) : len(text) + n]

    def prompt(self, rng: random.Random, n: int) -> list[int]:
        return draw_tokens(rng, self.drafted.model, n)


@pytest.fixture(scope="module")
def setup(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Setup:
    return Setup(write_drafted(tmp_path_factory.mktemp("hash")), build_hash_kernels(root))


class Running:
    """An engine and the sequences that it runs; each step reads all of them."""

    def __init__(self, setup: Setup, engine: _core.Engine) -> None:
        self.setup, self.engine = setup, engine
        self.live: list[Watched] = []

    def step(self) -> None:
        self.engine.step()
        self.engine.check_integrity()
        for one in self.live:
            one.read()

    def start(self, prompt: list[int], **options: Any) -> Watched:
        """A sequence whose prompt has been seen and whose first token is there."""
        one = Watched(self.engine, prompt, seed=SEED, **({"max_tokens": CONTEXT} | options))
        self.live.append(one)
        while not one.run.token_ids:
            self.step()
        return one

    def propose(self, one: Watched, n: int, wrong: int = MOST_WIDTH) -> None:
        """What follows is the next draft, with a mistake in one place or behind it."""
        proposals = spoil(self.setup.behind(one.text, n), wrong, self.engine.vocab_size)
        propose(self.engine, one.run.sequence, proposals)

    def finish(self, one: Watched) -> None:
        while one.run.finish_reason is None:
            self.step()

    def release(self, one: Watched) -> None:
        self.live.remove(one)
        self.engine.release(one.run.sequence)

    def check_what_follows(self, text: list[int]) -> int:
        """A request that goes on behind a text gives what it must; tokens from the cache."""
        n = min(4, CONTEXT - len(text))
        if n == 0:
            return 0
        one = self.start(text, max_tokens=n)
        cached: int = self.engine.poll(one.run.sequence).cached_tokens
        self.finish(one)
        assert one.run.token_ids == self.setup.behind(text, n)
        self.release(one)
        return cached


Open = Callable[..., Running]


@pytest.fixture(params=[(spec, n_bytes) for spec in SPECS for n_bytes in WAYS_BACK], ids=str)
def open_running(request: pytest.FixtureRequest, setup: Setup) -> Iterator[Open]:
    """Opens engines that draft in one of the ways, and nothing but what they are told."""
    opened: list[_core.Engine] = []

    def open_one(**options: Any) -> Running:
        spec, candidate_bytes = request.param
        opened.append(setup.open(spec, candidate_bytes=candidate_bytes, **options))
        force_width(opened[-1], 0)
        return Running(setup, opened[-1])

    yield open_one
    for engine in opened:
        engine.close()


def test_every_count_of_every_width(setup: Setup, open_running: Open) -> None:
    interval = 64
    rng = random.Random(0)
    running = open_running(checkpoint_interval=interval)
    pairs = rng.sample(PAIRS, len(PAIRS))
    for n in (1, 60, 125, 250):
        running.start(setup.prompt(rng, n))
    while pairs:
        for one in list(running.live):
            if len(one.text) + MOST_WIDTH + 2 > CONTEXT:
                running.release(one)
                running.start([*one.text[: rng.randint(1, 200)], len(pairs)])
        asked = []
        for one in running.live:
            room = -len(one.text) % interval  # no draft passes a boundary
            width, right = next((pair for pair in pairs if pair[0] <= room), (0, 0))
            if width > 0:
                pairs.remove((width, right))
                running.propose(one, width, right)
            asked.append((one, width, right))
        running.step()
        for one, width, right in asked:
            assert (len(one.draft), one.n_right) == (width, right)
            assert one.text == one.before + setup.behind(one.before, right + 1)
    for one in list(running.live):
        running.release(one)
        cached = running.check_what_follows(one.text)
        assert cached >= (len(one.text) - 1) // interval * interval


def test_a_draft_ends_at_the_next_boundary(setup: Setup, open_running: Open) -> None:
    running = open_running(checkpoint_interval=16)
    one = running.start(setup.prompt(random.Random(1), 100))
    for room in (11, 15, 15):
        running.propose(one, MOST_WIDTH)
        running.step()
        assert len(one.draft) == room
        assert (len(one.text) - 1) % 16 == 0
    running.release(one)
    assert running.check_what_follows(one.text) == 144


def test_a_stop_inside_a_draft_ends_the_text_there(setup: Setup, open_running: Open) -> None:
    running = open_running()
    prompt = setup.prompt(random.Random(1), 123)  # the block of 128 ends within
    follow = setup.behind(prompt, MOST_WIDTH + 2)
    for stop in follow:
        n = follow.index(stop) + 1
        one = running.start(prompt, stop_ids=[stop])
        if one.run.finish_reason is None:
            running.propose(one, MOST_WIDTH)
            running.step()
            assert one.n_right == min(n - 2, MOST_WIDTH), "the end is not taken from a draft"
            running.finish(one)
        assert (one.run.token_ids, one.run.finish_reason) == (follow[:n], "stop")
        running.check_what_follows(one.text)
        running.release(one)


def test_a_draft_never_passes_max_tokens(setup: Setup, open_running: Open) -> None:
    running = open_running()
    prompt = setup.prompt(random.Random(2), 120)
    for max_tokens in range(2, MOST_WIDTH + 4):
        one = running.start(prompt, max_tokens=max_tokens)
        running.propose(one, MOST_WIDTH)
        running.step()
        assert (one.run.finish_reason == "length") == (max_tokens <= MOST_WIDTH + 2)
        running.finish(one)
        assert one.run.token_ids == setup.behind(prompt, max_tokens)
        running.check_what_follows(one.text)
        running.release(one)


def test_a_draft_never_passes_the_end_of_the_context(setup: Setup, open_running: Open) -> None:
    running = open_running()
    longest = setup.prompt(random.Random(3), CONTEXT)
    for room in range(2, MOST_WIDTH + 4):
        prompt = longest[:-room]
        one = running.start(prompt)
        running.propose(one, MOST_WIDTH)
        running.finish(one)
        assert (one.run.token_ids, one.run.finish_reason) == (setup.behind(prompt, room), "length")
        running.release(one)


def test_more_than_there_are_slots_take_turns(setup: Setup, open_running: Open) -> None:
    """Of those that wait, proposals come too early and are wrong."""
    running = open_running()
    rng = random.Random(4)
    for n in (1, 100, 126, 127, 128, 129, 200):
        one = Watched(running.engine, setup.prompt(rng, n), seed=SEED, max_tokens=40)
        running.live.append(one)
    while any(one.run.finish_reason is None for one in running.live):
        for one in running.live:
            if one.run.finish_reason is None and rng.random() < 0.5:
                running.propose(one, rng.randint(1, MOST_WIDTH), rng.randrange(MOST_WIDTH))
        running.step()
    for one in running.live:
        assert one.run.token_ids == setup.behind(one.prompt, 40)


@pytest.mark.parametrize("candidate_bytes", WAYS_BACK)
@pytest.mark.parametrize("spec", ["mtp", "dflash"])
def test_drafts_are_those_of_a_text_that_came_in_one(
    setup: Setup, spec: str, candidate_bytes: int
) -> None:
    """Whatever was accepted and rejected before, in whichever company."""
    rng = random.Random(5)
    running = Running(
        setup, setup.open(spec, candidate_bytes=candidate_bytes, checkpoint_interval=64)
    )
    fresh = FreshDrafts(setup.open(spec, slots=1, cache_memory=0))
    most = MTP_STEPS if spec == "mtp" else MOST_WIDTH
    force_width(running.engine, 0)
    for n in (2, 110, 121, 140):
        running.start(setup.prompt(rng, n))
    n_checked = 0
    for turn in range(24):
        width = rng.randint(1, most)
        force_width(running.engine, width)
        proposed = rng.sample(running.live, 2) if turn % 3 else []
        for one in proposed:
            running.propose(one, rng.randint(1, MOST_WIDTH), rng.randrange(MOST_WIDTH))
        running.step()
        for one in running.live:
            assert one.run.token_ids == setup.behind(one.prompt, len(one.run.token_ids))
            if one.draft and one not in proposed and rng.random() < 0.5:
                assert one.draft == fresh(one.before, SEED, len(one.draft))
                n_checked += 1
    assert n_checked > 20
    # What others find in the cache serves their drafts as well.
    for one in list(running.live):
        running.release(one)
        again = running.start(one.text + setup.prompt(rng, 3))
        cached = running.engine.poll(again.run.sequence).cached_tokens
        assert cached >= (len(one.text) - 1) // 64 * 64
        running.step()
        assert again.draft == fresh(again.before, SEED, len(again.draft))
        running.release(again)
    running.engine.close()
    fresh.engine.close()


def test_drafts_are_those_of_a_context_that_never_waited(setup: Setup) -> None:
    """Through a full store, releases, slots that were others', and what the cache keeps of them."""
    rng = random.Random(6)
    n_slots = 6
    running = Running(setup, setup.open("dflash", slots=n_slots, checkpoint_interval=64))
    fresh = FreshDrafts(setup.open("dflash", slots=1, cache_memory=0))
    texts: list[list[int]] = []
    n_checked = n_recalled = 0
    for _ in range(30):
        force_width(running.engine, 0)
        while len(running.live) < n_slots:
            begin = rng.choice(texts)[: rng.randint(1, 200)] if texts and rng.random() < 0.5 else []
            prompt = begin + setup.prompt(rng, rng.randint(3, 300 - len(begin)))
            n = rng.choice([2, 9, CONTEXT])
            running.live.append(Watched(running.engine, prompt, seed=SEED, max_tokens=n))
        for _ in range(rng.randint(1, 15)):
            running.step()
        force_width(running.engine, rng.randint(1, MOST_WIDTH))
        running.step()
        for one in running.live:
            if one.draft:
                assert one.draft == fresh(one.before, SEED, len(one.draft))
                n_checked += 1
                n_recalled += running.engine.poll(one.run.sequence).cached_tokens > 0
        for one in list(running.live):
            if one.run.finish_reason is not None or rng.random() < 0.2:
                texts.append(one.text)
                running.release(one)
    assert n_checked > 60
    assert n_recalled > 15
    running.engine.close()
    fresh.engine.close()


@pytest.mark.parametrize("order", [(1, 6, 2, 5), (6, 1, 5, 2)])
def test_both_ways_back_in_one_pass(setup: Setup, order: tuple[int, ...]) -> None:
    """Narrow drafts keep the states behind every row, wide ones are taped."""
    rng = random.Random(len(order))
    probe = setup.open("mtp")
    one = Running(setup, probe).start(setup.prompt(rng, 3))
    assert len(one.text) < 64
    bundle_bytes = int(probe.stats()["kv_bytes"])  # one block's
    probe.close()
    state_bytes = bank_bytes(setup.drafted.model.geometry, bundle_bytes)
    running = Running(setup, setup.open("mtp", candidate_bytes=3 * state_bytes))
    live = [running.start(setup.prompt(rng, rng.randint(2, 90))) for _ in order]
    for turn in range(8):
        for i, (sequence, width) in enumerate(zip(live, order, strict=True)):
            running.propose(sequence, width, wrong=(turn + i) % (width + 1))
        before = [len(sequence.run.token_ids) for sequence in live]
        running.step()
        for i, (sequence, width) in enumerate(zip(live, order, strict=True)):
            assert len(sequence.run.token_ids) - before[i] == 1 + (turn + i) % (width + 1)
            assert sequence.run.token_ids == setup.behind(
                sequence.prompt, len(sequence.run.token_ids)
            )
    running.engine.close()
