"""The text of a chat, cut into answer, reasoning and tool calls while it comes.

Models forget tags, repeat them, and write about them. What a tag means follows from where it
stands, so some text waits until what follows it has come; the parts do not depend on how the text
was cut when it arrived, and all of it is read once or twice. Knows nothing of tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mtlqwen.call_reader import CallReader, Part
from mtlqwen.call_tags import (
    CLOSE,
    END_THINK,
    FUNCTION,
    OPEN,
    THINK,
    call_head,
    literal,
    unfinished_tag,
)
from mtlqwen.code_lines import CodeLines
from mtlqwen.result import Kind, ToolCall
from mtlqwen.tool_calls import CallTypes

_MARK = re.compile(f"[{OPEN}{CLOSE}{THINK}{END_THINK}]")
_MARK_OR_FUNCTION = re.compile(f"{_MARK.pattern}|{FUNCTION.pattern}")


class PartReader(CallReader):
    """Reads one answer."""

    def __init__(self, kind: Kind, types: CallTypes) -> None:
        """Begin inside a text of ``kind``; ``types`` are the tools that may be called."""
        super().__init__(kind, types)
        self._state = self._read_text
        self._code = CodeLines()

    @property
    def kind(self) -> Kind:
        """The kind of text that comes next, as far as is known."""
        outside = self._state in (self._read_text, self._read_quoted)
        return self._outside if outside else "tool_call"

    @property
    def undecided(self) -> bool:
        """Whether text outside of calls waits: what follows tells of what kind it is."""
        return self._state == self._read_text and self._at < len(self._buffer)

    def feed(self, text: str) -> list[Part]:
        """Take more text in, marks as their signs, and return what is certain by now."""
        plain = self._state == self._read_text and self._at == len(self._buffer)
        if plain and "<" not in text and not _MARK.search(text):
            self._code.add(text)
            return [Part(self._outside, text)] if text else []
        self._forget()
        self._buffer += text
        return self._read(False)

    def finish(self) -> list[Part]:
        """Return the rest: nothing more will come."""
        parts = self._read(True)
        while self._state != self._read_text:
            self._end_of_text()
            parts += self._read(True)
        return parts

    def _read(self, final: bool) -> list[Part]:
        while self._state(final):
            pass
        parts, self._parts = self._parts, []
        return parts

    def _forget(self) -> None:
        """Drop what has been read from the buffer."""
        start = self._doubt if self._doubt >= 0 else self._at
        self._buffer = self._buffer[start:]
        self._at -= start
        self._scanned -= start
        self._doubt = min(self._doubt, 0)

    # Text outside of calls.

    def _read_text(self, final: bool) -> bool:
        """Read up to the next mark and what it does; false: no more can be read by now."""
        bare = self._outside == "text" and self._types.any
        found = (_MARK_OR_FUNCTION if bare else _MARK).search(self._buffer, self._at)
        end = len(self._buffer)
        if found:
            end = found.start()
        elif bare and not final:
            end -= unfinished_tag(self._buffer, self._at)
        self._say(end)
        if not found:
            return False
        if found[0] == OPEN:
            return self._open(final)
        if found[0] == THINK:
            return self._think()
        if found[0] in (CLOSE, END_THINK):
            return self._close(found[0], final)
        self._bare_function(found)
        return True

    def _say(self, end: int) -> None:
        """Give out the text up to ``end`` as it is."""
        text = literal(self._buffer[self._at : end])
        self._at = end
        if text:
            self._code.add(text)
            self._parts.append(Part(self._outside, text))

    def _switch(self, kind: Kind) -> bool:
        """Go over to another kind at a mark."""
        self._outside = kind
        self._code = CodeLines()
        self._parts.append(Part(kind, "", starts=True))
        self._at += 1
        return True

    def _think(self) -> bool:
        code = self._code.look()
        if not code.line.strip() and not code.fence:
            return self._switch("reasoning")
        self._say(self._at + 1)
        return True

    def _close(self, mark: str, final: bool) -> bool:
        """Read the end of reasoning, or the end of something that has not begun.

        The latter is dropped where it stands at an end of a line, else it is what is written about.
        """
        code, ends_reasoning = self._code.look(), self._outside == "reasoning" and mark == END_THINK
        before, after = code.line[-1:], self._buffer[self._at + 1 : self._at + 2]
        if ends_reasoning and before not in ("`", '"', "'"):
            return self._switch("text")
        if not after and not final and (ends_reasoning or code.line.strip()):
            return False
        if ends_reasoning:
            quoted = after == before
        else:
            quoted = bool(code.fence or code.inline or (code.line.strip() and after.strip("\n")))
        if quoted:
            self._say(self._at + 1)
        else:
            self._switch("text" if ends_reasoning else self._outside)
        return True

    def _open(self, final: bool) -> bool:
        """Read the beginning of a call, if one follows."""
        head = call_head(self._buffer, self._at)
        if head is None:
            return final and self._cut_call()
        code = self._code.look()
        one_line = "\n" not in self._buffer[self._at : max(head, 0)]
        if head < 0 or (code.inline and one_line and not code.fence):
            self._say(self._at + 1)
        elif code.fence:
            self._state, self._scanned = self._read_quoted, self._at
        else:
            self._begin_call(head)
        return True

    def _cut_call(self) -> bool:
        """Show a call that was cut off before its name."""
        self._parts.append(Part("tool_call", "", starts=True))
        self._show(len(self._buffer))
        return True

    def _bare_function(self, found: re.Match[str]) -> None:
        """Read a call that begins without its mark: of a known function, on a line of its own."""
        code = self._code.look()
        if self._types.known(found[1]) and not code.line.strip() and not code.fence:
            self._begin_call(self._at)
        else:
            self._say(found.end())

    def _read_quoted(self, final: bool) -> bool:
        """Read a call in a code block: text, unless the block stays open and ends with the call.

        It waits in the buffer until that is known.
        """
        ends = "\n" + END_THINK * (self._outside == "reasoning")
        while True:
            found = [at for end in ends if (at := self._buffer.find(end, self._scanned)) >= 0]
            if not found and not final:
                return False
            end = min(found, default=len(self._buffer))
            if self._code.closes(self._buffer[self._scanned : end]):
                self._say(self._scanned)
                break
            if not self._buffer.startswith("\n", end):
                if self._buffer[:end].rstrip().endswith(CLOSE):
                    self._code = CodeLines()
                else:
                    self._say(end)
                break
            self._scanned = end + 1
        self._state = self._read_text
        return True

    def _end_call(self) -> bool:
        self._complete()
        self._code.look().line = ""  # what a mark follows on its line is no code
        self._parts.append(Part(self._outside, "", starts=True))
        self._state = self._read_text
        return True


def parse_tool_calls(
    texts: Iterable[str], tools: Sequence[Mapping[str, Any]] | None = None
) -> list[ToolCall]:
    """Return the calls in the texts between ``<tool_call>`` and ``</tool_call>``.

    Args:
        texts: what the model wrote between the two marks, one text for each pair.
        tools: schemas that type the arguments; without one an argument stays a string.

    Example:
        >>> parse_tool_calls(["<function=add><parameter=a>1</parameter></function>"])
        [ToolCall(name='add', arguments={'a': '1'})]
    """
    reader = PartReader("text", CallTypes(tools))
    parts = [part for text in texts for part in reader.feed(OPEN + text + CLOSE)]
    return [part.call for part in (*parts, *reader.finish()) if part.call]
