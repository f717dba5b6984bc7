"""Make metal/grids.h: the tables of GGUF's IQ formats, from the gguf package.

python tools/make_grids.py

A grid lists the groups of 8 (IQ1, IQ2) or 4 (IQ3) weights that a code can stand for. A weight has
few values, so a group is stored as their numbers, 2 or 3 bits each, the first one lowest. The
tables are data of the formats, under the licence of ggml, which the header repeats.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
from gguf import quants

HEADER = Path(__file__).resolve().parents[1] / "metal/grids.h"
# Name, source, and bits of a weight.
GRIDS = (
    ("kGridIQ1", quants.IQ1_S, 2),
    ("kGridIQ2_XXS", quants.IQ2_XXS, 2),
    ("kGridIQ2_XS", quants.IQ2_XS, 2),
    ("kGridIQ2_S", quants.IQ2_S, 2),
    ("kGridIQ3_XXS", quants.IQ3_XXS, 3),
    ("kGridIQ3_S", quants.IQ3_S, 3),
)
PER_LINE = 14

INTRODUCTION = """\
// The grids of GGUF's IQ formats: made by tools/make_grids.py from the gguf package, whose licence
// follows. An entry has the numbers of 8 weights, 2 bits each (IQ1, IQ2), or of 4 weights,
// 3 bits each (IQ3); the first one is the lowest.
//
{licence}
#pragma once
#ifdef __METAL_VERSION__
#define MTLQWEN_GRID constant ushort
#else
#include <stdint.h>
#define MTLQWEN_GRID inline constexpr uint16_t
namespace mtlqwen {{
#endif
// clang-format off
"""
END = """\
// clang-format on
#ifndef __METAL_VERSION__
}  // namespace mtlqwen
#endif
"""


def licence() -> str:
    """Of the package, as comment lines."""
    (file,) = (file for file in distribution("gguf").files or () if file.name == "LICENSE")
    lines = file.read_text(encoding="utf-8").strip().splitlines()
    return "\n".join(f"// {line}".rstrip() for line in lines)


def entries(source: Any, bits: int) -> list[int]:
    """A grid's groups, packed."""
    source.init_grid()
    values = np.array(source.grid).reshape(source.grid_shape)
    numbers = (values[..., None] == np.array(source.grid_map)).argmax(axis=-1)
    assert (np.array(source.grid_map)[numbers] == values).all()
    packed: list[int] = (numbers << (bits * np.arange(numbers.shape[1]))).sum(axis=1).tolist()
    return packed


def table(name: str, numbers: list[int]) -> Iterator[str]:
    """Lines of one array."""
    yield f"MTLQWEN_GRID {name}[{len(numbers)}] = {{"
    for i in range(0, len(numbers), PER_LINE):
        yield "  " + "".join(f"0x{number:04x}," for number in numbers[i : i + PER_LINE])
    yield "};"


def header() -> str:
    """The whole file."""
    text = INTRODUCTION.format(licence=licence())
    lines = [line for name, source, bits in GRIDS for line in table(name, entries(source, bits))]
    return text + "\n".join(lines) + "\n" + END


if __name__ == "__main__":
    HEADER.write_text(header(), encoding="utf-8")
