"""What notebooks show of engines, results, sessions and stats: small cards of HTML.

Everything that came from outside is escaped; no scripts, no style sheets, nothing that is loaded.
Colours are the page's own, or tones that read on light and on dark. Knows no IPython.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from mtlqwen.answer_view import call_line
from mtlqwen.markdown import PRE, markdown, plain
from mtlqwen.result import ChatResult, Completion, ToolCall

Bundle: TypeAlias = dict[str, str]  # of a display: texts by their MIME type
Row: TypeAlias = tuple[str, str]  # a label and what belongs to it, both HTML
Part: TypeAlias = tuple[str, str]  # a kind as `Piece` has it, and text

BLUE, GREEN, ORANGE = "#4c86e8", "#2a9d5a", "255,140,0"
_FRAME = (
    "font:13px/1.5 system-ui,sans-serif;border:1px solid rgba(128,128,128,.45);border-radius:6px;"
    "padding:8px 12px;margin:4px 0;max-width:52em;box-sizing:border-box"
)
_GRID = "display:grid;grid-template-columns:max-content minmax(0,1fr);gap:0 1em"
_FAINT = "opacity:.75"
_MAX_TEXT = 50_000  # characters of a text that a card shows
_MAX_MESSAGES = 8  # of a session


def bundle(value: object, card: str) -> Bundle:
    """Return what ``_repr_mimebundle_`` returns: the repr for terminals, a card for notebooks."""
    return {"text/plain": repr(value), "text/html": card}


def frame(title: str, *parts: str) -> str:
    """Return a card: a title (plain text, may be empty) over parts of HTML."""
    head = f"<b>{html.escape(title)}</b>" if title else ""
    return f'<div style="{_FRAME}">{head}{"".join(parts)}</div>'


def grid(rows: Iterable[Row]) -> str:
    """Return rows of a label and a value."""
    cells = (f'<div style="{_FAINT}">{name}</div><div>{value}</div>' for name, value in rows)
    return f'<div style="{_GRID}">{"".join(cells)}</div>'


def footer(facts: Iterable[str]) -> str:
    """Return a faint line of facts (plain texts)."""
    line = " · ".join(html.escape(fact) for fact in facts)
    return f'<div style="{_FAINT};margin-top:6px">{line}</div>'


def bar(share: float) -> str:
    """Return a bar that is filled up to ``share``, 0 to 1."""
    percent = 100 * min(max(share, 0.0), 1.0)
    return (
        '<div style="height:6px;max-width:20em;border-radius:3px;background:rgba(128,128,128,.3)">'
        f'<div style="height:6px;border-radius:3px;width:{percent:.1f}%;background:{BLUE}"></div>'
        "</div>"
    )


def folded(summary: str, inside: str) -> str:
    """Return HTML that opens at a click on its summary (plain text)."""
    return (
        f'<details style="margin:4px 0"><summary style="{_FAINT};cursor:pointer">'
        f"{html.escape(summary)}</summary>{inside}</details>"
    )


def amount(n_bytes: float) -> str:
    """Return bytes as people read them."""
    for unit in ("B", "KiB", "MiB"):
        if abs(n_bytes) < 1024:
            return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"
        n_bytes /= 1024
    return f"{n_bytes:.2f} GiB"


# Engines.


def engine_card(title: str, facts: Sequence[str], stats: Mapping[str, Any]) -> str:
    """Return the card of an engine that is open."""
    return frame(title, grid(stats_rows(stats)), footer(facts))


def stats_card(stats: Mapping[str, Any]) -> str:
    """Return the card of what `Engine.stats` returned, with all of it folded away."""
    every = grid((html.escape(str(key)), html.escape(str(stats[key]))) for key in stats)
    return frame("Engine stats", grid(stats_rows(stats)), folded("all of them", every))


def stats_rows(stats: Mapping[str, Any]) -> list[Row]:
    """Return what matters most of an engine's stats; a count that is missing is 0."""

    def number(key: str) -> float:
        return float(stats.get(key, 0))

    memory, budget = number("memory_bytes"), number("budget_bytes")
    found = number("cache_hits") + number("cache_misses")
    rows = [
        ("device", html.escape(str(stats.get("device", "?")))),
        ("memory", f"{amount(memory)} of {amount(budget)}{bar(memory / budget if budget else 0)}"),
        (
            "of it",
            f"weights {amount(number('weights_bytes'))}, pool {amount(number('pool_bytes'))}, "
            f"drafter {amount(number('draft_bytes'))}",
        ),
        (
            "prefix cache",
            f"{number('cache_checkpoints'):.0f} checkpoints, {amount(number('cache_bytes'))}"
            f" of {amount(number('cache_budget_bytes'))}; "
            f"{number('cache_hits'):.0f} of {found:.0f} prompts found one",
        ),
        (
            "tokens",
            f"{number('tokens'):.0f} from {number('submitted'):.0f} sequences"
            f"{_rate(number('tokens'), number('step_s'))}",
        ),
    ]
    if number("drafted_tokens"):
        rows.append(("drafts", _accepted(number("accepted_tokens"), number("drafted_tokens"))))
    return rows


def _rate(tokens: float, seconds: float) -> str:
    return f", {tokens / seconds:.1f} a second of work" if seconds > 0 else ""


def _accepted(accepted: float, drafted: float) -> str:
    return f"{accepted:.0f} of {drafted:.0f} drafted tokens accepted ({accepted / drafted:.0%})"


# Texts.


def result_card(result: Completion) -> str:
    """Return the card of a result: its text, and the facts about it."""
    facts = footer(result_facts(result))
    if not isinstance(result, ChatResult):
        return frame("", parts_html([("text", result.text)], is_markdown=False), facts)
    parts = message_parts(result.message)
    for message in reversed(result.rounds):
        parts = message_parts(message) + parts
    return frame("", parts_html(parts, is_markdown=True), facts)


def result_facts(result: Completion) -> list[str]:
    """Return what is told below a text."""
    usage, timings, spec = result.usage, result.timings, result.spec
    facts = [
        f"{usage.prompt_tokens} prompt tokens ({usage.cached_tokens} cached)",
        f"{usage.completion_tokens} generated",
        f"first after {timings.ttft_s * 1e3:.0f} ms",
    ]
    if timings.decode_tps:
        facts.append(f"{timings.decode_tps:.1f} tokens/s")
    if spec.drafted:
        facts.append(f"{spec.drafter}: {_accepted(spec.accepted, spec.drafted)}")
    return [*facts, result.finish_reason]


def parts_html(parts: Iterable[Part], *, is_markdown: bool) -> str:
    """Return the parts of an answer in their order: reasoning folded, calls and results in lines.

    Text of the kind ``tool_call`` is the call in a line.
    """
    show = {
        "text": lambda text: (markdown if is_markdown else plain)(_clip(text)),
        "reasoning": lambda text: folded(f"reasoning, {len(text)} characters", plain(_clip(text))),
        "tool_call": lambda text: f'<div style="{PRE}"><code>→ {html.escape(text)}</code></div>',
        "tool_result": lambda text: (
            f'<div style="{PRE};{_FAINT}"><code>← {html.escape(_clip(text))}</code></div>'
        ),
    }
    return "".join(show[kind](text) for kind, text in parts if text.strip())


def _clip(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}\n… {len(text) - _MAX_TEXT} more characters"


# Sessions.


def session_card(title: str, messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the card of a conversation: its newest messages."""
    left_out = max(len(messages) - _MAX_MESSAGES, 0)
    rows = [
        (html.escape(str(message["role"])), parts_html(message_parts(message), is_markdown=True))
        for message in messages[left_out:]
    ]
    before = footer([f"{left_out} messages before"]) if left_out else ""
    return frame(title, before, grid(rows))


def message_parts(message: Mapping[str, Any]) -> list[Part]:
    """Return the parts of a message, whatever it holds."""
    content = message.get("content") or ""
    kind = "tool_result" if message.get("role") == "tool" else "text"
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    parts = [("reasoning", str(message.get("reasoning_content") or "")), (kind, text)]
    for call in message.get("tool_calls") or ():
        function = call.get("function", call)
        arguments = function.get("arguments")
        named = arguments if isinstance(arguments, dict) else {"arguments": arguments}
        parts.append(("tool_call", call_line(ToolCall(str(function.get("name")), named))))
    return parts
