"""Tokens of preprocessed MSL: what the rewriter works on.

Knows lexical structure and where declarations begin and end, but no types.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"(?P<space>[^\S\n]+|\n)"
    r"|(?P<string>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)"
    r"|(?P<mark>::|->|<<=|>>=|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|.)"
)
_LINE_MARKER = re.compile(r'#\s*(?:line\s+)?(\d+)\s+"((?:\\.|[^"\\])*)"')


class MslError(Exception):
    """A kernel file breaks a rule; the message begins with file:line."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `text` of all tokens joined is the file."""

    text: str
    kind: str  # space, directive, string, word, number, mark
    file: str
    line: int

    @property
    def blank(self) -> bool:
        """True for what the compiler does not see as code."""
        return self.kind in ("space", "directive")

    def error(self, what: str) -> MslError:
        """Return an error that points here."""
        return MslError(f"{self.file}:{self.line}: {what}")


def tokenize(text: str, file: str) -> list[Token]:
    """Split preprocessed text, following its line markers."""
    tokens: list[Token] = []
    line = 1
    for row in text.splitlines(keepends=True):
        if row.lstrip().startswith("#"):
            marker = _LINE_MARKER.match(row.lstrip())
            if marker:
                tokens.append(Token(row, "directive", file, line))
                line, file = int(marker[1]), marker[2]
                continue
            # Options of Apple's compiler mean nothing to ours.
            kept = "\n" if re.match(r"\s*#\s*pragma\s+METAL\b", row) else row
            tokens.append(Token(kept, "directive", file, line))
        else:
            tokens.extend(
                Token(match[0], match.lastgroup or "mark", file, line)
                for match in _TOKEN.finditer(row)
            )
        line += 1
    return tokens


def code(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens that are code."""
    return [token for token in tokens if not token.blank]


def text_of(tokens: Sequence[Token]) -> str:
    """Join tokens, keeping every line break, so that later lines keep their numbers."""
    return "".join(token.text for token in tokens)


def blanks(tokens: Sequence[Token]) -> str:
    """Return the line breaks and directives of `tokens`: what must stay where code is cut out."""
    return "".join(
        token.text for token in tokens if token.kind == "directive" or token.text == "\n"
    )


def next_code(tokens: Sequence[Token], index: int) -> int:
    """Return the index of the first code token at or after `index`, or len(tokens)."""
    while index < len(tokens) and tokens[index].blank:
        index += 1
    return index


_CLOSING = {"(": ")", "[": "]", "{": "}"}
_TYPE_WORDS = ("struct", "class", "union", "enum")


def matching(tokens: Sequence[Token], index: int) -> int:
    """Return the index of the bracket that closes the one at `index`."""
    stack: list[str] = []
    for at in range(index, len(tokens)):
        token = tokens[at]
        if token.kind != "mark":
            continue
        if token.text in _CLOSING:
            stack.append(_CLOSING[token.text])
        elif stack and token.text == stack[-1]:
            stack.pop()
            if not stack:
                return at
    raise tokens[index].error(f"'{tokens[index].text}' is never closed")


def split_commas(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split at the commas outside brackets, angle brackets included."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        if token.kind == "mark":
            if token.text in "([{<":
                depth += 1
            elif token.text in ")]}>":
                depth -= 1
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if code(part)]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One `[[name(argument)]]`."""

    name: str
    argument: str
    token: Token


def take_attributes(tokens: Sequence[Token]) -> tuple[list[Attribute], list[Token]]:
    """Return the attributes of `tokens`, and the tokens without them."""
    attributes: list[Attribute] = []
    rest: list[Token] = []
    index = 0
    while index < len(tokens):
        follower = next_code(tokens, index + 1)
        starts = tokens[index].text == "[" and follower < len(tokens)
        if not (starts and tokens[follower].text == "["):
            rest.append(tokens[index])
            index += 1
            continue
        end = matching(tokens, index)
        inside = code(tokens[follower + 1 : matching(tokens, follower)])
        for item in split_commas(inside):
            argument = text_of(item[2:-1]) if len(item) > 2 else ""
            attributes.append(Attribute(item[0].text, argument, item[0]))
        rest.extend(token for token in tokens[index : end + 1] if token.blank)
        index = end + 1
    return attributes, rest


@dataclass(frozen=True, slots=True)
class Declaration:
    """A declaration of namespace scope: `tokens[begin:end]` of the file."""

    tokens: list[Token]
    kind: str  # function, type, other
    name: str


def split_declarations(tokens: Sequence[Token]) -> list[Declaration | Token]:
    """Split a file into its declarations and the tokens between them (blanks, namespace braces)."""
    items: list[Declaration | Token] = []
    index = 0
    while index < len(tokens):
        if tokens[index].blank or tokens[index].text in ("}", ";"):
            items.append(tokens[index])
            index += 1
            continue
        end, opens_namespace = _declaration_end(tokens, index)
        part = list(tokens[index:end])
        if opens_namespace:
            items.extend(part)
        else:
            items.append(_classify(part))
        index = end
    return items


def _declaration_end(tokens: Sequence[Token], begin: int) -> tuple[int, bool]:
    index = _after_prefix(tokens, begin)
    if index < len(tokens) and tokens[index].text in ("namespace", "extern"):
        brace = _namespace_brace(tokens, index)
        if brace:
            return brace + 1, True
    is_type = index < len(tokens) and tokens[index].text in _TYPE_WORDS
    assigned = False
    while index < len(tokens):
        word = tokens[index].text
        if word == ";":
            return index + 1, False
        if word == "=":
            assigned = True
        elif word in ("(", "["):
            index = matching(tokens, index)
        elif word == "{":
            index = matching(tokens, index)
            if not assigned and not is_type:
                return index + 1, False
        index += 1
    raise tokens[begin].error("a declaration is never finished")


def _after_prefix(tokens: Sequence[Token], index: int) -> int:
    """Skip `template <...>` and attributes."""
    while index < len(tokens):
        if tokens[index].text == "template":
            index = _after_template_list(tokens, next_code(tokens, index + 1))
        elif tokens[index].text == "[":
            index = matching(tokens, index) + 1
        elif not tokens[index].blank:
            break
        else:
            index += 1
    return index


def _namespace_brace(tokens: Sequence[Token], index: int) -> int:
    """Return the index of the `{` of a namespace or extern "C" block, else 0."""
    while tokens[index].text not in (";", "=", "("):
        if tokens[index].text == "{":
            return index
        index += 1
        if index == len(tokens):
            break
    return 0


def _after_template_list(tokens: Sequence[Token], index: int) -> int:
    """Skip `<...>`, if there is one."""
    if index >= len(tokens) or tokens[index].text != "<":
        return index
    depth = 0
    while index < len(tokens):
        if tokens[index].text in ("(", "["):
            index = matching(tokens, index)
        elif tokens[index].text == "<":
            depth += 1
        elif tokens[index].text == ">":
            depth -= 1
            if depth == 0:
                return index + 1
        index += 1
    raise tokens[-1].error("a template parameter list is never closed")


def _classify(tokens: list[Token]) -> Declaration:
    _, rest = take_attributes(tokens)
    words = code(rest)
    begin = _after_prefix(words, 0)
    if words[begin].text in _TYPE_WORDS:
        names = [t.text for t in words[begin + 1 :] if t.kind == "word"]
        return Declaration(tokens, "type", names[0] if names else "")
    if any(word.text == "operator" for word in words):
        return Declaration(tokens, "function", "operator")
    for at in range(begin, len(words) - 1):
        if words[at + 1].text in ("=", ";"):
            break
        if words[at].kind == "word" and words[at + 1].text == "(":
            return Declaration(tokens, "function", words[at].text)
    names = [t.text for t in words[begin:] if t.kind == "word"]
    return Declaration(tokens, "other", names[-1] if names else "")
