"""Conversations that an engine goes on with: sessions, their forks and their files.

A session is messages; what was computed for them lies in the engine's prefix cache.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mtlqwen.checks import check_integer
from mtlqwen.conversation import Conversation, Turn, user_positions
from mtlqwen.generation import Generation
from mtlqwen.messages import plain_messages
from mtlqwen.prepare import Messages, Terms
from mtlqwen.reader import Stream, collect
from mtlqwen.result import ChatResult
from mtlqwen.sampling import ChatKeywords, SamplingParams
from mtlqwen.session_file import Settings, read_note, write_note

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from mtlqwen.areader import AsyncStream
    from mtlqwen.session_calls import SessionCalls

MAX_TURNS = 2**31 - 1


class Session:
    """A conversation with an engine, as `Engine.session` begins it.

    It holds no slot between its turns, and no memory but its messages: what was computed for a turn
    stays in the engine's prefix cache as long as there is room, and is computed again where it has
    been evicted. docs/sessions.md tells what the next turn finds there.

    All of it may be used from any thread. One turn at a time: until its answer is there, or its
    stream closed, `say`, `stream`, their twins and `rewind` raise RuntimeError, while `messages`,
    `fork` and `save` see the turns before it. A turn joins the messages when its answer is
    complete, cut short by ``max_tokens`` or ``deadline_s`` or not; after an error, an interrupt or
    a stream that was closed or dropped the conversation is what it was before.

    Example:
        >>> from mtlqwen import Engine
        >>> with Engine("tiny") as engine, engine.session(thinking=False) as session:
        ...     answer = session.say("Repeat after me: 335 157")
        ...     other = session.fork()
        ...     print(answer, len(session.messages), other.say("Good morning"))
        335 157 2 Hello! How can I help you today?
    """

    def __init__(
        self, engine: SessionCalls, conversation: Conversation, settings: Settings
    ) -> None:
        """Go on with a conversation; `Engine.session` begins one."""
        self._engine = engine
        self._conversation = conversation
        self._settings = settings

    def say(
        self,
        content: str | Messages,
        *,
        sampling: SamplingParams | None = None,
        priority: int = 0,
        deadline_s: float | None = None,
        **keywords: Unpack[ChatKeywords],
    ) -> ChatResult:
        """Say something, and return the answer.

        Args:
            content: what the user says; or messages to append, such as the results of tool calls:
                ``[{"role": "tool", "content": "..."}]``.
            sampling: how to choose the tokens; it goes before the session's own.
            priority: as for `Engine.generate`.
            deadline_s: as for `Engine.generate`.
            **keywords: the fields of `SamplingParams`; they go before ``sampling``.

        Returns:
            The answer as a `ChatResult`; ``usage.cached_tokens`` tells what was not computed again.

        Raises:
            RuntimeError: a turn waits for its answer, or session or engine are closed.
            The same as `Engine.chat` besides.
        """
        terms = Terms(priority=priority, deadline_s=deadline_s)
        turn, generation = self._begin(content, sampling, keywords, terms)
        try:
            collect(self._engine._driver, [generation])
            return _finish(turn, generation)
        finally:
            turn.end()

    def stream(
        self,
        content: str | Messages,
        *,
        sampling: SamplingParams | None = None,
        priority: int = 0,
        deadline_s: float | None = None,
        **keywords: Unpack[ChatKeywords],
    ) -> Stream:
        """Say something, and return an iterator over the answer as it comes.

        The turn joins the messages when the stream has been read to its end, by iterating or by its
        ``result``; of a stream that is closed or dropped before, nothing does.

        Args:
            content: as for `say`, as all keywords.
            sampling: as for `say`.
            priority: as for `Engine.generate`.
            deadline_s: as for `Engine.generate`.
            **keywords: as for `say`.

        Raises:
            The same as `say`.
        """
        terms = Terms(priority=priority, deadline_s=deadline_s)
        turn, generation = self._begin(content, sampling, keywords, terms)
        try:
            return Stream(generation, self._engine._driver, self, partial(_end, turn, generation))
        except BaseException:
            turn.end()
            raise

    async def asay(
        self,
        content: str | Messages,
        *,
        sampling: SamplingParams | None = None,
        priority: int = 0,
        deadline_s: float | None = None,
        **keywords: Unpack[ChatKeywords],
    ) -> ChatResult:
        """Say something, and return the answer: `say` in asyncio."""
        from mtlqwen import areader

        terms = Terms(priority=priority, deadline_s=deadline_s)
        turn, generation = self._begin(content, sampling, keywords, terms)
        try:
            await areader.collect(self._engine._driver, [generation])
            return _finish(turn, generation)
        finally:
            turn.end()

    def astream(
        self,
        content: str | Messages,
        *,
        sampling: SamplingParams | None = None,
        priority: int = 0,
        deadline_s: float | None = None,
        **keywords: Unpack[ChatKeywords],
    ) -> AsyncStream:
        """Say something, and return an asynchronous iterator: `stream` in asyncio."""
        from mtlqwen.areader import AsyncStream

        terms = Terms(priority=priority, deadline_s=deadline_s)
        turn, generation = self._begin(content, sampling, keywords, terms)
        try:
            at_end = partial(_end, turn, generation)
            return AsyncStream(generation, self._engine._driver, self, at_end)
        except BaseException:
            turn.end()
            raise

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation so far, the system's message included; a copy."""
        return copy.deepcopy(list(self._conversation.messages))

    def fork(self) -> Session:
        """Return another session that goes on from here.

        Both share what was computed so far; it costs nothing until it speaks.
        """
        self._conversation.check_open("fork")
        return Session(self._engine, Conversation(self._conversation.messages), self._settings)

    def rewind(self, turns: int = 1) -> None:
        """Take the last turns back: user messages, and everything that came after them.

        What was computed before them is still there, so the next turn begins without delay.

        Raises:
            TypeError, ValueError: there are not so many turns.
            RuntimeError: a turn waits for its answer, or the session is closed.
        """
        self._conversation.cut(check_integer("session", "turns", turns, 1, MAX_TURNS))

    def save(self, path: str | Path) -> int:
        """Write the conversation to a file, with the engine's state at its last kept position.

        The file appears whole or not at all, in place of an older one. `Engine.load_session` reads
        it, in any process that has the same model.

        Returns:
            How many tokens of the conversation the file holds the state of. With 0 it has only the
            messages, and all is computed again after loading.

        Raises:
            TypeError: the messages hold something that JSON does not know.
            FileNotFoundError: there is no such folder.
            FormatError: the file cannot be written.
            CapacityError: the disk is full.
            RuntimeError: session or engine are closed.
        """
        self._conversation.check_open("save")
        file = _path(path)
        engine, messages = self._engine, self._conversation.messages
        engine._driver.check()
        note = write_note(messages, self._settings)
        tools, sampling = self._settings.tools, self._settings.sampling
        token_ids = engine._prepare.format.shared_prefix(
            messages, tools, sampling.reasons, sampling.template_options
        )
        if not file.parent.is_dir():
            raise FileNotFoundError(f"[session] {file}: no such folder")
        return engine._core.save_checkpoint(str(file), token_ids, note, with_state=True)

    @classmethod
    def load(cls, engine: SessionCalls, path: str | Path) -> Session:
        """Go on with a conversation from a file: `Engine.load_session`."""
        file = _path(path)
        engine._driver.check()
        engine._prepare.format  # noqa: B018  a model without one is refused here
        if not file.is_file():
            raise FileNotFoundError(f"[session] {file}: no such file")
        _, note, _ = engine._core.load_checkpoint(str(file))
        messages, settings = read_note(note, file)
        return cls(engine, Conversation(messages), settings)

    def close(self) -> None:
        """Take no more turns; one that waits for its answer is cancelled. `messages` stays."""
        self._conversation.close()

    def __enter__(self) -> Session:
        """Return the session itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the session."""
        self.close()

    def __repr__(self) -> str:
        """Return its state in a line."""
        conversation = self._conversation
        state = "closed" if conversation.closed else "speaking" if conversation.busy else "idle"
        turns = len(user_positions(conversation.messages))
        return f"Session({turns} turns, {len(conversation.messages)} messages, {state})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from mtlqwen import cards

        return cards.bundle(self, cards.session_card(repr(self), self._conversation.messages))

    def _begin(
        self,
        content: str | Messages,
        sampling: SamplingParams | None,
        keywords: Mapping[str, Any],
        terms: Terms,
    ) -> tuple[Turn, Generation]:
        """Return the turn that ``content`` begins, and what generates its answer."""
        self._engine._driver.check()
        messages = [{"role": "user", "content": content}] if isinstance(content, str) else content
        turn = self._conversation.begin(plain_messages(messages))
        try:
            prepare, settings = self._engine._prepare, self._settings
            params = prepare.params(sampling, keywords, settings.sampling)
            generation = prepare.turn(turn.messages, settings.tools, params, terms)
            turn.cancel = generation.cancel
            self._conversation.check_open("say")  # whoever closes it from now on cancels
            return turn, generation
        except BaseException:
            turn.end()
            raise


def _end(turn: Turn, generation: Generation, finished: bool) -> None:
    """End a turn whose stream ends, read to its end or not."""
    if finished:
        _finish(turn, generation)
    turn.end()


def _finish(turn: Turn, generation: Generation) -> ChatResult:
    """Add a turn to its conversation, unless its answer was cancelled."""
    result = generation.result()
    assert isinstance(result, ChatResult)
    if result.finish_reason != "cancelled":
        turn.end(plain_messages([result.message])[0])
    return result


def _path(path: object) -> Path:
    if not isinstance(path, (str, Path)) or path == "":
        raise TypeError(f"[session] path: not a path (got {path!r})")
    if "\0" in str(path):
        raise ValueError(f"[session] path: holds a null character (got {str(path)!r})")
    return Path(path)
