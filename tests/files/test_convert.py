"""Converted checkpoints: the file holds what the source says, in every type and form of source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import (
    SPECIAL_TOKENS,
    Geometry,
    Model,
    gguf_name,
    random_model,
    to_gguf_meaning,
    write_safetensors,
)
from engine.driving import run_all, submit
from file_formats import Array, encode, round_to
from files.sources import TEMPLATE, write_source
from gguf import GGMLQuantizationType, GGUFReader, quants
from mtlqwen import _core, convert
from mtlqwen.assets import load_assets
from mtlqwen.conversion.formats import FORMATS, quantise
from mtlqwen.conversion.safetensors import Stored
from mtlqwen.hub import resolve

GEOMETRY = Geometry(
    hidden=256,
    intermediate=512,
    head_dim=128,
    gdn_k_heads=2,
    gdn_v_heads=4,
    mtp=True,
    tied=False,
)
MODEL = random_model(GEOMETRY, seed=3)


def decoded(path: Path) -> dict[str, Array]:
    """The tensors of a file, as the gguf package reads them."""
    found = {t.name: quants.dequantize(t.data, t.tensor_type) for t in GGUFReader(path).tensors}
    return {name: np.asarray(value, np.float32) for name, value in found.items()}


def types_of(path: Path) -> dict[str, str]:
    return {tensor.name: tensor.tensor_type.name for tensor in GGUFReader(path).tensors}


def expected(model: Model) -> dict[str, Array]:
    """The tensors as they are in GGUF, by name."""
    layers = len(model.geometry.layers)
    meaning = {n: to_gguf_meaning(n, v, model.geometry) for n, v in model.tensors.items()}
    return {gguf_name(name, layers): value for name, value in meaning.items()}


def check_equal(got: dict[str, Array], want: dict[str, Array]) -> None:
    assert got.keys() == want.keys()
    for name, value in want.items():
        rtol = 3e-7 if name.endswith("ssm_a") else 0  # exp: 2 ulp
        np.testing.assert_allclose(got[name], value, rtol=rtol, err_msg=name)


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        ("BF16", {"shards": 3, "prefix": "model.language_model."}),
        ("F32", {"mtp_prefix": "model."}),
    ],
)
def test_all_tensors_arrive(tmp_path: Path, dtype: str, options: dict[str, Any]) -> None:
    source = write_source(tmp_path / "hf", MODEL, dtype=dtype, **options)
    path = convert(source, tmp_path / "m.gguf", "f32", threads=1)
    check_equal(decoded(path), expected(MODEL))
    ours = _core._testing.open_gguf(str(path))
    assert ours["tensors"].keys() == expected(MODEL).keys()


@pytest.mark.parametrize("tied", [True, False])
def test_our_readers_see_the_same_model(tmp_path: Path, tied: bool) -> None:
    model = random_model(Geometry(tied=tied, mtp=tied, gdn_v_heads=3))
    source = write_source(tmp_path / "hf", model)
    path = convert(source, tmp_path / "m.gguf", "bf16")
    before, after = _core.read_config(str(source)), _core.read_config(str(path))
    assert not after["mtp_problem"] or not tied
    # What padding is, only GGUF says; and names differ.
    for key in before.keys() - {"architecture", "n_valid_tokens", "mtp_problem", "k_head_tiled"}:
        assert before[key] == pytest.approx(after[key]), key


@pytest.mark.parametrize("heads", [(2, 6), (2, 2)])
def test_logits_are_those_of_the_source(
    tmp_path: Path, kernels: str, heads: tuple[int, int]
) -> None:
    model = random_model(Geometry(gdn_k_heads=heads[0], gdn_v_heads=heads[1], head_dim=64))
    source = write_source(tmp_path / "hf", model, dtype="F32")
    path = convert(source, tmp_path / "m.gguf", "f32")
    logits: list[Array] = []
    for name in (source, path):
        engine = _core.Engine(str(name), kernels=kernels, slots=1)
        run = submit(engine, list(range(40, 90)), max_tokens=3)
        run_all(engine, [run], logits=True)
        engine.close()
        logits.append(np.asarray(run.logits))
    # Heads in another order are summed in another order.
    np.testing.assert_allclose(
        logits[1], logits[0], rtol=0, atol=2e-4 * float(np.abs(logits[0]).max())
    )


@pytest.mark.parametrize("name", FORMATS)
def test_every_type(tmp_path: Path, name: str) -> None:
    path = convert(
        write_source(tmp_path / "hf", MODEL), tmp_path / "m.gguf", name.lower(), threads=3
    )
    types = types_of(path)
    single = ("ssm_alpha", "ssm_beta", "ssm_conv1d")
    for tensor, value in expected(MODEL).items():
        plain = value.ndim == 1 or any(part in tensor for part in single)
        assert types[tensor] == ("F32" if plain else types["blk.0.ffn_up.weight"])
    stored = quantise(expected(MODEL)["blk.0.ssm_out.weight"], name)
    want = quants.dequantize(stored, GGMLQuantizationType[name])
    np.testing.assert_array_equal(decoded(path)["blk.0.ssm_out.weight"], want)
    assert types["blk.0.ffn_up.weight"] == name


def test_types_of_parts_and_mixes(tmp_path: Path) -> None:
    source = write_source(tmp_path / "hf", MODEL)
    types = types_of(convert(source, tmp_path / "a.gguf", "q4_0", parts={"ffn_down": "F16"}))
    assert types["blk.0.ffn_down.weight"] == "F16"
    assert types["output.weight"] == types["blk.0.ffn_up.weight"] == "Q4_0"
    types = types_of(convert(source, tmp_path / "c.gguf", "q4_0", parts={"output": "F16"}))
    assert (types["output.weight"], types["blk.1.attn_output.weight"]) == ("F16", "Q4_0")
    types = types_of(convert(source, tmp_path / "b.gguf", "Q4_K_M", parts={"attn_v": "q8_0"}))
    names = ("token_embd", "blk.1.ffn_down", "blk.1.attn_v", "blk.1.attn_q")
    assert [types[f"{name}.weight"] for name in names] == ["Q6_K", "Q6_K", "Q8_0", "Q4_K"]


@pytest.mark.parametrize(("hidden", "want"), [(96, "Q5_0"), (80, "BF16")])
def test_rows_that_do_not_fill_blocks(tmp_path: Path, hidden: int, want: str) -> None:
    model = random_model(Geometry(hidden=hidden, intermediate=256))
    types = types_of(convert(write_source(tmp_path / "hf", model), tmp_path / "m.gguf", "q4_k"))
    assert types["blk.0.ffn_up.weight"] == want
    assert types["blk.0.ffn_down.weight"] == "Q4_K"


def test_fp8_with_scales_of_blocks(tmp_path: Path) -> None:
    """Codes and scales at random: 128 rows and columns to a scale, and ragged ends."""
    geometry = Geometry(hidden=160, intermediate=288, gdn_k_heads=1, gdn_v_heads=3)
    rng = np.random.default_rng(0)
    model, tensors = random_model(geometry), {}
    for name, value in model.tensors.items():
        tensors[f"model.{name}"] = ("BF16", value.shape, encode(value, "BF16"))
        if not name.endswith("_proj.weight"):
            continue
        codes = rng.integers(0, 256, value.shape).astype(np.uint8)
        codes[codes & 127 == 127] = 0  # not a number
        drawn = rng.uniform(0.001, 0.002, [-(-n // 128) for n in value.shape])
        scales = round_to(drawn.astype(np.float32), "BF16")
        tensors[f"model.{name}"] = ("F8_E4M3", value.shape, codes.reshape(-1))
        whole = scales.repeat(128, axis=0).repeat(128, axis=1)[: len(value), : value.shape[1]]
        tensors[f"model.{name}_scale_inv"] = ("BF16", scales.shape, encode(scales, "BF16"))
        model.tensors[name] = e4m3(codes) * whole
    source = write_source(tmp_path / "hf", model)
    write_safetensors(source, tensors)
    check_equal(decoded(convert(source, tmp_path / "m.gguf", "f32")), expected(model))


def e4m3(codes: np.ndarray) -> Array:
    """Decode as the format's definition has it."""
    exponents, mantissas = (codes >> 3 & 15).astype(int), (codes & 7).astype(float)
    normal = (1 + mantissas / 8) * 2.0 ** (exponents - 7)
    values = np.where(exponents == 0, mantissas / 8 * 2.0**-6, normal)
    return np.where(codes & 128, -values, values).astype(np.float32)


def test_what_stands_beside_the_weights(tmp_path: Path) -> None:
    source = write_source(tmp_path / "hf", MODEL)
    before = load_assets(resolve(source))
    after = load_assets(resolve(convert(source, tmp_path / "m.gguf")))
    assert (after.template, after.defaults, after.stop_ids) == (
        TEMPLATE,
        before.defaults,
        before.stop_ids,
    )
    text = "cable 12, 日本語 e\u0301 🙂 <|im_end|><think>"
    ids = after.tokenizer.encode(text)
    assert ids == before.tokenizer.encode(text)
    assert 280 in ids  # the merge
    assert {*after.tokenizer.added} == {*SPECIAL_TOKENS}
    assert after.tokenizer.added == before.tokenizer.added


def test_memory_does_not_grow_with_a_tensor(tmp_path: Path) -> None:
    import tracemalloc

    from mtlqwen.conversion.rows import Rows
    from mtlqwen.conversion.source import Tensor
    from mtlqwen.conversion.tensors import Spec

    shape = (16384, 1024)  # 64 MiB as float32
    path = tmp_path / "zeros"
    with path.open("wb") as file:
        file.truncate(2 * shape[0] * shape[1])
    source = Tensor(Stored("a", path, "BF16", shape, 0), None)
    rows = Rows(Spec("a", "a", shape, matrix=True), FORMATS["Q8_0"], source, 1)
    tracemalloc.start()
    written = sum(len(piece()) for piece in rows.pieces())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert written == rows.entry.size
    assert peak < 8 << 20
