"""The bundled model in processes of their own: Ctrl-C, the console script, the examples."""

from __future__ import annotations

import doctest
import importlib
import os
import pty
import subprocess
import sys
from pathlib import Path

import mtlqwen
import pytest

ANSWER = "61 \u00d7 11 = 671"

INTERRUPT = """
import os, signal, sys, threading, time
from mtlqwen import Engine

def kill():
    global killed
    killed = time.perf_counter()
    os.kill(os.getpid(), signal.SIGINT)

engine = Engine("tiny")
engine.generate("warm", max_tokens=2)
latencies = []
for way in ("generate", "stream", "chat"):
    threading.Timer(0.4, kill).start()
    try:
        if way == "generate":
            engine.generate(["Once upon a time"] * 4, max_tokens=4000, ignore_eos=True)
        elif way == "stream":
            for _ in engine.stream("Once upon a time", max_tokens=4000, ignore_eos=True):
                pass
        else:
            engine.chat([{"role": "user", "content": "Hi"}], max_tokens=4000, ignore_eos=True)
    except KeyboardInterrupt:
        latencies.append(time.perf_counter() - killed)
started = time.perf_counter()
while engine.stats()["live"] and time.perf_counter() - started < 5:
    time.sleep(0.01)
answer = engine.chat([{"role": "user", "content": "Good morning"}], thinking=False)
print(len(latencies), f"{min(latencies):.4f}", engine.stats()["live"], answer)
"""


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", **more}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
        env=environment,
    )


def test_ctrl_c_is_prompt_and_leaves_a_usable_engine() -> None:
    done = run("-c", INTERRUPT)
    assert done.stderr == ""
    interrupts, latency, live, answer = done.stdout.strip().split(" ", 3)
    assert (interrupts, live) == ("3", "0")
    assert answer == "Hello! How can I help you today?"
    assert float(latency) < 0.2  # the best of three: the machine may be busy with others


def test_demo_shows_everything_in_plain_text() -> None:
    done = run("-m", "mtlqwen", "demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    for words in (
        ANSWER,
        "search_products({'query': 'orange umbrella', 'max_price': 45})",
        "Once upon a time",
        "guten Morgen",
        "eight together",
        "MiB, weights included",
    ):
        assert words in done.stdout


def test_a_closed_pipe_is_no_accident() -> None:
    script = f"{sys.executable} -m mtlqwen demo | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stderr == ""
    first, code = done.stdout.splitlines()
    assert first.startswith("mtlqwen demo")
    assert code == "141"


@pytest.mark.parametrize(("terminal", "colours"), [("xterm-256color", True), ("dumb", False)])
def test_chat_on_a_narrow_terminal(terminal: str, colours: bool) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": terminal, "COLUMNS": "8"}
    environment.pop("NO_COLOR", None)
    command = [
        sys.executable,
        "-m",
        "mtlqwen",
        "chat",
        "tiny",
        "What is 61 times 11?",
        "--thinking",
    ]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:  # Linux reports the end of a terminal so
            break
        if not data:
            break
        shown += data
    os.close(ours)
    assert process.wait(60) == 0
    text = shown.decode()
    assert text.endswith(f"{ANSWER}\r\n")
    assert ("\x1b[2m6\x1b[0m" in text) == colours
    assert ("[thinking] 60" in text) != colours


def test_console_script_on_standard_input_and_its_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mtlqwen", "chat", "tiny", "--no-thinking", "--system", "Be kind."],
        input="Good morning",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("Hello! How can I help you today?\n", "")
    assert run("-m", "mtlqwen", "--version").stdout == f"mtlqwen {mtlqwen.__version__}\n"
    done = run("-m", "mtlqwen", "generate", "tiny", "Once upon a", "-n", "4", "-t", "0")
    assert done.stdout.startswith(" ")
    assert done.returncode == 0


EXAMPLES = {
    "batch.py": f'"answer": "{ANSWER}"',
    "engines.py": "quick: 335 157",
    "hello.py": ANSWER,
    "own_loop.py": "guard: Hello!",
    "sessions.py": "My name is Paul.",
    "stream.py": "Once upon a time",
    "threads.py": "3 + 3 = 6",
    "tools.py": "I found an orange umbrella for 44 dollars.",
    "web.py": "335 157",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(root: Path, name: str) -> None:
    done = run(str(root / "examples" / name))
    assert (done.returncode, done.stderr) == (0, "")
    assert EXAMPLES[name] in done.stdout


def test_examples_are_short_and_all_run(root: Path) -> None:
    found = {file.name: file.read_text().count("\n") for file in (root / "examples").glob("*.py")}
    assert found.keys() == EXAMPLES.keys()
    assert all(lines < 60 for lines in found.values())


@pytest.mark.parametrize(
    "module",
    [
        "__init__",
        "sampling",
        "loops",
        "template",
        "tokenizer",
        "reader",
        "areader",
        "engine",
        "parts",
        "session",
        "tool_calls",
        "tools",
    ],
)
def test_docstring_examples_run(module: str) -> None:
    name = "mtlqwen" if module == "__init__" else f"mtlqwen.{module}"
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0
