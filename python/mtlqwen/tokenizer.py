"""Text to token ids and back: byte-level BPE from a tokenizer.json or from a GGUF's arrays.

The `tokenizers` library gets the plain BPE only. Added tokens (``<|im_end|>``, ``<think>``, ...)
are matched here, before it: so a caller decides which part of a text may contain them.
Knows nothing of chats and templates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category

from mtlqwen.errors import FormatError, ModelError

if TYPE_CHECKING:
    import tokenizers

# The pre-tokenizer of Qwen 3.5; its mark \p{M} joins letters, which Qwen 2 and 3 did not do.
_QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _QWEN35.replace(r"[\p{L}\p{M}]", r"\p{L}").replace(r"\p{M}", "")
PATTERNS = {"qwen35": _QWEN35, "qwen2": _QWEN2}

# tokenizer.ggml.token_type of a GGUF file
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5
_CHARS = range(0x110000)
_MAX_ADDED = 4096  # Qwen has 33; a hostile file may not make the matcher huge


@dataclass(frozen=True, slots=True)
class AddedToken:
    """A token that matches its literal text as a whole, outside of BPE.

    Attributes:
        literal: the text.
        token_id: its id.
        control: it steers the model and never shows in text (``<|im_end|>``; not ``<think>``).
        before: a regular expression for what it swallows or wants on its left.
        after: the same for its right.
    """

    literal: str
    token_id: int
    control: bool
    before: str = ""
    after: str = ""


class Tokenizer:
    """Encodes and decodes the text of one model.

    Example:
        >>> from mtlqwen import Engine
        >>> with Engine("tiny") as engine:
        ...     engine.tokenizer.decode(engine.tokenizer.encode("Hello, world"))
        'Hello, world'
    """

    def __init__(self, bpe: tokenizers.Tokenizer, added: Iterable[AddedToken]) -> None:
        """Wrap a BPE without added tokens, and the added tokens beside it."""
        self._bpe = bpe
        self.added: dict[str, AddedToken] = {token.literal: token for token in added}
        self._added_by_id = {token.token_id: token for token in self.added.values()}
        self._special = _alternation(self.added.values())
        self._bytes: dict[int, bytes] = {}
        self._to_byte = _unicode_to_byte()

    def encode(self, text: str, *, plain: bool = False) -> list[int]:
        """Return the token ids of ``text``.

        Args:
            text: what to encode.
            plain: whether literals of added tokens (``<|im_end|>``, ``<think>``) stay text: for
                what users wrote, between parts that a program wrote. Otherwise they become those
                tokens. The messages of a chat are always plain.
        """
        return self._encode_run(text) if plain else self.encode_parts(text, lambda run: run)

    def encode_parts(self, text: str, restore: Callable[[str], str]) -> list[int]:
        """Encode ``text`` whose runs between added tokens go through ``restore`` first.

        What ``restore`` brings back is plain text, whatever it looks like.
        """
        ids: list[int] = []
        start = 0
        for match in self._special.finditer(text):
            ids += self._encode_run(restore(text[start : match.start()]))
            ids.append(self.added[match.group(match.lastindex or 0)].token_id)
            start = match.end()
        return ids + self._encode_run(restore(text[start:]))

    def decode(self, token_ids: Iterable[int]) -> str:
        """Return the text of ``token_ids``, without control tokens; bad UTF-8 becomes U+FFFD."""
        return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes that a token adds to a text: none for control and padding tokens."""
        data = self._bytes.get(token_id)
        if data is None:
            data = self._bytes[token_id] = self._make_bytes(token_id)
        return data

    def token_text(self, token_id: int) -> str:
        """Return how a token reads: the literal of an added one, else its bytes as text.

        Bytes that are no whole characters become U+FFFD.
        """
        added = self._added_by_id.get(token_id)
        return added.literal if added else self.token_bytes(token_id).decode("utf-8", "replace")

    def token_id(self, literal: str) -> int | None:
        """Return the id of the added token that reads ``literal``, if there is one."""
        token = self.added.get(literal)
        return token.token_id if token else None

    def plain_json(self) -> str:
        """Return the BPE as a tokenizer.json without added tokens."""
        return str(self._bpe.to_str())

    def _encode_run(self, text: str) -> list[int]:
        if not text:
            return []
        try:
            ids: list[int] = self._bpe.encode(text, add_special_tokens=False).ids
        except (TypeError, UnicodeEncodeError):  # what the library makes of a lone surrogate
            raise ValueError("[tokenizer] text: not valid Unicode (a lone surrogate)") from None
        except Exception as error:  # the library raises bare Exception
            raise FormatError(f"[tokenizer] text: its file cannot encode it ({error})") from error
        return ids

    def _make_bytes(self, token_id: int) -> bytes:
        added = self._added_by_id.get(token_id)
        if added:
            return b"" if added.control else added.literal.encode()
        token = self._bpe.id_to_token(token_id)
        if token is None:
            return b""
        try:
            return bytes(self._to_byte[char] for char in token)
        except KeyError:
            return str(token).encode()

    @classmethod
    def from_json(cls, path: Path) -> Tokenizer:
        """Read a tokenizer.json.

        Raises:
            FormatError: it is not one.
        """
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if (kind := data["model"].get("type", "BPE")) != "BPE":
                raise ValueError(f"a model of type {kind!r}, want 'BPE'")
            items = data.pop("added_tokens", [])
            added = [_added_from_json(item) for item in items if item["content"] != ""]
            if len(added) > _MAX_ADDED:
                raise ValueError(f"{len(added)} added tokens, want at most {_MAX_ADDED}")
            ours: dict[str, Any] = {"added_tokens": [], "post_processor": None, "decoder": None}
            bpe = _parse(json.dumps(data | ours))
        except (
            OSError,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
        ) as error:
            raise FormatError(f"[tokenizer] {path}: not a tokenizer.json ({error})") from error
        return cls(bpe, added)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], name: str = "metadata") -> Tokenizer:
        """Build the tokenizer that a GGUF file's metadata describes.

        Args:
            metadata: the file's key-value pairs.
            name: the file, for messages.

        Raises:
            ModelError: a tokenizer that is not Qwen's.
            FormatError: its arrays contradict each other.
        """
        model, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
        if model != "gpt2" or not isinstance(pre, str) or pre not in PATTERNS:
            want = " or ".join(f"gpt2/{key}" for key in PATTERNS)
            raise ModelError(f"[tokenizer] {name}: not a Qwen's (got {model}/{pre}, want {want})")
        tokens = _strings(metadata, "tokenizer.ggml.tokens", name)
        merges = _strings(metadata, "tokenizer.ggml.merges", name)
        types = metadata.get("tokenizer.ggml.token_type")
        if not isinstance(types, list) or len(types) != len(tokens):
            got = len(types) if isinstance(types, list) else types
            raise FormatError(
                f"[tokenizer] {name}: tokenizer.ggml.token_type does not fit the tokens "
                f"(got {got}, want {len(tokens)})"
            )
        outside = (CONTROL, USER_DEFINED, UNUSED)
        typed = list(enumerate(zip(tokens, types, strict=True)))
        vocab = {token: i for i, (token, kind) in typed if kind not in outside}
        added = [
            AddedToken(token, i, kind == CONTROL)
            for i, (token, kind) in typed
            if kind in (CONTROL, USER_DEFINED) and token
        ]
        if len(added) > _MAX_ADDED:
            raise FormatError(
                f"[tokenizer] {name}: too many control tokens (got {len(added)}, want at most "
                f"{_MAX_ADDED})"
            )
        return cls(_build(vocab, merges, PATTERNS[pre], name), added)


def _parse(text: str) -> tokenizers.Tokenizer:
    import tokenizers

    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exception
        raise ValueError(str(error)) from error


def _build(
    vocab: dict[str, int], merges: list[str], pattern: str, name: str
) -> tokenizers.Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    pairs = [tuple(merge.split(" ")) for merge in merges]
    try:
        bpe = Tokenizer(models.BPE(vocab, pairs))  # type: ignore[arg-type]
    except Exception as error:  # the library raises bare Exception
        raise FormatError(f"[tokenizer] {name}: merges do not fit the tokens ({error})") from error
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    return bpe


def _strings(metadata: Mapping[str, Any], key: str, name: str) -> list[str]:
    value = metadata.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise FormatError(f"[tokenizer] {name}: {key} is missing or no list of strings")
    return value


def _added_from_json(item: dict[str, Any]) -> AddedToken:
    before, after = r"\s*" if item.get("lstrip") else "", r"\s*" if item.get("rstrip") else ""
    if item.get("single_word"):
        before, after = f"{before}(?<!{_word_class()})", f"(?!{_word_class()}){after}"
    literal, token_id = item["content"], item["id"]
    if not isinstance(literal, str) or type(token_id) is not int or not 0 <= token_id < 2**31:
        raise TypeError(f"an added token with content {literal!r} and id {token_id!r}")
    return AddedToken(literal, token_id, bool(item.get("special")), before, after)


@cache
def _word_class() -> str:
    """Return the characters of words as the library sees them: to Python, marks are none."""
    # Circled letters are symbols to unicodedata; both joiners are formats.
    more = {*range(0x24B6, 0x24EA), 0x200C, 0x200D}
    more |= {first + i for first in (0x1F130, 0x1F150, 0x1F170) for i in range(26)}
    kinds = ("L", "M", "Nd", "Nl", "Pc")
    marked = [i in more or category(chr(i)).startswith(kinds) for i in _CHARS]
    runs = ((kind, [i for i, _ in run]) for kind, run in groupby(enumerate(marked), itemgetter(1)))
    ranges = (rf"\U{run[0]:08x}-\U{run[-1]:08x}" for is_word, run in runs if is_word)
    return f"[{''.join(ranges)}]"


def _alternation(tokens: Iterable[AddedToken]) -> re.Pattern[str]:
    """Return the pattern that finds added tokens, longest first; one group holds the literal."""
    ordered = sorted(tokens, key=lambda token: len(token.literal), reverse=True)
    if not ordered:
        return re.compile(r"(?!)")
    if any(token.before or token.after for token in ordered):
        parts = (f"{t.before}({re.escape(t.literal)}){t.after}" for t in ordered)
        return re.compile("|".join(parts))
    # One group: their common first character then makes the search fast.
    return re.compile("(" + "|".join(re.escape(token.literal) for token in ordered) + ")")


def _unicode_to_byte() -> dict[str, int]:
    # GPT-2's printable stand-ins: visible Latin-1 stands for itself, the rest from U+0100 on.
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    table = {chr(byte): byte for byte in visible}
    return table | {chr(0x100 + i): byte for i, byte in enumerate(hidden)}
