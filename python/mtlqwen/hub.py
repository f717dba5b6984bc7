"""Finds a model's files: on disk, in the package, or on the hub.

Local files always come first; the hub is asked only for ``owner/name`` that is no local path.
Knows names and folders; opens no weights.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mtlqwen.errors import ModelError

_TINY = Path(__file__).parent / "models" / "tiny" / "tiny-qwen3.5-Q8_0.gguf"
_HUB_ID = re.compile(r"([\w.-]+/[\w.-]+)(?::([\w.-]+))?")
_SIDECARS = ["*.json", "*.jinja"]


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


def resolve(model: str | Path) -> ModelFiles:
    """Return the files that ``model`` names.

    Args:
        model: ``"tiny"``, a path of a GGUF file or of a model directory, or a hub id
            ``owner/name`` or ``owner/name:QUANT``. QUANT picks the GGUF whose name carries it.

    Raises:
        TypeError: it is neither a string nor a path.
        FileNotFoundError: there is no such file, directory or repository.
        ModelError: what is there is not one model.
        ConnectionError: the hub can't be reached and has not been asked for this model before.
    """
    if not isinstance(model, (str, Path)):
        raise TypeError(f"[model] model: not a string or a path (got {model!r})")
    name = str(model)
    if not name:
        raise ValueError("[model] model: an empty name; name a file, a directory or a hub id")
    if name == "tiny" and not Path(name).exists():
        return ModelFiles("tiny", _existing(_TINY, name))
    path = Path(name).expanduser()
    if path.exists():
        return ModelFiles(name, _weights(path, None))
    folder, _, quant = name.rpartition(":")
    if folder and quant and Path(folder).expanduser().is_dir():
        return ModelFiles(name, _weights(Path(folder).expanduser(), quant))
    match = _HUB_ID.fullmatch(name)
    if match is None or name.lower().endswith((".gguf", ".safetensors")) or name[0] in "./~":
        _existing(path, name)
    assert match is not None
    return ModelFiles(name, _weights(_download(match[1], match[2]), match[2]))


def _existing(path: Path, name: str) -> Path:
    if not path.exists():
        hint = "want a file, a directory, a hub id owner/name[:QUANT] or 'tiny'"
        raise FileNotFoundError(f"[model] {name}: no such file or directory ({hint})")
    return path


def _weights(path: Path, quant: str | None) -> Path:
    """Return the one model in ``path``: the file itself, its one fitting GGUF, or the directory."""
    if not path.is_dir():
        return path
    if quant is None and (path / "config.json").is_file():
        return path
    # Two levels, not the whole tree: a caller may name a home directory by mistake.
    files = [*path.glob("*.gguf"), *path.glob("*/*.gguf")]
    found = sorted(file for file in files if "mmproj" not in file.name.lower())
    fitting = [file for file in found if quant is None or _carries(file.stem, quant)]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(file.name for file in found) or "no GGUF file"
    if quant is not None:
        wrong = "more than one file" if fitting else "no file"
        raise ModelError(f"[model] {path}: {wrong} for {quant} (got {names}); name the file itself")
    if not found:
        raise ModelError(f"[model] {path}: neither config.json nor a GGUF file in it")
    raise ModelError(f"[model] {path}: several GGUF files (got {names}); name one")


def _carries(stem: str, quant: str) -> bool:
    """Whether a file name carries a quantisation as a whole word: Q4_K is not in Q4_K_M."""
    word = rf"(?<![A-Za-z0-9]){re.escape(quant)}(?![A-Za-z0-9_])"
    return re.search(word, stem, re.IGNORECASE) is not None


def _download(repository: str, quant: str | None) -> Path:
    """Return the local snapshot of a hub repository, with the files that one model needs."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    patterns = ["*.safetensors", *_SIDECARS]
    if quant is not None:
        letters = "".join(f"[{c.lower()}{c.upper()}]" if c.isalpha() else c for c in quant)
        patterns = [f"*{letters}*.gguf", *_SIDECARS]
    try:
        folder = Path(snapshot_download(repository, allow_patterns=patterns))
    except GatedRepoError as error:
        raise PermissionError(
            f"[hub] {repository}: gated; accept its terms on the hub and log in (hf auth login)"
        ) from error
    except RepositoryNotFoundError as error:
        raise FileNotFoundError(
            f"[hub] {repository}: no such repository, or a private one; check the name or log in"
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise ConnectionError(
            f"[hub] {repository}: not in the local cache and the hub cannot be reached "
            f"({type(error).__name__}); connect once, or name a local file"
        ) from error
    if quant is None and not any(folder.glob("*.safetensors")):
        raise ModelError(
            f"[hub] {repository}: no safetensors in it; if it has GGUF files, name one by its "
            f"quantisation: {repository}:Q8_0"
        )
    return folder
