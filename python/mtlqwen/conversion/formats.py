"""The storage formats of weights that can be written, and what a matrix gets that does not fit one.

Numbers of types are those of ggml, numbers of files those of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mtlqwen.conversion.codes import Array, Bytes
from mtlqwen.conversion.quantisers_32 import iq4_nl, mxfp4, nvfp4, q4_0, q4_1, q5_0, q5_1, q8_0
from mtlqwen.conversion.quantisers_k import iq4_xs, q2_k, q3_k, q4_k, q5_k, q6_k

_LARGEST_HALF = 65504.0
_ANY = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How weights lie in a file.

    Attributes:
        name: as GGUF calls it.
        number: of the type in GGUF.
        file_number: of a file whose matrices have it.
        block: weights that are stored together; rows are whole blocks.
        block_bytes: what they take.
        encode: takes float32 blocks, returns as many rows of bytes.
        fallback: the format of a matrix whose rows do not fill blocks.
        limit: the largest magnitude of a weight that it is sure to hold.
    """

    name: str
    number: int
    file_number: int
    block: int
    block_bytes: int
    encode: Callable[[Array], Bytes]
    fallback: str
    limit: float = _LARGEST_HALF

    def row_bytes(self, columns: int) -> int:
        """Bytes of a row that fills its blocks."""
        return columns // self.block * self.block_bytes

    def stored(self, rows: Array) -> Bytes:
        """Return rows that fill their blocks, as a file has them."""
        blocks = np.ascontiguousarray(rows, np.float32).reshape(-1, self.block)
        # Where a scale is less than any half, it is zero, and codes may be anything.
        with np.errstate(over="ignore", invalid="ignore"):
            return self.encode(blocks).reshape(len(rows), -1)


def _f32(values: Array) -> Bytes:
    return values.astype("<f4").view(np.uint8)


def _f16(values: Array) -> Bytes:
    return values.astype("<f2").view(np.uint8)


def _bf16(values: Array) -> Bytes:
    bits = values.view(np.uint32)
    return ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16).astype("<u2").view(np.uint8)


def _blocks(
    name: str,
    numbers: tuple[int, int],
    sizes: tuple[int, int],
    encode: Callable[[Array], Bytes],
    fallback: str = "BF16",
) -> Format:
    """Return a format: numbers of type and file, weights and bytes of a block."""
    return Format(
        name=name,
        number=numbers[0],
        file_number=numbers[1],
        block=sizes[0],
        block_bytes=sizes[1],
        encode=encode,
        fallback=fallback,
    )


_ALL = (
    replace(_blocks("F32", (0, 0), (1, 4), _f32), limit=_ANY),
    _blocks("F16", (1, 1), (1, 2), _f16),
    replace(_blocks("BF16", (30, 32), (1, 2), _bf16), limit=_ANY),
    _blocks("Q8_0", (8, 7), (32, 34), q8_0),
    _blocks("Q5_1", (7, 9), (32, 24), q5_1),
    _blocks("Q5_0", (6, 8), (32, 22), q5_0),
    _blocks("Q4_1", (3, 3), (32, 20), q4_1),
    _blocks("Q4_0", (2, 2), (32, 18), q4_0),
    # What a matrix gets instead has shorter blocks, and keeps as much.
    _blocks("Q6_K", (14, 18), (256, 210), q6_k, "Q8_0"),
    _blocks("Q5_K", (13, 16), (256, 176), q5_k, "Q5_1"),
    _blocks("Q4_K", (12, 14), (256, 144), q4_k, "Q5_0"),
    _blocks("Q3_K", (11, 11), (256, 110), q3_k, "Q4_0"),
    _blocks("Q2_K", (10, 10), (256, 84), q2_k, "Q4_0"),
    _blocks("IQ4_NL", (20, 25), (32, 18), iq4_nl),
    _blocks("IQ4_XS", (23, 30), (256, 136), iq4_xs, "IQ4_NL"),
    _blocks("MXFP4", (39, 38), (32, 17), mxfp4),
    _blocks("NVFP4", (40, 39), (64, 36), nvfp4, "Q4_0"),
)
FORMATS = {one.name: one for one in _ALL}
# One word for a format, and others for the matrices whose names have these parts.
_FINER = dict.fromkeys(("token_embd", "output", "attn_v", "ffn_down"), "Q6_K")
MIXES = {"Q4_K_M": ("Q4_K", _FINER, 15)}


def quantise(values: Array, name: str) -> Bytes:
    """Return rows in a format of FORMATS, as GGUF stores them; rows have to fill blocks."""
    return FORMATS[name].stored(values)


def fitting(name: str, columns: int) -> Format:
    """Return the format, or the first of its fallbacks whose blocks fill rows of ``columns``."""
    one = FORMATS[name]
    while columns % one.block:
        one = FORMATS[one.fallback]
    return one
