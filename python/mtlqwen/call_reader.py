"""Reads tool calls while they come: functions, arguments, values that hold tags themselves.

Knows nothing of the text around calls.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from mtlqwen.call_tags import (
    CLOSE,
    END_FUNCTION,
    END_PARAMETER,
    END_THINK,
    FUNCTION,
    MARK_SIGNS,
    OPEN,
    TAG,
    THINK,
    begins_tag,
    call_head,
    literal,
    unfinished_tag,
)
from mtlqwen.result import Kind, ToolCall
from mtlqwen.tool_calls import CallTypes, json_call

_SPACE = re.compile(r"\s{0,256}")
_EXTRA_ENDS = re.compile(rf"(?:\s{{0,16}}(?:{END_FUNCTION}|{END_PARAMETER})){{0,16}}")
_IDENTIFIER = re.compile(r"[\w.:-]{1,64}")
_JSON_END = re.compile(f"[{CLOSE}{OPEN}{END_THINK}]")
_JSON_TRIES = 8  # ends of a call that its JSON may hold as text


@dataclass(frozen=True, slots=True)
class Part:
    """A run of text of one kind, and the call that it completes.

    ``starts`` says that something else stood before it.
    """

    kind: Kind
    text: str
    call: ToolCall | None = None
    starts: bool = False


class CallReader(ABC):
    """The half of `parts.PartReader` that reads calls; they share the text that waits."""

    def __init__(self, kind: Kind, types: CallTypes) -> None:
        """Begin inside a text of ``kind``; ``types`` are the tools that may be called."""
        self._outside: Kind = kind
        self._types = types
        self._state: Callable[[bool], bool]
        self._buffer = ""
        self._at = 0  # what stands before it in the buffer has been read
        self._parts: list[Part] = []
        self._scanned = 0  # of a part that waits as a whole, what has been looked at
        self._tries = 0
        # The call that is being read.
        self._name: str | None = None
        self._pairs: list[tuple[str, str]] = []
        self._key = ""
        self._value: list[str] = []
        self._depth = 0  # functions that the value has begun itself
        # Where a call may have ended, or another begun, without its value having been ended. What
        # follows tells; it waits in the buffer until then.
        self._doubt = -1
        self._doubted_value = 0
        self._all_come = False  # doubts are over: nothing follows

    def _begin_call(self, at: int) -> None:
        self._parts.append(Part("tool_call", "", starts=True))
        self._at = self._scanned = at
        self._tries = 0
        self._state = self._read_json if self._buffer.startswith("{", at) else self._read_function

    def _complete(self, text: str = "") -> None:
        """Give out the call that has been read, with the last of its text."""
        call = None if self._name is None else self._types.call(self._name, self._pairs)
        self._name, self._pairs = None, []
        if text or call:
            self._parts.append(Part("tool_call", text, call))

    @abstractmethod
    def _end_call(self) -> bool:
        """Complete the call, and go on with the text outside."""

    def _next_tag(self, final: bool) -> tuple[int, re.Match[str] | None]:
        """Return where the text before the next tag ends, and the tag."""
        found = TAG.search(self._buffer, self._at)
        if found:
            return found.start(), found
        end = len(self._buffer)
        return end - (0 if final else unfinished_tag(self._buffer, self._at)), None

    def _read_function(self, final: bool) -> bool:
        """Read between the arguments of a call."""
        end, found = self._next_tag(final)
        self._show(end)
        if not found:
            return False
        tag = found[0]
        if tag == END_FUNCTION:
            return self._end_function(found.end(), final)
        if tag in MARK_SIGNS:
            self._at += tag == CLOSE
            return self._end_call()
        if found["function"]:
            self._complete()
            self._name = found["function"]
        self._show(found.end())
        if found["parameter"] and self._name is not None:
            self._key, self._value, self._depth = found["parameter"], [], 0
            self._state = self._read_value
        return True

    def _show(self, end: int) -> None:
        """Give out the text of a call up to ``end``."""
        text = literal(self._buffer[self._at : end])
        self._at = end
        if text:
            self._parts.append(Part("tool_call", text))

    def _end_function(self, end: int, final: bool) -> bool:
        """Read the end of a function: another one may follow before the call ends."""
        extra = _EXTRA_ENDS.match(self._buffer, end)
        space = _SPACE.match(self._buffer, extra.end() if extra else end)
        assert extra
        assert space
        if not final and begins_tag(self._buffer, space.end()) is None:
            return False
        self._complete(END_FUNCTION)
        self._at = extra.end()
        if self._buffer.startswith(CLOSE, space.end()):
            self._at = space.end() + 1
        elif FUNCTION.match(self._buffer, space.end()):
            return True
        return self._end_call()

    def _read_value(self, final: bool) -> bool:
        """Read the value of an argument, which may hold tags itself."""
        end, found = self._next_tag(final)
        self._take(end)
        if not found:
            return False
        tag = found[0]
        if tag in MARK_SIGNS:
            return self._mark_in_value(tag, final)
        if tag == END_PARAMETER and not self._depth:
            ends = self._value_ends(found.end(), final)
            if ends:
                self._keep_doubted()
                self._end_value()
                self._show(found.end())
                return True
        elif tag == END_FUNCTION and not self._depth:
            ends = self._function_follows(found.end(), final)
        else:
            self._depth += _deeper(found)
            ends = bool(found["parameter"]) and self._argument_follows(found["parameter"])
        if ends:
            return self._end_value()
        if ends is None:
            return False
        self._take(found.end())
        return True

    def _take(self, end: int) -> None:
        """Add the text up to ``end`` to the value."""
        if end > self._at:
            self._value.append(literal(self._buffer[self._at : end]))
            if self._doubt >= 0:
                self._at = end
            else:
                self._show(end)

    def _value_ends(self, at: int, final: bool) -> bool | None:
        """Whether a closing tag ends the value: only if what may follow one does; None: unknown."""
        space = _SPACE.match(self._buffer, at)
        assert space
        tag = begins_tag(self._buffer, space.end())
        if tag is None:
            return True if final else None
        if tag == OPEN:
            head = call_head(self._buffer, space.end())
            return (True if final else None) if head is None else head >= 0
        function = FUNCTION.fullmatch(tag)
        if function:
            return self._types.known(function[1])
        return tag.startswith("<parameter=") or tag in (END_FUNCTION, CLOSE, THINK, END_THINK)

    def _function_follows(self, at: int, final: bool) -> bool | None:
        """Whether a known function begins at ``at``; None: unknown."""
        space = _SPACE.match(self._buffer, at)
        assert space
        tag = begins_tag(self._buffer, space.end())
        if tag is None:
            return False if final else None
        found = FUNCTION.fullmatch(tag)
        return bool(found) and self._doubt < 0 and self._types.known(found[1] if found else "")

    def _argument_follows(self, key: str) -> bool:
        """Whether a tag begins the next argument, and the one before it was not ended."""
        if self._depth or self._doubt >= 0 or not (self._value and self._value[-1].endswith("\n")):
            return False
        given = {self._key, *(name for name, _ in self._pairs)}
        return key not in given and key in self._types.properties(self._name or "")

    def _mark_in_value(self, mark: str, final: bool) -> bool:
        """Read a mark inside a value: text of it, unless the call has ended without a tag."""
        closed = self._doubt >= 0 and self._buffer[self._doubt] == CLOSE
        if mark == OPEN:
            head = call_head(self._buffer, self._at)
            if head is None and not final:
                return False
            begins = head is not None and head >= 0
            if begins and (closed or self._all_come):
                return self._leave_value()
            if begins:
                self._begin_doubt()
        elif mark == CLOSE:
            self._depth = 0
            if self._all_come:
                return self._leave_value()
            self._begin_doubt()
        elif mark == END_THINK and closed and self._outside == "reasoning":
            return self._leave_value()
        self._take(self._at + 1)
        return True

    def _begin_doubt(self) -> None:
        if self._doubt < 0:
            self._doubt, self._doubted_value = self._at, len(self._value)

    def _keep_doubted(self) -> None:
        """What waited was the value's own text."""
        if self._doubt >= 0:
            end, self._at, self._doubt = self._at, self._doubt, -1
            self._show(end)

    def _leave_value(self) -> bool:
        """End a call whose value was not ended, where doubts began, or here."""
        if self._doubt >= 0:
            self._at, self._doubt = self._doubt, -1
            del self._value[self._doubted_value :]
        self._end_value(True)
        self._at += self._buffer.startswith(CLOSE, self._at)
        return self._end_call()

    def _end_value(self, cut: bool = False) -> bool:
        """Add the argument; one newline on each side of its value belongs to the tags.

        One that was cut off may hold closing tags, which nothing followed.
        """
        text = "".join(self._value)
        if cut:
            for tag in (END_FUNCTION, END_PARAMETER):
                if text.rstrip().endswith(tag):
                    text = text.rstrip().removesuffix(tag)
            text = text[: len(text) - unfinished_tag(text, max(len(text) - len(END_PARAMETER), 0))]
        self._pairs.append((self._key, text.removeprefix("\n").removesuffix("\n")))
        self._state = self._read_function
        return True

    def _read_json(self, final: bool) -> bool:
        """Read a call that is a JSON object; it waits until it is whole."""
        while (end := self._buffer.find(CLOSE, self._scanned)) >= 0:
            call = json_call(literal(self._buffer[self._at : end]))
            self._scanned, self._tries = end + 1, self._tries + 1
            if call:
                return self._end_json(end, call)
            if self._tries == _JSON_TRIES:
                break
        else:
            end = -1
        if not final and end < 0:
            return False
        found = _JSON_END.search(self._buffer, self._at)
        end = found.start() if found else len(self._buffer)
        return self._end_json(end, json_call(literal(self._buffer[self._at : end])))

    def _end_json(self, end: int, call: ToolCall | None) -> bool:
        """Give out a call in JSON; a broken one has a name, and no arguments."""
        text = literal(self._buffer[self._at : end])
        name = re.match(r'\{\s*"name"\s*:\s*"([^"\n]{1,256})"', text)
        self._parts.append(
            Part("tool_call", text, call or (ToolCall(name[1], {}) if name else None))
        )
        self._at = end + self._buffer.startswith(CLOSE, end)
        return self._end_call()

    def _end_of_text(self) -> None:
        """End the call that is being read: nothing more will come."""
        self._all_come = True
        if self._state == self._read_value:
            self._leave_value()
        else:
            self._end_call()


def _deeper(tag: re.Match[str]) -> int:
    """Return how much deeper a tag leads into functions that a value writes about."""
    if tag[0] == END_FUNCTION:
        return -1
    return int(bool(tag["function"]) and bool(_IDENTIFIER.fullmatch(tag["function"])))
