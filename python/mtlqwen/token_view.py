"""The tokens of a result, shaded by how likely the model held them. Knows no engine."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING

from mtlqwen.cards import GREEN, ORANGE, Bundle, bundle, footer, frame
from mtlqwen.markdown import PRE

if TYPE_CHECKING:
    from mtlqwen.result import Completion, Speculation, TokenLogprob

_MAX_SHADE = 0.6  # more would hide the text of a dark page
_MAX_TOKENS = 4000  # that are shown; a token takes some 150 bytes


class TokenView:
    """The tokens of a result, as `Completion.token_view` returns it.

    In a notebook: the less likely a token, the stronger its shade; its probability and the
    likeliest tokens in its place appear where the mouse rests on it; a green line marks those that
    were drafted and accepted. Elsewhere its repr has a line for each token.
    """

    def __init__(self, tokens: list[TokenLogprob], spec: Speculation) -> None:
        """Show ``tokens``; ``spec`` tells which were drafted."""
        self._tokens = tokens
        self._spec = spec

    def __repr__(self) -> str:
        """Return a line for each token: ``+`` if it was accepted, its probability, its text."""
        accepted = set(self._spec.positions)
        lines = [
            f"{'+' if at in accepted else ' '} {_percent(token):>6} {token.token!r}"
            for at, token in enumerate(self._tokens[:_MAX_TOKENS])
        ]
        return "\n".join([f"TokenView({len(self._tokens)} tokens)", *lines])

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Bundle:
        return bundle(self, self._card())

    def _card(self) -> str:
        shown = self._tokens[:_MAX_TOKENS]
        accepted = frozenset(self._spec.positions)
        spans = "".join(_span(token, at in accepted) for at, token in enumerate(shown))
        facts = ["the stronger the shade, the less likely", "rest on a token for others"]
        if self._spec.drafted:
            facts.append(
                f"green line: drafted and accepted, {self._spec.accepted} of {self._spec.drafted}"
            )
        if len(shown) < len(self._tokens):
            facts.append(f"{len(self._tokens) - len(shown)} more tokens")
        body = f'<div style="{PRE};line-height:1.9">{spans}</div>'
        return frame(f"{len(self._tokens)} tokens", body, footer(facts))


def token_view(result: Completion) -> TokenView:
    """Return the view of a result that has logprobs.

    Raises:
        ValueError: it has none.
    """
    if result.logprobs is None:
        raise ValueError(
            "[result] token_view: no logprobs in this result (got None); generate it with "
            "logprobs=5, say: the likeliest 5 tokens in each place"
        )
    return TokenView(result.logprobs, result.spec)


def _percent(token: TokenLogprob) -> str:
    return f"{math.exp(token.logprob):.1%}"


def _span(token: TokenLogprob, is_accepted: bool) -> str:
    shade = _MAX_SHADE * (1.0 - math.exp(token.logprob))
    style = f"background:rgba({ORANGE},{shade:.2f})"
    if is_accepted:
        style += f";border-bottom:2px solid {GREEN}"
    lines = [f"{token.token!r} {_percent(token)}"]
    lines += [f"  {other.token!r} {_percent(other)}" for other in token.top]
    title = html.escape("\n".join(lines)).replace("\n", "&#10;")
    text = html.escape(token.token.replace("\n", "↵\n")) or "∅"
    return f'<span style="{style}" title="{title}">{text}</span>'
