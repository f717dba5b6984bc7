"""How far the bundled model moves in each format: exact match, KL divergence, logit distance.

python tools/compare_formats.py bench/data/eval.jsonl [--every 17] [--formats Q4_K Q6_K ..]

The bundled Q8_0 weights are requantised (tools/requantise.py), so Q8_0 and F32 are the same model.
Logits are those of an engine that computes in float (tools/agreement.py), behind the prompt of each
item and behind some tokens of what F32 says: the same tokens for all formats. Exact match is that
of tools/evaluate.py with the engine as it is by default.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import mtlqwen
import numpy as np
import numpy.typing as npt
from mtlqwen import Engine, _core

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mtlqwen.conversion.formats import FORMATS

from tools.agreement import continuations, encode, in_float
from tools.evaluate import score
from tools.requantise import requantise

Array = npt.NDArray[np.float64]

SOURCE = Path(mtlqwen.__file__).parent / "models/tiny/tiny-qwen3.5-Q8_0.gguf"
KERNELS = str(Path(str(_core.__file__)).with_name("kernels.metallib"))
BEHIND = (0, 4, 16)  # tokens of the answer that stand before the one that is judged
MIXES = {"Q4_K_M": ["Q4_K", "token_embd=Q6_K", "attn_v=Q6_K", "ffn_down=Q6_K"]}


def logits_behind(path: Path, texts: Sequence[list[int]]) -> Array:
    """Of the next token behind each text."""
    with in_float():
        engine = _core.Engine(str(path), kernels=KERNELS, context=1024, slots=8, deterministic=True)
    rows = []
    for text in texts:
        sequence = engine.submit(text, max_tokens=1, temperature=0.0, seed=0, stop_ids=[])
        while engine.step():
            pass
        rows.append(np.asarray(_core._testing.last_logits(engine, sequence), np.float64))
        engine.release(sequence)
    engine.close()
    return np.array(rows)


def log_softmax(logits: Array) -> Array:
    """Along the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def rows(lines: Sequence[str], names: Sequence[str], folder: Path) -> Iterator[str]:
    """One line of the table for each format."""
    plain = folder / "F32.gguf"
    requantise(SOURCE, plain, ["F32"])
    with Engine(plain, slots=8, deterministic=True) as engine:
        prompts = [encode(engine, line) for line in lines]
        answers = continuations(engine, prompts, max(BEHIND))
    pairs = list(zip(prompts, answers, strict=True))
    texts = [prompt + answer[:n] for prompt, answer in pairs for n in BEHIND if n <= len(answer)]
    exact = logits_behind(plain, texts)
    expected = log_softmax(exact)
    items = [item for line in lines if (item := json.loads(line))["expected"] is not None]
    for name in names:
        path = folder / f"{name}.gguf"
        requantise(SOURCE, path, MIXES.get(name, [name]))
        logits = logits_behind(path, texts)
        divergence = (np.exp(expected) * (expected - log_softmax(logits))).sum(axis=-1).mean()
        distance = np.abs(logits - exact).max()
        with Engine(path, slots=32) as engine:
            right, _ = score(engine, items)
        size = path.stat().st_size / 1e6
        yield (
            f"| {name} | {size:.1f} MB | {right.total()} of {len(items)} | {divergence:.2g} | "
            f"{distance:.2g} |"
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("items", type=Path)
    parser.add_argument("--every", type=int, default=17, help="take each n-th item")
    parser.add_argument("--formats", nargs="+", default=[*FORMATS, *MIXES])
    options = parser.parse_args()
    lines = options.items.read_text(encoding="utf-8").splitlines()[:: options.every]
    with tempfile.TemporaryDirectory() as folder:
        for line in rows(lines, options.formats, Path(folder)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
