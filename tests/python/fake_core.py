"""A core without a model: its tokens come from a script. It follows `mtlqwen.driver.Core`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtlqwen.errors import CapacityError, FormatError
from mtlqwen.options import CoreOptions

# Keywords of `Core.submit` that this one only notes.
CHOICE = {
    "sample_index",
    "top_k",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "allowed_ids",
    "bad_words",
    "min_tokens",
    "logprobs",
    "prompt_logprobs",
    "recall",
    "thinking_budget",
    "constraint",
}

# prompt ids -> the tokens that the model "generates", the stop token included if there is one
Script = Callable[[list[int]], list[int]]


@dataclass
class FakePoll:
    """What `FakeCore.poll` returns."""

    token_ids: list[int]
    finish_reason: str | None
    ttft_s: float = 0.5
    prefill_s: float = 0.5
    decode_s: float = 1.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    drafter: str = "off"
    draft_passes: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[list[tuple[int, float]]] = field(default_factory=list)
    prompt_logprobs: list[float] = field(default_factory=list)
    top_prompt_logprobs: list[list[tuple[int, float]]] = field(default_factory=list)


@dataclass
class FakeSequence:
    """One sequence of a `FakeCore`."""

    prompt: list[int]
    script: list[int]
    max_tokens: int
    stop_ids: Sequence[int]
    temperature: float = 0.0
    seed: int = 0
    priority: int = 0
    checkpoint_at: Sequence[int] = ()
    cached_tokens: int = 0
    deadline: float | None = None
    choice: dict[str, object] = field(default_factory=dict)
    made: list[int] = field(default_factory=list)
    read: int = 0
    finish_reason: str | None = None
    error: Exception | None = None
    waits: bool = False  # it has no slot


class FakeCore:
    """Generates ``tokens_per_step`` scripted tokens a step for every live sequence.

    What it has seen of a prompt at its checkpoints counts as cached from then on.
    """

    def __init__(
        self,
        script: Script,
        *,
        context: int = 4096,
        vocab_size: int = 1000,
        step_s: float = 0.0,
        tokens_per_step: int = 1,
    ) -> None:
        self.script = script
        self.context = context
        self.slots = 8
        self.drafter = "off"
        self.vocab_size = vocab_size
        self.mask_words = (vocab_size + 31) // 32
        self.step_s = step_s
        self.tokens_per_step = tokens_per_step
        self.sequences: dict[int, FakeSequence] = {}
        self.submitted: list[FakeSequence] = []
        self.checkpoints: set[tuple[int, ...]] = set()
        self.step_error: Exception | None = None  # raised once, by the next step with work
        self.poison: Exception | None = None  # the error of the next sequence submitted
        self.options: CoreOptions | None = None  # what the engine asked for
        self.closed = False
        self.passes = 0
        self.stepping = threading.Lock()
        self.mutex = threading.Lock()

    def set_mask_fn(self, function: Callable[..., list[Exception | None]]) -> None:
        """Take it, and never call it: texts come from the script."""

    def submit(
        self,
        token_ids: Sequence[int],
        *,
        max_tokens: int,
        temperature: float,
        seed: int,
        stop_ids: Sequence[int],
        priority: int = 0,
        deadline_s: float | None = None,
        checkpoint_at: Sequence[int] = (),
        **choice: object,
    ) -> int:
        self._check()
        if len(token_ids) > self.context:
            raise CapacityError(
                f"[engine] prompt: longer than the context (got {len(token_ids)} tokens, "
                f"want at most {self.context})"
            )
        prompt = list(token_ids)
        sequence = FakeSequence(
            prompt, self.script(prompt), max_tokens, stop_ids, temperature, seed, priority
        )
        sequence.checkpoint_at = list(checkpoint_at)
        assert choice.keys() <= CHOICE, choice
        sequence.choice = choice
        sequence.cached_tokens = self._cached(prompt[:-1])
        if deadline_s is not None:
            sequence.deadline = time.monotonic() + deadline_s
        sequence.error, self.poison = self.poison, None
        with self.mutex:
            self.sequences[len(self.submitted)] = sequence
            self.submitted.append(sequence)
            return len(self.submitted) - 1

    def step(self) -> bool:
        assert self.stepping.acquire(blocking=False), "two steps at once"
        try:
            self._check()
            live = self._live()
            for late in live:
                if late.deadline is not None and time.monotonic() >= late.deadline:
                    late.finish_reason = "deadline"
            live = self._live()
            if not live:
                return False
            self.passes += 1
            if self.step_error is not None:
                error, self.step_error = self.step_error, None
                raise error
            if self.step_s:
                time.sleep(self.step_s)
            for sequence in live:
                for _ in range(self.tokens_per_step):
                    self._advance(sequence)
            return True
        finally:
            self.stepping.release()

    def news(self) -> list[int]:
        self._check()
        with self.mutex:
            return [
                number
                for number, state in self.sequences.items()
                if state.error or state.finish_reason or state.read < len(state.made)
            ]

    def poll(self, sequence: int) -> FakePoll:
        self._check()
        state = self._find(sequence)
        if state.error is not None:
            raise state.error
        tokens, state.read = state.made[state.read :], len(state.made)
        n_top: Any = state.choice.get("logprobs")
        asked = [] if n_top is None else tokens
        return FakePoll(
            tokens,
            state.finish_reason,
            logprobs=[-token / 64 for token in asked],
            top_logprobs=[[(k, -k / 64) for k in range(n_top)] for _ in asked],
            prompt_tokens=len(state.prompt),
            completion_tokens=len(state.made),
            cached_tokens=state.cached_tokens,
        )

    def cancel(self, sequence: int) -> None:
        self._check()
        state = self._find(sequence)
        if state.finish_reason is None:
            state.finish_reason = "cancelled"

    def release(self, sequence: int) -> None:
        self._find(sequence)
        with self.mutex:
            del self.sequences[sequence]

    def close(self) -> None:
        self.closed = True
        with self.stepping:  # waits for the running pass
            self.sequences.clear()

    def memory_map(self) -> dict[str, object]:
        self._check()
        return {
            "block_tokens": 128,
            "n_bundles": 4,
            "bundle_bytes": 1024,
            "holders": b"\1\0",
            "blocks": [],
            "checkpoints": [(-1, 3, 2, [1, 2, 3])],
        }

    def stats(self) -> dict[str, int | float | str]:
        self._check()
        return {"passes": self.passes, "device": "fake"}

    def check_integrity(self) -> None:
        self._check()

    def save_checkpoint(
        self, path: str, token_ids: Sequence[int], note: str, with_state: bool
    ) -> int:
        self._check()
        cached = self._cached(list(token_ids)) if with_state else 0
        text = json.dumps({"token_ids": list(token_ids), "note": note, "cached": cached})
        Path(path).write_text(text)
        return cached

    def load_checkpoint(self, path: str) -> tuple[list[int], str, int]:
        self._check()
        try:
            file = json.loads(Path(path).read_text())
        except ValueError as error:
            raise FormatError(f"[checkpoint] {path}: damaged ({error})") from error
        self.checkpoints.add(tuple(file["token_ids"][: file["cached"]]))
        return file["token_ids"], file["note"], file["cached"]

    def start_trace(self, path: str) -> None:
        self._check()
        assert path

    def stop_trace(self) -> bool:
        return True

    def live(self) -> int:
        """Return how many sequences are neither finished nor forgotten."""
        return len(self._live())

    def _live(self) -> list[FakeSequence]:
        with self.mutex:
            return [
                s
                for s in self.sequences.values()
                if s.finish_reason is None and not s.error and not s.waits
            ]

    def _cached(self, token_ids: list[int]) -> int:
        """Return how long the longest checkpoint is that ``token_ids`` begin with."""
        with self.mutex:
            fitting = (len(c) for c in self.checkpoints if c == tuple(token_ids[: len(c)]))
            return max(fitting, default=0)

    def _find(self, sequence: int) -> FakeSequence:
        if sequence not in self.sequences:
            raise ValueError(f"[engine] sequence {sequence}: unknown, or released")
        return self.sequences[sequence]

    def _advance(self, sequence: FakeSequence) -> None:
        if sequence.finish_reason is not None:
            return
        with self.mutex:
            self.checkpoints |= {tuple(sequence.prompt[:at]) for at in sequence.checkpoint_at}
        at = len(sequence.made)
        token = sequence.script[at] if at < len(sequence.script) else sequence.script[-1]
        sequence.made.append(token)
        if token in sequence.stop_ids:
            sequence.finish_reason = "stop"
        elif len(sequence.made) >= sequence.max_tokens:
            sequence.finish_reason = "length"

    def _check(self) -> None:
        if self.closed:
            raise RuntimeError("[engine] core: used after close")
