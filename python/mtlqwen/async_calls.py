"""The asyncio twins of `calls`: the same arguments, results and errors.

A cancelled task ends its generations within a step. Any number of event loops may use one engine;
no call takes a thread, but for tools that are plain functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from mtlqwen.driver import Driver
from mtlqwen.messages import Tools
from mtlqwen.prepare import (
    Messages,
    Preparer,
    Prompt,
    Prompts,
    Results,
    Terms,
    shaped,
)
from mtlqwen.result import ChatResult, Completion
from mtlqwen.sampling import ChatKeywords, Keywords, SamplingParams
from mtlqwen.tool_streams import Message, make_rounds

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from mtlqwen.areader import AsyncStream


class AsyncCalls:
    """The calls of an `mtlqwen.Engine` for programs that run in asyncio."""

    _driver: Driver
    _prepare: Preparer

    @overload
    async def agenerate(
        self,
        prompt: Prompt,
        *,
        sampling: SamplingParams | None = None,
        n: None = None,
        priority: int = 0,
        deadline_s: float | None = None,
        checkpoint_at: Sequence[int] | None = None,
        **keywords: Unpack[Keywords],
    ) -> Completion: ...
    @overload
    async def agenerate(
        self,
        prompt: Prompt,
        *,
        sampling: SamplingParams | None = None,
        n: int,
        priority: int = 0,
        deadline_s: float | None = None,
        checkpoint_at: Sequence[int] | None = None,
        **keywords: Unpack[Keywords],
    ) -> list[Completion]: ...
    @overload
    async def agenerate(
        self,
        prompt: Prompts,
        *,
        sampling: SamplingParams | None = None,
        n: None = None,
        priority: int = 0,
        deadline_s: float | None = None,
        checkpoint_at: Sequence[int] | None = None,
        **keywords: Unpack[Keywords],
    ) -> list[Completion]: ...
    @overload
    async def agenerate(
        self,
        prompt: Prompts,
        *,
        sampling: SamplingParams | None = None,
        n: int,
        priority: int = 0,
        deadline_s: float | None = None,
        checkpoint_at: Sequence[int] | None = None,
        **keywords: Unpack[Keywords],
    ) -> list[list[Completion]]: ...
    async def agenerate(
        self,
        prompt: Prompt | Prompts,
        *,
        sampling: SamplingParams | None = None,
        n: int | None = None,
        priority: int = 0,
        deadline_s: float | None = None,
        checkpoint_at: Sequence[int] | None = None,
        **keywords: Unpack[Keywords],
    ) -> Results:
        """Continue a prompt, or several prompts together: `generate` in asyncio."""
        from mtlqwen.areader import collect

        terms = Terms(priority=priority, deadline_s=deadline_s, checkpoint_at=checkpoint_at)
        self._driver.check()
        params = self._prepare.params(sampling, {**keywords, "n": n})
        generations = self._prepare.completions(prompt, params, terms)
        return shaped(prompt, params, await collect(self._driver, generations))

    async def achat(
        self,
        messages: Messages,
        *,
        tools: Tools | None = None,
        run_tools: bool = False,
        max_rounds: int | None = None,
        sampling: SamplingParams | None = None,
        priority: int = 0,
        deadline_s: float | None = None,
        **keywords: Unpack[ChatKeywords],
    ) -> ChatResult:
        """Answer a conversation: `chat` in asyncio."""
        from mtlqwen.areader import collect

        terms = Terms(priority=priority, deadline_s=deadline_s)
        self._driver.check()
        params = self._prepare.params(sampling, keywords)
        if run_tools or max_rounds is not None:
            stream = self.astream(
                messages,
                tools=tools,
                run_tools=run_tools,
                max_rounds=max_rounds,
                sampling=params,
                priority=priority,
                deadline_s=deadline_s,
            )
            last = await stream.result()
            assert isinstance(last, ChatResult)
            return last
        turn = self._prepare.turn(messages, tools, params, terms)
        (result,) = await collect(self._driver, [turn])
        assert isinstance(result, ChatResult)
        return result

    def astream(
        self,
        prompt: Prompt | Messages,
        *,
        tools: Tools | None = None,
        run_tools: bool = False,
        max_rounds: int | None = None,
        sampling: SamplingParams | None = None,
        priority: int = 0,
        deadline_s: float | None = None,
        checkpoint_at: Sequence[int] | None = None,
        **keywords: Unpack[ChatKeywords],
    ) -> AsyncStream:
        """Return an asynchronous iterator over the text as it comes: `stream` in asyncio.

        The generation has started when it returns; dropping the iterator, ``aclose`` and a
        cancelled task end it.
        """
        from mtlqwen.areader import AsyncStream

        terms = Terms(priority=priority, deadline_s=deadline_s, checkpoint_at=checkpoint_at)
        self._driver.check()
        params = self._prepare.params(sampling, keywords)
        rounds = make_rounds(tools, run_tools, max_rounds, terms)
        if rounds is None:
            return AsyncStream(self._prepare.one(prompt, tools, params, terms), self._driver, self)
        from mtlqwen.async_tool_streams import AsyncToolStream

        def begin(added: list[Message]) -> AsyncStream:
            turn = self._prepare.later(prompt, added, rounds.runs.tools, params, rounds.terms)
            return AsyncStream(turn, self._driver, self)

        return AsyncToolStream(rounds, begin)
