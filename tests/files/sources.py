"""Checkpoint directories as they are published: random weights, and all that stands beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from checkpoints import Model, byte_tokenizer, write_hf
from mtlqwen.tokenizer import PATTERNS

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
GENERATION = {
    "do_sample": True,
    "temperature": 0.5,
    "top_k": 20,
    "top_p": 0.75,
    "eos_token_id": 258,
}


def add_sidecars(folder: Path, vocab: int) -> Path:
    """Write what stands beside weights: a tokenizer as Qwen's, a template, defaults."""
    split = {"type": "Split", "pattern": {"Regex": PATTERNS["qwen35"]}, "behavior": "Isolated"}
    data = byte_tokenizer(vocab)
    steps = [split | {"invert": False}, data["pre_tokenizer"]]
    data |= {"normalizer": {"type": "NFC"}}
    data |= {"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}
    data["model"] |= {"vocab": data["model"]["vocab"] | {"ab": 280}, "merges": [["a", "b"]]}
    names: dict[str, Any] = {"eos_token": "<|im_end|>", "pad_token": {"content": "<|endoftext|>"}}
    names["added_tokens_decoder"] = {str(token["id"]): token for token in data["added_tokens"]}
    for name, content in (
        ("tokenizer.json", json.dumps(data)),
        ("tokenizer_config.json", json.dumps(names)),
        ("generation_config.json", json.dumps(GENERATION)),
        ("chat_template.jinja", TEMPLATE),
    ):
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def write_source(folder: Path, model: Model, **options: Any) -> Path:
    return add_sidecars(write_hf(folder, model, **options), model.geometry.vocab)
