"""What an engine is asked to be: the values that its arguments may have.

Knows nothing of models.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from mtlqwen.checks import check_integer
from mtlqwen.download import Downloads
from mtlqwen.errors import DeviceError
from mtlqwen.hub import ModelFiles, resolve_drafter
from mtlqwen.progress import Progress

DEVICES = ("metal",) if sys.platform == "darwin" else ("cpu",)
SPECS = ("auto", "off", "dflash", "mtp", "ngram")
DRAFTER_SPECS = ("auto", "dflash")  # those that a drafter model serves
MAX_SLOTS = 32
BLOCK_TOKENS = (64, 128, 256)
MAX_CONTEXT = 2**31 - 1
MAX_THREADS = 2**16  # beyond any machine; the core knows this one
MAX_BYTES = 2**63 - 1
CACHE_DIR_BYTES = 10 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreOptions:
    """What a core is made with, checked."""

    context: int
    slots: int
    memory_budget: int | None
    block_tokens: int
    prefill_share: float
    threads: int
    prefetch_weights: bool
    lock_weights: bool
    deterministic: bool
    checkpoint_interval: int
    cache_memory: int | None
    cache_dir: str  # "": none
    cache_dir_bytes: int
    spec: str
    drafter: str  # "": none
    candidate_memory: int
    progress: Progress | None


def check_block_tokens(value: object) -> int:
    """Return the tokens of a block."""
    number = check_integer("engine", "block_tokens", value, BLOCK_TOKENS[0], BLOCK_TOKENS[-1])
    if number not in BLOCK_TOKENS:
        want = ", ".join(map(str, BLOCK_TOKENS))
        raise ValueError(f"[engine] block_tokens: no such size (got {number}, want one of {want})")
    return number


def check_spec(spec: object, drafter: object) -> str:
    """Return who is asked to propose tokens; `drafter` names a model only for those it serves."""
    want = ", ".join(map(repr, SPECS))
    if not isinstance(spec, str):
        raise TypeError(f"[engine] spec: not a string (got {spec!r}, want one of {want})")
    if spec not in SPECS:
        raise ValueError(f"[engine] spec: no such word (got {spec!r}, want one of {want})")
    if drafter is not None and spec not in DRAFTER_SPECS:
        want = " or ".join(map(repr, DRAFTER_SPECS))
        raise ValueError(f"[engine] drafter: not used with spec={spec!r} (want {want})")
    return spec


def find_drafter(files: ModelFiles, spec: str, drafter: str | Path | None, how: Downloads) -> str:
    """Return the path of the drafter that is named or lies beside the model, or ``""``."""
    found = resolve_drafter(files, drafter, how)
    if found is None and spec == "dflash":
        raise FileNotFoundError(
            f"[engine] drafter: none beside {files.weights} has its name (docs/speculation.md); "
            "pass drafter=, or use spec='auto'"
        )
    return "" if found is None else str(found)


def check_device(device: object) -> str:
    """Return the device's name."""
    if device == "auto":
        return DEVICES[0]
    if device not in DEVICES:
        want = " or ".join(("auto", *DEVICES))
        raise DeviceError(f"[engine] device: not in this build (got {device!r}, want {want})")
    return str(device)


def check_cache_dir(path: object) -> str:
    """Return the directory, ``""`` for none."""
    if path is not None and not isinstance(path, (str, Path)):
        raise TypeError(f"[engine] cache_dir: not a path (got {path!r})")
    if path == "":
        raise ValueError("[engine] cache_dir: empty; want a directory, or None for none")
    if "\0" in str(path):
        raise ValueError(f"[engine] cache_dir: no path of a file system (got {str(path)!r})")
    return "" if path is None else str(path)
