"""Random weights in the packed formats of GGUF, with the values that the gguf package gives."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

# Where the halves of a qblock stand that everything in it is multiplied with.
HALVES = {
    "q4_0": (0,), "q4_1": (0, 2), "q5_0": (0,), "q5_1": (0, 2),
    "q2_k": (80, 82), "q3_k": (108,), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,),
    "iq4_nl": (0,), "iq4_xs": (0,), "iq1_s": (0,), "iq2_xxs": (0,), "iq2_xs": (0,), "iq2_s": (0,),
    "iq3_xxs": (0,), "iq3_s": (0,), "iq1_m": (48, 50, 52, 54),
}  # fmt: skip
EXPONENTS = ("mxfp4", "nvfp4")  # their scales are bytes
FORMATS = (*HALVES, *EXPONENTS)
FORMAT, UP_FORMAT = 2, 3  # function constants


@dataclass(frozen=True)
class PackedFormat:
    """What files say of a format."""

    name: str

    @property
    def number(self) -> GGMLQuantizationType:
        """Its number in GGUF, which is also the function constant."""
        return GGMLQuantizationType[self.name.upper()]

    @property
    def elements(self) -> int:
        """Of a qblock."""
        return GGML_QUANT_SIZES[self.number][0]

    @property
    def n_bytes(self) -> int:
        """Of a qblock."""
        return GGML_QUANT_SIZES[self.number][1]

    def values(self, stored: Bytes) -> NDArray[np.float32]:
        """The weights of rows."""
        values: NDArray[np.float32] = quants.dequantize(stored, self.number)
        return values


def kernel_format(fmt: str) -> str:
    """What the names of a format's kernels call it."""
    return "packed" if fmt in FORMATS else fmt


def format_constants(fmt: str, index: int = FORMAT) -> dict[int, int]:
    """What kernels are told of it; only the packed ones need it."""
    return {index: int(PackedFormat(fmt).number)}


def put_halves(fmt: str, blocks: Bytes, values: NDArray[np.float64]) -> None:
    """Store the halves of blocks (n, bytes); values are (n, halves of a block).

    IQ1_M has its one half in quarters, the highest bits of four shorts.
    """
    if fmt == "iq1_m":
        half = values[:, :1].astype(np.float16).view(np.uint16)
        quarters = (half >> np.array([0, 4, 8, 12], np.uint16)).astype(np.uint8) << 4
        blocks[:, 49:56:2] = (blocks[:, 49:56:2] & 15) | quarters
        return
    for i, at in enumerate(HALVES[fmt]):
        half = values[:, i].astype(np.float16)
        blocks[:, at : at + 2] = half[:, None].view(np.uint8)


def put_exponents(fmt: str, blocks: Bytes, rng: np.random.Generator, power: int) -> None:
    """Store scales of about 2^power."""
    if fmt == "mxfp4":
        blocks[:, 0] = 127 + power + rng.integers(-1, 2, len(blocks))
    else:
        exponents = 7 + power + rng.integers(-1, 2, (len(blocks), 4))
        blocks[:, :4] = (exponents.clip(1, 14) << 3) | rng.integers(0, 8, exponents.shape)


def random_packed(rng: np.random.Generator, fmt: str, n: int, k: int, scale: float) -> Bytes:
    """Rows (n, bytes): any codes and inner scales, weights of either sign near `scale`."""
    form = PackedFormat(fmt)
    blocks = rng.integers(0, 256, (n * k // form.elements, form.n_bytes), dtype=np.uint8)
    if fmt in EXPONENTS:
        put_exponents(fmt, blocks, rng, round(math.log2(scale / 3)))
    else:
        sizes = rng.standard_normal((len(blocks), len(HALVES[fmt])))
        put_halves(fmt, blocks, sizes)
        put_halves(fmt, blocks, sizes * (scale / np.std(form.values(blocks))))
    return blocks.reshape(n, -1)
