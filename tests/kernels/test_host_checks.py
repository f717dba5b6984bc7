"""MTLQWEN_HOST_CHECK on real kernels: planted faults are named, and the tests pass under it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cases_layers import check_case, gather_case, norm_case
from harness import Runner, open_runner, run
from long import draws
from mtlqwen import DeviceError

ALL = "shuffle,poison,guard,residency"
SEEDS = range(1, draws(1, 3) + 1)

# What a run under all checks takes, as a folder and an expression of -k: the kernels, small
# and large, and the engine on the bundled model.
SELECTION = {
    "kernels": (
        "tests/kernels",
        "not test_host_checks and (rows or prefill or split or sample or edit or logprob)",
    ),
    "engine": ("tests/engine", "golden or requests or stats or trace or batching"),
}


@pytest.fixture(params=["guard", ALL])
def checked(
    request: pytest.FixtureRequest, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> Runner:
    """A device under checks."""
    monkeypatch.setenv("MTLQWEN_HOST_CHECK", request.param)
    monkeypatch.setenv("MTLQWEN_HOST_SEED", "1")
    return open_runner(kernels)


def test_an_index_out_of_range_is_named(checked: Runner) -> None:
    launch = gather_case(2, 1024, (1, 0)).launches[0]
    launch.buffers[2][1] = 9
    with pytest.raises(
        DeviceError,
        match=r"kernel gather_rows: threadgroup \(0, 1, 0\) touched \d+ bytes past the end of "
        "buffer 'test'",
    ):
        run(checked, [launch])


def test_lanes_that_were_interrupted_start_anew(checked: Runner) -> None:
    for _ in range(3):
        launch = norm_case(40, 1024).launches[0]
        launch.buffers[1] = np.zeros((8, 1024), np.float32)
        with pytest.raises(DeviceError, match=r"kernel rms_norm: threadgroup .* past the end of"):
            run(checked, [launch])
        check_case(checked, norm_case(40, 1024))


def test_unknown_words_are_refused(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTLQWEN_HOST_CHECK", "shuffle,gaurd")
    with pytest.raises(DeviceError, match="got 'gaurd', want shuffle, poison, guard or residency"):
        open_runner(kernels)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("part", SELECTION)
def test_all_checks_find_nothing(root: Path, part: str, seed: int) -> None:
    folder, chosen = SELECTION[part]
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            folder,
            "-k",
            chosen,
        ],
        cwd=root,
        env=os.environ | {"MTLQWEN_HOST_CHECK": ALL, "MTLQWEN_HOST_SEED": str(seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:]
