"""Tells what is inside a model's files, how much memory it takes, and whether it runs.

Reads directories of files, never weights. Knows how a report looks; the core knows the facts.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypedDict, cast

from mtlqwen.assets import load_assets
from mtlqwen.download import Downloads
from mtlqwen.errors import MtlqwenError
from mtlqwen.hub import ModelFiles, is_drafter, resolve, resolve_drafter

_CONTEXTS = (4096, 16384, 65536, 262144, 1048576)
_SLOTS = 8
_LAYER = re.compile(r"(?:^|\.)(?:blk|layers)\.(\d+)\.")
_VISION = re.compile(r"(?:^|\.)(?:visual|vision_tower|vision_model|v|mm)\.")


class Tensor(TypedDict):
    """One tensor, as the core describes it."""

    name: str
    file: str
    format: str
    runs: bool
    shape: list[int]
    bytes: int


def describe(model: str | Path) -> dict[str, Any]:
    """Return what is known of a model without loading it; every value is one of JSON.

    Args:
        model: what `Engine` takes; of the hub, only what is in the local cache.

    Raises:
        FileNotFoundError, PermissionError, ConnectionError: there is nothing of that name here.
        FormatError: its files are broken.
        ModelError: several models are there.
    """
    from mtlqwen import _core

    files = resolve(model, Downloads(allowed=False))
    tensors = cast(list[Tensor], _core.read_tensors(str(files.weights)))
    report: dict[str, Any] = {
        "name": files.name,
        "path": str(files.weights),
        "format": "GGUF" if files.is_gguf else "safetensors",
        "files": len({tensor["file"] for tensor in tensors}),
        "weights": sum(map(_count, tensors)),
        "bytes": sum(tensor["bytes"] for tensor in tensors),
        "types": _by_type(tensors),
        "layers": _by_layer(tensors, None),
        "problems": [],
    }
    drafter = files.is_gguf and is_drafter(files.weights)
    if drafter:
        report["problems"] = ["it is a drafter: name its model, and this file as drafter="]
        return report | {"runs": False}
    config = _attempt(report, lambda: _core.read_config(str(files.weights)))
    if config is not None:
        report["layers"] = _by_layer(tensors, config["layers"])
        report |= {"config": config, "memory": _memory(config, report["bytes"])}
        _add_parts(report, files, config)
    _attempt(report, lambda: _add_assets(report, files))
    return report | {"runs": not report["problems"]}


def _attempt(report: dict[str, Any], ask: Callable[[], Any]) -> Any:
    """Return what ``ask`` does; where it refuses, None, and the reason goes into the report."""
    try:
        return ask()
    except (MtlqwenError, OSError) as error:
        report["problems"].append(str(error))
        return None


def _add_assets(report: dict[str, Any], files: ModelFiles) -> None:
    assets = load_assets(files)
    report["tokenizer"] = {
        "added_tokens": len(assets.tokenizer.added),
        "chat_template": assets.template is not None,
        "stop_ids": list(assets.stop_ids),
    }


def _add_parts(report: dict[str, Any], files: ModelFiles, config: dict[str, Any]) -> None:
    """Add what may propose tokens, and what the device has room for."""
    from mtlqwen import _core

    found = config.pop("mtp_problem")
    problem = found if config["mtp_layers"] else "the model has none"
    report["mtp"] = {"runs": not problem, "problem": problem}
    try:
        found = resolve_drafter(files)
        problem = _core.drafter_problem(str(files.weights), str(found)) if found else ""
    except (MtlqwenError, ValueError) as error:
        found, problem = None, str(error)
    report["drafter"] = {"path": str(found) if found else None, "problem": problem}
    memory = report["memory"]
    if memory["weights"] > memory["recommended"]:
        report["problems"].append(
            f"weights do not fit the memory (got {memory['weights']} bytes, want at most "
            f"{memory['recommended']}); choose a smaller quantisation, or pass memory_budget"
        )


def _memory(config: dict[str, Any], weights: int) -> dict[str, Any]:
    from mtlqwen import _core

    limit = config["max_context"]
    contexts = [*(context for context in _CONTEXTS if context < limit), limit]
    token, states = config["token_bytes"], config["state_bytes"]
    return {
        "weights": weights,
        "recommended": _core.recommended_bytes(),
        "token": token,
        "states": states,
        "by_context": [
            {
                "context": context,
                "one": weights + states + token * context,
                "all_slots": weights + _SLOTS * (states + token * context),
            }
            for context in contexts
        ],
    }


def _count(tensor: Tensor) -> int:
    return math.prod(tensor["shape"])


def _by_type(tensors: list[Tensor]) -> list[dict[str, Any]]:
    groups: defaultdict[str, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        groups[tensor["format"]].append(tensor)
    rows: list[dict[str, Any]] = [
        {
            "type": name,
            "runs": group[0]["runs"],
            "tensors": len(group),
            "weights": sum(map(_count, group)),
            "bytes": sum(tensor["bytes"] for tensor in group),
        }
        for name, group in groups.items()
    ]
    return sorted(rows, key=lambda row: -row["bytes"])


def _part_of(name: str) -> str:
    """Return the part of a model that a tensor belongs to: a layer's number, or a word."""
    if _VISION.search(name):
        return "vision"
    if name.startswith("mtp.") or ".mtp." in name or ".nextn." in name:
        return "mtp"
    match = _LAYER.search(name)
    if match:
        return match[1]
    return "head" if name.endswith(("output.weight", "lm_head.weight")) else "embedding, norm"


def _by_layer(tensors: list[Tensor], kinds: list[str] | None) -> list[dict[str, Any]]:
    """Return what each layer holds; of GGUF files, blocks after the last are the head's."""
    groups: defaultdict[str, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        part = _part_of(tensor["name"])
        is_head = kinds is not None and part.isdigit() and int(part) >= len(kinds)
        groups["mtp" if is_head else part].append(tensor)
    rows = []
    for part in sorted(groups, key=lambda name: (not name.isdigit(), len(name), name)):
        group = groups[part]
        types = Counter[str]()
        for tensor in group:
            types[tensor["format"]] += tensor["bytes"]
        rows.append(
            {
                "layer": int(part) if part.isdigit() else part,
                "kind": kinds[int(part)] if kinds and part.isdigit() else "",
                "bytes": sum(types.values()),
                "types": dict(types.most_common()),
            }
        )
    return rows


def lines(report: dict[str, Any]) -> Iterator[str]:
    """Return a report as text."""
    config = report.get("config")
    kind = f", {config['architecture']}" if config else ""
    yield f"{report['path']}"
    yield (
        f"{report['format']}{kind}: {_short(report['weights'])} weights in "
        f"{_size(report['bytes'])}, {report['files']} file{'s'[: report['files'] != 1]}"
    )
    if config:
        yield from _shape_lines(config)
    yield ""
    yield "type        tensors     weights       bytes"
    for row in report["types"]:
        note = "" if row["runs"] else "   does not run"
        yield (
            f"{row['type']:<11} {row['tensors']:>7} {_short(row['weights']):>11} "
            f"{_size(row['bytes']):>11}{note}"
        )
    yield ""
    yield "layer                     bytes   types"
    for first, last, row in _runs(report["layers"]):
        span = (f"{first}" if first == last else f"{first} to {last}") + f" {row['kind']}"
        types = ", ".join(f"{name} {_size(size)}" for name, size in row["types"].items())
        yield f"{span:<20} {_size(row['bytes']):>10}   {types}"
    if config:
        yield from _memory_lines(report["memory"])
    yield ""
    yield from _verdict(report)


def _shape_lines(config: dict[str, Any]) -> Iterator[str]:
    kinds = Counter(config["layers"])
    yield (
        f"{len(config['layers'])} layers ({kinds['gdn']} of Gated DeltaNet, {kinds['attention']} "
        f"of attention), hidden size {config['hidden']}, {config['vocab']} tokens, context "
        f"{config['max_context']}"
    )


def _runs(rows: list[dict[str, Any]]) -> Iterator[tuple[object, object, dict[str, Any]]]:
    """Join layers that follow each other and hold the same: (first, last, one of them)."""
    start = 0
    for i, row in enumerate(rows):
        after = rows[i + 1] if i + 1 < len(rows) else {"layer": ""}
        same = isinstance(after["layer"], int) and after["kind"] == row["kind"]
        if same and after["types"] == row["types"]:
            continue
        yield rows[start]["layer"], row["layer"], row
        start = i + 1


def _memory_lines(memory: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield (
        f"memory: weights {_size(memory['weights'])}, states {_size(memory['states'])} a sequence, "
        f"keys and values {_size(memory['token'])} a token;"
    )
    yield f"an engine may own {_size(memory['recommended'])} here, or what memory_budget says"
    yield ""
    yield f"context    one sequence   {_SLOTS} sequences"
    for row in memory["by_context"]:
        fits = "" if row["one"] <= memory["recommended"] else "   does not fit"
        yield f"{row['context']:>7} {_size(row['one']):>15} {_size(row['all_slots']):>13}{fits}"


def _verdict(report: dict[str, Any]) -> Iterator[str]:
    yield "runs" if report["runs"] else "does not run:"
    yield from (f"  {problem}" for problem in report["problems"])
    if "tokenizer" in report and not report["tokenizer"]["chat_template"]:
        yield "  no chat template: generate() works, chat() does not"
    if "mtp" in report:
        mtp = report["mtp"]
        yield "  prediction head: " + (
            "runs" if mtp["runs"] else f"does not run ({mtp['problem']})"
        )
        drafter = report["drafter"]
        said = drafter["path"] or "none beside it"
        yield "  drafter: " + (f"{said} ({drafter['problem']})" if drafter["problem"] else said)
    if any(row["layer"] == "vision" for row in report["layers"]):
        yield "  vision tensors are not read"


def _size(n_bytes: int) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if n_bytes >= unit:
            return f"{n_bytes / unit:.2f} {name}"
    return f"{n_bytes} B"


def _short(count: int) -> str:
    for unit, name in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= unit:
            return f"{count / unit:.2f} {name}"
    return str(count)
