"""Sessions in files, on a scripted core: what is written, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mtlqwen import Engine, FormatError, SamplingParams, Session
from python.conftest import MakeEngine
from python.fake_core import FakeCore, Script

TOOL = {"name": "f", "parameters": {"properties": {"n": {"type": "integer"}}}}


@pytest.fixture
def core(echo: Script) -> FakeCore:
    return FakeCore(echo)


@pytest.fixture
def engine(make_engine: MakeEngine, core: FakeCore) -> Engine:
    return make_engine(core)


def test_a_saved_session_goes_on_elsewhere(
    make_engine: MakeEngine, engine: Engine, echo: Script, tmp_path: Path
) -> None:
    sampling = SamplingParams(seed=7, stop=["END"], temperature=0.5)
    session = engine.session("s", [TOOL], sampling, thinking=False)
    for text in "ab":
        session.say(text)
    path = tmp_path / "chat.mtlq"
    kept = session.save(path)
    assert kept > 0
    core = FakeCore(echo)
    other = make_engine(core).load_session(str(path))
    assert other.messages == session.messages
    assert other._settings == session._settings
    answer = other.say("c")
    assert answer == "[c]" == session.say("c")
    assert answer.usage.cached_tokens == kept
    assert core.submitted[0].temperature == 0.5


def test_all_of_sampling_is_saved(engine: Engine, tmp_path: Path) -> None:
    sampling = SamplingParams(
        logit_bias={3: -math.inf, 4: 1.5},
        bad_words=["a", [1, 2]],
        allowed_token_ids=range(300),
        top_p=0.5,
        thinking=0,
    )
    session = engine.session(sampling=sampling)
    session.save(tmp_path / "a")
    loaded = engine.load_session(tmp_path / "a")._settings.sampling
    assert loaded == sampling
    assert loaded.thinking is not False


@pytest.mark.parametrize("system", [None, "s"])
def test_a_session_without_turns_can_be_saved(
    engine: Engine, tmp_path: Path, system: str | None
) -> None:
    session = engine.session(system, thinking=False)
    assert session.save(tmp_path / "a") == 0
    loaded = Session.load(engine, tmp_path / "a")
    assert loaded.messages == session.messages
    assert loaded.say("a") == "[a]"


def damaged(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    def apply(note: str) -> str:
        state = json.loads(note)
        change(state)
        return json.dumps(state)

    return apply


DAMAGE: list[tuple[Callable[[str], str], str]] = [
    (lambda note: "", "Expecting value"),
    (lambda note: note[:-1], "Expecting"),
    (lambda note: "[" * 100_000, "recursion"),
    (lambda note: "[]", "note: not an object (got list)"),
    (lambda note: note.replace('"version": 1', '"version": NaN'), "NaN is no number"),
    (damaged(lambda s: s.update(version=2)), "version unknown (got 2, want 1)"),
    (damaged(lambda s: s.update(version=True)), "version unknown"),
    (damaged(lambda s: s.update(kind="x")), "no session's (got 'x'"),
    (damaged(lambda s: s.update(more=1)), "note: other keys"),
    (damaged(lambda s: s.pop("tools")), "note: other keys"),
    (damaged(lambda s: s.update(messages={})), "messages: not a list"),
    (damaged(lambda s: s["messages"].append({"role": "x"})), "unknown role (got 'x'"),
    (damaged(lambda s: s["messages"].append({"role": "user", "content": 3})), "content is no"),
    (damaged(lambda s: s.update(tools=[{}])), "tools[0]: no name"),
    (damaged(lambda s: s.update(sampling=None)), "sampling: not an object"),
    (damaged(lambda s: s["sampling"].update(seed=-1)), "seed: out of range"),
    (damaged(lambda s: s["sampling"].update(logit_bias=[1])), "its note is damaged"),
    (damaged(lambda s: s["sampling"].update(logit_bias=[[1, "x"]])), "logit_bias: not a number"),
    (damaged(lambda s: s["sampling"].update(top_a=1)), "unexpected keyword"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGE)
def test_a_note_that_is_no_sessions_is_refused(
    engine: Engine, core: FakeCore, tmp_path: Path, damage: Callable[[str], str], words: str
) -> None:
    session = engine.session("s", [TOOL], thinking=False)
    session.say("a")
    path = tmp_path / "a"
    session.save(path)
    _, note, _ = core.load_checkpoint(str(path))
    core.save_checkpoint(str(path), [], damage(note), with_state=True)
    with pytest.raises(FormatError) as caught:
        engine.load_session(path)
    assert str(caught.value).startswith(f"[session] {path}: its note is damaged")
    assert words in str(caught.value)


@pytest.mark.parametrize("value", [b"x", float("nan"), float("inf"), {1: "x"}])
def test_what_json_does_not_know_is_not_saved(
    engine: Engine, tmp_path: Path, value: object
) -> None:
    session = engine.session(thinking=False)
    session.say([{"role": "user", "content": "a", "extra": value}])
    with pytest.raises(TypeError, match=r"\[session\] messages: hold what a file cannot keep"):
        session.save(tmp_path / "a")
    assert not list(tmp_path.iterdir())
