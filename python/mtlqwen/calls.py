"""What an engine is asked for: texts, streams, chats, handles.

Only the surface: `prepare` understands what callers say, `reader` hands the text back.
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
from mtlqwen.reader import Handle, Stream, collect
from mtlqwen.result import ChatResult, Completion
from mtlqwen.sampling import ChatKeywords, Keywords, SamplingParams
from mtlqwen.tool_streams import Message, ToolStream, make_rounds

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
        n: None = None,
        priority: int = 0,
        deadline_s: float | None = None,
        checkpoint_at: Sequence[int] | None = None,
        **keywords: Unpack[Keywords],
    ) -> Completion: ...
    @overload
    def generate(
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
    def generate(
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
    def generate(
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
    def generate(
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
        """Continue a prompt, or several prompts together.

        Literals of added tokens in a prompt (``<|im_start|>``) become those tokens: a prompt is
        the caller's own. `chat` is the way for text that others wrote.

        Args:
            prompt: text, token ids, or a list of those (a list of results comes back).
            sampling: how to choose the tokens, and when the text ends.
            n: generate so many texts for each prompt; the prompt is computed once. A list of them
                comes back, of one, too: for a list of prompts a list of lists.
            priority: who gets a free slot first where some wait: the higher, the sooner.
            deadline_s: seconds from now after which the text ends as it is, with
                ``finish_reason="deadline"``; waiting for a slot counts.
            checkpoint_at: positions, in tokens from the beginning, up to which later prompts are
                likely to be the same: 1 to the length of the prompt, and of each one of a list.
                What was computed up to there is kept for them, memory permitting.
            **keywords: the fields of `SamplingParams`, such as ``temperature=0.7``; they go before
                ``sampling``. Each prompt of a list gets the same seed, if one is given.

        Returns:
            The text as a `Completion`, which is a ``str``; lists of them as said above.

        Raises:
            TypeError, ValueError: an argument is wrong, or a prompt is empty.
            CapacityError: a prompt is longer than the context.
            RuntimeError: the engine is closed.
        """
        terms = Terms(priority=priority, deadline_s=deadline_s, checkpoint_at=checkpoint_at)
        self._driver.check()
        params = self._prepare.params(sampling, {**keywords, "n": n})
        generations = self._prepare.completions(prompt, params, terms)
        return shaped(prompt, params, collect(self._driver, generations))

    def stream(
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
    ) -> Stream:
        """Return an iterator over the text as it comes.

        Args:
            prompt: a prompt as for `generate`, or messages as for `chat`.
            tools: as for `chat`; only with messages.
            run_tools: as for `chat`; what tools return are pieces of the kind ``tool_result``.
            max_rounds: as for `chat`.
            sampling: how to choose the tokens, and when the text ends.
            priority: as for `generate`.
            deadline_s: as for `generate`.
            checkpoint_at: as for `generate`; only with a prompt.
            **keywords: the fields of `SamplingParams`; they go before ``sampling``. ``thinking`` is
                for messages only.

        Returns:
            A `Stream` of `Piece`: strings with ``token_ids`` and ``kind``. The generation has
            started when it returns; dropping the stream cancels it.

        Raises:
            The same as `generate` and `chat`.
        """
        terms = Terms(priority=priority, deadline_s=deadline_s, checkpoint_at=checkpoint_at)
        self._driver.check()
        params = self._prepare.params(sampling, keywords)
        rounds = make_rounds(tools, run_tools, max_rounds, terms)
        if rounds is None:
            return Stream(self._prepare.one(prompt, tools, params, terms), self._driver, self)

        def begin(added: list[Message]) -> Stream:
            turn = self._prepare.later(prompt, added, rounds.runs.tools, params, rounds.terms)
            return Stream(turn, self._driver, self)

        return ToolStream(rounds, begin)

    def submit(
        self,
        prompt: Prompt | Messages,
        *,
        tools: Tools | None = None,
        sampling: SamplingParams | None = None,
        priority: int = 0,
        deadline_s: float | None = None,
        checkpoint_at: Sequence[int] | None = None,
        **keywords: Unpack[ChatKeywords],
    ) -> Handle:
        """Start a generation and return at once; for work that runs beside the caller.

        Args:
            prompt: a prompt as for `generate`, or messages as for `chat`.
            tools: as for `chat`; only with messages.
            sampling: how to choose the tokens, and when the text ends.
            priority: as for `generate`.
            deadline_s: as for `generate`.
            checkpoint_at: as for `generate`; only with a prompt.
            **keywords: the fields of `SamplingParams`; they go before ``sampling``. ``thinking`` is
                for messages only.

        Returns:
            A `Handle`, to be read from any thread; keep it, for dropping it cancels.

        Raises:
            The same as `generate` and `chat`.
        """
        terms = Terms(priority=priority, deadline_s=deadline_s, checkpoint_at=checkpoint_at)
        self._driver.check()
        params = self._prepare.params(sampling, keywords)
        return Handle(self._prepare.one(prompt, tools, params, terms), self._driver, self)

    def chat(
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
        """Answer a conversation.

        Literals like ``<|im_end|>`` in the messages stay text; they can't end a turn.

        Args:
            messages: dicts with ``role`` (system, user, assistant, tool) and ``content``. A
                result's ``message`` is the one to append for the model's own turn.
            tools: what the model may call: JSON schemas, functions with types, or what `tool` makes
                of them.
            run_tools: call the functions that it asks for, and answer with what they return, until
                it asks for none; an error in one is told to the model.
            max_rounds: how many times at most, 1 or more; what it asks for then is in the result's
                ``tool_calls``. Unset: 8.
            sampling: how to choose the tokens, and when the answer ends.
            priority: as for `generate`.
            deadline_s: as for `generate`.
            **keywords: the fields of `SamplingParams`, such as ``thinking=False``; they go before
                ``sampling``.

        Returns:
            The answer as a `ChatResult`, which is a ``str``, with ``reasoning`` and ``tool_calls``;
            its ``messages`` are all that the rounds have added to the conversation.

        Raises:
            TypeError, ValueError: an argument is wrong, or the template refuses the messages.
            ModelError: the model has no chat template, or a broken one.
            CapacityError: the conversation is longer than the context.
            RuntimeError: the engine is closed.
        """
        terms = Terms(priority=priority, deadline_s=deadline_s)
        self._driver.check()
        params = self._prepare.params(sampling, keywords)
        if run_tools or max_rounds is not None:
            stream = self.stream(
                messages,
                tools=tools,
                run_tools=run_tools,
                max_rounds=max_rounds,
                sampling=params,
                priority=priority,
                deadline_s=deadline_s,
            )
            last = stream.result()
            assert isinstance(last, ChatResult)
            return last
        turn = self._prepare.turn(messages, tools, params, terms)
        (result,) = collect(self._driver, [turn])
        assert isinstance(result, ChatResult)
        return result
