"""The rows of one tensor on their way from the source into the file, a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt

from mtlqwen.conversion.codes import Array
from mtlqwen.conversion.formats import Format
from mtlqwen.conversion.gguf_file import Entry
from mtlqwen.conversion.source import Tensor
from mtlqwen.conversion.tensors import Spec
from mtlqwen.errors import ModelError

_WEIGHTS_AT_ONCE = 1 << 18  # 1 MiB of float32: what is computed with them stays in a core's cache


class Rows:
    """A tensor that is to be written.

    Attributes:
        entry: what the file's directory says of it.
    """

    def __init__(self, spec: Spec, form: Format, source: Tensor, k_heads: int) -> None:
        """Take where it is and what it becomes; nothing is read yet."""
        shape = spec.stored_shape
        self._spec, self._form, self._source, self._k_heads = spec, form, source, k_heads
        self._count = shape[0]
        self._columns = int(np.prod(shape[1:], dtype=np.int64))
        size = int(np.prod(shape[:-1], dtype=np.int64)) * form.row_bytes(shape[-1])
        self.entry = Entry(spec.name, shape, form.number, size)

    def pieces(self) -> Iterator[Callable[[], bytes]]:
        """Yield functions that return the stored bytes, in order."""
        step = max(1, _WEIGHTS_AT_ONCE // self._columns)
        for first in range(0, self._count, step):
            yield partial(self._stored, first, min(step, self._count - first))

    def _stored(self, first: int, count: int) -> bytes:
        values = self._changed(self._read(first, count))
        top = float(max(values.max(), -values.min()))
        if not top <= self._form.limit:
            raise ModelError(
                f"[convert] {self._spec.source}: a weight that {self._form.name} cannot hold (got "
                f"{top}, want at most {self._form.limit:g}); choose another type"
            )
        return self._form.stored(values).tobytes()

    def _changed(self, values: Array) -> Array:
        if self._spec.change == "one more":
            return values + np.float32(1)
        if self._spec.change == "decay":
            return -np.exp(values.astype(np.float64)).astype(np.float32)
        return values

    def _read(self, first: int, count: int) -> Array:
        """Return rows of the file: value heads tiled."""
        tiling = self._spec.tiling
        if tiling is None:
            return self._source.rows(first, count)
        if tiling.columns:
            values = self._source.rows(first, count)
            heads = values.reshape(count, self._k_heads, -1, tiling.size)
            return heads.swapaxes(1, 2).reshape(count, -1)
        from_rows = self._source_rows(np.arange(first, first + count))
        ends = np.flatnonzero(np.diff(from_rows) != 1) + 1
        runs = np.split(from_rows, ends)
        return np.concatenate([self._source.rows(int(run[0]), len(run)) for run in runs])

    def _source_rows(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """Return where the rows of the file are in the source."""
        assert self._spec.tiling is not None
        start, size = self._spec.tiling.start, self._spec.tiling.size
        repeats = (self._count - start) // size // self._k_heads
        head, within = np.divmod(rows - start, size)
        grouped = head % self._k_heads * repeats + head // self._k_heads
        return np.where(rows < start, rows, start + grouped * size + within)
