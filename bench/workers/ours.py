"""The side of mtlqwen: `_core.Engine`, driven pass by pass."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mtlqwen import __version__, _core
from serve import serve

ENDLESS = 1 << 20  # tokens; `forget` ends a run


class Ours:
    """An engine with a slot for every sequence."""

    def __init__(self, model: str, threads: int, sequences: int, context: int) -> None:
        """Open the model."""
        self.engine = _core.Engine(
            model,
            kernels=str(Path(str(_core.__file__)).with_name("kernels.metallib")),
            context=context,
            slots=sequences,
            cache_memory=0,  # rounds repeat their prompts
            threads=threads,
        )
        self.sequences: list[int] = []
        self.generated: list[list[int]] = []

    def forget(self) -> None:
        """Their slots are free after the next pass."""
        for sequence in self.sequences:
            self.engine.release(sequence)
        while self.engine.step():
            pass

    def prompt(self, prompts: Sequence[Sequence[int]]) -> None:
        """Submit all at once; whoever is done first decodes on until the last is."""
        self.sequences = [
            self.engine.submit(prompt, max_tokens=ENDLESS, temperature=0.0, seed=0, stop_ids=[])
            for prompt in prompts
        ]
        self.generated = [[] for _ in prompts]
        while not all(self.token_ids()):
            self.engine.step()

    def decode(self) -> None:
        """One pass."""
        self.engine.step()

    def token_ids(self) -> list[list[int]]:
        """Collect what is new."""
        for tokens, sequence in zip(self.generated, self.sequences, strict=True):
            tokens += self.engine.poll(sequence).token_ids
        return self.generated


if __name__ == "__main__":
    serve("mtlqwen", __version__, Ours)
