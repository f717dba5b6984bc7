"""Small models that can be drafted for, and the drafts of engines, kept or asked for once more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from checkpoints import Geometry, Model, random_model, write_hf
from drafters import Drafter, DrafterGeometry, random_drafter, write_drafter_hf
from engine.driving import Run, step_and_read, submit
from engine.hash_model import GEOMETRY
from engine.tracking import CONTEXT
from mtlqwen import _core

propose: Callable[[_core.Engine, int, list[int]], None] = _core._testing.propose
force_width: Callable[[_core.Engine, int | None], None] = _core._testing.force_width
last_draft: Callable[[_core.Engine, int], list[int]] = _core._testing.last_draft

MOST_WIDTH = 15  # proposals of one draft, at most
MTP_STEPS = 4  # proposals of the prediction head
DRAFTED = replace(GEOMETRY, mtp=True)  # the same tensors, and the head's
# Its two layers need a plane each, the head two.
N_PLANES = 6
DRAFTER = DrafterGeometry(
    hidden=DRAFTED.hidden,
    intermediate=32,
    vocab=DRAFTED.vocab,
    layers="sf",
    window=40,
    heads=2,
    kv_heads=1,
    head_dim=64,
    taps=(0, 2),
    target_layers=4,
    block_size=16,
    mask_id=DRAFTED.vocab - 1,
)


@dataclass(frozen=True)
class Drafted:
    """A model with its prediction head, and a drafter for it, as files."""

    model: Model
    drafter: Drafter
    path: Path
    drafter_path: Path

    def options(self, spec: str) -> dict[str, Any]:
        """Of an engine that drafts so."""
        needs_drafter = spec in ("dflash", "auto")
        return {"spec": spec} | ({"drafter": str(self.drafter_path)} if needs_drafter else {})


def write_drafted(
    folder: Path, *, dtype: str = "F32", geometry: Geometry = DRAFTED, seed: int = 1
) -> Drafted:
    """Model and drafter; the hash kernels want them in F32."""
    model, drafter = random_model(geometry, seed), random_drafter(DRAFTER, seed)
    path = write_hf(folder / "model", model, dtype=dtype)
    return Drafted(model, drafter, path, write_drafter_hf(folder / "drafter", drafter, dtype=dtype))


def spoil(tokens: Sequence[int], at: int, vocab: int) -> list[int]:
    """The tokens with a mistake in one place; none where that is behind them."""
    out = list(tokens)
    if at < len(out):
        out[at] = (out[at] + 1) % vocab
    return out


class FreshDrafts:
    """What a drafter proposes behind a text that nothing else has happened to."""

    def __init__(self, engine: _core.Engine) -> None:
        self.engine = engine  # with one slot

    def __call__(self, text: Sequence[int], seed: int, width: int) -> list[int]:
        """The draft behind a text, whose last token its model gives with this seed."""
        force_width(self.engine, width)
        sequence = self.engine.submit(
            list(text[:-1]),
            max_tokens=CONTEXT,
            temperature=0.0,
            seed=seed,
            stop_ids=[],
            recall=False,
        )
        run = Run(sequence)
        while len(run.token_ids) <= 1:
            step_and_read(self.engine, [run])
        assert run.token_ids[0] == text[-1]
        draft = last_draft(self.engine, sequence)
        self.engine.release(sequence)
        self.engine.step()
        return draft


class Watched:
    """One sequence, and the draft of its last pass."""

    def __init__(
        self, engine: _core.Engine, prompt: Sequence[int], *, seed: int = 0, **options: Any
    ) -> None:
        self.engine, self.prompt, self.seed = engine, list(prompt), seed
        self.run = submit(engine, prompt, seed=seed, **options)
        self.drafted = self.accepted = 0  # in all
        self.before = self.text  # the last pass
        self.draft: list[int] = []  # checked by the last pass
        self.n_right = 0  # of it

    @property
    def text(self) -> list[int]:
        return self.prompt + self.run.token_ids

    def read(self) -> None:
        """After a step."""
        self.before, self.draft, self.n_right = self.text, [], 0
        if self.run.finish_reason is not None:
            return
        poll = self.engine.poll(self.run.sequence)
        self.run.token_ids += poll.token_ids
        self.run.finish_reason = poll.finish_reason
        if poll.drafted_tokens > self.drafted:
            self.draft = last_draft(self.engine, self.run.sequence)
            assert len(self.draft) == poll.drafted_tokens - self.drafted
        self.n_right = poll.accepted_tokens - self.accepted
        self.drafted, self.accepted = poll.drafted_tokens, poll.accepted_tokens
