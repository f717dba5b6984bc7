"""A tokenizer.json as the arrays of a GGUF file.

GGUF holds the tokens of a byte-level BPE and the name of how text is split; what it cannot hold is
refused rather than lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtlqwen.conversion.gguf_file import Int32, Value
from mtlqwen.errors import FormatError, ModelError
from mtlqwen.tokenizer import CONTROL, PATTERNS, UNUSED, USER_DEFINED

_NORMAL = 1


def vocabulary(data: Mapping[str, Any], path: Path, size: int) -> dict[str, Value]:
    """Return the metadata of a tokenizer.

    Args:
        data: what a tokenizer.json says.
        path: of it, for messages.
        size: rows of the embedding; ids without a token are padding.

    Raises:
        FormatError: it is no tokenizer.json.
        ModelError: it has something that GGUF cannot say.
    """
    try:
        pre = _pre(data, path)
        model = data["model"]
        tokens = {index: (token, _NORMAL) for token, index in model["vocab"].items()}
        for token in data.get("added_tokens", []):
            _check_added(token, path)
            kind = CONTROL if token["special"] else USER_DEFINED
            tokens[token["id"]] = (token["content"], kind)
        merges = [one if isinstance(one, str) else " ".join(one) for one in model["merges"]]
        if any(merge.count(" ") != 1 for merge in merges):
            raise TypeError("a merge that is not one of two tokens")
        if tokens and not 0 <= min(tokens) <= max(tokens) < size:
            raise ModelError(
                f"[convert] {path}: a token has no row in the embedding (got id {max(tokens)}, "
                f"want less than {size})"
            )
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"[convert] {path}: not a tokenizer.json ({error!r})") from error
    rows = [tokens.get(index, (f"[PAD{index}]", UNUSED)) for index in range(size)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [token for token, _ in rows],
        "tokenizer.ggml.token_type": [Int32(kind) for _, kind in rows],
        "tokenizer.ggml.merges": merges,
    }


def _pre(data: Mapping[str, Any], path: Path) -> str:
    """Return the name of how text is normalised and split."""
    model, splitter = data["model"], data["pre_tokenizer"]
    steps = splitter.get("pretokenizers", [splitter])
    splits = [one["pattern"]["Regex"] for one in steps if one["type"] == "Split"]
    names = [name for name, pattern in PATTERNS.items() if splits == [pattern]]
    plain = not any(model.get(key) for key in ("dropout", "byte_fallback", "ignore_merges"))
    if (
        not names
        or steps[-1]["type"] != "ByteLevel"
        or (data["normalizer"] or {}).get("type") != "NFC"
        or model.get("type", "BPE") != "BPE"
        or not plain
    ):
        raise ModelError(
            f"[convert] {path}: not Qwen's tokenizer (want a byte-level BPE over NFC, split as "
            f"{' or '.join(PATTERNS)}); a GGUF file cannot say how it splits text"
        )
    return names[0]


def _check_added(token: Mapping[str, Any], path: Path) -> None:
    if not isinstance(token["content"], str):
        raise TypeError("an added token without a text")
    for key in ("lstrip", "rstrip", "single_word"):
        if token.get(key):
            raise ModelError(
                f"[convert] {path}: {token['content']!r} has {key}, which a GGUF file cannot say"
            )
