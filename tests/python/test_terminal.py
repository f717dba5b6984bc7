"""The console script as people use it: a conversation in a terminal, pipes, small commands."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from mtlqwen import CapacityError, Engine, Piece, SamplingParams, ToolCall, cli, tool
from mtlqwen.answer_view import AnswerView, MarkdownView
from mtlqwen.chat_loop import ChatLoop
from mtlqwen.screen import Screen
from mtlqwen.tool_runs import ToolRuns
from python.conftest import MakeEngine
from python.fake_core import Script
from python.test_surface import Terminal
from python.test_tool_rounds import ASKED, script, warmth
from rich.console import Console

__all__ = ["script"]  # a fixture of the other file

ANSWER = "61 \u00d7 11 = 671"
COMMAND = [sys.executable, "-m", "mtlqwen"]


class Typed:
    """A process with a terminal of its own, and somebody who types."""

    def __init__(self, *arguments: str) -> None:
        """Start ``mtlqwen``; it is killed when it takes too long."""
        self._ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
        environment.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # its Ctrl-C is ours
        )
        os.close(theirs)
        self._timer = threading.Timer(200, self.process.kill)
        self._timer.start()
        self.shown = ""

    def until(self, words: str) -> str:
        """Return what is shown from now on, up to ``words``."""
        while (at := self.shown.find(words)) < 0:
            try:
                data = os.read(self._ours, 4096)
            except OSError:  # Linux reports the end of a terminal so
                data = b""
            assert data, f"no {words!r} in {self.shown!r}"
            self.shown += data.decode(errors="replace")
        end = at + len(words)
        before, self.shown = self.shown[:end], self.shown[end:]
        return before

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def close(self) -> None:
        self._timer.cancel()
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def typed() -> Iterator[Typed]:
    made = Typed("chat", "tiny", "--system", "You are Paul, a singer from Ankara.", "-t", "0")
    yield made
    made.close()


def test_a_conversation_in_a_terminal(typed: Typed, tmp_path: Path) -> None:
    steps = [
        ("/no-thing\n", "no such command"),
        ("\x03", "Ctrl-D or /quit"),
        ("/regen\n", "nothing has been said yet"),
        ("What is your \\\n", ". "),
        ("name?\n", "My name is Paul."),
        ("/fork\n", "(fork 2 of 2)"),
        ("/undo\n", "(1 messages are left)"),
        ("/fork 1\n", "(fork 1 of 2)"),
        ("/fork 3\n", "no such fork"),
        (f"/save {tmp_path}/chat.mtlq\n", "(saved, with the state of"),
        ("/regen\n", "My name is Paul."),
        ("/stats\n", "MiB"),
        ("/undo\n", "(1 messages are left)"),
        (f"/load {tmp_path}/chat.mtlq\n", "(3 messages)"),
        ("/show\n", "\n"),
        ("/system\n", "(a new conversation)"),
        ("/load nosuch\n", "no such file"),
        ("/help\n", "/save FILE"),
        ("\x04", "\n"),
    ]
    typed.until("> ")
    for text, words in steps:
        typed.type(text)
        typed.until(words)
        if not text.endswith("\\\n") and text != "\x04":
            typed.until("> ")
    assert typed.process.wait(60) == 0


def test_reasoning_is_folded(typed: Typed) -> None:
    typed.type("/system\n")
    typed.until("(a new conversation)")
    typed.type("What is 61 times 11?\n")
    assert "60 \u00d7 11" not in typed.until("tokens; /show)")
    typed.until(ANSWER)
    typed.type("/show\n")
    typed.until("60 \u00d7 11 = 660")
    typed.type("/quit\n")
    assert typed.process.wait(60) == 0


@tool
def awarmth(city: str) -> str:
    """Tell how warm it is."""
    return warmth(city)


def loop_of(engine: Engine, terminal: Terminal, tools: Sequence[Any] = ()) -> ChatLoop:
    screen = Screen(terminal)
    sampling = SamplingParams(thinking=False)
    return ChatLoop(
        engine, screen, lambda: AnswerView(screen), system=None, sampling=sampling, tools=tools
    )


def test_calls_and_their_results_are_shown(make_engine: MakeEngine, script: Script) -> None:
    terminal = Terminal()
    loop_of(make_engine(script), terminal, [awarmth])._handle(ASKED[0]["content"])
    shown = re.sub(r"\x1b\[\d*[mK]", "", terminal.getvalue())
    lines = [line for line in shown.split("\n") if line]
    assert lines[:3] == ["I look.", "awarmth(city='Oslo')", "21 in Oslo"]
    assert lines[-1].startswith("Told: ")


def test_ctrl_c_stops_the_answer_only(
    make_engine: MakeEngine, echo: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, added = Terminal(), []
    loop = loop_of(make_engine(echo), terminal)

    def interrupt(_: AnswerView, piece: Piece) -> None:
        added.append(piece)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(AnswerView, "add", interrupt)
        loop._handle("one")
    assert len(added) == 1
    assert "(stopped; what was not answered is forgotten)" in terminal.getvalue()
    loop._handle("two")
    assert "[two]" in terminal.getvalue()
    assert [message["content"] for message in loop._session.messages] == ["two", "[two]"]


@pytest.mark.parametrize("fault", [KeyboardInterrupt, CapacityError, ZeroDivisionError])
def test_a_turn_that_fails_in_its_tools_is_forgotten(
    make_engine: MakeEngine, script: Script, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    def fail(*_: object) -> None:
        raise fault("no room")

    terminal = Terminal()
    loop = loop_of(make_engine(script), terminal, [awarmth])
    monkeypatch.setattr(ToolRuns, "run", fail)
    with contextlib.suppress(ZeroDivisionError):
        loop._handle(ASKED[0]["content"])
    assert loop._session.messages == []
    words = {KeyboardInterrupt: "(stopped; ", CapacityError: "no room", ZeroDivisionError: ""}
    assert words[fault] in terminal.getvalue()


def test_an_error_while_an_answer_is_shown_ends_its_view(
    make_engine: MakeEngine, echo: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[AnswerView] = []

    def fail(*_: object) -> None:
        raise CapacityError("no room")

    loop = loop_of(make_engine(echo), Terminal())
    monkeypatch.setattr(AnswerView, "add", fail)
    monkeypatch.setattr(AnswerView, "end", lambda view: ended.append(view))
    loop._handle("one")
    assert len(ended) == 1


def test_a_view_folds_and_shows() -> None:
    pieces = [
        Piece("so", [1, 2], "reasoning"),
        Piece("Hi", [3], "text"),
        Piece("<function=f>", [4], "tool_call", ToolCall("f", {"a": "b"})),
    ]
    terminal = Terminal()
    view = AnswerView(Screen(terminal))
    for piece in pieces:
        view.add(piece)
    view.end()
    plain = re.sub(r"\x1b\[\d*[mK]", "", terminal.getvalue())
    assert plain.endswith("(thought 2 tokens; /show)\nHi\nf(a='b')\n")


def test_markdown_is_drawn_block_by_block() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=40)
    view = MarkdownView(Screen(Terminal()), console)
    for text in ("Some **bold", "** words.\n", "\n- one\n- two\n\n```\na\n\n", "b\n```\n\nEnd"):
        view.add(Piece(text, [1], "text"))
    view.end()
    assert isinstance(console.file, io.StringIO)
    lines = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]|\r", "", console.file.getvalue()).split("\n")
    shown = [line.strip() for line in lines if line.strip()]
    assert shown[-1] == "End"
    assert "Some bold words." in shown
    assert shown.index("\u2022 one") < shown.index("\u2022 two") < shown.index("a")
    assert "\x1b[1mbold\x1b[0m" in console.file.getvalue()


@pytest.mark.parametrize(
    ("text", "blocks", "rest"),
    [
        ("One", [], "One"),
        ("One.\n\nTwo", ["One.\n"], "Two"),
        ("One.\n\n\nTwo\n\n", ["One.\n", "Two\n"], ""),
        ("```\na\n\nb", [], "```\na\n\nb"),
        ("```\na\n\nb\n```\n\nc", ["```\na\n\nb\n```\n"], "c"),
        ("````\n```\n\na", [], "````\n```\n\na"),
        ("\n\nOne", [], "One"),
    ],
)
@pytest.mark.parametrize("step", [1, 99])
def test_blocks_of_markdown(text: str, blocks: list[str], rest: str, step: int) -> None:
    ended: list[str] = []

    class View(MarkdownView):
        def _end_block(self) -> None:
            ended.append(self._block)
            super()._end_block()

    view = View(Screen(Terminal()), Console(file=io.StringIO(), force_terminal=True))
    for at in range(0, len(text), step):
        view.add(Piece(text[at : at + step], [1], "text"))
    assert (ended, view._block) == (blocks, rest)
    view.end()


def test_markdown_is_not_parsed_for_every_token(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def parse(text: str) -> str:
        parsed.append(text)
        return text

    monkeypatch.setattr("rich.markdown.Markdown", parse)
    view = MarkdownView(Screen(Terminal()), Console(file=io.StringIO(), force_terminal=True))
    for _ in range(2000):
        view.add(Piece("word ", [1], "text"))
    view.end()
    assert parsed[-1] == "word " * 2000
    assert len(parsed) < 500


def run(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        input=text,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        timeout=300,
        check=False,
    )


def test_run_is_for_pipes() -> None:
    done = run("run", "tiny", "Repeat after me:", "--no-thinking", text="335 157")
    assert (done.stdout, done.stderr, done.returncode) == ("335 157\n", "", 0)
    done = run("run", "tiny", "--json", "--thinking", text="What is 61 times 11?")
    said = json.loads(done.stdout)
    assert (said["content"], said["finish_reason"]) == (ANSWER, "stop")
    assert said["reasoning"].startswith("60")
    assert said["usage"]["reasoning_tokens"] > 0


def test_run_calls_tools_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(
        "from mtlqwen import tool\n@tool\ndef search_products(query: str, max_price: float)"
        " -> dict:\n    'Search the shop for products.'\n    return {'name': query, 'price': 44}\n"
    )
    question = "Find an orange umbrella for less than 45 dollars."
    done = run("run", "tiny", question, "--no-thinking", "--json", "--tools", str(file), text="")
    said = json.loads(done.stdout)
    assert [message["role"] for message in said["rounds"]] == ["assistant", "tool"]
    assert "44" in said["content"]


def test_small_commands(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["pull", "tiny"]) == 0
    assert [Path(line).is_file() for line in capsys.readouterr().out.splitlines()] == [True, True]
    assert cli.main(["pull", "nosuch.gguf"]) == 1
    assert cli.main(["doctor"]) == 0
    checked = capsys.readouterr().out
    assert "ok       engine" in checked
    assert "llguidance" in checked
    assert cli.main(["bench", "tiny", "-p", "16", "-n", "4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["decode_tps"] > 0
    for content, words in (("x = 1", "no tools"), ("1 / 0", "ZeroDivisionError")):
        (tmp_path / "tools.py").write_text(content)
        assert cli.main(["run", "tiny", "x", "--tools", str(tmp_path / "tools.py")]) == 1
        assert words in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["bench", "tiny", "-n", "0"])
    assert "argument -n: not a count (got 0, want 1 or more)" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["chat", "run", "generate"])
def test_a_closed_standard_input_is_an_error_that_says_so(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert cli.main([command, "tiny"]) == 1
    assert "no text, and standard input is closed" in capsys.readouterr().err


def test_a_closed_standard_output_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert cli.main(["generate", "tiny", "Once", "-n", "2"]) == 0


def test_a_doctor_that_finds_a_problem_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr("mtlqwen.engine.Engine", fail)
    assert cli.main(["doctor"]) == 1
    assert "problem  engine   no memory" in capsys.readouterr().out
