"""`prefetch_weights=` and `lock_weights=`: where the pages of the files are."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from engine.driving import TINY, generate, open_tiny
from mtlqwen import _core

WEIGHTS_BYTES = -(-TINY.stat().st_size // mmap.PAGESIZE) * mmap.PAGESIZE


def status_kib(key: str) -> int:
    """Return a line of /proc/self/status in KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    raise KeyError(key)


def copied_kib(path: Path) -> int:
    """Return how much of the mappings of a file this process has copies of."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0] and ":" not in line.split()[0]:
            inside = line.endswith(str(path))
        elif inside and line.startswith("Anonymous:"):
            total += int(line.split()[1])
    return total


def resident_part(path: Path) -> float:
    """Return the part of a file that is in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = path.stat().st_size
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) as pages:
        there = (ctypes.c_ubyte * (-(-size // mmap.PAGESIZE)))()
        address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        failed = libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), there)
        assert failed == 0
        return sum(page & 1 for page in there) / len(there)


def may_lock() -> bool:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return soft == resource.RLIM_INFINITY or soft >= 2 * WEIGHTS_BYTES or os.geteuid() == 0


@pytest.mark.skipif(not may_lock(), reason="RLIMIT_MEMLOCK is below the size of the model")
def test_locked_weights_are_in_memory_once(kernels: str) -> None:
    before = status_kib("VmLck")
    engine = _core.Engine(str(TINY), kernels=kernels, context=256, lock_weights=True)
    assert engine.stats()["weights_locked_bytes"] == WEIGHTS_BYTES
    assert status_kib("VmLck") - before >= WEIGHTS_BYTES >> 10
    assert copied_kib(TINY) == 0
    assert generate(engine, range(10, 40), max_tokens=4)
    engine.close()
    assert status_kib("VmLck") == before
    engine = open_tiny(kernels)
    assert engine.stats()["weights_locked_bytes"] == 0
    assert status_kib("VmLck") == before
    engine.close()


# Gives up the right to lock more than RLIMIT_MEMLOCK (CAP_IPC_LOCK), as a process of root has it.
REFUSED = """
import ctypes, resource, sys
from mtlqwen import CapacityError, _core
libc = ctypes.CDLL(None)
head = (ctypes.c_uint32 * 2)(0x20080522, 0)
sets = (ctypes.c_uint32 * 6)()
assert libc.capget(head, sets) == 0
for i in range(3):
    sets[i] &= ~(1 << 14)
assert libc.capset(head, sets) == 0
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
try:
    _core.Engine(sys.argv[1], kernels=sys.argv[2], lock_weights=True)
except CapacityError as error:
    print(error)
_core.Engine(sys.argv[1], kernels=sys.argv[2], context=256).close()
"""


def test_a_refused_lock_names_the_limit(kernels: str) -> None:
    command = [sys.executable, "-c", REFUSED, str(TINY), kernels]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"{TINY}: cannot be locked in memory (got {WEIGHTS_BYTES} bytes" in told
    assert "RLIMIT_MEMLOCK allows at most 65536 bytes" in told
    assert "`ulimit -l`" in told


def test_prefetched_weights_come_by_themselves(kernels: str, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    shutil.copyfile(TINY, model)
    with model.open("ab") as file:
        file.write(bytes(32 << 20))  # behind the tensors: nobody reads it

    def load_cold(prefetch: bool) -> float:
        with model.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if resident_part(model) > 0.1:
            pytest.skip("this file system keeps its pages in memory")
        engine = _core.Engine(str(model), kernels=kernels, context=256, prefetch_weights=prefetch)
        part = resident_part(model)
        for _ in range(500):
            if not prefetch or part == 1.0:
                break
            time.sleep(0.02)
            part = resident_part(model)
        engine.close()
        return part

    assert load_cold(prefetch=False) < 0.7
    assert load_cold(prefetch=True) == 1.0
