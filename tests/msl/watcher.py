"""Runs kernels of the shadow build and tells where in the sources a report points.

    library = ShadowLibrary.build(output_folder)
    for report in library.watch("rms_norm", {}, buffers, (1, rows, 1), 32):
        print(report)

Every buffer is copied into memory with unused address space on both sides, so that an access out of
bounds cannot land in another buffer. An array that is passed twice is one buffer.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
from msl.runner import MAX_BUFFERS, OK, Dispatch, KernelError, KernelLibrary
from numpy.typing import NDArray

MAX_PLACES = 8
CAPACITY = 64  # reports of a dispatch
GUARD_BYTES = 1 << 20  # on both sides of a buffer
VERSION = 1
KERNEL_SOURCE = re.compile(r"(?:.*/)?([\w.]+\.(?:metal|h)):(\d+)")


class Kind(Enum):
    """MSL_REPORT_*: what the message says of it."""

    RACE = "no threadgroup_barrier between the accesses of two simdgroups"
    SIMDGROUP_RACE = "no simdgroup_barrier between the accesses of two lanes"
    MEM_FLAGS = "the barrier between two accesses does not name this memory"
    THREADGROUPS = "two threadgroups of one dispatch"
    UNINITIALISED = "read of threadgroup memory that its threadgroup has not written"
    OUT_OF_BOUNDS = "out of bounds"


KINDS = list(Kind)  # in the order of the numbers


class _Report(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("buffer", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("bytes", ctypes.c_uint64),
        ("group", ctypes.c_uint64),
        ("thread", ctypes.c_uint32),
        ("is_write", ctypes.c_uint32),
        ("other_group", ctypes.c_uint64),
        ("other_thread", ctypes.c_uint32),
        ("other_place", ctypes.c_uint32),
        ("barrier_line", ctypes.c_uint32),
        ("n_places", ctypes.c_uint32),
        ("places", ctypes.c_uint32 * MAX_PLACES),
    )


_RUN = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(Dispatch),
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(_Report),
    ctypes.c_uint32,
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.c_char_p,
    ctypes.c_uint64,
)


class _Shadow(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("run", _RUN))


@dataclass(frozen=True)
class Place:
    """A line of a source file."""

    file: str
    line: int

    def __str__(self) -> str:
        """As compilers spell it."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Report:
    """One mistake of a kernel."""

    kernel: str
    kind: Kind
    where: list[Place]  # the access, then the calls around it, as far as kernel sources go
    other: list[Place]  # the earlier access of a pair
    buffer: int  # -1: threadgroup memory
    offset: int
    bytes: int
    is_write: bool
    threads: tuple[int, int]
    groups: tuple[int, int]
    barrier_line: int  # Kind.MEM_FLAGS: where the barrier stands

    @property
    def line(self) -> int:
        """Line of the .metal file: of the access, or of the call that led there."""
        return metal_line(self.where)

    @property
    def other_line(self) -> int:
        """The same of the earlier access; 0 without one."""
        return metal_line(self.other)

    def __str__(self) -> str:
        """One line with all that is known."""
        access = "write" if self.is_write else "read"
        memory = "threadgroup memory" if self.buffer < 0 else f"buffer {self.buffer}"
        place = " < ".join(map(str, self.where))
        text = f"{self.kernel}: {place}: {access} of {self.bytes} bytes, {memory} at {self.offset}"
        text += f", thread {self.threads[0]} of threadgroup {self.groups[0]}: {self.kind.value}"
        if self.other:
            text += (
                f"; before: {self.other[0]}, thread {self.threads[1]} of threadgroup"
                f" {self.groups[1]}"
            )
        if self.kind is Kind.MEM_FLAGS:
            text += f"; the barrier stands in line {self.barrier_line}"
        return text


def metal_line(places: Iterable[Place]) -> int:
    """Line of the first place that lies in a .metal file; 0 if none does."""
    return next((place.line for place in places if place.file.endswith(".metal")), 0)


class ShadowLibrary(KernelLibrary):
    """An open kernels.<isa>.shadow.so."""

    shadow = True

    def __init__(self, path: Path | str) -> None:
        """Open the library at `path`."""
        super().__init__(path)
        self._handle.msl_shadow.restype = ctypes.POINTER(_Shadow)
        self._shadow = self._handle.msl_shadow().contents
        if self._shadow.version != VERSION:
            raise KernelError(f"{path}: version {self._shadow.version} of the shadow interface")
        self._path = Path(path)

    def watch(
        self,
        name: str,
        constants: Mapping[int, bool | int | float],
        buffers: Sequence[NDArray[np.generic] | None],
        groups: tuple[int, int, int],
        threads: int | tuple[int, int, int],
        threadgroup_bytes: int | Sequence[int] = 0,
        *,
        check: int = 0,
        seed: int = 0,
    ) -> list[Report]:
        """Run a dispatch as run() does, and return what is wrong with it.

        Raises:
            KernelError: the dispatch failed, and not for what a report says.
        """
        dispatch = self._dispatch(name, constants, groups, threads, threadgroup_bytes)
        dispatch.check, dispatch.seed = check, seed
        lengths = (ctypes.c_uint64 * MAX_BUFFERS)()
        copies: dict[int, NDArray[np.uint8]] = {}
        for index, buffer in enumerate(buffers):
            if buffer is not None:
                data = buffer.reshape(-1).view(np.uint8)
                copy = copies.setdefault(data.ctypes.data, _guarded(data))
                dispatch.buffers[index], lengths[index] = copy.ctypes.data, copy.size
        reports = (_Report * CAPACITY)()
        n_reports = ctypes.c_uint32()
        error = ctypes.create_string_buffer(512)
        result = self._shadow.run(
            ctypes.byref(dispatch), lengths, reports, CAPACITY, ctypes.byref(n_reports), error, 512
        )
        for buffer in buffers:
            if buffer is not None and buffer.flags.writeable:
                data = buffer.reshape(-1).view(np.uint8)
                data[:] = copies[data.ctypes.data]
        if result != OK and n_reports.value == 0:
            raise KernelError(error.value.decode())
        return self._located(name, reports[: min(n_reports.value, CAPACITY)])

    def _located(self, name: str, reports: list[_Report]) -> list[Report]:
        wanted = {place for report in reports for place in _places(report)}
        sources = source_places(self._path, sorted(wanted)) if wanted else {}
        return [
            Report(
                kernel=name,
                kind=KINDS[report.kind],
                where=[p for place in report.places[: report.n_places] for p in sources[place]],
                other=sources[report.other_place] if report.other_place else [],
                buffer=report.buffer,
                offset=report.offset,
                bytes=report.bytes,
                is_write=bool(report.is_write),
                threads=(report.thread, report.other_thread),
                groups=(report.group, report.other_group),
                barrier_line=report.barrier_line,
            )
            for report in reports
        ]


def _guarded(data: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A copy on a page of its own, in the middle of memory that is never touched."""
    block = np.empty(data.size + 2 * GUARD_BYTES + 4096, np.uint8)
    start = GUARD_BYTES + -(block.ctypes.data + GUARD_BYTES) % 4096
    copy = block[start : start + data.size]
    copy[:] = data
    return copy


def _places(report: _Report) -> Iterator[int]:
    yield from report.places[: report.n_places]
    if report.other_place:
        yield report.other_place


def source_places(library: Path, offsets: Sequence[int]) -> dict[int, list[Place]]:
    """The line of each offset, then those of the calls that were inlined there."""
    tool = shutil.which("addr2line") or shutil.which("llvm-addr2line")
    if not tool:
        raise FileNotFoundError("addr2line: not on PATH; it comes with the linker (binutils)")
    command = [tool, "-e", str(library), "-a", "-i", *(hex(offset) for offset in offsets)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    places: dict[int, list[Place]] = {}
    for line in said.splitlines():
        if line.startswith("0x"):
            frames = places.setdefault(int(line, 16), [])
        elif (match := KERNEL_SOURCE.match(line)) and "/hostmetal/msl/" not in line:
            frames.append(Place(match[1], int(match[2])))
    return places
