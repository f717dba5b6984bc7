"""SamplingParams: how the tokens of one generation are chosen and when it ends.

Knows nothing of models and their defaults; `sampling_values` knows the ranges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from mtlqwen.sampling_values import checked


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Everything a caller may say about one generation; ``None`` means the model's default.

    Unset, ``temperature``, ``top_k``, ``top_p``, ``min_p``, ``repetition_penalty`` and
    ``max_tokens`` are those of the model's generation_config (or of its GGUF); what it does not
    name, and all others, change nothing.

    A token is chosen in this order: penalties, ``logit_bias`` and forbidden tokens change its
    logit; ``temperature`` divides it; of the probabilities that come out ``top_k``, then ``top_p``,
    then ``min_p`` keep the likeliest. Penalties look at the generated text, not at the prompt.

    Args:
        temperature: 0 is greedy; the higher, the more varied. Unset: see above, else 0.
        top_k: keep the so many likeliest tokens; 0 keeps all.
        top_p: keep the likeliest tokens that together reach this probability, above 0 to 1.
        min_p: keep tokens at least this part as likely as the likeliest one, 0 to 1.
        presence_penalty: taken off the logit of every token that came before, -100 to 100.
        frequency_penalty: the same, for each time that it came.
        repetition_penalty: the logit of every token that came before is divided by it, or
            multiplied where it is negative; 0.01 to 100, and 1 changes nothing.
        logit_bias: token id -> what is added to its logit, -1000 to 1000; ``-inf`` forbids it.
        allowed_token_ids: the only tokens that may be chosen; the end of the turn comes only if
            its token is among them.
        bad_words: strings or lists of token ids that are not generated. A string is forbidden as it
            is tokenised by itself, and with a space before it; other spellings are other words. One
            that the prompt has begun is not completed.
        seed: 0 to 2**64 - 1; the same seed gives the same text. Unset: a fresh random one. Without
            effect at temperature 0.
        n: how many texts to generate for a prompt, 1 to 64, with one seed but each drawn for
            itself. For `Engine.generate` and `Engine.agenerate`, which return a list where it is
            set.
        max_tokens: how many tokens to generate at most, 1 or more; the end of the context ends a
            generation too. Unset: see above, else 4096.
        min_tokens: so many tokens come before one that ends the text, and before stop strings are
            looked for; 0 to ``max_tokens``.
        stop: a string or strings that end the text; the text ends before the first one that
            appears. In a chat they are looked for in the answer, not in reasoning or tool calls.
        stop_token_ids: tokens that end the text, beside the model's own, whatever ``ignore_eos``.
        ignore_eos: go on past the model's own end-of-turn tokens.
        repeat_limit: end the text, with ``finish_reason="repetition"``, when it goes round in
            circles: its last tokens, at least so many, are one phrase of up to 1024 tokens three
            times or more. 3 or more. Unset: it may.
        logprobs: 0 to 20: the result tells the logarithm of the probability of every token, and of
            so many of the likeliest in its place, before all of the options above change it.
        prompt_logprobs: the same for the tokens of the prompt, which is computed whole then,
            whatever is cached of it.
        thinking: for chats: reason before the answer, or not; or how many tokens of reasoning there
            may be before it is cut off and the answer begins. Unset: as the model's template says.
        preserve_thinking: for chats: keep the reasoning of all earlier turns in the prompt, or only
            that since the last user message. For models whose template reads it (3.6, 3.8).
        reasoning_effort: for chats: what the template of a model knows (3.8: ``"low"``,
            ``"medium"``, ``"xhigh"``).

    Raises:
        TypeError: a value has the wrong type.
        ValueError: a value is out of its range.

    Example:
        >>> SamplingParams(temperature=0.7, top_k=20, seed=42, stop="END").stop
        ('END',)
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Mapping[int, float] | Sequence[tuple[int, float]] | None = None
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str | Sequence[int]] | None = None
    seed: int | None = None
    n: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool | None = None
    repeat_limit: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    thinking: bool | int | None = None
    preserve_thinking: bool | None = None
    reasoning_effort: str | None = None
    schema: object = None
    regex: str | None = None
    choices: Sequence[str] | None = None
    grammar: str | None = None
    tool_choice: str | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Check every value that was given and bring it to one form: sequences become tuples."""
        for name, value in self.given().items():
            object.__setattr__(self, name, checked(name, value))
        least, most = self.min_tokens, self.max_tokens
        if least is not None and most is not None and least > most:
            raise ValueError(
                f"[sampling] min_tokens: more than max_tokens (got {least}, want at most {most}); "
                "raise max_tokens"
            )

        if len(self.form) > 1:
            got = " and ".join(self.form)
            raise ValueError(f"[sampling] form: a text has one (got {got}); leave the others out")

    def __eq__(self, other: object) -> bool:
        """Compare all values; a budget of 0 tokens is another one than False."""
        if not isinstance(other, SamplingParams):
            return NotImplemented
        return self._values() == other._values()

    def _values(self) -> tuple[object, ...]:
        values = (getattr(self, name) for name in OPTIONS)
        return (type(self.thinking), *values)

    def given(self) -> dict[str, Any]:
        """Return the values that are set."""
        return {name: value for name in OPTIONS if (value := getattr(self, name)) is not None}

    def merged(self, *over: SamplingParams) -> SamplingParams:
        """Return these parameters with every value that one of ``over`` sets; the last one wins.

        A form takes the place of any other.
        """
        given = self.given()
        for params in over:
            if params.form:
                given = {name: value for name, value in given.items() if name not in FORMS}
            given |= params.given()
        return SamplingParams(**given)

    @property
    def form(self) -> dict[str, Any]:
        """The one option that says what the text has to be, or nothing."""
        return {name: value for name in FORMS if (value := getattr(self, name)) is not None}

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The stop strings, as a tuple that may be empty."""
        return self.stop if isinstance(self.stop, tuple) else ()

    @property
    def biases(self) -> tuple[tuple[int, float], ...]:
        """The biases, as pairs of token and bias, ascending."""
        return self.logit_bias if isinstance(self.logit_bias, tuple) else ()

    @property
    def reasons(self) -> bool | None:
        """Whether a chat's template is told to let the model think; a budget says that it is."""
        return None if self.thinking is None else self.thinking is not False

    @property
    def template_options(self) -> dict[str, Any]:
        """What the template of a chat is told beside ``reasons``."""
        names = ("preserve_thinking", "reasoning_effort")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def thinking_budget(self) -> int | None:
        """How many tokens of reasoning there may be."""
        return None if isinstance(self.thinking, bool) else self.thinking


FORMS = ("schema", "regex", "choices", "grammar")
OPTIONS = tuple(field.name for field in fields(SamplingParams))


class Keywords(TypedDict, total=False):
    """The fields of `SamplingParams` as keywords of a call, but for those that need more.

    ``n`` decides what `Engine.generate` returns; ``thinking``, ``tool_choice`` and the like are for
    chats.
    """

    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    logit_bias: Mapping[int, float] | Sequence[tuple[int, float]] | None
    allowed_token_ids: Sequence[int] | None
    bad_words: Sequence[str | Sequence[int]] | None
    seed: int | None
    max_tokens: int | None
    min_tokens: int | None
    stop: str | Sequence[str] | None
    stop_token_ids: Sequence[int] | None
    ignore_eos: bool | None
    repeat_limit: int | None
    logprobs: int | None
    prompt_logprobs: int | None
    schema: object
    regex: str | None
    choices: Sequence[str] | None
    grammar: str | None


class ChatKeywords(Keywords, total=False):
    """The same for chats."""

    thinking: bool | int | None
    preserve_thinking: bool | None
    reasoning_effort: str | None
    tool_choice: str | Mapping[str, Any] | None


def params_of(keywords: Mapping[str, Any]) -> SamplingParams:
    """Return what the keywords of a call say.

    Raises:
        TypeError, ValueError: as `SamplingParams`; or it knows no such keyword.
    """
    for name in keywords:
        if name not in OPTIONS:
            raise TypeError(f"[sampling] {name}: no such keyword (want {', '.join(OPTIONS)})")
    return SamplingParams(**keywords)
