"""What an engine is asked for where a conversation goes on: sessions, and those from files."""

from __future__ import annotations

from pathlib import Path

from mtlqwen.conversation import Conversation
from mtlqwen.driver import Core, Driver
from mtlqwen.messages import Tools, plain_messages, plain_tools
from mtlqwen.prepare import Preparer, check_single
from mtlqwen.sampling import SamplingParams
from mtlqwen.session import Session
from mtlqwen.session_file import Settings


class SessionCalls:
    """The part of an `mtlqwen.Engine` that makes sessions."""

    _core: Core
    _driver: Driver
    _prepare: Preparer

    def session(
        self,
        system: str | None = None,
        tools: Tools | None = None,
        sampling: SamplingParams | None = None,
        thinking: bool | int | None = None,
    ) -> Session:
        """Begin a conversation that is gone on with turn by turn.

        Args:
            system: what the model is told first.
            tools: as for `chat`; the same in every turn.
            sampling: how to choose, unless a turn's own keywords say otherwise.
            thinking: as for `chat`; goes before that of ``sampling``.

        Raises:
            TypeError, ValueError: an argument is wrong.
            ModelError: the model has no chat template, or a broken one.
            RuntimeError: the engine is closed.
        """
        self._driver.check()
        self._prepare.format  # noqa: B018  a model without one is refused here
        over = SamplingParams(thinking=thinking)
        check_single(self._prepare.params(sampling, over.given()))
        if system is not None and not isinstance(system, str):
            raise TypeError(f"[session] system: no string (got {type(system).__name__})")
        settings = Settings(
            tools=None if tools is None else plain_tools(tools),
            sampling=(sampling or SamplingParams()).merged(over),
        )
        messages = [] if system is None else plain_messages([{"role": "system", "content": system}])
        return Session(self, Conversation(messages), settings)

    def load_session(self, path: str | Path) -> Session:
        """Go on with a conversation that `Session.save` wrote.

        What the file holds of the engine's state goes into the prefix cache.

        Raises:
            FileNotFoundError: there is no such file.
            FormatError: the file is damaged, or no session's.
            ModelError: another model made it.
            RuntimeError: the engine is closed.
        """
        return Session.load(self, path)
