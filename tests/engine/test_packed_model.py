"""Models of packed weights say what the same weights say as float32, whatever is mixed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from engine.driving import TINY, run_all, submit
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quants
from mtlqwen import ModelError, _core
from mtlqwen.conversion.formats import FORMATS as QUANTISERS
from mtlqwen.conversion.formats import quantise
from packed_weights import FORMATS, random_packed

from tools.requantise import copy_metadata

PROMPT = list(range(40, 90))
NEARLY = 2e-3  # of the largest logit; float32 and int16 activations differ by less


class Writer:
    """Two files of the bundled model: in other formats, and as float32 of the same values."""

    def __init__(self, folder: Path) -> None:
        self.reader = GGUFReader(TINY)
        self.packed, self.plain = folder / "packed.gguf", folder / "plain.gguf"
        self._writers = [GGUFWriter(path, "qwen35") for path in (self.packed, self.plain)]
        for writer in self._writers:
            copy_metadata(self.reader, writer)

    def add(self, name: str, stored: np.ndarray, kind: GGMLQuantizationType) -> None:
        packed, plain = self._writers
        packed.add_tensor(name, np.ascontiguousarray(stored), raw_dtype=kind)
        plain.add_tensor(name, quants.dequantize(stored, kind))

    def finish(self) -> None:
        for writer in self._writers:
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()


def write_both(folder: Path, formats: Sequence[str], head: str) -> Writer:
    """Matrices take the formats in turn; of those without a quantiser the weights are random."""
    rng = np.random.default_rng(1)
    both, turn = Writer(folder), cycle(formats)
    for tensor in both.reader.tensors:
        if tensor.tensor_type == GGMLQuantizationType.F32:
            both.add(tensor.name, tensor.data, tensor.tensor_type)
            continue
        values = quants.dequantize(tensor.data, tensor.tensor_type)
        name = head if tensor.name == "token_embd.weight" else next(turn)
        if name in QUANTISERS:
            stored = quantise(values, name)
        else:
            n, k = values.shape
            stored = random_packed(rng, name.lower(), n, k, float(values.std()))
        both.add(tensor.name, stored, GGMLQuantizationType[name])
    both.finish()
    return both


def logits_of(path: Path, kernels: str, *, deterministic: bool, n: int = 4) -> np.ndarray:
    """Logits of n tokens behind the prompt."""
    engine = _core.Engine(
        str(path), kernels=kernels, context=256, slots=2, deterministic=deterministic
    )
    run = submit(engine, PROMPT, max_tokens=n)
    run_all(engine, [run], logits=True)
    engine.close()
    return np.array(run.logits)


@pytest.mark.parametrize("head", ["Q6_K", pytest.param("IQ4_XS", marks=pytest.mark.slow)])
def test_any_mix_of_formats_agrees_with_float32(tmp_path: Path, kernels: str, head: str) -> None:
    formats = [fmt.upper() for fmt in FORMATS] + ["F16", "Q8_0"]
    both = write_both(tmp_path, formats if head == "Q6_K" else formats[::-1], head)
    want = logits_of(both.plain, kernels, deterministic=True)
    for deterministic in (True, False):
        got = logits_of(both.packed, kernels, deterministic=deterministic)
        assert np.abs(got - want).max() <= NEARLY * np.abs(want).max()


@pytest.mark.slow
def test_a_draft_changes_nothing(tmp_path: Path, kernels: str) -> None:
    both = write_both(tmp_path, ["Q4_K", "Q6_K"], "Q6_K")
    texts = []
    for spec in ("off", "mtp"):
        engine = _core.Engine(
            str(both.packed), kernels=kernels, context=256, slots=2, deterministic=True, spec=spec
        )
        run = submit(engine, PROMPT, max_tokens=24)
        run_all(engine, [run])
        texts.append(run.token_ids)
        drafted = int(engine.stats()["drafted_tokens"])
        assert (drafted > 0) == (spec == "mtp")
        engine.close()
    assert texts[0] == texts[1]


def test_a_factor_beside_the_weights_is_refused(tmp_path: Path, kernels: str) -> None:
    both = Writer(tmp_path)
    for tensor in both.reader.tensors:
        both.add(tensor.name, tensor.data, tensor.tensor_type)
    both.add("blk.0.ffn_up.scale", np.array([0.25], np.float32), GGMLQuantizationType.F32)
    both.finish()
    with pytest.raises(ModelError, match=r"blk\.0\.ffn_up\.scale: factor .* \(got 0\.25, want 1"):
        _core.Engine(str(both.packed), kernels=kernels, context=256)
