"""What the tests of notebooks share: reading HTML, executing notebooks, and a browser."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from mtlqwen import Speculation, Timings, Usage

VOID = {"br", "hr", "img", "input"}

EVIL = """<script>ran=1</script><img src=x onerror="ran=1">"'> ![a](http://e.org/b.png)
[go](javascript:ran=1) </div></details> &lt;"""


def facts(**over: Any) -> dict[str, Any]:
    """What a result has beside its text."""
    return {
        "token_ids": [1, 2],
        "finish_reason": "stop",
        "usage": Usage(prompt_tokens=7, completion_tokens=2, cached_tokens=3),
        "timings": Timings(ttft_s=0.25, prefill_tps=100.0, decode_tps=12.5),
        "spec": Speculation(drafter="mtp", passes=1, drafted=4, accepted=1, positions=(0,)),
        **over,
    }


# Measured by the browser: what is too wide, too faint, loaded from elsewhere, or has run.
MEASURE = """
const colour = (e) => { const c = getComputedStyle(e).color.match(/[\\d.]+/g).map(Number);
  return c.slice(0, 3); };
const light = (rgb) => { const l = rgb.map((v) => { v /= 255;
  return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * l[0] + 0.7152 * l[1] + 0.0722 * l[2]; };
const under = (e) => { const layers = []; let opacity = 1;
  for (let n = e; n && n.nodeType === 1; n = n.parentNode) {
    opacity *= Number(getComputedStyle(n).opacity);
    const c = getComputedStyle(n).backgroundColor.match(/[\\d.]+/g).map(Number);
    const a = c.length > 3 ? c[3] : 1; if (a > 0) layers.push([c, a]); if (a === 1) break; }
  let base = layers.pop()[0].slice(0, 3);
  for (const [c, a] of layers.reverse()) base = base.map((v, i) => v * (1 - a) + c[i] * a);
  return [base, opacity]; };
let faint = [], wide = [];
for (const e of document.querySelectorAll(".out *")) {
  const says = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  if (e.closest("svg") || !says) continue;
  const [base, opacity] = under(e);
  const text = colour(e).map((v, i) => v * opacity + base[i] * (1 - opacity));
  const [hi, lo] = [light(text), light(base)].sort((a, b) => b - a);
  if ((hi + 0.05) / (lo + 0.05) < 4.5) faint.push(e.textContent.slice(0, 40));
}
for (const e of document.querySelectorAll(".out"))
  if (e.scrollWidth > e.clientWidth) wide.push(e.textContent.slice(0, 40));
const outside = document.querySelectorAll("[src],link,script:not(#measure),iframe,object").length;
document.title = JSON.stringify({faint, wide, outside, ran: !!window.ran,
  spans: document.querySelectorAll(".out span[title]").length,
  svg: document.querySelectorAll(".out svg").length});
"""


@dataclass
class Seen(HTMLParser):
    """Tags, attributes and text of a piece of HTML; fails where tags do not match."""

    tags: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    values: list[str] = field(default_factory=list)
    text: str = ""
    _open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin to read."""
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names.update(name for name, _ in attrs)
        self.values += [value or "" for _, value in attrs]
        if tag not in VOID and not (self.get_starttag_text() or "").endswith("/>"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def close(self) -> None:
        super().close()
        assert self._open == []


def look(page: str) -> Seen:
    """Read HTML and refuse what no card may have: scripts, handlers, anything that is loaded."""
    seen = Seen()
    seen.feed(page)
    seen.close()
    assert not {"script", "style", "link", "img", "iframe", "object", "image"} & set(seen.tags)
    assert not [name for name in seen.names if name.startswith("on") or name in ("src", "srcset")]
    assert not [value for value in seen.values if "url(" in value or "javascript:" in value]
    return seen


# Nothing of it may go out.
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--dump-dom"),
]


def page_of(cards: list[str], *, dark: bool) -> str:
    """Return a page of outputs as a notebook with a light or a dark theme shows them."""
    colours = "background:#111;color:#eee" if dark else "background:#fff;color:#111"
    outs = "".join(f'<div class="out" style="margin:12px;max-width:900px">{c}</div>' for c in cards)
    return (
        f'<!doctype html><html><head><meta charset="utf-8"></head>'
        f'<body style="margin:8px;{colours}">{outs}<script id="measure">{MEASURE}</script></body>'
    )


def browse(page: str, folder: Path, name: str) -> str:
    """Return a page's document after its scripts, and leave a screenshot beside it."""
    file = folder / f"{name}.html"
    file.write_text(page, encoding="utf-8")
    command = [
        *("chromium", *FLAGS, "--window-size=960,2000"),
        f"--user-data-dir={folder / 'profile'}",
        f"--screenshot={folder / f'{name}.png'}",
        file.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
