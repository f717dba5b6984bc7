"""From what a caller says to a generation that is ready to start.

Fills in the model's defaults, brings prompts and messages to token ids, says what result to make.
Knows nothing of threads.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias, TypeGuard

from mtlqwen.assets import Assets
from mtlqwen.chat import ChatFormat, check_tools, parse_tool_calls
from mtlqwen.checks import check_integer, check_number
from mtlqwen.driver import Core, Driver
from mtlqwen.errors import ModelError
from mtlqwen.generation import Facts, Generation, Request
from mtlqwen.result import ChatResult, Completion
from mtlqwen.sampling import SamplingParams
from mtlqwen.stream import Transcript
from mtlqwen.template import ChatTemplate
from mtlqwen.tokenizer import Tokenizer

Prompt: TypeAlias = str | Sequence[int]
Messages: TypeAlias = Sequence[Mapping[str, Any]]
Tools: TypeAlias = Sequence[Mapping[str, Any]]

MAX_PRIORITY = 2**31 - 1
MAX_POSITION = 2**31 - 1  # in tokens
# Seconds: below it nothing could be done in time, above it nothing would ever be late.
MIN_DEADLINE, MAX_DEADLINE = 1e-6, 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """When a generation gets its turn, how long it may take, and what is kept of its prompt."""

    priority: int = 0
    deadline_s: float | None = None
    checkpoint_at: Sequence[int] | None = None

    def __post_init__(self) -> None:
        """Check all and bring them to one form."""
        priority = check_integer("engine", "priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY)
        object.__setattr__(self, "priority", priority)
        if self.deadline_s is not None:
            deadline = check_number(
                "engine", "deadline_s", self.deadline_s, MIN_DEADLINE, MAX_DEADLINE
            )
            object.__setattr__(self, "deadline_s", deadline)
        if self.checkpoint_at is not None:
            object.__setattr__(self, "checkpoint_at", _positions(self.checkpoint_at))


class Preparer:
    """Makes the generations of one engine."""

    def __init__(self, name: str, assets: Assets, core: Core, driver: Driver) -> None:
        """Work for the model called ``name``."""
        self._name = name
        self._assets = assets
        self._core = core
        self._driver = driver

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._assets.tokenizer

    def params(
        self,
        sampling: SamplingParams | None,
        over: SamplingParams,
        under: SamplingParams | None = None,
    ) -> SamplingParams:
        """Return the model's defaults, under those of a session in ``under``, under ``sampling``.

        The keywords in ``over`` go before all of them.
        """
        params = self._assets.defaults
        if under is not None:
            params = params.merged(under)
        if sampling is not None:
            if not isinstance(sampling, SamplingParams):
                got = type(sampling).__name__
                raise TypeError(f"[sampling] sampling: not SamplingParams (got {got})")
            params = params.merged(sampling)
        return params.merged(over)

    def one(
        self,
        prompt: Prompt | Messages,
        tools: Tools | None,
        params: SamplingParams,
        terms: Terms,
    ) -> Generation:
        """Return a generation for a prompt or for messages."""
        if is_messages(prompt):
            return self.turn(prompt, tools, params, terms)
        if tools is not None:
            raise ValueError("[chat] tools: only with messages (got a plain prompt)")
        return self.completion(prompt, params, terms)

    def completions(self, prompt: object, params: SamplingParams, terms: Terms) -> list[Generation]:
        """Return a generation for a prompt, or for each one of a list."""
        prompts = prompt if is_list_of_prompts(prompt) else [prompt]
        return [self.completion(one, params, terms) for one in prompts]

    def completion(self, prompt: object, params: SamplingParams, terms: Terms) -> Generation:
        """Return a generation that continues a prompt: text or token ids."""
        if params.thinking is not None:
            raise ValueError("[sampling] thinking: only for chats (got a plain prompt)")
        token_ids = self._prompt_ids(prompt)
        positions = terms.checkpoint_at or ()
        if positions and positions[-1] > len(token_ids):
            raise ValueError(
                f"[engine] checkpoint_at: behind the end of the prompt (got {positions[-1]}, want "
                f"1 to {len(token_ids)})"
            )
        return Generation(
            self._driver,
            self._request(token_ids, params, terms, positions),
            partial(Transcript, self.tokenizer.token_bytes, stop=params.stop_strings),
            _make_completion,
            watched=bool(params.stop_strings),
        )

    def turn(
        self,
        messages: Messages,
        tools: Tools | None,
        params: SamplingParams,
        terms: Terms,
    ) -> Generation:
        """Return a generation that answers messages."""
        if terms.checkpoint_at is not None:
            raise ValueError(
                "[engine] checkpoint_at: only with a plain prompt (got messages); a chat's "
                "checkpoints stand at the ends of its messages"
            )
        token_ids = self.format.encode(messages, tools, params.thinking)
        schemas = None if tools is None else check_tools(tools)
        make_transcript = partial(
            Transcript,
            self.tokenizer.token_bytes,
            stop=params.stop_strings,
            marks=self.format.marks,
            kind=self.format.open_kind(token_ids),
        )
        return Generation(
            self._driver,
            self._request(token_ids, params, terms, self.format.boundaries(token_ids)),
            make_transcript,
            partial(_make_chat_result, tools=schemas),
            watched=bool(params.stop_strings),
        )

    @cached_property
    def format(self) -> ChatFormat:
        """The model's chat template.

        Raises:
            ModelError: it has none, or a broken one.
        """
        if self._assets.template is None:
            raise ModelError(f"[chat] {self._name}: has no chat template; use generate")
        return ChatFormat(ChatTemplate(self._assets.template), self.tokenizer)

    def _request(
        self,
        token_ids: Sequence[int],
        params: SamplingParams,
        terms: Terms,
        checkpoint_at: Sequence[int],
    ) -> Request:
        assert params.temperature is not None
        assert params.max_tokens is not None
        room = max(self._core.context - len(token_ids), 1)  # the core refuses what can't fit
        seed = params.seed
        if seed is None:
            seed = secrets.randbits(64) if params.temperature > 0 else 0
        return Request(
            token_ids=token_ids,
            max_tokens=min(params.max_tokens, room),
            temperature=params.temperature,
            seed=seed,
            stop_ids=() if params.ignore_eos else self._assets.stop_ids,
            priority=terms.priority,
            deadline_s=terms.deadline_s,
            checkpoint_at=checkpoint_at,
        )

    def _prompt_ids(self, prompt: object) -> list[int]:
        if isinstance(prompt, str):
            token_ids = self.tokenizer.encode(prompt)
        else:
            values = prompt.tolist() if hasattr(prompt, "tolist") else prompt
            if not isinstance(values, Sequence) or isinstance(values, (bytes, bytearray)):
                got = type(prompt).__name__
                raise TypeError(f"[engine] prompt: not text and no list of token ids (got {got})")
            last = self._core.vocab_size - 1
            token_ids = [check_integer("engine", "prompt", value, 0, last) for value in values]
        if not token_ids:
            raise ValueError("[engine] prompt: empty; want at least one token")
        return token_ids


def _positions(value: object) -> tuple[int, ...]:
    """Return positions in a prompt, ascending, each once."""
    values = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes, bytearray)):
        got = type(value).__name__
        raise TypeError(f"[engine] checkpoint_at: not a list of positions (got {got})")
    checked = {check_integer("engine", "checkpoint_at", item, 1, MAX_POSITION) for item in values}
    return tuple(sorted(checked))


def is_list_of_prompts(prompt: object) -> TypeGuard[Sequence[object]]:
    """Whether ``prompt`` holds prompts, not token ids; its first item decides."""
    if isinstance(prompt, (str, bytes)) or not isinstance(prompt, Sequence) or not prompt:
        return False
    first = prompt[0]
    if isinstance(first, Mapping):
        raise TypeError("[engine] prompt: these are messages; use chat, or stream")
    # A row of an array holds tokens; a scalar of one is a token.
    return isinstance(first, Sequence) or bool(getattr(first, "shape", ()))


def is_messages(prompt: object) -> TypeGuard[Messages]:
    """Whether ``prompt`` holds messages; its first item decides."""
    if isinstance(prompt, str) or not isinstance(prompt, Sequence):
        return False
    return bool(prompt) and isinstance(prompt[0], Mapping)


def _make_completion(transcript: Transcript, facts: Facts) -> Completion:
    return Completion(
        transcript.text(),
        token_ids=facts.token_ids,
        finish_reason=facts.finish_reason,
        usage=facts.usage,
        timings=facts.timings,
        spec=facts.spec,
    )


def _make_chat_result(transcript: Transcript, facts: Facts, *, tools: Tools | None) -> ChatResult:
    calls = parse_tool_calls(transcript.calls, tools)
    turned = facts.finish_reason == "stop" and bool(calls)
    return ChatResult(
        transcript.text(),
        reasoning=transcript.text("reasoning"),
        tool_calls=calls,
        token_ids=facts.token_ids,
        finish_reason="tool_calls" if turned else facts.finish_reason,
        usage=facts.usage,
        timings=facts.timings,
        spec=facts.spec,
    )
