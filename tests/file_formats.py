"""Writers of the two weight file formats and of their storage formats, byte by byte."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

GGUF_TYPES = {"F32": 0, "F16": 1, "Q8_0": 8, "BF16": 30}
Q8_BLOCK = 32


def encode(value: Array, format_name: str) -> Bytes:
    """Return the stored bytes of a float32 array, rounded to nearest."""
    if format_name == "F32":
        raw = value.astype("<f4")
    elif format_name == "F16":
        raw = value.astype("<f2")
    elif format_name == "BF16":
        bits = np.ascontiguousarray(value, "<f4").view(np.uint32).astype(np.uint64)
        raw = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    else:
        raw = encode_q8_0(value)
    return np.frombuffer(raw.tobytes(), np.uint8)


def encode_q8_0(value: Array) -> Bytes:
    """Quantise rows in runs of 32: a half scale, then 32 signed bytes."""
    blocks = value.reshape(-1, Q8_BLOCK)
    scale = np.abs(blocks).max(axis=1) / 127
    inverse = np.where(scale > 0, 1 / np.where(scale > 0, scale, 1), 0)
    quants = np.rint(blocks * inverse[:, None]).astype(np.int8)
    halves = scale.astype("<f2").view(np.uint8).reshape(-1, 2)
    return np.concatenate([halves, quants.view(np.uint8)], axis=1)


def decode(raw: Bytes, format_name: str, shape: tuple[int, ...]) -> Array:
    """Return the float32 values of stored bytes."""
    if format_name == "F32":
        flat = raw.view("<f4")
    elif format_name == "F16":
        flat = raw.view("<f2").astype(np.float32)
    elif format_name == "BF16":
        flat = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        blocks = raw.reshape(-1, 2 + Q8_BLOCK)
        scale = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
        flat = scale * np.ascontiguousarray(blocks[:, 2:]).view(np.int8)
    return np.asarray(flat, np.float32).reshape(shape)


def round_to(value: Array, format_name: str) -> Array:
    """Return what remains of an array after storing it in a format."""
    return decode(encode(value, format_name), format_name, value.shape)


def safetensors_bytes(tensors: dict[str, tuple[str, tuple[int, ...], Bytes]]) -> bytes:
    """Return a file; each tensor is (dtype, shape, raw bytes)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, shape, raw) in tensors.items():
        offsets = [len(data), len(data) + raw.size]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}
        data += raw.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def gguf_string(text: str) -> bytes:
    """Return a string as GGUF stores it."""
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def gguf_value(value: object) -> bytes:
    """Return kind and content: bool, int (u32 or i32), float (f32), str, or a list of one kind."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value) if value >= 0 else struct.pack("<Ii", 5, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + gguf_string(value)
    assert isinstance(value, list)
    items = [gguf_value(item) for item in value]
    kind = items[0][:4] if items else struct.pack("<I", 8)
    content = b"".join(item[4:] for item in items)
    return struct.pack("<I", 9) + kind + struct.pack("<Q", len(value)) + content


def gguf_bytes(
    metadata: dict[str, object],
    tensors: dict[str, tuple[str, tuple[int, ...], Bytes]],
    alignment: int = 32,
) -> bytes:
    """Return a version 3 file; each tensor is (type, row-major shape, raw bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += gguf_string(key) + gguf_value(value)
    data = b""
    for name, (format_name, shape, raw) in tensors.items():
        dims = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        place = struct.pack("<IQ", GGUF_TYPES[format_name], len(data))
        head += gguf_string(name) + dims + place
        data += raw.tobytes()
        data += bytes(-len(data) % alignment)
    return head + bytes(-len(head) % alignment) + data
