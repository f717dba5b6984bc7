"""Kernels of an aarch64 library on an x86-64 machine: cross-compiled, run by qemu.

Knows how to build the library and driver.cpp, and speaks the driver's protocol. What it shows is
that results are right; how long they take says nothing.
"""

from __future__ import annotations

import ctypes
import platform
import shutil
import struct
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msl.runner import (
    ABORTED,
    MAX_CONSTANTS,
    MAX_THREADGROUP_SLOTS,
    MSL,
    OK,
    TWIN,
    Aborted,
    KernelError,
    build_kernels,
    constant_words,
)
from numpy.typing import NDArray

Buffer = NDArray[np.generic]

ROOT = Path(__file__).resolve().parents[2]
QEMU = "qemu-aarch64-static"
COMPILER = "aarch64-linux-gnu-g++"
PACKAGES = "qemu-user-static g++-aarch64-linux-gnu"  # Debian's

_REQUEST = struct.Struct(f"<{MAX_CONSTANTS}Q4Q6I{MAX_THREADGROUP_SLOTS}I6I")
_ANSWER = struct.Struct("<2I")


def why_not() -> str:
    """What this machine lacks for the emulator, or nothing."""
    if platform.machine() != "x86_64":
        return f"emulation is for x86-64 machines (this is {platform.machine()})"
    missing = [tool for tool in (QEMU, COMPILER) if not shutil.which(tool)]
    return f"no {' and no '.join(missing)}; apt-get install {PACKAGES}" if missing else ""


def build_driver(folder: Path) -> Path:
    """Cross-compile driver.cpp; return the program."""
    driver = folder / "driver"
    sources = [ROOT / "tests/neon/driver.cpp", ROOT / "csrc/hostmetal/cpu.cpp"]
    flags = ["-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'csrc'}"]
    subprocess.run([COMPILER, *flags, *map(str, sources), "-o", str(driver)], check=True)
    return driver


def build_library(folder: Path, metal_dir: Path = build_kernels.METAL_DIR) -> Path:
    """Cross-compile the kernels of a folder; return the library."""
    (library,) = build_kernels.build(folder, metal_dir=metal_dir, isas=["neon"])
    return library


@dataclass(frozen=True)
class Kernel:
    """What the driver says of one."""

    has_twin: bool
    buffer_mask: int
    constants: Mapping[str, tuple[int, int]]  # name -> (index, MTL::DataType)


class EmulatedLibrary:
    """As msl.runner.KernelLibrary, on an emulated CPU. Any number of threads may call run()."""

    def __init__(self, driver: Path, library: Path, cpu: str) -> None:
        """Start the driver on a CPU, by qemu's name of it."""
        loader = _output(COMPILER, "-print-file-name=ld-linux-aarch64.so.1").strip()
        root = Path(loader).resolve().parents[1]  # of the cross compiler's shared libraries
        self._process = subprocess.Popen(
            [QEMU, "-cpu", cpu, "-L", str(root), str(driver), str(library)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._in, self._out = self._process.stdin, self._process.stdout
        self._lock = threading.Lock()
        self.isa = self._line()  # as MTLQWEN_HOST_ISA spells it
        self.kernels: dict[str, Kernel] = {}
        while line := self._line():
            name, twin, mask, *constants = line.split()
            listed = (constant.split(":") for constant in constants)
            self.kernels[name] = Kernel(
                twin == "1", int(mask), {c: (int(i), int(k)) for c, i, k in listed}
            )
        self.names = sorted(self.kernels)

    def close(self) -> None:
        """End the driver. A crash that no call has reported is an error."""
        self._in.close()
        self._out.close()
        was_reported = self._process.returncode is not None
        if self._process.wait() != 0 and not was_reported:
            raise RuntimeError(self._end())

    def buffer_mask(self, name: str) -> int:
        """Bit n: the kernel has an argument [[buffer(n)]]."""
        return self.kernels[name].buffer_mask

    def constants(self, name: str) -> Mapping[str, tuple[int, int]]:
        """Name -> (index, MTL::DataType) of the function constants that a kernel reads."""
        return self.kernels[name].constants

    def run(
        self,
        name: str,
        constants: Mapping[int, bool | int | float],
        buffers: Sequence[Buffer],
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
        part: int = 2**63,
        workers: int = 1,
    ) -> None:
        """As KernelLibrary.run, by the abort flag's value of now.

        Runs the kernel as MSL or TWIN, `part` threadgroups a call, in as many threads as there are
        workers.
        """
        n = groups[0] * groups[1] * groups[2] - first if count is None else count
        sizes = [threadgroup_bytes] if isinstance(threadgroup_bytes, int) else threadgroup_bytes
        head = _REQUEST.pack(
            *constant_words(name, self.constants(name), constants),
            *(first, n, part, seed),
            *groups,
            *(threads if isinstance(threads, tuple) else (threads, 1, 1)),
            *(*sizes, *[0] * (MAX_THREADGROUP_SLOTS - len(sizes))),
            *(check, abort.value if abort else 0, workers, form, len(name), len(buffers)),
        )
        lengths = struct.pack(f"<{len(buffers)}Q", *(buffer.nbytes for buffer in buffers))
        with self._lock:
            self._send([head, name.encode(), lengths, *(b.tobytes() for b in buffers)])
            status, error_bytes = _ANSWER.unpack(self._read(_ANSWER.size))
            error = self._read(error_bytes).decode()
            for buffer in buffers:
                received = np.frombuffer(self._read(buffer.nbytes), buffer.dtype)
                buffer[...] = received.reshape(buffer.shape)
        if status == ABORTED:
            raise Aborted(name)
        if status != OK:
            raise KernelError(error)

    def _send(self, parts: Sequence[bytes]) -> None:
        try:
            self._in.writelines(parts)
            self._in.flush()
        except BrokenPipeError as error:
            raise RuntimeError(self._end()) from error

    def _read(self, n_bytes: int) -> bytes:
        data = self._out.read(n_bytes)
        if len(data) != n_bytes:
            raise RuntimeError(self._end())
        return data

    def _line(self) -> str:
        line = self._out.readline()
        if not line:
            raise RuntimeError(self._end())
        return line.decode().strip()

    def _end(self) -> str:
        return f"the emulated driver ended with status {self._process.wait()}"


class EmulatedRunner:
    """A device of the kernel tests."""

    gpu_seconds = 0.0

    def __init__(self, library: EmulatedLibrary, *, twins: bool) -> None:
        """Run each kernel as MSL, or as its twin where it has one."""
        self._library = library
        self._twins = twins
        self.kernel_names = library.names

    def run(
        self,
        name: str,
        constants: dict[int, bool | int | float],
        buffers: Sequence[Buffer],
        groups: tuple[int, int, int],
        threads: int,
        threadgroup_bytes: int = 0,
        repeat: int = 1,
    ) -> None:
        """Dispatch as harness.Runner does, a few threadgroups at a time on two threads."""
        for _ in range(repeat):
            self._library.run(
                name,
                constants,
                buffers,
                groups,
                threads,
                threadgroup_bytes,
                form=TWIN if self._twins and self._library.kernels[name].has_twin else MSL,
                part=3,
                workers=2,
            )


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
