"""What a generation hands back: strings that know where they came from.

Plain values; knows nothing of engines, tokenizers or templates.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeAlias

if TYPE_CHECKING:
    from mtlqwen.token_view import TokenView

Kind: TypeAlias = Literal["text", "reasoning", "tool_call", "tool_result"]
FinishReason: TypeAlias = Literal[
    "stop", "length", "cancelled", "deadline", "repetition", "tool_calls"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one generation.

    Attributes:
        prompt_tokens: tokens of the prompt, the chat template's included.
        completion_tokens: tokens generated, the end-of-turn token included.
        reasoning_tokens: those of them that were reasoning (chats only).
        cached_tokens: tokens of the prompt that were not computed again: an earlier prompt had
            begun with the same ones.
    """

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Times of one generation, as its caller met them; other sequences may share the passes.

    Attributes:
        ttft_s: seconds from the call to the first token.
        prefill_tps: prompt tokens per second, without those that came from the cache.
        decode_tps: generated tokens per second after the first; 0 when there was only one.
    """

    ttft_s: float
    prefill_tps: float
    decode_tps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """What drafting did for one generation. The text is the same without it.

    Attributes:
        drafter: the engine's: ``off``, ``ngram``, ``mtp`` or ``dflash``; with ``spec="auto"``
            n-grams may have taken its place.
        passes: passes of the model that checked a draft.
        drafted: tokens proposed in them.
        accepted: of these, the ones that the model would have generated itself, those included
            that stood behind a stop string.
        positions: where in ``token_ids`` the accepted ones stand.
    """

    drafter: str = "off"
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    positions: tuple[int, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """How likely the model held a token: of the raw model, before any option of sampling.

    Attributes:
        token_id: the token.
        token: how it reads; bytes that are no whole characters become U+FFFD.
        logprob: the natural logarithm of its probability, 0 or less.
        top: the likeliest tokens in its place, the likeliest first, as many as were asked for;
            theirs is empty, and so is that of a token by which a budget of reasoning ended it:
            such a one has the logprob 0.
    """

    token_id: int
    token: str
    logprob: float
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One function that the model wants called.

    Attributes:
        name: the function's name.
        arguments: its arguments, typed by the tool's JSON schema.
    """

    name: str
    arguments: dict[str, Any]

    def as_message(self) -> dict[str, Any]:
        """Return the call in the form that a chat message carries."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"type": "function", "function": function}


class _Text(str):
    """A ``str`` with slots, which can be pickled."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> Any:
        """Let every protocol do it as 2 does: those before it can't make a ``str`` with slots."""
        return super().__reduce_ex__(max(operator.index(protocol), 2))


class Piece(_Text):
    """A piece of streamed text: a ``str`` that knows its tokens and its kind.

    Attributes:
        token_ids: the tokens that made it. A token whose text was held back (an unfinished
            character, a possible stop string) belongs to the piece that brings its text.
        kind: ``text``, ``reasoning`` or ``tool_call``; always ``text`` without a chat. Between the
            rounds of a chat that runs its tools, ``tool_result``: what one of them returned.
        tool_call: the call that this piece completes; the text of such a piece may be empty.
    """

    __slots__ = ("kind", "token_ids", "tool_call")

    token_ids: list[int]
    kind: Kind
    tool_call: ToolCall | None

    def __new__(
        cls,
        text: str,
        token_ids: list[int] | None = None,
        kind: Kind = "text",
        tool_call: ToolCall | None = None,
    ) -> Piece:
        """Make a piece of ``text``."""
        self = super().__new__(cls, text)
        self.tool_call = tool_call
        self.token_ids = token_ids if token_ids is not None else []
        self.kind = kind
        return self

    def __getnewargs__(  # type: ignore[override]
        self,
    ) -> tuple[str, list[int], Kind, ToolCall | None]:
        """Let pieces be copied and pickled."""
        return (str(self), self.token_ids, self.kind, self.tool_call)


class Completion(_Text):
    """A finished generation: a ``str`` (its text) with the facts about it.

    Attributes:
        token_ids: the generated tokens; the end-of-turn token is in it, though not in the text.
        finish_reason: ``stop`` (end of turn, stop token or stop string), ``length``, ``cancelled``,
            ``deadline``, ``repetition`` (see ``repeat_limit`` of `SamplingParams`).
        usage: token counts.
        timings: times and speeds.
        spec: what drafting did for it.
        logprobs: of each token, if they were asked for; else None.
        prompt_logprobs: the same of the prompt's tokens. Nothing stands before the first: its
            place has None. None, too, of a text that ended before its prompt was computed.
        parsed: the value of a text that had to have a form: an instance of the type or the data of
            the schema, else the text itself. None without a form, and where there is a
            ``parse_problem``.
        parse_problem: why a text that had to have a form has no value: it was cut, say. None where
            it has one.
    """

    __slots__ = (
        "finish_reason",
        "logprobs",
        "parse_problem",
        "parsed",
        "prompt_logprobs",
        "spec",
        "timings",
        "token_ids",
        "usage",
    )

    token_ids: list[int]
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    spec: Speculation
    logprobs: list[TokenLogprob] | None
    prompt_logprobs: list[TokenLogprob | None] | None
    parsed: Any
    parse_problem: str | None

    def __new__(
        cls,
        text: str,
        *,
        token_ids: list[int],
        finish_reason: FinishReason,
        usage: Usage,
        timings: Timings,
        spec: Speculation = Speculation(),
        logprobs: list[TokenLogprob] | None = None,
        prompt_logprobs: list[TokenLogprob | None] | None = None,
        parsed: Any = None,
        parse_problem: str | None = None,
    ) -> Completion:
        """Make a completion of ``text``."""
        self = super().__new__(cls, text)
        self.token_ids = token_ids
        self.finish_reason = finish_reason
        self.usage = usage
        self.timings = timings
        self.spec = spec
        self.logprobs = logprobs
        self.prompt_logprobs = prompt_logprobs
        self.parsed = parsed
        self.parse_problem = parse_problem
        return self

    @property
    def text(self) -> str:
        """The generated text as a plain ``str``."""
        return str.__str__(self)

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        """Let completions be copied and pickled."""
        facts = Completion.__slots__
        return ((str(self),), {name: getattr(self, name) for name in facts})

    def __str__(self) -> str:
        """Return the text as a plain ``str``."""
        return str.__str__(self)

    def __repr__(self) -> str:
        """Return the text quoted, with the facts that matter most."""
        tokens = self.usage.completion_tokens
        return f"Completion({self.text!r}, {tokens} tokens, finish_reason={self.finish_reason!r})"

    def token_view(self) -> TokenView:
        """Return what shows how likely the model held each token, and which ones were drafted.

        In a notebook: shaded text (docs/notebook.md); elsewhere a line for each token.

        Raises:
            ValueError: the result has no logprobs.
        """
        from mtlqwen.token_view import token_view

        return token_view(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from mtlqwen import cards

        return cards.bundle(self, cards.result_card(self))


class ChatResult(Completion):
    """A finished chat turn: a ``str`` (the answer) with reasoning and tool calls beside it.

    Attributes:
        reasoning: what the model thought before it answered, or ``""``.
        tool_calls: the functions that it wants called, in its order.
        rounds: the messages of the rounds before this turn, if the chat ran its tools.
        finish_reason: as in `Completion`, or ``tool_calls`` when the turn ended with calls.
    """

    __slots__ = ("reasoning", "rounds", "tool_calls")

    reasoning: str
    tool_calls: list[ToolCall]
    rounds: list[dict[str, Any]]

    def __new__(
        cls,
        content: str,
        *,
        reasoning: str = "",
        tool_calls: list[ToolCall] | None = None,
        rounds: list[dict[str, Any]] | None = None,
        token_ids: list[int],
        finish_reason: FinishReason,
        usage: Usage,
        timings: Timings,
        spec: Speculation = Speculation(),
        logprobs: list[TokenLogprob] | None = None,
        prompt_logprobs: list[TokenLogprob | None] | None = None,
        parsed: Any = None,
        parse_problem: str | None = None,
    ) -> ChatResult:
        """Make a chat result that reads as ``content``."""
        self = super().__new__(
            cls,
            content,
            token_ids=token_ids,
            finish_reason=finish_reason,
            usage=usage,
            timings=timings,
            spec=spec,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            parsed=parsed,
            parse_problem=parse_problem,
        )
        assert isinstance(self, ChatResult)
        self.reasoning = reasoning
        self.tool_calls = tool_calls if tool_calls is not None else []
        self.rounds = rounds if rounds is not None else []
        return self

    @property
    def content(self) -> str:
        """The answer as a plain ``str``."""
        return self.text

    @property
    def message(self) -> dict[str, Any]:
        """This turn as a message, to be appended to the conversation."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [call.as_message() for call in self.tool_calls]
        return message

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All that was added to the conversation, the rounds of tools and this turn."""
        return [*self.rounds, self.message]

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:
        """Let chat results be copied and pickled."""
        args, facts = super().__getnewargs_ex__()
        own = ("reasoning", "tool_calls", "rounds")
        return (args, facts | {name: getattr(self, name) for name in own})

    def __repr__(self) -> str:
        """Return the answer quoted, with the facts that matter most."""
        parts = [repr(self.content), f"{self.usage.completion_tokens} tokens"]
        if self.reasoning:
            parts.append(f"reasoning={self.reasoning!r}")
        if self.tool_calls:
            parts.append(f"tool_calls={self.tool_calls!r}")
        return f"ChatResult({', '.join(parts)}, finish_reason={self.finish_reason!r})"
