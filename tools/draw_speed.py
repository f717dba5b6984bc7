"""Draws docs/speed.svg, how many times as fast as llama.cpp, from bench/results/*.json.

One grey and one blue that can be read on white and on black, and the fonts of the system: the
picture looks the same in a README, light or dark.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORKS = (  # of the benchmark `peers`: what it is called there, other processes, what it is
    ("prefill 512, tokens/s", 0, "prompt of 512 tokens"),
    ("decode alone, tokens/s", 0, "decoding alone"),
    ("decode, 8 together, tokens/s", 0, "8 sequences together"),
    ("decode alone, tokens/s", 1, "alone, 1 other process computing"),
    ("decode alone, tokens/s", 2, "alone, 2 others"),
)
MODELS = (
    ("tiny-qwen3.5-Q8_0.gguf", "bundled model, 40 M weights"),
    ("qwen3.5-0.8b-shape-Q8_0.gguf", "shape of the 0.8B model"),
)
LEFT, UNIT, ROW, WIDTH = 260, 70, 24, 770  # UNIT: once as fast
GREY, BLUE = "#7d8590", "#3b82d0"


def text(x: float, y: float, words: str, more: str = "") -> str:
    """One line of text."""
    return f'<text x="{x:g}" y="{y:g}" {more}>{words}</text>'


def find(reports: list[dict[str, Any]], model: str, work: str, busy: int) -> dict[str, Any]:
    """The one row that measured a work."""
    found: list[dict[str, Any]] = [
        row
        for report in reports
        if report["benchmark"] == "peers" and report["model"] == model
        for row in report["rows"]
        if (row["work"], row["busy"]) == (work, busy)
    ]
    if len(found) != 1:
        raise SystemExit(f"bench/results: {model}, {work}, busy {busy}: {len(found)} rows, want 1")
    return found[0]


def picture(reports: list[dict[str, Any]]) -> str:
    """The whole file."""
    lines = []
    y = 22
    for model, name in MODELS:
        lines.append(text(LEFT, y, name, 'font-weight="bold"'))
        top = y + 8
        for work, busy, label in WORKS:
            row = find(reports, model, work, busy)
            ratio, speed = row["ratio"]["median"], row["mtlqwen"]["median"]
            y += ROW
            lines += [
                text(LEFT - 12, y, label, 'text-anchor="end"'),
                f'<rect x="{LEFT}" y="{y - 12}" width="{UNIT * ratio:.1f}" height="15" rx="2"'
                f' fill="{BLUE}"/>',
                text(LEFT + UNIT * ratio + 8, y, f"{ratio:.1f} ({speed:.0f} tokens/s)"),
            ]
        x = LEFT + UNIT
        lines.append(
            f'<path d="M{x} {top}V{y + 8}" stroke="{GREY}" stroke-width="1.5"'
            ' stroke-dasharray="3"/>'
        )
        y += 40
    lines.append(text(LEFT + UNIT, y - 14, "1 = llama.cpp", 'text-anchor="middle"'))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}"'
            f' height="{y}" font-family="system-ui, sans-serif" font-size="14" fill="{GREY}">',
            "<title>Speed of mtlqwen against llama.cpp</title>",
            *lines,
            "</svg>\n",
        ]
    )


def main() -> None:
    """Write the picture to the file named, else to its place."""
    paths = sorted((ROOT / "bench/results").glob("*.json"))
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/speed.svg"
    target.write_text(picture(reports), encoding="utf-8")


if __name__ == "__main__":
    main()
