"""Runs kernels of a kernel library through its C interface, without the runtime above it.

The interface is csrc/hostmetal/msl/abi.h. Example:

    from msl.runner import KernelLibrary  # with tests/ on the path
    library = KernelLibrary.build(output_folder)  # every metal/*.metal
    library.run("rms_norm", {}, [out, x, weight, spoilt, args, run_pass], (1, rows, 1), 32)

Buffers are numpy arrays in [[buffer(n)]] order, used in place; a structured array or bytes serves
for an args struct.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

MSL_FOLDER = Path(__file__).resolve().parents[2] / "csrc" / "hostmetal" / "msl"
sys.path.insert(0, str(MSL_FOLDER))

import build_kernels as build_kernels  # noqa: E402

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_BUFFERS = 31
MAX_THREADGROUP_SLOTS = 8
MAX_CONSTANTS = 64
CHECK_DIVERGENCE, CHECK_POISON, CHECK_SHUFFLE = 1, 2, 4
OK, ABORTED, FAILED = 0, 1, 2
MSL, TWIN, DOT_TWIN = range(3)  # forms of a kernel
ABI_VERSION = 2

# struct format of each MTL::DataType that a function constant may have.
_FORMATS = {
    3: "f",
    16: "e",
    29: "i",
    33: "I",
    37: "h",
    41: "H",
    45: "b",
    49: "B",
    53: "?",
    81: "q",
    85: "Q",
}


class _Constant(ctypes.Structure):
    _fields_ = (
        ("index", ctypes.c_uint32),
        ("data_type", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
    )


class _Kernel(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("buffer_mask", ctypes.c_uint32),
        ("n_threadgroup_args", ctypes.c_uint32),
        ("n_constants", ctypes.c_uint32),
        ("constants", ctypes.POINTER(_Constant)),
        ("entry", ctypes.c_void_p),
        ("twin", ctypes.c_void_p),
        ("dot_twin", ctypes.c_void_p),
    )


class Dispatch(ctypes.Structure):
    """MslDispatch."""

    _fields_ = (
        ("kernel", ctypes.POINTER(_Kernel)),
        ("buffers", ctypes.c_void_p * MAX_BUFFERS),
        ("constants", ctypes.c_uint64 * MAX_CONSTANTS),
        ("groups", ctypes.c_uint32 * 3),
        ("threads", ctypes.c_uint32 * 3),
        ("threadgroup_bytes", ctypes.c_uint32 * MAX_THREADGROUP_SLOTS),
        ("check", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("abort", ctypes.POINTER(ctypes.c_uint32)),
    )


_RUN = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(Dispatch),
    ctypes.c_uint64,
    ctypes.c_uint64,
    ctypes.c_char_p,
    ctypes.c_uint64,
)


_TWIN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Dispatch), ctypes.c_uint64, ctypes.c_uint64)


class _Library(ctypes.Structure):
    _fields_ = (
        ("abi_version", ctypes.c_uint32),
        ("isa", ctypes.c_char_p),
        ("n_kernels", ctypes.c_uint32),
        ("kernels", ctypes.POINTER(_Kernel)),
        ("run", _RUN),
    )


class KernelError(RuntimeError):
    """A dispatch failed; the message is the library's."""


class Aborted(RuntimeError):
    """A dispatch was stopped by its abort flag."""


class KernelLibrary:
    """An open kernels.<isa>.so. Any number of threads may call run()."""

    shadow = False  # what build() makes

    def __init__(self, path: Path | str) -> None:
        """Open the library at `path`."""
        handle = ctypes.CDLL(str(path))
        handle.msl_library.restype = ctypes.POINTER(_Library)
        self._handle = handle
        self._library = handle.msl_library().contents
        if self._library.abi_version != ABI_VERSION:
            raise KernelError(f"{path}: ABI version {self._library.abi_version}")
        self.isa: str = self._library.isa.decode()
        kernels = (self._library.kernels[i] for i in range(self._library.n_kernels))
        self._kernels = {kernel.name.decode(): kernel for kernel in kernels}

    @classmethod
    def build(
        cls,
        output: Path | str,
        *,
        metal_dir: Path | str | None = None,
        overrides: Sequence[str] = (),
        isa: str = "",
    ) -> Self:
        """Build what is out of date in `output`, for one CPU level, and open it."""
        level = isa or (build_kernels.default_isas()[0] if cls.shadow else best_isa())
        (path,) = build_kernels.build(
            Path(output),
            metal_dir=Path(metal_dir) if metal_dir else build_kernels.METAL_DIR,
            overrides=list(overrides),
            isas=[level],
            shadow=cls.shadow,
        )
        return cls(path)

    @property
    def names(self) -> list[str]:
        """Names of all kernels."""
        return sorted(self._kernels)

    def form(self, name: str, *, twins: bool, dot: bool) -> int:
        """Which form of a kernel a device runs that may run twins, and those for dot products."""
        kernel = self._kernels[name]
        if not twins or not kernel.twin:
            return MSL
        return DOT_TWIN if dot and kernel.dot_twin else TWIN

    def buffer_mask(self, name: str) -> int:
        """Bit n: the kernel has an argument [[buffer(n)]]."""
        return int(self._kernels[name].buffer_mask)

    def constants(self, name: str) -> dict[str, tuple[int, int]]:
        """Name -> (index, MTL::DataType) of the function constants that a kernel reads."""
        kernel = self._kernels[name]
        listed = (kernel.constants[i] for i in range(kernel.n_constants))
        return {c.name.decode(): (c.index, c.data_type) for c in listed}

    def run(
        self,
        name: str,
        constants: Mapping[int, bool | int | float],
        buffers: Sequence[np.ndarray | bytes | None],
        groups: tuple[int, int, int],
        threads: int | tuple[int, int, int],
        threadgroup_bytes: int | Sequence[int] = 0,
        *,
        check: int = 0,
        seed: int = 0,
        abort: ctypes.c_uint32 | None = None,
        first: int = 0,
        count: int | None = None,
        form: int = MSL,
    ) -> None:
        """Run threadgroups first .. first + count - 1 (all, by default) on the calling thread.

        Raises:
            KernelError: the dispatch failed.
            Aborted: the abort flag was set.
        """
        dispatch = self._dispatch(name, constants, groups, threads, threadgroup_bytes)
        dispatch.check, dispatch.seed = check, seed
        for index, buffer in enumerate(buffers):
            dispatch.buffers[index] = _address(buffer)
        if abort is not None:
            dispatch.abort = ctypes.pointer(abort)
        total = groups[0] * groups[1] * groups[2]
        error = ctypes.create_string_buffer(512)
        n = total - first if count is None else count
        if form == MSL:
            result = self._library.run(ctypes.byref(dispatch), first, n, error, len(error))
        else:
            kernel = self._kernels[name]
            twin = _TWIN(kernel.twin if form == TWIN else kernel.dot_twin)
            result = twin(ctypes.byref(dispatch), first, n)
        if result == ABORTED:
            raise Aborted(name)
        if result != OK:
            raise KernelError(error.value.decode())

    def _dispatch(
        self,
        name: str,
        constants: Mapping[int, bool | int | float],
        groups: tuple[int, int, int],
        threads: int | tuple[int, int, int],
        threadgroup_bytes: int | Sequence[int],
    ) -> Dispatch:
        dispatch = Dispatch(kernel=ctypes.pointer(self._kernels[name]))
        dispatch.constants[:] = constant_words(name, self.constants(name), constants)
        dispatch.groups[:] = groups
        dispatch.threads[:] = threads if isinstance(threads, tuple) else (threads, 1, 1)
        sizes = [threadgroup_bytes] if isinstance(threadgroup_bytes, int) else threadgroup_bytes
        for slot, size in enumerate(sizes):
            dispatch.threadgroup_bytes[slot] = size
        return dispatch


def constant_words(
    kernel: str,
    known: Mapping[str, tuple[int, int]],
    constants: Mapping[int, bool | int | float],
) -> list[int]:
    """Return MslDispatch.constants.

    Args:
        kernel: Its name, for the error.
        known: Name -> (index, MTL::DataType) of the constants that it reads.
        constants: Values by index; those that it does not read are left out.
    """
    missing = [name for name, (index, _) in known.items() if index not in constants]
    if missing:
        raise KernelError(f"{kernel}: function constants not set: {', '.join(missing)}")
    words = [0] * MAX_CONSTANTS
    for index, kind in known.values():
        raw = struct.pack(_FORMATS[kind], constants[index])
        words[index] = int.from_bytes(raw, "little")
    return words


def _address(buffer: np.ndarray | bytes | None) -> int | None:
    if buffer is None:
        return None
    if isinstance(buffer, bytes):
        return ctypes.cast(ctypes.c_char_p(buffer), ctypes.c_void_p).value
    if not buffer.flags.c_contiguous:
        raise ValueError("buffers are contiguous arrays")
    return int(buffer.ctypes.data)


def best_isa() -> str:
    """Return the best CPU level of this machine."""
    isas = build_kernels.default_isas()
    if "avx512" not in isas:
        return isas[0]
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    wide = all(f" avx512{part}" in flags for part in ("f", "bw", "cd", "dq", "vl"))
    return "avx512" if wide else "avx2"
