"""The messages of a session, and the one turn that may be on its way to them.

Thread-safe; knows nothing of engines and text.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]


class Turn:
    """Messages that wait for their answer.

    The conversation holds it weakly: dropped, it is over, as after `end`.

    Attributes:
        messages: the conversation with the new messages.
        cancel: ends the generation of the answer; set by who starts it.
    """

    def __init__(self, conversation: Conversation, messages: tuple[Message, ...]) -> None:
        """Wait; `Conversation.begin` makes turns."""
        self._conversation = conversation
        self.messages = messages
        self.cancel: Callable[[], None] | None = None

    def end(self, answer: Message | None = None) -> None:
        """Add the new messages and their answer to the conversation; none adds neither.

        Only the first call counts.
        """
        self._conversation._end(self, answer)


class Conversation:
    """Messages that grow by whole turns, one at a time."""

    def __init__(self, messages: Sequence[Message]) -> None:
        """Begin with ``messages``, which nobody may change any more."""
        self._messages = tuple(messages)
        # Reentrant, for a signal's handler may ask in the middle of any line below.
        self._lock = threading.RLock()
        self._turn: weakref.ref[Turn] | None = None
        self._closed = False

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages of finished turns; nobody may change them."""
        return self._messages

    @property
    def busy(self) -> bool:
        """Whether a turn waits for its answer."""
        return self._turn is not None and self._turn() is not None

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def begin(self, messages: Sequence[Message]) -> Turn:
        """Return a turn that begins with ``messages``.

        Raises:
            RuntimeError: another one waits for its answer, or the conversation is closed.
        """
        with self._lock:
            self._check("say")
            turn = Turn(self, (*self._messages, *messages))
            self._turn = weakref.ref(turn)
            return turn

    def cut(self, turns: int) -> None:
        """Drop the last ``turns`` user messages and all that follows the first of them.

        Raises:
            ValueError: there are not so many.
            RuntimeError: as for `begin`.
        """
        with self._lock:
            self._check("rewind")
            starts = user_positions(self._messages)
            if turns > len(starts):
                raise ValueError(
                    f"[session] rewind: more turns than there are (got {turns}, want at most "
                    f"{len(starts)})"
                )
            self._messages = self._messages[: starts[-turns]]

    def check_open(self, what: str) -> None:
        """Raise RuntimeError when it was closed."""
        if self._closed:
            raise RuntimeError(f"[session] {what}: the session is closed; make a new one")

    def _check(self, what: str) -> None:
        self.check_open(what)
        if self.busy:
            raise RuntimeError(
                f"[session] {what}: a turn waits for its answer; one at a time: read its stream to "
                "the end or close it, or fork the session before"
            )

    def close(self) -> None:
        """Take no more turns, and end the one that waits."""
        self._closed = True
        turn = self._turn() if self._turn is not None else None
        if turn is not None and turn.cancel is not None:
            turn.cancel()

    def _end(self, turn: Turn, answer: Message | None) -> None:
        with self._lock:
            if self._turn is None or self._turn() is not turn:
                return
            if answer is not None:
                self._messages = (*turn.messages, answer)
            self._turn = None


def user_positions(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return where turns begin: the positions of what users said."""
    return [at for at, message in enumerate(messages) if message["role"] == "user"]
