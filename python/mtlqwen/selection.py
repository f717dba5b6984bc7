"""Chooses, by their names alone, the files of a folder or a repository that are one model.

Knows how files of models are called; opens none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath

CHECKPOINT = "model.safetensors"
INDEX = "model.safetensors.index.json"
# What is read beside the weights of a checkpoint directory, and beside a GGUF file.
SIDECARS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
)
GGUF_SIDECARS = ("generation_config.json",)

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_NO_MODEL = re.compile(r"mmproj|^mtp-", re.IGNORECASE)  # an image projector, a head alone
_QUANT = re.compile(r"(?:UD-)?(?:I?Q\d\w*|MXFP4\w*|NVFP4|BF16|F16|F32)", re.IGNORECASE)
_NAMES_DRAFTER = re.compile(r"[-_.]dflash(?![a-z])", re.IGNORECASE)


def parts_of(name: str) -> list[str]:
    """Return the names of all parts of a GGUF file; of a whole one, its own."""
    match = _PART.search(name)
    if match is None:
        return [name]
    base, count = name[: match.start()], int(match[2])
    return [f"{base}-{part:05}-of-{match[2]}.gguf" for part in range(1, count + 1)]


def gguf_files(names: Iterable[str]) -> list[str]:
    """Return the GGUF models and drafters among ``names``; the first part stands for all parts."""
    return sorted(
        name
        for name in names
        if name.lower().endswith(".gguf")
        and not _NO_MODEL.search(PurePosixPath(name).name)
        and ((part := _PART.search(name)) is None or int(part[1]) == 1)
    )


def fitting(
    names: list[str], quant: str | None, *, drafter: bool, is_drafter: Callable[[str], bool]
) -> list[str]:
    """Return those of ``names`` that have a quantisation and, where several have, are drafters.

    Args:
        names: what `gguf_files` returned.
        quant: the quantisation; None takes any.
        drafter: whether a drafter is looked for, or a model.
        is_drafter: tells it of a name; asked only where several fit.
    """
    found = [name for name in names if quant is None or _carries(name, quant)]
    if quant is not None and not quant.lower().startswith("ud-"):
        plain = [name for name in found if not _carries(name, f"UD-{quant}")]
        found = plain or found  # Unsloth's dynamic kind is another; it has its own name
    if len(found) > 1:
        found = [name for name in found if is_drafter(name) == drafter]
    return found


def names_drafter(name: str) -> bool:
    """Whether the name of a file says that it is a drafter."""
    return _NAMES_DRAFTER.search(PurePosixPath(name).name) is not None


def quants_of(names: Iterable[str]) -> list[str]:
    """Return the quantisations that ``names`` carry, as they spell them."""
    matches = (_QUANT.findall(PurePosixPath(name).name) for name in names)
    return list(dict.fromkeys(found[-1] for found in matches if found))


def _carries(name: str, quant: str) -> bool:
    """Whether a file name carries a quantisation as a whole word: Q4_K is not in Q4_K_M."""
    word = rf"(?<![A-Za-z0-9]){re.escape(quant)}(?![A-Za-z0-9_])"
    return re.search(word, PurePosixPath(name).stem, re.IGNORECASE) is not None
