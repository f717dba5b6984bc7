"""What an engine is asked for: texts, streams, chats, handles.

Only the surface: `prepare` understands what callers say, `reader` hands the text back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from mtlqwen.driver import Driver
from mtlqwen.prepare import Messages, Preparer, Prompt, Terms, Tools, is_list_of_prompts
from mtlqwen.reader import Handle, Stream, collect
from mtlqwen.result import ChatResult, Completion
from mtlqwen.sampling import SamplingParams


class Calls:
    """The calls of an `mtlqwen.Engine` that wait for their text, or hand it out as it comes."""

    _driver: Driver
    _prepare: Preparer

    @overload
    def generate(
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
    def generate(
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
    def generate(
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
        """Continue a prompt, or several prompts together.

        Literals of added tokens in a prompt (``<|im_start|>``) become those tokens: a prompt is
        the caller's own. `chat` is the way for text that others wrote.

        Args:
            prompt: text, token ids, or a list of those (a list of results comes back).
            sampling: how to choose; the keywords below go before it.
            temperature: see `SamplingParams`, as for the other keywords.
            seed: random seed; each prompt of a list gets the same.
            max_tokens: tokens to generate at most.
            stop: string or strings that end the text.
            ignore_eos: go on past end-of-turn tokens.
            priority: who gets a free slot first where some wait: the higher, the sooner.
            deadline_s: seconds from now after which the text ends as it is, with
                ``finish_reason="deadline"``; waiting for a slot counts.
            checkpoint_at: positions, in tokens from the beginning, up to which later prompts are
                likely to be the same: 1 to the length of the prompt, and of each one of a list.
                What was computed up to there is kept for them, memory permitting.

        Returns:
            The text as a `Completion`, which is a ``str``.

        Raises:
            TypeError, ValueError: an argument is wrong, or a prompt is empty.
            CapacityError: a prompt is longer than the context.
            RuntimeError: the engine is closed.
        """
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
        results = collect(self._driver, generations)
        return results if is_list_of_prompts(prompt) else results[0]

    def stream(
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
    ) -> Stream:
        """Return an iterator over the text as it comes.

        Args:
            prompt: a prompt as for `generate`, or messages as for `chat`.
            tools: as for `chat`; only with messages.
            sampling: how to choose; the keywords below go before it.
            temperature: see `SamplingParams`, as for the other keywords.
            seed: random seed.
            max_tokens: tokens to generate at most.
            stop: string or strings that end the text.
            ignore_eos: go on past end-of-turn tokens.
            thinking: as for `chat`; only with messages.
            priority: as for `generate`.
            deadline_s: as for `generate`.
            checkpoint_at: as for `generate`; only with a prompt.

        Returns:
            A `Stream` of `Piece`: strings with ``token_ids`` and ``kind``. The generation has
            started when it returns; dropping the stream cancels it.

        Raises:
            The same as `generate` and `chat`.
        """
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
        return Stream(self._prepare.one(prompt, tools, params, terms), self._driver, self)

    def submit(
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
    ) -> Handle:
        """Start a generation and return at once; for work that runs beside the caller.

        Args:
            prompt: a prompt as for `generate`, or messages as for `chat`.
            tools: as for `chat`; only with messages.
            sampling: how to choose; the keywords below go before it.
            temperature: see `SamplingParams`, as for the other keywords.
            seed: random seed.
            max_tokens: tokens to generate at most.
            stop: string or strings that end the text.
            ignore_eos: go on past end-of-turn tokens.
            thinking: as for `chat`; only with messages.
            priority: as for `generate`.
            deadline_s: as for `generate`.
            checkpoint_at: as for `generate`; only with a prompt.

        Returns:
            A `Handle`, to be read from any thread; keep it, for dropping it cancels.

        Raises:
            The same as `generate` and `chat`.
        """
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
        return Handle(self._prepare.one(prompt, tools, params, terms), self._driver, self)

    def chat(
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
        """Answer a conversation.

        Literals like ``<|im_end|>`` in the messages stay text; they can't end a turn.

        Args:
            messages: dicts with ``role`` (system, user, assistant, tool) and ``content``. A
                result's ``message`` is the one to append for the model's own turn.
            tools: JSON schemas of functions that the model may call.
            sampling: how to choose; the keywords below go before it.
            temperature: see `SamplingParams`, as for the other keywords.
            seed: random seed.
            max_tokens: tokens to generate at most, reasoning included.
            stop: string or strings that end the answer.
            ignore_eos: go on past end-of-turn tokens.
            thinking: reason before the answer or not. Unset: as the model's template says.
            priority: as for `generate`.
            deadline_s: as for `generate`.

        Returns:
            The answer as a `ChatResult`, which is a ``str``, with ``reasoning`` and ``tool_calls``.

        Raises:
            TypeError, ValueError: an argument is wrong, or the template refuses the messages.
            ModelError: the model has no chat template, or a broken one.
            CapacityError: the conversation is longer than the context.
            RuntimeError: the engine is closed.
        """
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
        (result,) = collect(self._driver, [turn])
        assert isinstance(result, ChatResult)
        return result
