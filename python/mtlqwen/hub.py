"""Finds a model's files and its drafter's: on disk, in the package, or on the hub.

Local files always come first; the hub is asked only for ``owner/name`` that is no local path.
Knows paths and folders, and how a GGUF file begins; opens no weights.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from mtlqwen.download import ANYTHING, Downloads, HubName, download
from mtlqwen.errors import ModelError
from mtlqwen.selection import fitting, gguf_files

_Kind: TypeAlias = Literal["model", "drafter"]

_TINY_FOLDER = Path(__file__).parent / "models" / "tiny"
_TINY = {
    "model": _TINY_FOLDER / "tiny-qwen3.5-Q8_0.gguf",
    "drafter": _TINY_FOLDER / "tiny-qwen3.5-dflash-Q8_0.gguf",
}
_HUB_ID = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?(?::([\w.-]+))?")
_SURROGATE = re.compile("[\ud800-\udfff]")  # as bytes of a name that are not UTF-8 come
_DRAFTER_NAME = re.compile(r"(.+?)[-_.]dflash", re.IGNORECASE)
# As a GGUF file says it, in a key that all writers put first.
_HEAD_BYTES = 1 << 16
_SAYS_DRAFTER = struct.pack("<Q20sIQ6s", 20, b"general.architecture", 8, 6, b"dflash")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where a model's parts are.

    Attributes:
        name: what the caller called it.
        weights: a GGUF file, or a directory with config.json and safetensors files.
    """

    name: str
    weights: Path

    @property
    def is_gguf(self) -> bool:
        """Whether the weights are one GGUF file, which may carry tokenizer and template."""
        return not self.weights.is_dir()

    def sidecar(self, name: str) -> Path | None:
        """Return the file ``name`` beside the weights, if it is there."""
        folder = self.weights.parent if self.is_gguf else self.weights
        return folder / name if (folder / name).is_file() else None


def resolve(model: str | Path, how: Downloads = ANYTHING) -> ModelFiles:
    """Return the files that ``model`` names.

    Args:
        model: ``"tiny"``, a path of a GGUF file or of a model directory, or a hub id
            ``owner/name[@REVISION][:QUANT]``. QUANT picks the GGUF whose name carries it.
        how: what may be downloaded.

    Raises:
        TypeError: it is neither a string nor a path.
        ValueError: it is empty, or no text that can be a name.
        FileNotFoundError: there is no such file, directory or repository.
        PermissionError: it may not be looked for, or the repository wants its terms accepted.
        ModelError: what is there is not one model.
        CapacityError: disk or memory are too small for what would be downloaded.
        ConnectionError: its files are not in the hub's local cache, and cannot be downloaded.
    """
    return ModelFiles(str(model), _resolve(model, "model", how))


def resolve_drafter(
    files: ModelFiles, drafter: str | Path | None = None, how: Downloads = ANYTHING
) -> Path | None:
    """Return the GGUF file or directory of a model's DFlash drafter.

    Args:
        files: the model.
        drafter: what `resolve` takes. None looks beside the model: for a GGUF file, in its folder
            a drafter that has the model's name (``M-dflash-Q8_0.gguf`` for ``M-Q4_K_M.gguf``), or
            the only one where there is no other model; for a directory ``M``, a directory
            ``M-dflash`` in it or beside it.
        how: what may be downloaded.

    Returns:
        None where nothing is named and nothing is found.

    Raises:
        ModelError: what is there is not one drafter.
        TypeError, ValueError, OSError, CapacityError: those of `resolve`.
    """
    if drafter is not None:
        return _resolve(drafter, "drafter", how)
    return _drafter_beside_file(files.weights) if files.is_gguf else _drafter_dir(files.weights)


def _drafter_beside_file(weights: Path) -> Path | None:
    others = [file for file in _gguf_files(weights.parent, "*.gguf") if file.name != weights.name]
    drafters = [file for file in others if is_drafter(file)]
    # The longest name fits best: M-Q8_0-dflash before M-dflash.
    bases = {file: base for file in drafters if (base := _shared_name(file, weights))}
    longest = max(map(len, bases.values()), default=0)
    named = [file for file, base in bases.items() if len(base) == longest]
    if len(named) > 1:
        names = ", ".join(file.name for file in named)
        raise ModelError(
            f"[drafter] {weights}: several drafters beside it (got {names}); name one by drafter=, "
            "or use spec='off'"
        )
    if not named and len(others) == len(drafters) == 1:
        named = drafters
    return _named(named[0], "drafter") if named else None


def _shared_name(drafter: Path, model: Path) -> str:
    """Return how both file names begin, if the drafter's goes on with "-dflash"."""
    match = _DRAFTER_NAME.match(drafter.stem)
    base = match[1].lower() if match else ""
    stem = model.stem.lower()
    return base if stem == base or stem.startswith((f"{base}-", f"{base}_", f"{base}.")) else ""


def _drafter_dir(model: Path) -> Path | None:
    path = model.absolute()
    wanted = f"{path.name}-dflash".lower()
    configs = [*path.glob("*/config.json"), *path.parent.glob("*/config.json")]
    found = (config.parent for config in configs if config.parent.name.lower() == wanted)
    return next(found, None)


def is_drafter(path: Path) -> bool:
    """Whether a GGUF file says that it is a drafter; False for any other file."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    return head.startswith(b"GGUF") and _SAYS_DRAFTER in head


def _resolve(model: str | Path, kind: _Kind, how: Downloads) -> Path:
    if not isinstance(model, (str, Path)):
        raise TypeError(f"[{kind}] {kind}: not a string or a path (got {model!r})")
    name = str(model)
    if not name:
        raise ValueError(f"[{kind}] {kind}: an empty name; name a file, a directory or a hub id")
    if "\0" in name or _SURROGATE.search(name):
        raise ValueError(f"[{kind}] {kind}: no name (got {name!r}, want Unicode text without NUL)")
    path = _path(name)
    problem = _problem(path, kind)
    if name == "tiny" and problem:
        path, problem = _TINY[kind], _problem(_TINY[kind], kind)
    if not problem:
        return _weights(path, None, kind)
    folder, _, quant = name.rpartition(":")
    if folder and quant and not _problem(_path(folder), kind) and _path(folder).is_dir():
        return _weights(_path(folder), quant, kind)
    match = None if name.startswith((".", "/", "~")) else _HUB_ID.fullmatch(name)
    if match is None or name.lower().endswith((".gguf", ".safetensors")):
        hint = "want a file, a directory, a hub id owner/name[@REVISION][:QUANT] or 'tiny'"
        raise FileNotFoundError(f"[{kind}] {name}: {problem} ({hint})")
    return download(HubName(match[1], match[2] or "main", match[3], kind == "drafter"), how)


def _path(name: str) -> Path:
    """Return the path with ``~`` expanded, where there is such a user."""
    try:
        return Path(name).expanduser()
    except RuntimeError:
        return Path(name)


def _problem(path: Path, kind: _Kind) -> str:
    """Return why nothing is there, in the system's words; ``""`` where something is."""
    try:
        path.stat()
    except PermissionError as error:
        raise PermissionError(
            f"[{kind}] {path}: this user may not look there; change its permissions or its place"
        ) from error
    except OSError as error:
        return str(error.strerror or error).lower()
    except ValueError as error:  # the file system has another encoding, and no such character
        return str(error)
    return ""


def _weights(path: Path, quant: str | None, kind: _Kind) -> Path:
    """Return the one model in ``path``: the file itself, its one fitting GGUF, or the directory."""
    if not path.is_dir():
        return path
    if quant is None and (path / "config.json").is_file():
        return path
    # Two levels, not the whole tree: a caller may name a home directory by mistake.
    found = _gguf_files(path, "*.gguf") + _gguf_files(path, "*/*.gguf")
    names = {str(file.relative_to(path)): file for file in found}
    chosen = fitting(
        list(names),
        quant,
        drafter=kind == "drafter",
        is_drafter=lambda name: is_drafter(names[name]),
    )
    if len(chosen) == 1:
        return _named(names[chosen[0]], kind)
    got = ", ".join(file.name for file in found) or "no GGUF file"
    if quant is not None:
        wrong = "more than one file" if chosen else "no file"
        raise ModelError(f"[{kind}] {path}: {wrong} for {quant} (got {got}); name the file itself")
    if not found:
        raise ModelError(f"[{kind}] {path}: neither config.json nor a GGUF file in it")
    wrong = "several GGUF files" if chosen else f"no {kind} in it"
    raise ModelError(f"[{kind}] {path}: {wrong} (got {got}); name one")


def _gguf_files(folder: Path, pattern: str) -> list[Path]:
    """Return the GGUF files in a folder, the first part for all parts of one."""
    files = {str(file): file for file in folder.glob(pattern)}
    return [files[name] for name in gguf_files(files)]


def _named(path: Path, kind: _Kind) -> Path:
    """Return the path of a found file, if the core can be told its name."""
    if _SURROGATE.search(str(path)):
        raise ValueError(
            f"[{kind}] {str(path)!r}: no name that can be opened (want Unicode text); rename it"
        )
    return path
