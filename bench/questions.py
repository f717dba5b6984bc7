"""Requests that the bundled model can answer: lines of data/eval.jsonl."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from mtlqwen.assets import load_assets
from mtlqwen.hub import resolve

EVAL = Path(__file__).parent / "data/eval.jsonl"
PREDICTABLE = ("story", "table", "code")  # kinds with long answers that drafters know well


@dataclass(frozen=True)
class Question:
    """One request: its name in the file, its kind, its prompt in tokens."""

    name: str
    kind: str
    token_ids: tuple[int, ...]


def read_questions(every: int) -> tuple[list[Question], list[int]]:
    """Every so many lines of the file, and the tokens that end an answer."""
    assets = load_assets(resolve("tiny"))
    lines = EVAL.read_text(encoding="utf-8").splitlines()[::every]
    items = [json.loads(line) for line in lines]
    questions = [
        Question(item["id"], item["kind"], tuple(assets.tokenizer.encode(item["prompt"])))
        for item in items
    ]
    return questions, list(assets.stop_ids)


def by_kind(questions: list[Question]) -> dict[str, list[Question]]:
    """The questions of each kind, in the order of the file."""
    kinds: dict[str, list[Question]] = {}
    for question in questions:
        kinds.setdefault(question.kind, []).append(question)
    return kinds
