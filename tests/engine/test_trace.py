"""Traces: valid files, every room, kernels with the bytes that a known pass must move."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from engine.driving import TINY, generate, open_tiny, run_all, submit
from mtlqwen import Engine, _core

Event = dict[str, Any]
ROOMS = ["retire", "admit", "plan", "reserve", "pack", "forward", "commit"]


@pytest.fixture
def engine(kernels: str) -> Iterator[_core.Engine]:
    core = open_tiny(kernels)
    yield core
    core.close()


def load(path: Path) -> list[Event]:
    events = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(events, list)
    for event in events:
        assert {"ph", "pid", "tid", "name"} <= event.keys()
        assert event["ph"] == "M" or event["ts"] >= 0
        assert event["ph"] != "X" or event["dur"] >= 0
    return events


def track(events: list[Event], name: str) -> list[Event]:
    """Slices of the track of that name."""
    (named,) = (e for e in events if e["name"] == "thread_name" and e["args"]["name"] == name)
    return [e for e in events if e["ph"] == "X" and e["tid"] == named["tid"]]


def traced(engine: _core.Engine, path: Path, prompt: int = 200, tokens: int = 3) -> list[Event]:
    engine.start_trace(str(path))
    generate(engine, [i % 1000 + 10 for i in range(prompt)], max_tokens=tokens)
    assert engine.stop_trace()
    return load(path)


def inside(outer: Event, event: Event) -> bool:
    begin, end = outer["ts"], outer["ts"] + outer["dur"]
    return bool(begin <= event["ts"] and event["ts"] + event["dur"] <= end + 0.0015)


def test_every_step_has_all_rooms_in_order_and_inside(engine: _core.Engine, tmp_path: Path) -> None:
    slices = track(traced(engine, tmp_path / "t.json"), "step")
    steps = [e for e in slices if e["name"] == "step"]
    assert [e["args"]["rows"] for e in steps] == [128, 72, 1, 1]
    assert [e["args"]["outcome"] for e in steps] == ["committed"] * 4
    assert [e["args"]["pass"] for e in steps] == [1, 2, 3, 4]
    for step in steps:
        rooms = [e for e in slices if e["name"] in ROOMS and inside(step, e)]
        assert [e["name"] for e in rooms] == ROOMS
        assert all(a["ts"] + a["dur"] <= b["ts"] + 0.0015 for a, b in pairwise(rooms))
        (forward,) = (e for e in rooms if e["name"] == "forward")
        parts = [e for e in slices if e["name"] in ("encode", "wait") and inside(forward, e)]
        assert [e["name"] for e in parts] == ["encode", "wait"]
        assert sum(e["dur"] for e in parts) == pytest.approx(forward["dur"], abs=0.01)


def test_kernels_run_one_after_the_other_while_their_step_waits(
    engine: _core.Engine, tmp_path: Path
) -> None:
    events = traced(engine, tmp_path / "t.json", prompt=10, tokens=2)
    kernels = track(events, "kernels")
    waits = [e for e in track(events, "step") if e["name"] == "wait"]
    assert len(waits) == 2
    assert all(any(inside(wait, kernel) for wait in waits) for kernel in kernels)
    assert all(a["ts"] + a["dur"] <= b["ts"] + 0.0015 for a, b in pairwise(kernels))


def test_bytes_of_a_decode_pass_are_those_of_the_model(
    engine: _core.Engine, tmp_path: Path
) -> None:
    prompt, path = 10, tmp_path / "t.json"
    events = traced(engine, path, prompt=prompt, tokens=2)
    second = [e for e in track(events, "step") if e["name"] == "wait"][1]
    works = [
        work
        for group in track(events, "kernels")
        if inside(second, group)
        for work in group["args"]["kernels"]
    ]
    config = _core._testing.model_config(str(TINY))
    tensors = _core._testing.weights_check(str(TINY))
    tensors = {name: t for name, t in tensors.items() if not name.startswith("mtp.")}
    qblock, qblock_bytes = 32, 34
    matrices = [
        n * k // qblock * qblock_bytes
        for n, k in (t["shape"] for t in tensors.values() if isinstance(t, dict))
    ]
    n_attention = config["layers"].count("attention")
    linear = [work for work in works if work["kernel"].startswith(("linear_", "mlp_"))]
    (head,) = (m for m in matrices if m == max(matrices))
    # The tied embedding is read whole as the head, and by one row as the embedding.
    activations = sum(work["bytes"] for work in linear) - sum(matrices)
    n_mlps = sum(work["kernel"].startswith("mlp_") for work in linear)  # gate and up in one
    assert n_mlps == len(config["layers"])
    assert len(linear) + n_mlps == len(matrices)
    assert 0 < activations < 0.05 * head + 1e6
    kv_row = 2 * config["n_kv_heads"] * config["head_dim"] * 2  # a key and a value of halves
    split = [work["bytes"] for work in works if work["kernel"] == "attention_split"]
    query = config["n_heads"] * config["head_dim"]
    partial = 4 * (query + 2 * config["n_heads"])
    assert split == [4 * query + partial + (prompt + 1) * kv_row] * n_attention
    state = config["gdn_v_heads"] * config["gdn_head_dim"] ** 2 * 4
    recurrent = [work["bytes"] for work in works if work["kernel"] == "gdn_recurrent"]
    assert len(recurrent) == config["layers"].count("gdn")
    assert all(2 * state < moved < 2.5 * state for moved in recurrent)


def test_counters_and_sequences(engine: _core.Engine, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    engine.start_trace(str(path))
    runs = [submit(engine, range(10, 10 + n), max_tokens=4) for n in (3, 150)]
    run_all(engine, runs)
    live = submit(engine, [10, 11], max_tokens=100)
    engine.step()
    engine.stop_trace()
    events = load(path)
    rows = [e["args"] for e in events if e["ph"] == "C" and e["name"] == "rows"]
    assert sum(r["prefill"] for r in rows) == 3 + 150 + 2
    assert sum(r["decode"] for r in rows) == 2 * 3
    slices = [e for e in events if e.get("cat") == "sequence"]
    for run, finish in [(runs[0], "length"), (runs[1], "length"), (live, "live")]:
        own = [e for e in slices if e["id"] == run.sequence and e["ph"] != "n"]
        assert own[0]["args"]["finish"] == finish
        for name in ("sequence", "waiting", "prefill", "decode"):
            begin, end = (e for e in own if e["name"] == name)
            assert (begin["ph"], end["ph"]) == ("b", "e")
            assert begin["ts"] <= end["ts"]


def test_off_unless_asked_and_a_second_trace_is_a_file_of_its_own(
    engine: _core.Engine, tmp_path: Path
) -> None:
    generate(engine, [10, 11], max_tokens=3)
    assert engine.stop_trace(), "nothing to stop"
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    traced(engine, first, prompt=3, tokens=2)
    size = first.stat().st_size
    generate(engine, [10, 11], max_tokens=3)
    traced(engine, second, prompt=3, tokens=2)
    assert first.stat().st_size == size
    names = [e["name"] for e in track(load(second), "kernels")]
    assert names == [e["name"] for e in track(load(first), "kernels")]


def test_one_trace_at_a_time(engine: _core.Engine, tmp_path: Path) -> None:
    engine.start_trace(str(tmp_path / "1.json"))
    with pytest.raises(RuntimeError, match="one is running"):
        engine.start_trace(str(tmp_path / "2.json"))


def test_close_completes_the_file(engine: _core.Engine, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    engine.start_trace(str(path))
    run = submit(engine, [10, 11], max_tokens=50)
    engine.step()
    engine.close()
    (own,) = (e for e in load(path) if e["name"] == "sequence" and e["ph"] == "b")
    assert (own["id"], own["args"]["finish"]) == (run.sequence, "live")
    assert engine.stop_trace()


def test_file_of_a_stopped_pass(engine: _core.Engine, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    engine.start_trace(str(path))
    while not engine.stats()["passes_stopped"]:
        run = submit(engine, range(10, 900), max_tokens=2)
        timer = threading.Timer(0.002, engine.cancel, [run.sequence])
        timer.start()
        run_all(engine, [])
        timer.join()
    engine.stop_trace()
    outcomes = [e["args"]["outcome"] for e in load(path) if e["name"] == "step"]
    assert "stopped" in outcomes


def test_file_that_cannot_be_written(tmp_path: Path) -> None:
    with Engine("tiny", context=256, progress=False) as engine:
        with pytest.raises(FileNotFoundError):
            engine.trace(tmp_path / "no" / "t.json")
        if Path("/dev/full").exists():
            trace = engine.trace("/dev/full")
            assert engine.generate("Hello", max_tokens=4).token_ids, "the engine goes on"
            with pytest.raises(OSError, match="written whole"):
                trace.stop()
            trace.stop()


def test_python_engine_traces_while_its_thread_runs(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    with Engine("tiny", context=256, progress=False) as engine:
        with engine.trace(path) as trace:
            engine.generate("Once upon a time", max_tokens=5)
        assert trace.path == path
        engine.generate("Once upon a time", max_tokens=5)
        trace.stop()
    steps = [e for e in load(path) if e["name"] == "step"]
    assert 1 <= len(steps) <= 6
    with pytest.raises(RuntimeError, match="closed"):
        engine.trace(path)
