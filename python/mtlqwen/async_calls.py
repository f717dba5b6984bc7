"""The asyncio twins of `calls`: the same arguments, results and errors.

A cancelled task ends its generations within a step. Any number of event loops may use one engine;
no call takes a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from mtlqwen.driver import Driver
from mtlqwen.prepare import Messages, Preparer, Prompt, Terms, Tools, is_list_of_prompts
from mtlqwen.result import ChatResult, Completion
from mtlqwen.sampling import SamplingParams

if TYPE_CHECKING:
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
        temperature: float | None = None,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        ignore_eos: bool | None = None,
        priority: int = 0,
        deadline_s: float | None = None,
        checkpoint_at: Sequence[int] | None = None,
    ) -> Completion: ...
    @overload
    async def agenerate(
        self,
        prompt: list[str] | Sequence[Sequence[int]],
        *,
        sampling: SamplingParams | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        ignore_eos: bool | None = None,
        priority: int = 0,
        deadline_s: float | None = None,
        checkpoint_at: Sequence[int] | None = None,
    ) -> list[Completion]: ...
    async def agenerate(
        self,
        prompt: Prompt | Sequence[str] | Sequence[Sequence[int]],
        *,
        sampling: SamplingParams | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        ignore_eos: bool | None = None,
        priority: int = 0,
        deadline_s: float | None = None,
        checkpoint_at: Sequence[int] | None = None,
    ) -> Completion | list[Completion]:
        """Continue a prompt, or several prompts together: `generate` in asyncio."""
        from mtlqwen.areader import collect

        over = SamplingParams(
            temperature=temperature,
            seed=seed,
            max_tokens=max_tokens,
            stop=stop,
            ignore_eos=ignore_eos,
        )
        terms = Terms(priority=priority, deadline_s=deadline_s, checkpoint_at=checkpoint_at)
        self._driver.check()
        params = self._prepare.params(sampling, over)
        generations = self._prepare.completions(prompt, params, terms)
        results = await collect(self._driver, generations)
        return results if is_list_of_prompts(prompt) else results[0]

    async def achat(
        self,
        messages: Messages,
        *,
        tools: Tools | None = None,
        sampling: SamplingParams | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        ignore_eos: bool | None = None,
        thinking: bool | None = None,
        priority: int = 0,
        deadline_s: float | None = None,
    ) -> ChatResult:
        """Answer a conversation: `chat` in asyncio."""
        from mtlqwen.areader import collect

        over = SamplingParams(
            temperature=temperature,
            seed=seed,
            max_tokens=max_tokens,
            stop=stop,
            ignore_eos=ignore_eos,
            thinking=thinking,
        )
        terms = Terms(priority=priority, deadline_s=deadline_s)
        self._driver.check()
        params = self._prepare.params(sampling, over)
        turn = self._prepare.turn(messages, tools, params, terms)
        (result,) = await collect(self._driver, [turn])
        assert isinstance(result, ChatResult)
        return result

    def astream(
        self,
        prompt: Prompt | Messages,
        *,
        tools: Tools | None = None,
        sampling: SamplingParams | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        ignore_eos: bool | None = None,
        thinking: bool | None = None,
        priority: int = 0,
        deadline_s: float | None = None,
        checkpoint_at: Sequence[int] | None = None,
    ) -> AsyncStream:
        """Return an asynchronous iterator over the text as it comes: `stream` in asyncio.

        The generation has started when it returns; dropping the iterator, ``aclose`` and a
        cancelled task end it.
        """
        from mtlqwen.areader import AsyncStream

        over = SamplingParams(
            temperature=temperature,
            seed=seed,
            max_tokens=max_tokens,
            stop=stop,
            ignore_eos=ignore_eos,
            thinking=thinking,
        )
        terms = Terms(priority=priority, deadline_s=deadline_s, checkpoint_at=checkpoint_at)
        self._driver.check()
        params = self._prepare.params(sampling, over)
        return AsyncStream(self._prepare.one(prompt, tools, params, terms), self._driver, self)
