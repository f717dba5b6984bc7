"""Markdown of a model as HTML that can do no harm: no tags of its own, no picture from elsewhere.

Uses markdown-it-py where it is installed (the extra ``notebook``), else shows the text as it is.
"""

from __future__ import annotations

import functools
import html
from collections.abc import Callable
from typing import TypeAlias

Render: TypeAlias = Callable[[str], str]

PRE = "white-space:pre-wrap;overflow-wrap:anywhere"


def plain(text: str) -> str:
    """Return a text as it is: its line breaks kept, its tags shown."""
    return f'<div style="{PRE}">{html.escape(text)}</div>'


def markdown(text: str) -> str:
    """Return Markdown as HTML."""
    return f'<div style="overflow-wrap:anywhere;overflow-x:auto">{_renderer()(text)}</div>'


@functools.cache
def _renderer() -> Render:
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        return plain
    # An address in the text of a model may carry what it has read: nothing is loaded from it, and
    # a link is followed by a click alone.
    reader = MarkdownIt("js-default", {"html": False, "linkify": False, "breaks": True})
    reader.disable("image")
    styles = {
        "link_open": "color:inherit;text-decoration:underline",  # a page's blue may be too dark
        "paragraph_open": "margin:.3em 0",
    }

    def render(text: str) -> str:
        tokens = reader.parse(text)
        for token in tokens:
            for one in (token, *(token.children or ())):
                if one.type in styles:
                    one.attrSet("style", styles[one.type])
                if one.type == "link_open":
                    one.attrSet("rel", "noreferrer noopener")
        rendered: str = reader.renderer.render(tokens, reader.options, {})
        return rendered

    return render
