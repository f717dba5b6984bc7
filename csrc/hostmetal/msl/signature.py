"""Kernel signatures: what each parameter is, and what our conventions forbid there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokens import (
    Attribute,
    Declaration,
    Token,
    code,
    matching,
    split_commas,
    take_attributes,
    text_of,
)

MAX_BUFFER_INDEX = 30
MAX_THREADGROUP_SLOTS = 8
MAX_CONSTANTS = 64

BUILTINS = {
    "thread_position_in_grid": "kThreadPositionInGrid",
    "thread_position_in_threadgroup": "kThreadPositionInThreadgroup",
    "thread_index_in_threadgroup": "kThreadIndexInThreadgroup",
    "threadgroup_position_in_grid": "kThreadgroupPositionInGrid",
    "threads_per_grid": "kThreadsPerGrid",
    "threads_per_threadgroup": "kThreadsPerThreadgroup",
    "dispatch_threads_per_threadgroup": "kThreadsPerThreadgroup",
    "threadgroups_per_grid": "kThreadgroupsPerGrid",
    "thread_index_in_simdgroup": "kThreadIndexInSimdgroup",
    "simdgroup_index_in_threadgroup": "kSimdgroupIndexInThreadgroup",
    "threads_per_simdgroup": "kThreadsPerSimdgroup",
    "thread_execution_width": "kThreadsPerSimdgroup",
    "simdgroups_per_threadgroup": "kSimdgroupsPerThreadgroup",
    "dispatch_simdgroups_per_threadgroup": "kSimdgroupsPerThreadgroup",
    "thread_index_in_quadgroup": "kThreadIndexInQuadgroup",
    "quadgroup_index_in_threadgroup": "kQuadgroupIndexInThreadgroup",
}


@dataclass(frozen=True, slots=True)
class Signature:
    """What the parameters of a kernel are."""

    kernel: str
    arguments: list[tuple[str, int]]  # kind of shim/entry.h, index
    parameters: str  # without attributes

    @property
    def buffer_mask(self) -> int:
        """Bit n: there is an argument [[buffer(n)]]."""
        return sum(1 << index for kind, index in self.arguments if kind == "kBuffer")

    @property
    def n_threadgroup_args(self) -> int:
        """Number of dynamic threadgroup arguments."""
        return sum(1 for kind, _ in self.arguments if kind == "kThreadgroup")


def parse_signature(name: Token, tokens: Sequence[Token]) -> Signature:
    """Classify the parameters between the parentheses of a kernel."""
    arguments: list[tuple[str, int]] = []
    texts: list[str] = []
    for parameter in split_commas(tokens):
        attributes, rest = take_attributes(parameter)
        argument = _argument(name.text, attributes, rest)
        if argument[0] in ("kBuffer", "kThreadgroup") and argument in arguments:
            word = "buffer" if argument[0] == "kBuffer" else "threadgroup"
            raise code(parameter)[0].error(f"{word} index {argument[1]} is used twice")
        arguments.append(argument)
        texts.append(text_of(rest))
    return Signature(name.text, arguments, ",".join(texts))


def parameter_list(item: Declaration) -> int:
    """Return the index of the parenthesis that opens a kernel's parameter list."""
    index = 0
    depth = 0
    while index < len(item.tokens):
        text = item.tokens[index].text
        if text == "[":
            index = matching(item.tokens, index)
        elif text == "<":
            depth += 1
        elif text == ">":
            depth -= 1
        elif text == "(" and depth == 0:
            return index
        index += 1
    raise code(item.tokens)[0].error("a kernel without a parameter list")


def explicit_number(attribute: Attribute, what: str, most: int) -> int:
    """Return the index that an attribute states."""
    text = attribute.argument.strip()
    if not text.isdigit():
        raise attribute.token.error(f"{what} needs an explicit number (got '{text}')")
    if int(text) > most:
        raise attribute.token.error(f"{what} index {text} is over {most}")
    return int(text)


def _argument(kernel: str, attributes: list[Attribute], rest: list[Token]) -> tuple[str, int]:
    words = code(rest)
    at = words[0]
    spaces = {"device", "constant", "threadgroup", "thread"} & {w.text for w in words}
    indirect = any(w.text in ("*", "&") for w in words)
    for attribute in attributes:
        if attribute.name == "buffer":
            if not indirect or not spaces & {"device", "constant"}:
                raise at.error("a buffer is a device or constant pointer or reference")
            return "kBuffer", explicit_number(attribute, "buffer", MAX_BUFFER_INDEX)
        if attribute.name == "threadgroup":
            if not indirect or "threadgroup" not in spaces:
                raise at.error("a threadgroup argument is a threadgroup pointer or reference")
            return "kThreadgroup", explicit_number(
                attribute, "threadgroup", MAX_THREADGROUP_SLOTS - 1
            )
        if attribute.name in BUILTINS:
            return BUILTINS[attribute.name], 0
        raise attribute.token.error(f"parameter attribute {attribute.name} is not supported")
    raise at.error(f"a parameter of kernel {kernel} has no attribute ({text_of(words)})")
