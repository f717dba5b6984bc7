"""A file that is written piece by piece and gets its name when it is whole.

Until then it is called ``NAME.partial``; beside it a journal, ``NAME.partial.journal``, says what
it is going to be, and which pieces are on the disk for certain. Who begins the same file again goes
on behind them. Knows nothing of what the pieces are.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from pathlib import Path

from mtlqwen.errors import CapacityError

_SYNC_BYTES = 64 << 20  # written between two entries of the journal


class PartialFile:
    """The file while it is being written; one process at a time has it.

    What is left behind when its block is left before `finish` is where the next one begins.

    Attributes:
        pieces_done: how many pieces are whole.
        bytes_done: what has been written, of a piece that is not whole, too.
    """

    def __init__(self, path: Path, identity: str, sizes: list[int]) -> None:
        """Open what is there of the file, or begin it.

        Args:
            path: where it will be.
            identity: a line that differs where the content does: such a file is begun anew.
            sizes: bytes of its pieces.

        Raises:
            FileExistsError: another process is writing it.
            CapacityError: the disk has no room for it.
            OSError: it cannot be written there.
        """
        self._path = path
        self._partial = path.with_name(f"{path.name}.partial")
        self._journal = path.with_name(f"{path.name}.partial.journal")
        self._sizes = sizes
        self._file = self._partial.open("ab", buffering=0)
        try:
            self._lock()
            self.pieces_done = self._read_journal(identity)
            self.bytes_done = sum(sizes[: self.pieces_done])
            self._check_space()
            self._file.truncate(self.bytes_done)
            if not self.pieces_done:
                self._note(f"{identity}\n", "w")
        except BaseException:
            self._file.close()
            raise
        self._unsynced = 0

    def __enter__(self) -> PartialFile:
        """Begin to write."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the file; what is whole of it stays."""
        self._file.close()

    def write(self, data: memoryview) -> None:
        """Write more of the next piece."""
        while data:
            count = self._file.write(data)
            data = data[count:]
            self.bytes_done += count
            self._unsynced += count

    def end_piece(self) -> None:
        """Note that the piece is whole: in the journal when it is on the disk."""
        self.pieces_done += 1
        if self._unsynced >= _SYNC_BYTES or self.pieces_done == len(self._sizes):
            _sync(self._file.fileno())
            self._note(f"{self.pieces_done}\n", "a")
            self._unsynced = 0

    def finish(self) -> None:
        """Give the file its name; all pieces are whole."""
        self._partial.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            _sync(folder)
        finally:
            os.close(folder)
        self._journal.unlink()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had the lock before may have finished since the file was opened.
            mine = os.path.samestat(os.fstat(self._file.fileno()), self._partial.stat())
        except (BlockingIOError, FileNotFoundError):
            mine = False
        if not mine:
            raise FileExistsError(f"[convert] {self._path}: another process is writing it")

    def _read_journal(self, identity: str) -> int:
        """Return how many pieces are whole; what follows the last good line is cut off."""
        try:
            lines = self._journal.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return 0
        if not lines or lines[0] != identity.encode():
            return 0
        count, good = 0, len(lines[0]) + 1
        for line in lines[1:]:
            if not re.fullmatch(rb"\d{1,9}", line) or not count < int(line) <= len(self._sizes):
                break
            count, good = int(line), good + len(line) + 1
        if sum(self._sizes[:count]) > self._file.tell():  # the file is another one
            return 0
        os.truncate(self._journal, good)
        return count

    def _check_space(self) -> None:
        need = sum(self._sizes) - self.bytes_done
        free = shutil.disk_usage(self._path.parent).free + self._file.tell() - self.bytes_done
        if need > free:
            if not self.pieces_done:
                self._partial.unlink()
            raise CapacityError(
                f"[convert] {self._path}: does not fit the disk (got {free / 1e9:.1f} GB free, "
                f"want {need / 1e9:.1f} GB); choose a smaller type, or another place"
            )

    def _note(self, text: str, mode: str) -> None:
        with self._journal.open(mode, encoding="utf-8") as journal:
            journal.write(text)
            journal.flush()
            _sync(journal.fileno())


def _sync(file: int) -> None:
    """Bring a file to the medium itself: on a Mac, fsync stops at the drive's own cache."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        try:
            fcntl.fcntl(file, full)
        except OSError:  # a file system without it
            pass
        else:
            return
    os.fsync(file)
