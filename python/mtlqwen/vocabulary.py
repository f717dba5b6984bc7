"""The tokens of one model as llguidance sees them, and the grammars compiled for them.

Knows token ids and grammars; knows nothing of what they are for.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mtlqwen.errors import ModelError
from mtlqwen.structured import Form, library
from mtlqwen.tokenizer import Tokenizer

if TYPE_CHECKING:
    import llguidance

MAX_CACHED = 64  # grammars; what a lexer has worked out stays with it, some 100 KiB as a rule
_LARK_PIECE = re.compile(
    r'"(?:\\.|[^"\\\n])*"|//[^\n]*|#[^\n]*|/(?:\\.|[^/\\\n])+/|(?P<name><[^<>\s]+>)'
)


class Vocabulary:
    """The tokens of one model, and the grammars compiled for them.

    Made once an engine, at the first text with a form: seconds for 250,000 tokens. Any
    thread may compile; what it returns belongs to one thread at a time.

    Attributes:
        tokens: llguidance's own object.
        words: 32-bit words of a mask.
        stop_ids: the tokens that end a turn: allowed where the text is complete.
    """

    def __init__(self, tokenizer: Tokenizer, size: int, stop_ids: Sequence[int]) -> None:
        """Translate the tokenizer of a model with ``size`` ids; those without a token never come.

        Raises:
            ImportError: llguidance is not installed.
            ModelError: tokenizer and model do not fit, or nothing ends a turn.
        """
        self._tokenizer = tokenizer
        described, n_tokens = _described(tokenizer)
        self.words = (size + 31) // 32
        self.stop_ids = tuple(token_id for token_id in stop_ids if token_id < n_tokens)
        if n_tokens > size or not self.stop_ids:
            want = f"at most {size}, and one that ends a turn"
            raise ModelError(f"[structured] tokenizer: does not fit (got {n_tokens}, want {want})")
        self.tokens = library().LLTokenizer(described, n_vocab=size, eos_token=list(self.stop_ids))
        # Messages without the state of the parser, which holds the text.
        self._limits = library().LLParserLimits(verbose_errors=False)
        self._lock = threading.RLock()  # guards the cache; a signal's handler may come back to it
        self._cache: OrderedDict[str, llguidance.LLMatcher] = OrderedDict()

    def compile(self, form: Form) -> llguidance.LLMatcher:
        """Return a matcher at the beginning of a text.

        All matchers of one grammar share its lexer, which learns as it goes.

        Raises:
            ValueError: llguidance refuses the grammar, or no text can begin.
        """
        with self._lock:
            matcher = self._cache.pop(form.grammar, None)
            if matcher is not None:
                self._cache[form.grammar] = matcher  # as the newest
        if matcher is None:
            matcher = self._make(form)
            with self._lock:
                self._cache[form.grammar] = matcher
                while len(self._cache) > MAX_CACHED:
                    self._cache.popitem(last=False)
        return matcher.deep_copy()

    def forget(self, form: Form) -> None:
        """Drop a grammar whose lexer has failed: its matchers cannot go on."""
        with self._lock:
            self._cache.pop(form.grammar, None)

    def _make(self, form: Form) -> llguidance.LLMatcher:
        grammar = self._numbered(form.grammar) if form.option == "grammar" else form.grammar
        matcher: llguidance.LLMatcher = library().LLMatcher(
            self.tokens, grammar, log_level=0, limits=self._limits
        )
        probe = matcher.deep_copy()
        mask = int.from_bytes(probe.compute_bitmask(), "little")
        for token_id in self.stop_ids:
            mask &= ~(1 << token_id)
        # Proposals are taken back, so every grammar must allow it.
        if not probe.is_error() and mask:
            probe.consume_token((mask & -mask).bit_length() - 1)
            probe.rollback(1)
        if probe.is_error():
            said = " ".join(probe.get_error().removesuffix("<non-verbose/>").split()).strip()
            raise ValueError(
                f"[structured] {form.option}: no grammar can be made of it (got {said}); "
                "leave out or rewrite what it names"
            )
        return matcher

    def _numbered(self, grammar: str) -> str:
        """Return a Lark grammar with the numbers of added tokens in place of their names."""

        def number(piece: re.Match[str]) -> str:
            token_id = self._tokenizer.token_id(piece["name"] or "")
            return piece[0] if token_id is None else f"<[{token_id}]>"

        return _LARK_PIECE.sub(number, grammar)


def _described(tokenizer: Tokenizer) -> tuple[str, int]:
    """Return a tokenizer.json for llguidance, and the number of its ids.

    Forced text is tokenised there, so text must stay text: added tokens get names that nobody can
    write, and nothing is normalised, because the bytes of a grammar are to come as they are.
    """
    data: dict[str, Any] = json.loads(tokenizer.plain_json())
    vocab: dict[str, int] = data["model"]["vocab"]
    secret = secrets.token_hex(8)
    names = {token.token_id: f"<{secret}:{token.token_id}>" for token in tokenizer.added.values()}
    n_tokens = 1 + max(*vocab.values(), *names, 0)
    vocab |= {name: token_id for token_id, name in names.items()}
    held = set(vocab.values())
    # A character that stands for no byte: these ids have no text.
    vocab |= {f"\ufdd0{at}": at for at in range(n_tokens) if at not in held}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": at, "content": name, "special": True, **flags} for at, name in names.items()]
    decoder = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    data |= {"added_tokens": added, "normalizer": None, "decoder": decoder, "post_processor": None}
    return json.dumps(data), n_tokens
