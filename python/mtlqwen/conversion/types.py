"""Which type each matrix of a file gets: what a caller said, and what fits."""

from __future__ import annotations

from collections.abc import Mapping

from mtlqwen.conversion.formats import FORMATS, MIXES, Format, fitting


class Types:
    """What types matrices become, by their names.

    Attributes:
        file_number: what the file says of itself.
    """

    def __init__(self, main: str, parts: Mapping[str, str]) -> None:
        """Take the type of all, and those of matrices whose names have a part.

        Raises:
            ValueError: there is no such type.
        """
        name = main.upper()
        first, mixed, number = MIXES.get(name, (name, {}, None))
        self._first = _known(first, main)
        said = {part: _known(one.upper(), one) for part, one in parts.items()}
        self._unused = {*said}
        # The caller's come first: of several that a name has, the first one counts.
        self._parts = said | {part: one for part, one in mixed.items() if part not in said}
        self.file_number = FORMATS[first].file_number if number is None else number

    def of(self, name: str, columns: int) -> Format:
        """Return the format of a matrix."""
        found = [part for part in self._parts if f".{part}." in f".{name}."]
        self._unused -= {*found}
        return fitting(self._parts[found[0]] if found else self._first, columns)

    def check_used(self) -> None:
        """Refuse parts that no matrix has."""
        for part in sorted(self._unused):
            raise ValueError(
                f"[convert] parts: no matrix of this model has it in its name (got {part!r}, want "
                "words between dots, such as token_embd, ffn_down or blk.3.attn_v)"
            )


def _known(name: str, said: str) -> str:
    if name not in FORMATS:
        want = ", ".join([*FORMATS, *MIXES]).lower()
        raise ValueError(f"[convert] type: not one that can be written (got {said}, want {want})")
    return name
