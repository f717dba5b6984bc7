"""Lists the swizzles of vec<T, N> for shim/vec.h.

Only those that a file uses: all 340 compile slowly.
"""

from __future__ import annotations

import re

_SWIZZLE = re.compile(r"[xyzw]{1,4}|[rgba]{1,4}")


def is_swizzle(name: str) -> bool:
    """Return whether a member name could be a swizzle."""
    return bool(_SWIZZLE.fullmatch(name))


def swizzle_lists(names: set[str]) -> str:
    """Return the definitions of MSL_SWIZZLES_2, _3 and _4."""
    text = ""
    for width in (2, 3, 4):
        members = [
            _member(name)
            for name in sorted(names | {"x", "y", "z", "w"})
            if max(_components(name)) < width
        ]
        text += f"#define MSL_SWIZZLES_{width} {' '.join(members)}\n"
    return text


def _components(name: str) -> list[int]:
    return ["xyzwrgba".index(letter) % 4 for letter in name]


def _member(name: str) -> str:
    components = _components(name)
    repeats = len(set(components)) < len(components)
    macro = "MSL_SWIZZLE_READ" if repeats else "MSL_SWIZZLE"
    return f"{macro}({name}, {len(components)}, {', '.join(map(str, components))})"
