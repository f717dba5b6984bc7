"""Safetensors files: where each tensor lies, and its rows as float32, a few at a time.

What a header says is checked against the file before anything is read on its word.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mtlqwen.conversion.codes import Array, Bytes
from mtlqwen.errors import FormatError

_MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_WIDTHS = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1}


def _e4m3_values() -> Array:
    """Return the number of each byte: 4 bits of exponent, 3 of mantissa, no infinities."""
    exponents, mantissas = np.divmod(np.arange(128), 8)
    normal = np.ldexp(8.0 + mantissas, exponents - 10)
    values = np.where(exponents == 0, mantissas * 2.0**-9, normal)
    values[127] = np.nan
    return np.concatenate([values, -values]).astype(np.float32)


_E4M3 = _e4m3_values()


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in a file.

    Attributes:
        name: in the file.
        path: of the file.
        dtype: as safetensors calls it.
        shape: row-major.
        offset: from the start of the file.
    """

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def readable(self) -> bool:
        """Whether it is of a type that has a float32 for every value."""
        return self.dtype in _WIDTHS

    def rows(self, first: int, count: int) -> Array:
        """Return rows as float32, the dimensions behind the first as one."""
        columns = math.prod(self.shape[1:])
        width = _WIDTHS[self.dtype]
        with self.path.open("rb", buffering=0) as file:
            file.seek(self.offset + first * columns * width)
            raw = np.fromfile(file, np.uint8, count * columns * width)
        if raw.size != count * columns * width:
            raise FormatError(f"[convert] {self.path}: it has become shorter; download it again")
        return _widened(raw, self.dtype).reshape(count, columns)


def _widened(raw: Bytes, dtype: str) -> Array:
    if dtype == "BF16":
        bits = raw.view("<u2").astype(np.uint32)
        bits <<= 16
        return bits.view(np.float32)
    if dtype == "F8_E4M3":
        return _E4M3[raw]
    return np.asarray(raw.view("<f4" if dtype == "F32" else "<f2"), np.float32)


def read_directory(folder: Path) -> dict[str, Stored]:
    """Return the tensors of a model directory, of one file or of all that its index names.

    Raises:
        FormatError: there is none, a header is broken, or something that the index names is not
            there.
    """
    if (folder / _SINGLE).is_file():
        return read_file(folder / _SINGLE)
    if not (folder / _INDEX).is_file():
        raise FormatError(f"[convert] {folder}: no weights in it (want {_SINGLE} or {_INDEX})")
    places = _weight_map(folder / _INDEX)
    found: dict[str, Stored] = {}
    for shard in sorted(set(places.values())):
        if not (folder / shard).is_file():
            raise FormatError(f"[convert] {folder}: {shard!r} is missing; download it")
        tensors = read_file(folder / shard)
        for name in tensors.keys() & found.keys():
            raise FormatError(f"[convert] {folder}: {name!r} is in {shard!r} and in another file")
        found |= tensors
    for name, shard in places.items():
        if name not in found or found[name].path.name != shard:
            raise FormatError(f"[convert] {folder}: {name!r} is missing in {shard!r}; download it")
    return found


def _weight_map(path: Path) -> dict[str, str]:
    try:
        places = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        plain = all(
            isinstance(shard, str) and shard.endswith(".safetensors") and Path(shard).name == shard
            for shard in places.values()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"[convert] {path}: not an index ({error!r})") from error
    if not plain or not places:
        raise FormatError(f"[convert] {path}: weight_map names no files beside it")
    return dict(places)


def read_file(path: Path) -> dict[str, Stored]:
    """Return the tensors of one file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else size
        if length > min(_MAX_HEADER_BYTES, size - 8):
            raise FormatError(f"[convert] {path}: not a safetensors file, or cut short")
        text = file.read(length)
    try:
        entries = json.loads(text)
        entries.pop("__metadata__", None)
        return {name: _entry(name, path, one, 8 + length, size) for name, one in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"[convert] {path}: a broken header ({error!r})") from error


def _entry(name: str, path: Path, entry: dict[str, Any], start: int, size: int) -> Stored:
    dtype, shape, (first, last) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    numbers = (*shape, first, last)
    if not isinstance(dtype, str) or not all(type(n) is int and n >= 0 for n in numbers):
        raise FormatError(f"[convert] {path}: {name!r}: a broken entry in the header")
    if not first <= last <= size - start:
        raise FormatError(
            f"[convert] {path}: {name!r}: data leaves the file (got byte {start + last}, want at "
            f"most {size}); download it again"
        )
    if dtype in _WIDTHS and math.prod(shape) * _WIDTHS[dtype] != last - first:
        raise FormatError(f"[convert] {path}: {name!r}: shape and size disagree")
    return Stored(name, path, dtype, shape, start + first)
