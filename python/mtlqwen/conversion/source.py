"""A checkpoint of Hugging Face: its config, and its tensors by their names without prefix.

Knows how such directories look; nothing of GGUF.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mtlqwen.conversion.codes import Array
from mtlqwen.conversion.safetensors import Stored, read_directory
from mtlqwen.errors import ModelError

_PREFIXES = ("model.language_model.", "language_model.model.", "model.", "")
_OUTER_PREFIXES = ("model.", "language_model.", "")
_SCALE_BLOCK = 128  # of official FP8: a scale for as many rows and columns
_ONLY = "mtlqwen converts the original checkpoints, in BF16, F16, F32 or FP8 with 128x128 blocks"


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the source as float32, whatever it is stored as.

    Attributes:
        stored: its data.
        scales: what blocks of 128 rows and columns are multiplied with, of FP8.
    """

    stored: Stored
    scales: Stored | None

    def rows(self, first: int, count: int) -> Array:
        """Return ``count`` rows."""
        values = self.stored.rows(first, count)
        if self.scales is None:
            return values
        blocks = np.arange(first, first + count) // _SCALE_BLOCK
        low = int(blocks[0])
        scales = self.scales.rows(low, int(blocks[-1]) - low + 1)
        wide = scales.repeat(_SCALE_BLOCK, axis=1)[:, : values.shape[1]]
        for block in range(len(scales)):
            values[blocks == low + block] *= wide[block]
        return values


class Checkpoint:
    """The tensors of a model directory.

    Raises:
        FormatError: its files are broken or not complete.
    """

    def __init__(self, folder: Path) -> None:
        """Read the directory of tensors."""
        self.folder = folder
        self._tensors = read_directory(folder)
        self._prefix = self._find("embed_tokens.weight", _PREFIXES)
        self._mtp_prefix = self._find("mtp.fc.weight", _OUTER_PREFIXES)
        self._head_prefix = self._find("lm_head.weight", _OUTER_PREFIXES)

    @property
    def has_head(self) -> bool:
        """Whether the output head is a tensor of its own."""
        return self._spelled("lm_head.weight") in self._tensors

    @property
    def has_mtp(self) -> bool:
        """Whether there is anything of a prediction head."""
        return any(name.startswith(f"{self._mtp_prefix}mtp.") for name in self._tensors)

    @property
    def files(self) -> list[Path]:
        """The files of the weights."""
        return sorted({stored.path for stored in self._tensors.values()})

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Return a tensor by its name in transformers' text model.

        Raises:
            ModelError: it is not there, has another shape or a type that is not converted.
        """
        spelled = self._spelled(name)
        stored = self._tensors.get(spelled)
        if stored is None:
            raise ModelError(
                f"[convert] {spelled}: missing in {self.folder} (want {list(shape)}); the "
                "checkpoint is not complete"
            )
        if not stored.readable:
            raise ModelError(f"[convert] {spelled}: type is {stored.dtype!r}; {_ONLY}")
        if stored.shape != shape:
            raise ModelError(
                f"[convert] {spelled}: wrong shape (got {list(stored.shape)}, want {list(shape)}); "
                + _ONLY
            )
        return Tensor(stored, self._scales(stored))

    def _scales(self, stored: Stored) -> Stored | None:
        scales = self._tensors.get(f"{stored.name}_scale_inv")
        if stored.dtype != "F8_E4M3" and scales is None:
            return None
        want = tuple(math.ceil(size / _SCALE_BLOCK) for size in stored.shape)
        if stored.dtype != "F8_E4M3" or scales is None or scales.shape != want:
            got = "no scales" if scales is None else f"scales {list(scales.shape)}"
            raise ModelError(
                f"[convert] {stored.name}: {stored.dtype!r} with {got} (want F8_E4M3 with scales "
                f"{list(want)}); {_ONLY}"
            )
        if not scales.readable:
            raise ModelError(f"[convert] {scales.name}: type is {scales.dtype!r}; {_ONLY}")
        return scales

    def _find(self, name: str, prefixes: tuple[str, ...]) -> str:
        """Return the prefix under which there is such a tensor, the last where there is none."""
        found = (prefix for prefix in prefixes if prefix + name in self._tensors)
        return next(found, prefixes[-1])

    def _spelled(self, name: str) -> str:
        if name == "lm_head.weight":
            return self._head_prefix + name
        return (self._mtp_prefix if name.startswith("mtp.") else self._prefix) + name
