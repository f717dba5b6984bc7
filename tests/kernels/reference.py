"""Float64 references of the embedding and linear kernels, and encoders of weight formats.

Weights are made in their storage format and dequantised exactly, so a reference has no error of
its own beyond float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from harness import UNIT, Buffer, Float64
from numpy.typing import NDArray
from packed_weights import FORMATS as PACKED
from packed_weights import PackedFormat, random_packed

FORMATS = ("f32", "f16", "bf16", "q8_0")
QBLOCK = 32  # elements of a Q8_0 qblock: a half scale, then 32 int8


@dataclass(frozen=True)
class Weights:
    """A matrix as a file stores it, and its exact values."""

    stored: Buffer  # (n, bytes of a row) uint8
    values: Float64  # (n, k)


def _q8_0(rng: np.random.Generator, n: int, k: int, scale: float) -> Weights:
    shape = (n, k // QBLOCK, QBLOCK)
    quants = rng.integers(-128, 128, shape, dtype=np.int8)
    scales = (rng.standard_normal(shape[:2]) * scale / 73.9).astype(np.float16)
    stored = np.empty((*shape[:2], 2 + QBLOCK), np.uint8)
    stored[..., :2] = scales[..., None].view(np.uint8)
    stored[..., 2:] = quants.view(np.uint8)
    values = scales.astype(np.float64)[..., None] * quants
    return Weights(stored.reshape(n, -1), values.reshape(n, k))


def _bf16(values: NDArray[np.float32]) -> Weights:
    upper = (values.view(np.uint32) >> 16).astype(np.uint16)
    exact = (upper.astype(np.uint32) << 16).view(np.float32)
    return Weights(upper.view(np.uint8), exact.astype(np.float64))


def random_weights(
    rng: np.random.Generator, fmt: str, n: int, k: int, scale: float = 1.0
) -> Weights:
    """An (n, k) matrix of random values near `scale`, every bit pattern of quants included."""
    if fmt == "q8_0":
        return _q8_0(rng, n, k, scale)
    if fmt in PACKED:
        packed = random_packed(rng, fmt, n, k, scale)
        return Weights(packed, PackedFormat(fmt).values(packed).astype(np.float64))
    values = (rng.standard_normal((n, k)) * scale).astype(np.float32)
    if fmt == "bf16":
        return _bf16(values)
    stored = values.astype({"f32": np.float32, "f16": np.float16}[fmt])
    return Weights(stored.view(np.uint8), stored.astype(np.float64))


def linear(x: Buffer, weights: Weights) -> tuple[Float64, Float64]:
    """X times the transposed weights, and for each dot product the norm of its terms."""
    exact = x.astype(np.float64)
    norms = np.sqrt(np.square(exact) @ np.square(weights.values).T)
    return exact @ weights.values.T, norms


def chain_bound(norms: Float64, chain: int) -> Float64:
    """Bound of the rounding errors of float32 dot products of random terms.

    Each of the `chain` additions on the way to a result rounds by at most u times the partial sum,
    u = 2^-24. Terms of random sign make partial sums no larger than about the norm of all terms,
    and independent roundings add up as their root: a standard deviation of at most
    u * sqrt(chain) * norm / sqrt(3), the roundings being uniform. Six times u * sqrt(chain) * norm
    is ten deviations; a bound for any signs would be sqrt(k) times wider and miss a wrong weight.
    """
    return 6 * UNIT * float(np.sqrt(chain)) * norms


def chain_nmse(chain: int) -> float:
    """Bound of the mean squared error over the mean squared norm: the mean of the same variance.

    Averaged over a chain the square of a partial sum is half of the final one, so chain * u^2 / 6
    is expected; six times that is allowed.
    """
    return chain * UNIT**2
