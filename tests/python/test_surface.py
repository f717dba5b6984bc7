"""What importing costs, what is public, and what loading and the console script print."""

from __future__ import annotations

import inspect
import io
import subprocess
import sys
from pathlib import Path

import mtlqwen
import pytest
from mtlqwen import SamplingParams, cli
from mtlqwen.progress import Line, make_progress
from mtlqwen.screen import Screen

HEAVY = (
    "asyncio",
    "numpy",
    "tokenizers",
    "jinja2",
    "huggingface_hub",
    "mtlqwen._core",
    "mtlqwen.engine",
)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = f"import sys; sys.path[:0] = {[str(Path(mtlqwen.__file__).parent.parent)]!r}\n"
    command = [sys.executable, "-c", path + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_importing_loads_nothing_heavy() -> None:
    code = f"import mtlqwen; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert python(code).stdout == "[]\n"


def test_every_public_name_is_there() -> None:
    assert sorted(mtlqwen.__all__) == mtlqwen.__all__
    for name in mtlqwen.__all__:
        assert getattr(mtlqwen, name).__name__ == name
    assert set(mtlqwen.__all__) < set(dir(mtlqwen))
    with pytest.raises(AttributeError, match="no attribute 'nosuch'"):
        mtlqwen.nosuch  # noqa: B018


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("Engine", "generate"),
        ("Engine", "stream"),
        ("Engine", "chat"),
        ("Session", "say"),
        ("Session", "stream"),
    ],
)
def test_the_asyncio_twins_take_the_same_arguments(owner: str, name: str) -> None:
    calls = [getattr(getattr(mtlqwen, owner), prefix + name) for prefix in ("", "a")]
    first, second = (inspect.signature(call).parameters for call in calls)
    assert list(first.values()) == list(second.values())


def test_progress_is_a_line_on_a_terminal_and_silent_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal, pipe = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    assert make_progress(None) is None
    assert make_progress(False) is None
    asked = make_progress(True)
    assert asked is not None
    asked("weights", 1, 2)
    asked("weights", 2, 2)
    assert pipe.getvalue() == "weights: done\n"
    monkeypatch.setattr(sys, "stderr", terminal)
    shown = make_progress(None)
    assert shown is not None
    shown("weights", 1, 2)
    assert "weights    ############............ 1/2" in terminal.getvalue()
    shown("download", 50_000_000, 100_000_000)
    assert "download   ############............ 50/100 MB" in terminal.getvalue()
    shown("weights", 0, 0)
    assert terminal.getvalue().endswith("\r")


def test_progress_survives_a_closed_stream() -> None:
    terminal = Terminal()
    line = Line(terminal)
    terminal.close()
    line("weights", 1, 2)
    line("weights", 2, 2)


def test_colours_only_where_a_person_sees_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        Screen(stream).write("x", "dim")
    assert (terminal.getvalue(), pipe.getvalue()) == ("\x1b[2mx\x1b[0m", "x")
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        terminal = Terminal()
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            Screen(terminal).write("x", "dim")
        assert terminal.getvalue() == "x"


def test_a_stream_without_the_characters_still_gets_text() -> None:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding="ascii")
    Screen(stream).write("61 \N{MULTIPLICATION SIGN} 11")
    assert buffer.getvalue() == b"61 ? 11"


def test_console_script_reports_errors_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["chat", "nosuch.gguf", "hi"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("mtlqwen: [model] nosuch.gguf: no such file")


@pytest.mark.parametrize("command", [["demo", "m"], ["generate", "m", "x"], ["chat", "m", "x"]])
def test_console_script_says_how_to_make_the_engine(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def make_engine(*arguments: object, **options: object) -> None:
        asked.append((arguments, options))
        raise RuntimeError("enough")

    monkeypatch.setattr("mtlqwen.engine.Engine", make_engine)
    monkeypatch.setattr("mtlqwen.demo.Engine", make_engine)
    options = ["--threads", "2", "--spec", "dflash", "--drafter", "owner/d:Q8_0"]
    assert cli.main(command + options) == cli.main(command) == 1
    assert asked == [
        (("m",), {"threads": 2, "spec": "dflash", "drafter": "owner/d:Q8_0"}),
        (("m",), {"threads": None, "spec": "auto", "drafter": None}),
    ]


def test_console_script_passes_sampling_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    class Fake:
        def __init__(self, *_: object, **__: object) -> None: ...

        def __enter__(self) -> Fake:
            return self

        def __exit__(self, *_: object) -> None: ...

        def stream(self, prompt: object, **options: object) -> None:
            asked.append(options)
            raise RuntimeError("enough")

    monkeypatch.setattr("mtlqwen.engine.Engine", Fake)
    given = ["-n3", "-t0.5", "--top-k=20", "--top-p=0.9", "--min-p=0.1", "--seed=4", "--stop=x"]
    assert cli.main(["generate", "m", "a", *given]) == cli.main(["chat", "m", "a"]) == 1
    sampling = SamplingParams(
        max_tokens=3, temperature=0.5, top_k=20, top_p=0.9, min_p=0.1, seed=4, stop="x"
    )
    assert asked == [{"sampling": sampling}, {"sampling": SamplingParams(), "thinking": None}]


def test_console_script_refuses_a_wrong_probability(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["generate", "tiny", "x", "--top-p", "0"]) == 1
    assert "[sampling] top_p: out of range (got 0" in capsys.readouterr().err


def test_console_script_refuses_a_drafter_of_no_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["chat", "tiny", "hi", "--spec", "mtp", "--drafter", "tiny"]) == 1
    assert "[engine] drafter: not used with spec='mtp'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nosuch"],
        ["chat"],
        ["generate", "m", "-n", "x"],
        ["chat", "m", "x", "--spec", "nosuch"],
    ],
)
def test_console_script_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "usage: mtlqwen" in capsys.readouterr().err
