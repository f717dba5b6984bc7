"""From a checkpoint directory to a GGUF file: what is to be written, and the writing of it.

Rows are read, changed and quantised a few at a time by some threads, and written in order; so
memory does not grow with the model, and the file does not depend on the number of threads.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mtlqwen.assets import read_json
from mtlqwen.conversion.config import read_config
from mtlqwen.conversion.formats import FORMATS
from mtlqwen.conversion.gguf_file import head, padded
from mtlqwen.conversion.metadata import metadata
from mtlqwen.conversion.partial_file import PartialFile
from mtlqwen.conversion.rows import Rows
from mtlqwen.conversion.source import Checkpoint
from mtlqwen.conversion.tensors import specs
from mtlqwen.conversion.types import Types
from mtlqwen.download import Downloads
from mtlqwen.errors import ModelError
from mtlqwen.hub import ModelFiles, resolve
from mtlqwen.progress import Progress, make_progress

_REVISION = 1  # of how values are computed; another one does not go on with a part of this one
_MAX_MEMORY = 1 << 62  # nothing is loaded: a model may be larger than memory is


@dataclass(frozen=True, slots=True)
class _Plan:
    """A file that is to be written: its head, and the rows of its tensors."""

    head: bytes
    tensors: list[Rows]
    identity: str

    @property
    def sizes(self) -> list[int]:
        """Bytes of head and tensors, each padded."""
        return [len(self.head), *(padded(rows.entry.size) for rows in self.tensors)]


def convert(
    source: str | Path,
    target: str | Path,
    type: str = "q8_0",
    *,
    parts: Mapping[str, str] | None = None,
    overwrite: bool = False,
    threads: int | None = None,
    progress: Progress | bool | None = None,
) -> Path:
    """Write a GGUF file from a checkpoint of safetensors, and return its path.

    A call that was broken off goes on, when it is repeated, behind the last tensors that were
    written; the file is the same, byte for byte.

    Args:
        source: a model directory, or a hub id ``owner/name[@REVISION]``.
        target: the file, ``….gguf``.
        type: of matrices: f32, bf16, f16, q8_0, q6_k, q5_k, q4_k_m, q4_k, q4_0 or another that
            docs/convert.md lists. A matrix whose rows it does not fit gets the next one that does.
            Vectors, convolutions and the two smallest projections of a layer are always f32.
        parts: types of the matrices whose names in GGUF have a part, as whole words between
            dots: ``{"token_embd": "q6_k", "blk.3.attn_v": "f16"}``.
        overwrite: whether a file that is there may be replaced.
        threads: how many quantise; unset: one for each core.
        progress: called with ("convert", bytes written, bytes in all); True: draws a line.

    Raises:
        ValueError: a type that cannot be written, a part that no matrix has, or a name that is no
            GGUF file's.
        FileExistsError: the file is there, or another process is writing it.
        FileNotFoundError: there is no such source, or no such folder.
        FormatError: the source is broken or not complete.
        ModelError: it is of a model that does not run, or in a form that is not converted.
        CapacityError: the disk has no room.

    Example:
        >>> mtlqwen.convert("Qwen/Qwen3.5-4B", "Qwen3.5-4B-Q4_K_M.gguf", "q4_k_m")  # doctest: +SKIP
        PosixPath('Qwen3.5-4B-Q4_K_M.gguf')
    """
    path = _checked_target(Path(target).expanduser(), overwrite=overwrite)
    chosen = Types(type, parts or {})
    tell = make_progress(progress)
    files = resolve(source, Downloads(memory=_MAX_MEMORY, progress=tell))
    if files.is_gguf:
        raise ModelError(
            f"[convert] {files.weights}: a file already (want a directory of safetensors); "
            "tools/requantise.py of the source repository changes the types of a GGUF file"
        )
    plan = _plan(files, path.stem, chosen)
    with PartialFile(path, plan.identity, plan.sizes) as file:
        _write(plan, file, threads or _cores(), tell)
        file.finish()
    return path


def _checked_target(path: Path, *, overwrite: bool) -> Path:
    if path.suffix.lower() != ".gguf":
        raise ValueError(f"[convert] {path}: no name of a GGUF file (want one that ends in .gguf)")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"[convert] {path}: its folder is not there")
    if path.is_dir() or (path.exists() and not overwrite):
        raise FileExistsError(f"[convert] {path}: is there; remove it, or pass overwrite")
    return path


def _plan(files: ModelFiles, name: str, chosen: Types) -> _Plan:
    """Look at all of the source but its data."""
    config_path = files.sidecar("config.json")
    config = read_config(read_json(config_path), str(config_path))
    checkpoint = Checkpoint(files.weights)
    mtp = config.mtp_layers > 0 and checkpoint.has_mtp
    with_head = checkpoint.has_head if config.tied is None else not config.tied
    tensors = []
    for spec in specs(config, head=with_head, mtp=mtp):
        form = chosen.of(spec.name, spec.shape[-1]) if spec.matrix else FORMATS["F32"]
        tensors.append(Rows(spec, form, checkpoint.tensor(spec.source, spec.shape), config.k_heads))
    chosen.check_used()
    keys = metadata(files, config, name, chosen.file_number, mtp=mtp)
    start = head(keys, [rows.entry for rows in tensors])
    return _Plan(start, tensors, _identity(start, checkpoint.files))


def _identity(start: bytes, weights: list[Path]) -> str:
    """Return what differs where the file would: all of its head, and which files it is from."""
    digest = hashlib.sha256(start)
    for path in weights:
        known = path.stat()
        digest.update(f"{path.name} {known.st_size} {known.st_mtime_ns}\n".encode())
    return f"mtlqwen convert {_REVISION} {digest.hexdigest()}"


def _write(plan: _Plan, file: PartialFile, threads: int, tell: Progress | None) -> None:
    """Write all pieces that are not there yet."""
    sizes = plan.sizes
    total = sum(sizes)
    with ThreadPoolExecutor(threads, "mtlqwen-convert") as pool:
        for at in range(file.pieces_done, len(sizes)):
            start = file.bytes_done
            pieces = plan.tensors[at - 1].pieces() if at else iter([lambda: plan.head])
            for data in _made(pool, pieces, 2 * threads):
                file.write(memoryview(data))
                if tell and file.bytes_done < total:
                    tell("convert", file.bytes_done, total)
            file.write(memoryview(bytes(sizes[at] - (file.bytes_done - start))))
            file.end_piece()
    if tell:
        tell("convert", total, total)


def _made(
    pool: ThreadPoolExecutor, pieces: Iterator[Callable[[], bytes]], most: int
) -> Iterator[bytes]:
    """Yield what the pieces' functions return, in order; ``most`` of them run or wait."""
    waiting: deque[Future[bytes]] = deque()
    for piece in pieces:
        waiting.append(pool.submit(piece))
        if len(waiting) == most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
