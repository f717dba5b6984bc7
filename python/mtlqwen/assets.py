"""What stands beside the weights of a model: tokenizer, chat template, generation defaults.

Reads a GGUF's metadata or the JSON files of a model directory; knows nothing of engines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from mtlqwen.errors import FormatError, ModelError
from mtlqwen.hub import ModelFiles
from mtlqwen.sampling import SamplingParams
from mtlqwen.sampling_values import MAX_TOKENS, checked
from mtlqwen.tokenizer import Tokenizer

DEFAULT_MAX_TOKENS = 4096
# What generation_config calls it -> what a GGUF does.
GGUF_SAMPLING = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
END_TOKENS = ("<|im_end|>", "<|endoftext|>")  # every Qwen stops at both, whatever its files say


@dataclass(frozen=True, slots=True, kw_only=True)
class Assets:
    """Everything but the weights.

    Attributes:
        tokenizer: the model's tokenizer.
        template: the source of its chat template, if it has one.
        defaults: what the model's files say of sampling; temperature and max_tokens in any case.
        stop_ids: the tokens that end a turn.
    """

    tokenizer: Tokenizer
    template: str | None
    defaults: SamplingParams
    stop_ids: tuple[int, ...]


def load_assets(files: ModelFiles) -> Assets:
    """Read everything but the weights.

    Raises:
        FormatError: a file is broken.
        ModelError: there is no tokenizer that we know.
    """
    generation = read_json(files.sidecar("generation_config.json"))
    if files.is_gguf:
        metadata = read_gguf_metadata(files.weights)
        tokenizer = Tokenizer.from_gguf(metadata, files.weights.name)
        template = metadata.get("tokenizer.chat_template")
        ends = [metadata.get("tokenizer.ggml.eos_token_id")]
        said = {name: metadata[key] for name, key in GGUF_SAMPLING.items() if key in metadata}
    else:
        path = files.sidecar("tokenizer.json")
        if path is None:
            raise ModelError(f"[model] {files.weights}: no tokenizer.json in it")
        tokenizer = Tokenizer.from_json(path)
        template = read_template(files)
        config = read_json(files.sidecar("config.json"))
        inner = config.get("text_config")
        ends = [config.get("eos_token_id")]
        ends += [inner.get("eos_token_id")] if isinstance(inner, dict) else []
        said = {}
    named = [tokenizer.token_id(literal) for literal in END_TOKENS]
    return Assets(
        tokenizer=tokenizer,
        template=template if isinstance(template, str) else None,
        defaults=default_sampling(generation or {"do_sample": True, "temperature": 0.0} | said),
        stop_ids=_ids(generation.get("eos_token_id"), *ends, *named),
    )


def read_gguf_metadata(path: Path) -> Mapping[str, Any]:
    """Return the key-value pairs of a GGUF file."""
    from mtlqwen import _core

    return _core.read_gguf_metadata(str(path))


def read_json(path: Path | None) -> dict[str, Any]:
    """Return the object in a file; of no file, an empty one."""
    if path is None:
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(f"[model] {path}: not readable as JSON ({error})") from error
    if not isinstance(data, dict):
        raise FormatError(f"[model] {path}: not a JSON object")
    return data


def read_template(files: ModelFiles) -> object:
    """Return the template of a model directory: a file of its own, or in tokenizer_config.json."""
    path = files.sidecar("chat_template.jinja")
    if path is not None:
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise FormatError(f"[model] {path}: not readable as text ({error})") from error
    template = read_json(files.sidecar("tokenizer_config.json")).get("chat_template")
    if isinstance(template, list):
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, dict)}
        return named.get("default")
    return template


def default_sampling(generation: Mapping[str, Any]) -> SamplingParams:
    """Return the defaults of a generation_config; what is not usable in it is left out.

    Without do_sample the model's own way is greedy; the filters wait for a caller's temperature.
    """
    sampled = {"temperature": 1.0, **generation}
    said = sampled if generation.get("do_sample") else {**generation, "temperature": 0.0}
    usable = {name: _usable(name, said.get(name)) for name in GGUF_SAMPLING}
    limit = generation.get("max_new_tokens")
    return SamplingParams(
        **usable | {"temperature": usable["temperature"] or 0.0},
        max_tokens=min(limit, MAX_TOKENS) if _is_count(limit) and limit else DEFAULT_MAX_TOKENS,
        ignore_eos=False,
    )


def _usable(name: str, value: object) -> Any:
    """Return the value of an option, None where it is out of its range."""
    try:
        return None if value is None else checked(name, value)
    except (TypeError, ValueError):
        return None


def _ids(*values: object) -> tuple[int, ...]:
    """Return every token id in ``values`` (ids, lists of ids, None) once, in order."""
    flat = [i for value in values for i in (value if isinstance(value, list) else [value])]
    return tuple(dict.fromkeys(i for i in flat if _is_count(i) and i <= MAX_TOKENS))


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
