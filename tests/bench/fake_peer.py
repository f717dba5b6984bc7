"""Stands in for llama.cpp: answers like its worker and computes nothing.

A model of the name `broken` cannot be opened.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "workers"))

from serve import serve

PASS_S = 0.001


class Fake:
    """Every token is the number of the pass that it comes from."""

    def __init__(self, model: str, threads: int, sequences: int, context: int) -> None:
        if Path(model).name == "broken":
            raise RuntimeError("no such model")
        self.most = sequences
        self.generated: list[list[int]] = []

    def forget(self) -> None:
        self.generated = []

    def prompt(self, prompts: Sequence[Sequence[int]]) -> None:
        assert 1 <= len(prompts) <= self.most
        assert not self.generated
        print("noise that is no answer")
        time.sleep(PASS_S)
        self.generated = [[0] for _ in prompts]

    def decode(self) -> None:
        time.sleep(PASS_S)
        for tokens in self.generated:
            tokens.append(len(tokens))

    def token_ids(self) -> list[list[int]]:
        return self.generated


if __name__ == "__main__":
    serve("fake", "fake 1.0", Fake)
