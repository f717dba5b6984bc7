"""What the documents show is what happens: their Python and their commands run.

The blocks of a document are one program, and its commands one script. A block under a comment
`illustration: reason` does not run; ILLUSTRATIONS counts those.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path

import mtlqwen
import pytest
from house import ROOT, relative

# What a document's blocks print, each somewhere in this order.
PRINTS = {
    "README.md": [
        r"61 \u00d7 11 = 671 \| 60",
        r"umbrella for 44 dollars",
        r"My name is Paul[.]",
        r"I work as a singer[.]",
    ],
    "docs/calls.md": [r" 8 \d+", r"(deadline|length|stop)\n"],
    "docs/coming_from.md": [r"(.+ length 16\n)", r" length 16\n.+\n$"],
    "docs/determinism.md": [r"^True\nTrue\n$"],
    "docs/memory.md": [
        r"weights \d+\n(.+\n){4}\d+ of 268435456\n",
        r"memory_budget: too small",
        r'"memory"',
    ],
    "docs/choosing.md": [r"(?m)^runs$"],
    "docs/notebook.md": [r"^TokenView[(]8 tokens[)]\n"],
    "docs/quickstart.md": [
        r"^61 \u00d7 11 = 671\n60.* stop \d+\n",
        r"My name is Paul[.]\n",
        r"ok +engine",
        r'"content": ".*671',
    ],
    "docs/sampling.md": [r"'5' -\d[.]\d+ \['5', '6'\]\n$"],
    "docs/sessions.md": [r"^My name is Paul[.]\nI live in Ankara[.] [1-9]\d* of \d+\n"],
    "docs/speculation.md": [r"^dflash\nSpeculation\(drafter='dflash', passes="],
    "docs/structured.md": [
        r"^Weather\(city=.+sky='(sunny|cloudy|rainy)', degrees=\d+\)\n",
        r"(good|bad)\n0\d\d-\d{4}\n\d{1,3}\n$",
    ],
    "docs/terminal.md": [r"^.+\n"],
    "docs/tools.md": [r"'role': 'tool'"],
    "docs/tracing.md": [],
}
# Blocks that do not run; the comment before each says why.
ILLUSTRATIONS = {
    "CONTRIBUTING.md": 1,
    "README.md": 1,
    "docs/choosing.md": 1,
    "docs/convert.md": 1,
    "docs/design/hostmetal.md": 1,
    "docs/performance.md": 1,
    "docs/quickstart.md": 1,
}
LANGUAGES = {"python", "sh", "text"}
DOCUMENTS = sorted(relative(p) for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@dataclass(frozen=True)
class Block:
    """One fence of a document; a directive of Sphinx has its braces in the language."""

    language: str
    text: str
    illustration: str  # why it does not run, or ""


def blocks_of(text: str) -> list[Block]:
    """All fences of a document."""
    marked = r"(?:<!-- illustration: ([^\n]+) -->\n)?"
    found = re.findall(rf"(?ms)^{marked}```(\S*)[^\n]*\n(.*?)^```$", text)
    return [Block(language, body, why) for why, language, body in found]


def program(blocks: list[Block], language: str) -> str:
    """The blocks of a language that run, joined."""
    return "".join(b.text for b in blocks if b.language == language and not b.illustration)


def run(command: list[str], folder: Path) -> str:
    """Run it with the console script on the path; return what it prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "PATH": path},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("name", PRINTS)
def test_a_document_runs(name: str, tmp_path: Path) -> None:
    blocks = blocks_of((ROOT / name).read_text(encoding="utf-8"))
    shown = ""
    if python := program(blocks, "python"):
        shown += run([sys.executable, "-c", python], tmp_path)
    if shell := program(blocks, "sh"):
        shown += run(["bash", "-euo", "pipefail", "-c", shell], tmp_path)
    at = 0
    for expected in PRINTS[name]:
        match = re.compile(expected).search(shown, at)
        assert match, f"{expected!r} is not in what follows {shown[:at]!r}: {shown[at:]!r}"
        at = match.end()


def test_no_block_is_left_out() -> None:
    runs, illustrations = set(), {}
    for name in DOCUMENTS:
        text = (ROOT / name).read_text(encoding="utf-8")
        blocks = blocks_of(text)
        assert text.count("\n```") == 2 * len(blocks), f"{name}: a fence that does not close"
        strange = {b.language for b in blocks if b.language[:1] != "{"} - LANGUAGES
        assert not strange, f"{name}: want {LANGUAGES} behind each fence, got {strange}"
        if program(blocks, "python") or program(blocks, "sh"):
            runs.add(name)
        if count := sum(bool(b.illustration) for b in blocks):
            illustrations[name] = count
    assert runs == set(PRINTS)
    assert illustrations == ILLUSTRATIONS


def test_the_picture_shows_the_committed_results(tmp_path: Path) -> None:
    made = tmp_path / "speed.svg"
    run([sys.executable, str(ROOT / "tools/draw_speed.py"), str(made)], tmp_path)
    assert made.read_bytes() == (ROOT / "docs/speed.svg").read_bytes()


def test_every_public_name_and_option_is_documented() -> None:
    interface = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    named = re.findall(r"(?m)^[.][.] auto\w+:: mtlqwen[.](\w+)(?:\(\))?$", interface)
    assert sorted(named) == sorted(mtlqwen.__all__)
    engine = set(inspect.signature(mtlqwen.Engine).parameters) - {"model"}
    options = engine | {field.name for field in fields(mtlqwen.SamplingParams)}
    calls = (ROOT / "docs/calls.md").read_text(encoding="utf-8")
    assert {name for name in options if f"`{name}`" not in calls} == set()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    text = re.sub(r"`[^`\n]+`", "", (ROOT / name).read_text(encoding="utf-8"))
    targets = re.findall(r"\]\(([^)#\s]+)", text)
    local = [target for target in targets if not target.startswith("https://")]
    assert [t for t in local if not (ROOT / name).parent.joinpath(t).exists()] == []
