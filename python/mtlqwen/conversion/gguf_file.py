"""The head of a GGUF file: metadata and the directory of tensors, as bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from mtlqwen.errors import FormatError

_VERSION = 3
_ALIGNMENT = 32  # what readers take where no key says another
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9


@dataclass(frozen=True, slots=True)
class Int32:
    """A number that GGUF has as int32; a plain int is uint32."""

    value: int


Scalar: TypeAlias = bool | int | Int32 | float | str
Value: TypeAlias = Scalar | list[str] | list[bool] | list[Int32]


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor as the directory knows it: row-major shape, number of its type, bytes."""

    name: str
    shape: tuple[int, ...]
    number: int
    size: int


def padded(size: int) -> int:
    """Return the first aligned size that is not less."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def head(metadata: Mapping[str, Value], entries: Iterable[Entry]) -> bytes:
    """Return all that stands before the data, which follow in order, each padded."""
    entries = list(entries)
    parts = [b"GGUF", struct.pack("<IQQ", _VERSION, len(entries), len(metadata))]
    for key, value in metadata.items():
        parts += [_string(key), _value(value)]
    offset = 0
    for entry in entries:
        dims = struct.pack(f"<I{len(entry.shape)}Q", len(entry.shape), *reversed(entry.shape))
        parts += [_string(entry.name), dims, struct.pack("<IQ", entry.number, offset)]
        offset += padded(entry.size)
    whole = b"".join(parts)
    return whole + bytes(padded(len(whole)) - len(whole))


def _string(text: str) -> bytes:
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise FormatError(f"[convert] metadata: a text that is not Unicode ({error})") from error
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Value) -> bytes:
    if isinstance(value, list):
        kind = _scalar(value[0])[0] if value else _STRING
        items = b"".join(_scalar(item)[1] for item in value)
        return struct.pack("<IIQ", _ARRAY, kind, len(value)) + items
    kind, raw = _scalar(value)
    return struct.pack("<I", kind) + raw


def _scalar(value: Scalar) -> tuple[int, bytes]:
    if isinstance(value, bool):
        return _BOOL, struct.pack("<?", value)
    if isinstance(value, int):
        return _UINT32, struct.pack("<I", value)
    if isinstance(value, Int32):
        return _INT32, struct.pack("<i", value.value)
    if isinstance(value, float):
        return _FLOAT32, struct.pack("<f", value)
    return _STRING, _string(value)
