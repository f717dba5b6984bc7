"""The golden test must fail when one kernel is wrong: else it would prove nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from engine.driving import open_tiny
from engine.test_golden import check, continue_golden, first_difference

# File of metal/, what stands there, and a plausible slip in its place.
SLIPS = {
    "the delta rule reads before it decays": (
        "gdn.metal",
        "gate.y * (v - gate.x * sums.x)",
        "gate.y * (v - sums.x)",
    ),
    "rotary pairs turn the other way": (
        "attention.metal",
        "a * turn.x - b * turn.y, b * turn.x + a * turn.y",
        "a * turn.x + b * turn.y, b * turn.x - a * turn.y",
    ),
    "silu without its factor": ("mlp.metal", "silu(g[i])", "sigmoid(g[i])"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


def build_with_slip(root: Path, folder: Path, slip: tuple[str, str, str]) -> str:
    """The kernel library with one file changed; what did not change is compiled only once."""
    name, right, wrong = slip
    text = (root / "metal" / name).read_text()
    assert right in text, f"{name} no longer contains {right!r}: choose another slip"
    (folder / name).write_text(text.replace(right, wrong))
    script = root / "csrc/hostmetal/msl/build_kernels.py"
    command = [sys.executable, str(script), "--output", str(folder / "out")]
    subprocess.run([*command, "--override", f"{name}={folder / name}"], check=True)
    return str(folder / "out" / "kernels.metallib")


@pytest.mark.slow
@pytest.mark.parametrize("slip", SLIPS.values(), ids=SLIPS.keys())
def test_the_golden_test_sees_a_wrong_kernel(
    root: Path, folder: Path, slip: tuple[str, str, str]
) -> None:
    text = (root / "tests/golden/golden.json").read_text()
    golden: list[dict[str, Any]] = json.loads(text)["items"]
    engine = open_tiny(build_with_slip(root, folder, slip))
    runs = continue_golden(engine, golden[:8])
    engine.close()
    assert sum(first_difference(r, g) is None for r, g in zip(runs, golden, strict=False)) < 4
    with pytest.raises(AssertionError, match="parts at token"):
        check(runs, golden[:8])
