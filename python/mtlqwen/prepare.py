"""From what a caller says to a generation that is ready to start.

Fills in the model's defaults, brings prompts and messages to token ids, says what result to make.
Knows nothing of threads.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import starmap
from typing import Any, TypeAlias, TypeGuard

from mtlqwen.assets import Assets
from mtlqwen.chat import ChatFormat
from mtlqwen.checks import check_integer, check_number, is_listing, listed
from mtlqwen.driver import Core, Driver
from mtlqwen.errors import ModelError
from mtlqwen.forms import Forms, Held
from mtlqwen.generation import Facts, Generation
from mtlqwen.mailbox import Logprob
from mtlqwen.messages import Tools, check_tools
from mtlqwen.request import Request, Wishes
from mtlqwen.result import ChatResult, Completion, Kind, TokenLogprob
from mtlqwen.sampling import SamplingParams, params_of
from mtlqwen.stream import Transcript
from mtlqwen.template import ChatTemplate
from mtlqwen.tokenizer import Tokenizer
from mtlqwen.tool_calls import CallTypes

Prompt: TypeAlias = str | Sequence[int]
Prompts: TypeAlias = list[str] | Sequence[Sequence[int]]
Messages: TypeAlias = Sequence[Mapping[str, Any]]
Results: TypeAlias = Completion | list[Completion] | list[list[Completion]]

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
        self._wishes = Wishes(assets.tokenizer, core.vocab_size, assets.stop_ids)
        self._forms = Forms(assets.tokenizer, core.mask_words, core.set_mask_fn, assets.stop_ids)

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._assets.tokenizer

    def params(
        self,
        sampling: SamplingParams | None,
        keywords: Mapping[str, Any],
        under: SamplingParams | None = None,
    ) -> SamplingParams:
        """Return the model's defaults, under those of a session in ``under``, under ``sampling``.

        The keywords of a call go before all of them.
        """
        if sampling is not None and not isinstance(sampling, SamplingParams):
            got = type(sampling).__name__
            raise TypeError(f"[sampling] sampling: not SamplingParams (got {got})")
        over = (under, sampling, params_of(keywords))
        return self._assets.defaults.merged(*(params for params in over if params is not None))

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
        check_single(params)
        (generation,) = self._texts(prompt, params, terms, self._text_form(params))
        return generation

    def later(
        self,
        prompt: Prompt | Messages,
        added: Sequence[Mapping[str, Any]],
        tools: Tools | None,
        params: SamplingParams,
        terms: Terms,
    ) -> Generation:
        """Return a generation for messages that others follow."""
        is_empty = is_listing(prompt) and not len(prompt)  # of which `turn` says what it lacks
        if not is_messages(prompt) and not is_empty:
            raise ValueError("[chat] run_tools: only with messages (got a plain prompt)")
        if added and params.tool_choice not in (None, "none"):
            params = params.merged(SamplingParams(tool_choice="auto"))  # the call has come
        return self.turn([*prompt, *added], tools, params, terms)

    def completions(self, prompt: object, params: SamplingParams, terms: Terms) -> list[Generation]:
        """Return the generations that continue a prompt, or each one of a list: ``n`` for each."""
        prompts = prompt if is_list_of_prompts(prompt) else [prompt]
        held = self._text_form(params)
        return [text for one in prompts for text in self._texts(one, params, terms, held)]

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
        check_single(params)
        schemas = None if tools is None else check_tools(tools)
        token_ids = self.format.encode(messages, schemas, params.reasons, params.template_options)
        kind = self.format.open_kind(token_ids)
        opening = self.format.closing if kind == "reasoning" else ()
        held = self._forms.of_turn(params, schemas, opening)
        if params.tool_choice == "none":
            params = self._forms.without_calls(params)
        request = self._request(token_ids, params, terms, self.format.boundaries(token_ids))
        if params.thinking_budget is not None:
            budget = self.format.thinking_budget(token_ids, params.thinking_budget)
            request = replace(request, thinking_budget=budget)
        return self._generation(
            request,
            params,
            partial(_make_chat_result, self.tokenizer),
            held,
            marks=self.format.marks,
            kind=kind,
            types=CallTypes(schemas),
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

    def _generation(
        self,
        request: Request,
        params: SamplingParams,
        make_result: Callable[[Transcript, Facts], Completion],
        held: Held | None,
        *,
        marks: dict[int, str] | None = None,
        kind: Kind = "text",
        types: CallTypes | None = None,
    ) -> Generation:
        make_transcript = partial(
            Transcript,
            self.tokenizer.token_bytes,
            stop=params.stop_strings,
            min_tokens=request.min_tokens,
            repeat_limit=params.repeat_limit,
            marks=marks,
            kind=kind,
            types=types,
        )
        watched = bool(params.stop_strings) or params.repeat_limit is not None
        constraint = None
        if held is not None:
            constraint, known_as = self._forms.constrain(held)
            request = replace(request, constraint=known_as)
        return Generation(
            self._driver,
            request,
            make_transcript,
            make_result,
            self._forms.parser(held),
            watched=watched,
            constraint=constraint,
        )

    def _text_form(self, params: SamplingParams) -> Held | None:
        """Return the form that plain prompts' texts have to have, if any."""
        for name in ("thinking", "tool_choice", *params.template_options):
            if getattr(params, name) is not None:
                raise ValueError(f"[sampling] {name}: only for chats (got a plain prompt)")
        return self._forms.of_text(params)

    def _texts(
        self, prompt: object, params: SamplingParams, terms: Terms, held: Held | None
    ) -> list[Generation]:
        """Return ``n`` generations that continue one prompt."""
        first = self._plain_request(prompt, params, terms)
        another = replace(first, prompt_logprobs=None, recall=True)  # the first tells them
        others = [replace(another, sample_index=index) for index in range(1, params.n or 1)]
        make_result = partial(_make_completion, self.tokenizer)
        requests = (first, *others)
        return [self._generation(request, params, make_result, held) for request in requests]

    def _plain_request(self, prompt: object, params: SamplingParams, terms: Terms) -> Request:
        token_ids = self._prompt_ids(prompt)
        positions = set(terms.checkpoint_at or ())
        if positions and max(positions) > len(token_ids):
            raise ValueError(
                f"[engine] checkpoint_at: behind the end of the prompt (got {max(positions)}, want "
                f"1 to {len(token_ids)})"
            )
        if (params.n or 1) > 1 and len(token_ids) > 1:
            positions.add(len(token_ids) - 1)  # the first computes it, the others its last token
        return self._request(token_ids, params, terms, sorted(positions))

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
            **self._wishes.options(params, min(params.max_tokens, room)),
            seed=seed,
            priority=terms.priority,
            deadline_s=terms.deadline_s,
            checkpoint_at=checkpoint_at,
        )

    def _prompt_ids(self, prompt: object) -> list[int]:
        if isinstance(prompt, str):
            token_ids = self.tokenizer.encode(prompt)
        else:
            values = listed(prompt)
            if not is_listing(values):
                got = type(prompt).__name__
                raise TypeError(f"[engine] prompt: not text and no list of token ids (got {got})")
            last = self._core.vocab_size - 1
            token_ids = [check_integer("engine", "prompt", value, 0, last) for value in values]
        if not token_ids:
            raise ValueError("[engine] prompt: empty; want at least one token")
        return token_ids


def _positions(value: object) -> tuple[int, ...]:
    """Return positions in a prompt, ascending, each once."""
    values = listed(value)
    if not is_listing(values):
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


def shaped(prompt: object, params: SamplingParams, results: list[Completion]) -> Results:
    """Return the results of `Preparer.completions` in the form that was asked for.

    One prompt gives one result, or a list of them where ``n`` is set; a list gives a list of that.
    """
    many = is_list_of_prompts(prompt)
    if params.n is None:
        return results if many else results[0]
    groups = [results[at : at + params.n] for at in range(0, len(results), params.n)]
    for first, *others in groups:
        for other in others:
            other.prompt_logprobs = first.prompt_logprobs
    return groups if many else groups[0]


def check_single(params: SamplingParams) -> None:
    """Raise ValueError where several texts are asked of a call that returns one."""
    if params.n is not None and params.n > 1:
        raise ValueError(
            f"[sampling] n: only generate and agenerate return several texts (got {params.n}, want "
            "1); call this once for each text, with another seed"
        )


def _logprobs(tokenizer: Tokenizer, facts: Facts) -> dict[str, Any]:
    """Return the logprobs of a result, of its tokens and of its prompt's."""

    def named(token_id: int, logprob: float, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
        token = tokenizer.token_text(token_id)
        return TokenLogprob(token_id=token_id, token=token, logprob=logprob, top=top)

    def likeliest(top: list[tuple[int, float]]) -> tuple[TokenLogprob, ...]:
        """Leave out the gaps of tokens that nobody chose: a budget of reasoning set them."""
        return tuple(starmap(named, (pair for pair in top if pair[0] >= 0)))

    def listed(token_ids: Sequence[int], logprobs: list[Logprob]) -> list[TokenLogprob]:
        pairs = zip(token_ids, logprobs, strict=True)
        return [named(token, own, likeliest(top)) for token, (own, top) in pairs]

    own, prompt = facts.logprobs, facts.prompt_logprobs
    return {
        "logprobs": None if own is None else listed(facts.token_ids, own),
        "prompt_logprobs": (
            None if prompt is None else [None, *listed(facts.prompt_ids[1:], prompt)]
        ),
    }


def _make_completion(tokenizer: Tokenizer, transcript: Transcript, facts: Facts) -> Completion:
    return Completion(transcript.text(), **_facts(tokenizer, facts))


def _make_chat_result(tokenizer: Tokenizer, transcript: Transcript, facts: Facts) -> ChatResult:
    turned = facts.finish_reason == "stop" and bool(transcript.calls)
    told = _facts(tokenizer, facts)
    return ChatResult(
        transcript.text(),
        reasoning=transcript.text("reasoning"),
        tool_calls=list(transcript.calls),
        **told | ({"finish_reason": "tool_calls"} if turned else {}),
    )


def _facts(tokenizer: Tokenizer, facts: Facts) -> dict[str, Any]:
    return {
        "token_ids": facts.token_ids,
        "finish_reason": facts.finish_reason,
        "usage": facts.usage,
        "timings": facts.timings,
        "spec": facts.spec,
        **_logprobs(tokenizer, facts),
    }
