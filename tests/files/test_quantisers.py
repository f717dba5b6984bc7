"""The grids' header is what its script makes; quantisers keep what a format can hold."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from mtlqwen import _core
from mtlqwen.conversion.formats import FORMATS, quantise

from tools.make_grids import header
from tools.requantise import requantise

# Of normal weights: the error of an optimal quantiser of as many bits is about half of these.
ERRORS = {
    "F32": 0.0, "F16": 3e-4, "BF16": 2e-3, "Q8_0": 6e-3, "Q6_K": 0.02, "Q5_K": 0.04, "Q5_1": 0.04,
    "Q5_0": 0.045, "Q4_K": 0.08, "Q4_1": 0.08, "IQ4_NL": 0.085, "IQ4_XS": 0.085, "Q4_0": 0.09,
    "NVFP4": 0.1, "MXFP4": 0.125, "Q3_K": 0.16, "Q2_K": 0.34,
}  # fmt: skip
FROM_PACKAGE = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4")


def test_the_header_of_grids_is_what_its_script_makes(root: Path) -> None:
    assert (root / "metal/grids.h").read_text(encoding="utf-8") == header()


@pytest.mark.parametrize("name", FORMATS)
def test_quantisers_keep_what_their_format_can_hold(name: str) -> None:
    weights = np.random.default_rng(0).standard_normal((16, 1024)).astype(np.float32)
    weights[0, :256] = 0
    weights[0, 256:512] *= 1e-40
    weights[1] *= 1e-4
    values = quants.dequantize(quantise(weights, name), GGMLQuantizationType[name])
    assert np.abs(values[0, :512]).max() < 1e-37
    error = np.sqrt(np.mean(np.square(values - weights)[2:]))
    assert ERRORS[name] / 2 <= error <= ERRORS[name]


@pytest.mark.parametrize("name", FROM_PACKAGE)
def test_quantisers_are_those_of_the_gguf_package(name: str) -> None:
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((64, 1024)).astype(np.float32)
    weights[0, :256] = 0
    weights[1:4] *= np.array([[1e-4], [1e-7], [1e3]], np.float32)
    weights[4:8] = np.rint(weights[4:8] * 4)  # many weights between two codes
    want = np.ascontiguousarray(quants.quantize(weights, GGMLQuantizationType[name]))
    np.testing.assert_array_equal(quantise(weights, name), want.view(np.uint8).reshape(64, -1))


def test_a_requantised_file_says_the_same_in_other_formats(root: Path, tmp_path: Path) -> None:
    source = root / "python/mtlqwen/models/tiny/tiny-qwen3.5-Q8_0.gguf"
    target = tmp_path / "mixed.gguf"
    requantise(source, target, ["Q4_K", "token_embd=Q6_K", "ffn_down=Q5_1"])
    before, after = _core._testing.open_gguf(str(source)), _core._testing.open_gguf(str(target))
    assert {n: t["shape"] for n, t in before["tensors"].items()} == {
        n: t["shape"] for n, t in after["tensors"].items()
    }
    formats = {name: tensor["format"] for name, tensor in after["tensors"].items()}
    assert formats["token_embd.weight"] == "Q6_K"
    assert formats["blk.0.ffn_down.weight"] == "Q5_1"
    assert formats["blk.0.ffn_up.weight"] == "Q4_K"
    assert formats["blk.0.attn_norm.weight"] == "F32"
    old, new = gguf.GGUFReader(source).fields, gguf.GGUFReader(target).fields
    assert set(old) == set(new)
    assert all(
        old[name].contents() == new[name].contents() for name in old if not name.startswith("GGUF.")
    )


def test_formats_without_a_quantiser_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"IQ2_S: want one of F32, F16"):
        requantise(tmp_path / "a.gguf", tmp_path / "b.gguf", ["IQ2_S"])
