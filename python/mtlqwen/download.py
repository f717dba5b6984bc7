"""Brings what one model needs from the hub into the cache that all programs of this user share.

Files come through huggingface-hub; what is interrupted goes on where it stopped, and only what has
the hub's checksum gets its place. Knows repositories and that cache; opens no weights.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtlqwen.errors import CapacityError, FormatError, ModelError
from mtlqwen.progress import Progress
from mtlqwen.selection import (
    CHECKPOINT,
    GGUF_SIDECARS,
    INDEX,
    SIDECARS,
    fitting,
    gguf_files,
    names_drafter,
    parts_of,
    quants_of,
)

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

_COMMIT = re.compile(r"[0-9a-f]{40}")
_CHECKSUM = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # of a file in git, or outside of it
_MAX_HTTP_BYTES = 50 * 10**9  # what is larger the hub serves in its own protocol alone
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class HubName:
    """A model on the hub.

    Attributes:
        repository: ``owner/name``.
        revision: a branch, a tag or a commit.
        quant: which of the GGUF files of a repository.
        drafter: whether a drafter is wanted, or a model.
    """

    repository: str
    revision: str
    quant: str | None
    drafter: bool

    def __str__(self) -> str:
        """Return the name as messages show it."""
        return self.repository if self.revision == "main" else f"{self.repository}@{self.revision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Downloads:
    """What may be downloaded, and who is told.

    Attributes:
        allowed: whether anything may; if not, only the cache is looked at.
        memory: bytes that weights may have. None: what the device recommends.
        progress: called with ("download", bytes that are here, bytes in all).
    """

    allowed: bool = True
    memory: int | None = None
    progress: Progress | None = None


ANYTHING = Downloads()


def download(name: HubName, how: Downloads) -> Path:
    """Return the GGUF file or the directory of a model, downloaded where it is not here yet.

    Without a connection, and for a commit that is here whole, the cache alone is asked.

    Raises:
        FileNotFoundError: there is no such repository or revision.
        PermissionError: its terms have not been accepted.
        ModelError: it does not hold one model.
        CapacityError: the disk or the memory is too small for it.
        ConnectionError: it is not in the cache, and cannot be downloaded.
    """
    from huggingface_hub import HfApi

    if not how.allowed or _COMMIT.fullmatch(name.revision):
        cached = _find_cached(name)
        if cached is not None:
            return cached
        if not how.allowed:
            raise ConnectionError(f"[hub] {name}: not, or not whole, in the local cache")
    try:
        info = HfApi().model_info(name.repository, revision=name.revision, files_metadata=True)
    except Exception as error:  # of whatever HTTP library the hub's own is built on
        cached = _find_cached(name)
        if cached is not None:
            return cached
        raise _explained(name, error) from error
    files = {file.rfilename: file for file in info.siblings or []}
    return _Snapshot(name, str(info.sha), files, how).fetch()


class _Snapshot:
    """One commit of a repository, and its place in the cache."""

    def __init__(
        self, name: HubName, commit: str, files: dict[str, RepoSibling], how: Downloads
    ) -> None:
        self._name = name
        self._files = files
        self._how = how
        self._storage = _storage(name)
        self._commit = commit  # asked once: the branch may move while files come
        self._folder = self._storage / "snapshots" / commit
        self._done = self._total = 0
        self._of_caller: Exception | None = None  # what its progress function raised

    def fetch(self) -> Path:
        """Return the weights, after all that they need has come."""
        weights = _choose(self._name, list(self._files))
        if weights == INDEX:
            self._bring([INDEX])
        names = _needed(self._name, weights, self._files.keys(), self._folder)
        missing = [file for file in names if file not in self._files]
        if missing:
            raise ModelError(f"[hub] {self._name}: not complete: no {missing[0]} in it")
        self._check_memory([file for file in names if file.endswith((".gguf", ".safetensors"))])
        self._bring(names)
        self._note_revision()
        return self._folder / weights if weights.endswith(".gguf") else self._folder

    def _bring(self, names: list[str]) -> None:
        """Download those files that are not here, then give all of them their names."""
        from huggingface_hub import snapshot_download
        from huggingface_hub.utils import tqdm

        class Silent(tqdm):
            def __init__(self, *arguments: Any, **options: Any) -> None:
                options["disable"] = True
                super().__init__(*arguments, **options)  # type: ignore[no-untyped-call]

        if all((self._folder / name).is_file() for name in names):
            return
        try:
            self._fill_blobs([self._files[name] for name in names])
            # Nothing is left but links, and files above the limit of HTTP.
            snapshot_download(
                self._name.repository,
                revision=self._commit,
                allow_patterns=[glob.escape(name) for name in names],
                tqdm_class=Silent,
            )
        except Exception as error:
            if isinstance(error, CapacityError) or error is self._of_caller:
                raise
            raise _explained(self._name, error) from error

    def _note_revision(self) -> None:
        """Write down which commit the revision is, now that it is here; not of a commit itself."""
        reference = _reference(self._name)
        if self._commit == self._name.revision or _snapshot_folder(self._name) == self._folder:
            return
        reference.parent.mkdir(parents=True, exist_ok=True)
        new = reference.with_name(f"{reference.name}.{os.getpid()}.incomplete")
        new.write_text(self._commit)
        new.replace(reference)

    def _fill_blobs(self, files: list[RepoSibling]) -> None:
        blobs = self._storage / "blobs"
        rest = [file for file in files if _CHECKSUM.fullmatch(_checksum(file))]
        rest = [file for file in rest if not (blobs / _checksum(file)).exists()]
        rest = [file for file in rest if _bytes(file) <= _MAX_HTTP_BYTES]
        self._total = sum(map(_bytes, rest))
        self._done = 0
        partial = {file.rfilename: blobs / f"{_checksum(file)}.incomplete" for file in rest}
        here = sum(path.stat().st_size for path in partial.values() if path.exists())
        self._check_disk(self._total - here)
        for file in rest:
            with _locked(self._storage, _checksum(file)):
                if (blobs / _checksum(file)).exists():  # another process was faster
                    self.update(_bytes(file))
                    continue
                self._download(file, partial[file.rfilename])
                partial[file.rfilename].rename(blobs / _checksum(file))

    def _download(self, file: RepoSibling, path: Path) -> None:
        """Fill ``path`` up to the whole file, and check it."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers

        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as out:
            if out.tell() > _bytes(file):
                out.truncate(0)
            self.update(out.tell())
            http_get(
                hf_hub_url(self._name.repository, file.rfilename, revision=self._commit),
                out,
                resume_size=out.tell(),
                headers=build_hf_headers() | {"Accept-Encoding": "identity"},
                expected_size=_bytes(file),
                _tqdm_bar=self,
            )
        if _hash(path, file) != _checksum(file):
            path.unlink()
            raise OSError(f"{file.rfilename} arrived damaged and was deleted")

    def update(self, n_bytes: int) -> None:
        """Count bytes that came; `http_get` calls it as it would a progress bar's."""
        self._done += n_bytes
        if self._how.progress is None or not n_bytes:
            return
        try:
            self._how.progress("download", self._done, self._total)
        except Exception as error:
            self._of_caller = error
            raise

    def _check_disk(self, need: int) -> None:
        place = next(path for path in self._storage.parents if path.exists())
        free = shutil.disk_usage(place).free
        if need > free:
            raise CapacityError(
                f"[hub] {self._name}: disk is too small (got {free} bytes free in {place}, want "
                f"{need}); free some, or set HF_HUB_CACHE to another place"
            )

    def _check_memory(self, names: list[str]) -> None:
        limit = self._how.memory
        if limit is None:
            from mtlqwen import _core

            limit = _core.recommended_bytes()
        need = sum(_bytes(self._files[name]) for name in names)
        if need > limit:
            raise CapacityError(
                f"[hub] {self._name}: weights do not fit the memory (got {need} bytes, want at "
                f"most {limit}); no weights were downloaded; choose a smaller model or "
                "quantisation, or raise memory_budget"
            )


def _storage(name: HubName) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"models--{name.repository.replace('/', '--')}"


def _reference(name: HubName) -> Path:
    """Return the file of the cache that says which commit a branch or a tag is."""
    return _storage(name) / "refs" / name.revision


def _snapshot_folder(name: HubName) -> Path:
    """Return where the cache has a revision, whether it has it or not."""
    reference = _reference(name)
    commit = reference.read_text().strip() if reference.is_file() else name.revision
    return _storage(name) / "snapshots" / commit


def _find_cached(name: HubName) -> Path | None:
    """Return the model if the cache has it whole."""
    folder = _snapshot_folder(name)
    if not folder.is_dir():
        return None
    names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    try:
        weights = _choose(name, names)
        needed = _needed(name, weights, names, folder)
    except ModelError:
        return None
    if not set(needed) <= set(names):
        return None
    return folder / weights if weights.endswith(".gguf") else folder


def _choose(name: HubName, files: list[str]) -> str:
    """Return a checkpoint's file or index, or the first or only part of a GGUF file."""
    if name.quant is None:
        for whole in (CHECKPOINT, INDEX):
            if whole in files:
                return whole
    found = gguf_files(files)
    chosen = fitting(found, name.quant, drafter=name.drafter, is_drafter=names_drafter)
    if len(chosen) == 1:
        return chosen[0]
    if not found:
        raise ModelError(f"[hub] {name}: neither {CHECKPOINT} nor its index nor a GGUF file in it")
    wrong = "several GGUF files" if chosen else f"no {'drafter' if name.drafter else 'model'}"
    if name.quant is not None:
        wrong = f"several files for {name.quant}" if chosen else f"no file for {name.quant}"
    quants = quants_of(chosen or found)
    hint = f"name one, as in {name}:{quants[0]}" if quants else "download the one you want"
    raise ModelError(f"[hub] {name}: {wrong} (got {', '.join(chosen or found)}); {hint}")


def _needed(name: HubName, weights: str, files: Any, folder: Path) -> list[str]:
    """Return all files that go with ``weights``; of a checkpoint in parts, the index is read."""
    if weights.endswith(".gguf"):
        beside = weights.rpartition("/")[0]
        sidecars = [f"{beside}/{sidecar}" if beside else sidecar for sidecar in GGUF_SIDECARS]
        return parts_of(weights) + [sidecar for sidecar in sidecars if sidecar in files]
    required = ["config.json"] if name.drafter else ["config.json", "tokenizer.json"]
    names = [*required, *(sidecar for sidecar in SIDECARS if sidecar in files), weights]
    if weights == INDEX:
        names += _shards(folder / INDEX)
    return list(dict.fromkeys(names))


def _shards(index: Path) -> list[str]:
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return sorted(str(name) for name in names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"[hub] {index}: no index of a checkpoint ({error})") from error


def _bytes(file: RepoSibling) -> int:
    return file.size or 0


def _checksum(file: RepoSibling) -> str:
    """Return the hub's checksum of a file, which is its name in the cache."""
    return file.lfs.sha256 if file.lfs else str(file.blob_id)


def _hash(path: Path, file: RepoSibling) -> str:
    # Small files stand in git itself, which hashes a head with them.
    head = f"blob {_bytes(file)}\0".encode()
    digest = hashlib.sha256() if file.lfs else hashlib.sha1(head, usedforsecurity=False)
    with path.open("rb") as data:
        while chunk := data.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def _locked(storage: Path, checksum: str) -> Iterator[None]:
    """Hold the lock under which every program fills this place of the cache."""
    from huggingface_hub.utils import WeakFileLock

    path = storage.parent / ".locks" / storage.name / f"{checksum}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(path):
        yield


def _explained(name: HubName, error: Exception) -> Exception:
    """Return the error of ours that says what the hub's does."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, GatedRepoError):
        return PermissionError(
            f"[hub] {name}: gated; accept its terms on the hub and log in (hf auth login)"
        )
    if isinstance(error, RepositoryNotFoundError):
        return FileNotFoundError(
            f"[hub] {name}: no such repository, or a private one; check the name or log in"
        )
    if isinstance(error, RevisionNotFoundError):
        return FileNotFoundError(f"[hub] {name}: no such branch, tag or commit")
    if isinstance(error, HFValidationError):
        return FileNotFoundError(
            f"[hub] {name}: no such file or directory, and no hub id ({error})"
        )
    line = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
    return ConnectionError(
        f"[hub] {name}: not in the local cache, and the hub cannot be reached or its files cannot "
        f"be stored ({line}); connect once, or name a local file"
    )
