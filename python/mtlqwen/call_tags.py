"""The tags that models write around reasoning and calls, and what an unfinished text may become.

In the texts here a mark (a token of its own) is a sign that no text holds, so that the same
characters written as text stay text.
"""

from __future__ import annotations

import re

# Surrogates: what is decoded from tokens never has them.
OPEN, CLOSE, THINK, END_THINK = "\ud800", "\ud801", "\ud802", "\ud803"
SIGNS = {"<tool_call>": OPEN, "</tool_call>": CLOSE, "<think>": THINK, "</think>": END_THINK}
MARK_SIGNS = frozenset(SIGNS.values())
END_FUNCTION, END_PARAMETER = "</function>", "</parameter>"

# Names are bounded, so that an unfinished tag is.
FUNCTION = re.compile(r"<function=([^<>\n]{1,256})>")
TAG = re.compile(
    rf"[{OPEN}{CLOSE}{THINK}{END_THINK}]|{END_FUNCTION}|{END_PARAMETER}"
    r"|<function=(?P<function>[^<>\n]{1,256})>|<parameter=(?P<parameter>[^<>\n]{1,256})>"
)
_UNFINISHED = re.compile(r"<(?:function|parameter)=[^<>\n]{0,256}")
_STARTS = (END_FUNCTION, END_PARAMETER, "<function=", "<parameter=")
_BEFORE_HEAD = re.compile(rf"[\s{OPEN}]{{1,256}}")
_JSON_HEAD = re.compile(r'\{\s{0,64}"name"\s{0,64}:')
_JSON_UNFINISHED = re.compile(r'\{\s{0,64}(?:"(?:n(?:a(?:m(?:e(?:"\s{0,64})?)?)?)?)?)?')


def literal(text: str) -> str:
    """Return ``text`` with its signs as the marks they stand for."""
    if text.isascii():
        return text
    for mark, sign in SIGNS.items():
        text = text.replace(sign, mark)
    return text


def unfinished_tag(text: str, start: int) -> int:
    """Return how many characters at the end of ``text``, from ``start`` on, may begin a tag."""
    at = text.rfind("<", start)
    return len(text) - at if at >= 0 and _may_become_tag(text[at:]) else 0


def begins_tag(text: str, at: int) -> str | None:
    """Return the tag at a position, or what stands there instead of one; None: not to be told."""
    found = TAG.match(text, at)
    if found:
        return found[0]
    rest = text[at : at + 300]
    return None if not rest or (at + len(rest) == len(text) and _may_become_tag(rest)) else rest[0]


def call_head(text: str, at: int) -> int | None:
    """Return where the function or the JSON of a call begins whose ``<tool_call>`` is at ``at``.

    -1: no call begins there; None: what follows will tell.
    """
    before = _BEFORE_HEAD.match(text, at)
    end = before.end() if before else at
    if FUNCTION.match(text, end) or _JSON_HEAD.match(text, end):
        return end
    rest = text[end : end + 300]
    whole = end + len(rest) == len(text)
    if whole and (not rest or _JSON_UNFINISHED.fullmatch(rest)):
        return None
    if whole and ("<function=".startswith(rest) or _unfinished_function(rest)):
        return None
    return -1


def _unfinished_function(text: str) -> bool:
    return text.startswith("<function=") and bool(_UNFINISHED.fullmatch(text))


def _may_become_tag(text: str) -> bool:
    return any(tag.startswith(text) for tag in _STARTS) or bool(_UNFINISHED.fullmatch(text))
