"""What a single thread computes, against numpy."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from msl.runner import KernelError, KernelLibrary
from numpy.typing import NDArray

ALL_CONSTANTS = {0: True, 1: -5, 2: 41, 3: 0.25, 4: -1.5, 62: 65535}


def to_bfloat(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to nearest even, as the upper half of a float32."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = bits + 0x7FFF + (bits >> 16 & 1)
    return np.where(np.isnan(values), bits >> 16 | 0x40, rounded >> 16).astype(np.uint16)


def from_bfloat(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def test_constants_of_every_type(library: KernelLibrary) -> None:
    out = np.zeros(6, np.float32)
    library.run("constants", ALL_CONSTANTS, [out], (1, 1, 1), 1)
    assert out.tolist() == [1.0, -5.0, 42.0, 0.25, -1.5, 65535.0]


def test_a_kernel_lists_the_constants_it_reaches(library: KernelLibrary) -> None:
    assert library.constants("constants") == {
        "kBool": (0, 53),
        "kInt": (1, 29),
        "kUint": (2, 33),
        "kFloat": (3, 3),
        "kHalf": (4, 16),
        "kUshort": (62, 41),
    }
    assert library.constants("swizzles") == {}


def test_buffer_masks(library: KernelLibrary) -> None:
    assert library.buffer_mask("constants") == 0b1
    assert library.buffer_mask("arithmetic_bf16") == 0b111


def test_threads_have_constants_of_their_own(library: KernelLibrary) -> None:
    failures = []

    def run(value: int) -> None:
        for _ in range(20):
            out = np.zeros(64, np.uint32)
            buffers = [out, np.array([value], np.uint32)]
            library.run("constant_is_stable", {2: value}, buffers, (2, 1, 1), 32)
            if not out.all():
                failures.append(value)

    threads = [threading.Thread(target=run, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_swizzles_and_vector_arithmetic(library: KernelLibrary) -> None:
    out = np.zeros((8, 4), np.float32)
    v = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    library.run("swizzles", {}, [out, v], (1, 1, 1), 1)
    assert out[0].tolist() == [4, 3, 2, 1]
    assert out[1].tolist() == [1, 2, 1, 1]
    assert out[2].tolist() == [1, 2, 3, 6]
    assert out[3].tolist() == [2, 4, 6, -6]
    assert out[4].tolist() == [7, 2, 7, 6]
    assert out[5].tolist() == [0, 0, 0, -6]
    assert out[6].tolist() == [0.5, 0.5, 0.5, 2 * 6 + 7 * -6]
    w = np.array([2, 7, 6, -6], np.float32)
    expected = np.clip(w, -1, 1) + (w * w + w) + np.maximum(w, 0) - np.abs(w)
    assert out[7].tolist() == expected.tolist()


def test_conversions_and_bits(library: KernelLibrary) -> None:
    out = np.zeros(8, np.int32)
    x = np.array([-3.75], np.float32)
    library.run("conversions", {}, [out, x], (1, 1, 1), 1)
    half_bits = np.array([1.5], np.float16).view(np.uint16)[0]
    bfloat_bits = to_bfloat(np.array([1.5], np.float32))[0]
    expected = [-3, x.view(np.int32)[0], -56, -7, 8 + 31 + 3 + 1, half_bits, bfloat_bits]
    assert out[:7].tolist() == expected
    assert out[7] == 3 + 3 + 0xBC


def operands(dtype: type[np.floating]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    rng = np.random.default_rng(7)
    a = (rng.standard_normal(512) * 10.0 ** rng.integers(-3, 3, 512)).astype(dtype)
    b = (rng.standard_normal(512) * 10.0 ** rng.integers(-3, 3, 512)).astype(dtype)
    b[b == 0] = 1
    return a.astype(np.float32), b.astype(np.float32)


def exact(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    return np.stack([wide_a + wide_b, wide_a * wide_b, wide_a / wide_b, np.sqrt(abs(wide_a))])


# Both formats: float32 holds a sum, product, quotient or root of two 11-bit numbers well enough
# that rounding it again gives the correctly rounded result (24 >= 2 * 11 + 2).
def test_half_rounds_after_every_operation(library: KernelLibrary) -> None:
    a, b = operands(np.float16)
    out = np.zeros((4, 512), np.float16)
    buffers = [out, a.astype(np.float16), b.astype(np.float16)]
    library.run("arithmetic_f16", {}, buffers, (16, 1, 1), 32)
    with np.errstate(over="ignore"):
        expected = exact(a, b).astype(np.float16)
    assert np.array_equal(out.view(np.uint16), expected.view(np.uint16))


def test_bfloat_rounds_after_every_operation(library: KernelLibrary) -> None:
    a, b = (from_bfloat(to_bfloat(x)) for x in operands(np.float32))
    out = np.zeros((4, 512), np.uint16)
    library.run("arithmetic_bf16", {}, [out, to_bfloat(a), to_bfloat(b)], (16, 1, 1), 32)
    expected = to_bfloat(exact(a, b).astype(np.float32))
    assert np.array_equal(out, expected)


def test_float_is_exact_to_the_last_bit(library: KernelLibrary) -> None:
    a, b = operands(np.float32)
    out = np.zeros((4, 512), np.float32)
    library.run("arithmetic_f32", {}, [out, a, b], (16, 1, 1), 32)
    assert np.array_equal(out, exact(a, b).astype(np.float32))


def test_narrowing_rounds_to_nearest_even(library: KernelLibrary) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 1 << 32, 4096, dtype=np.uint32).view(np.float32)
    x[:6] = [np.inf, -np.inf, 65504.0, 65519.99, 65520.0, 1 + 2.0**-11]
    x = np.where(np.isnan(x), np.float32(1), x)
    h, b = np.zeros(4096, np.float16), np.zeros(4096, np.uint16)
    library.run("narrow", {}, [h, b, x], (128, 1, 1), 32)
    with np.errstate(over="ignore"):
        assert np.array_equal(h.view(np.uint16), x.astype(np.float16).view(np.uint16))
    assert np.array_equal(b, to_bfloat(x))


@pytest.mark.parametrize("threads", [(8, 4, 1), (5, 3, 2), (32, 1, 1), (33, 2, 1)])
def test_positions(library: KernelLibrary, threads: tuple[int, int, int]) -> None:
    groups = (2, 3, 2)
    grid = tuple(g * t for g, t in zip(groups, threads, strict=True))
    out = np.zeros((grid[2], grid[1], grid[0], 12), np.uint32)
    library.run("positions", {}, [out], groups, threads)
    z, y, x = np.meshgrid(*(np.arange(n) for n in reversed(grid)), indexing="ij")
    lx, ly, lz = x % threads[0], y % threads[1], z % threads[2]
    index = (lz * threads[1] + ly) * threads[0] + lx
    n = threads[0] * threads[1] * threads[2]
    expected: list[Any] = [
        index,
        lx + 100 * ly + 10000 * lz,
        x // threads[0] + 100 * (y // threads[1]) + 10000 * (z // threads[2]),
        grid[0] + 100 * grid[1] + 10000 * grid[2],
        threads[0] + 100 * threads[1],
        groups[0] + 100 * groups[1] + 10000 * groups[2],
        index % 32,
        index // 32,
        (n + 31) // 32,
    ]
    for column, values in enumerate(expected):
        assert np.array_equal(out[..., column], np.broadcast_to(values, x.shape)), column


def test_an_unset_constant_or_buffer_is_refused(library: KernelLibrary) -> None:
    with pytest.raises(KernelError, match="function constants not set: kInt"):
        library.run("constants", {0: True, 2: 1, 3: 0.0, 4: 0.0, 62: 0}, [], (1, 1, 1), 1)
    with pytest.raises(KernelError, match="swizzles: a buffer of the kernel is not bound"):
        library.run("swizzles", {}, [np.zeros(32, np.float32)], (1, 1, 1), 1)
    with pytest.raises(KernelError, match="1 to 1024 threads"):
        library.run("positions", {}, [np.zeros(32, np.uint32)], (1, 1, 1), (1025, 1, 1))
