"""Options of sampling on the bundled model, from the call to the result."""

from __future__ import annotations

import math

import pytest
from mtlqwen import Completion, Engine, SamplingParams

PROMPT = "Once upon a time there was a small robot who"
QUESTION = [{"role": "user", "content": "What is 61 times 11?"}]


@pytest.fixture(scope="module")
def plain() -> Engine:
    return Engine("tiny", deterministic=True, spec="off")


@pytest.fixture(scope="module")
def drafting() -> Engine:
    return Engine("tiny", deterministic=True)


def test_n_texts_share_their_prompt_and_differ(plain: Engine, drafting: Engine) -> None:
    prompt = PROMPT + " walked and walked" * 40
    varied = SamplingParams(temperature=1.0, top_p=0.95, seed=5, max_tokens=24)
    texts = drafting.generate(prompt, n=4, sampling=varied)
    assert len({text.text for text in texts}) == 4
    assert texts[0] == drafting.generate(prompt, sampling=varied)
    assert texts == plain.generate(prompt, n=4, sampling=varied)
    for text in texts[1:]:
        assert text.usage.cached_tokens == text.usage.prompt_tokens - 1


@pytest.mark.parametrize("budget", [0, 1, 2, 5, 12])
def test_a_budget_cuts_reasoning_and_the_answer_begins(
    plain: Engine, drafting: Engine, budget: int
) -> None:
    free = plain.chat(QUESTION, thinking=True, max_tokens=100)
    assert free.usage.reasoning_tokens > 20
    cut = plain.chat(QUESTION, thinking=budget, max_tokens=100, logprobs=1)
    assert cut.token_ids[:budget] == free.token_ids[:budget]
    assert free.reasoning.startswith(cut.reasoning)
    assert len(cut.reasoning) < len(free.reasoning)
    assert cut.content
    assert cut.finish_reason == "stop"
    assert cut.logprobs is not None
    closing = cut.logprobs[budget]
    assert (closing.logprob, closing.top) == (0.0, ())
    same = drafting.chat(QUESTION, thinking=budget, max_tokens=100, logprobs=1)
    assert (same.token_ids, same.logprobs) == (cut.token_ids, cut.logprobs)


def test_a_budget_that_is_not_reached_changes_nothing(plain: Engine) -> None:
    free = plain.chat(QUESTION, thinking=True, max_tokens=100)
    assert plain.chat(QUESTION, thinking=90, max_tokens=100).token_ids == free.token_ids


def test_max_tokens_may_end_within_what_closes(plain: Engine) -> None:
    cut = plain.chat(QUESTION, thinking=5, max_tokens=6)
    assert (len(cut.token_ids), cut.finish_reason) == (6, "length")


def test_logprobs_are_of_the_model_itself(plain: Engine, drafting: Engine) -> None:
    def generate(engine: Engine, sampling: SamplingParams | None = None) -> Completion:
        return engine.generate(PROMPT, max_tokens=30, logprobs=20, seed=3, sampling=sampling)

    greedy = generate(plain)
    assert greedy.logprobs is not None
    for token, token_id in zip(greedy.logprobs, greedy.token_ids, strict=True):
        assert token.token_id == token.top[0].token_id == token_id
        assert token.logprob == token.top[0].logprob
        values = [other.logprob for other in token.top]
        assert values == sorted(values, reverse=True)
        assert 0 < math.fsum(map(math.exp, values)) <= 1 + 1e-5
    first = greedy.logprobs[0]
    bias = generate(plain, SamplingParams(temperature=0.9, presence_penalty=2.0, top_k=5)).logprobs
    assert bias is not None
    assert bias[0].top == first.top, "options change the choice, not what is told"
    for sampling in (None, SamplingParams(temperature=0.9, presence_penalty=2.0, top_p=0.9)):
        assert generate(drafting, sampling).logprobs == generate(plain, sampling).logprobs


def test_a_prompt_is_told_as_it_was_generated(plain: Engine, drafting: Engine) -> None:
    """The logprobs of a text are those that it has as a prompt."""
    first = plain.generate(PROMPT, max_tokens=40, logprobs=3)
    prompt = plain.tokenizer.encode(PROMPT)
    again = [*prompt, *first.token_ids]
    for engine in (plain, drafting):
        told = engine.generate(again, max_tokens=1, prompt_logprobs=3)
        assert told.prompt_logprobs is not None
        assert told.prompt_logprobs[0] is None
        assert told.prompt_logprobs[len(prompt) :] == first.logprobs
        assert [each.token_id for each in told.prompt_logprobs if each] == again[1:]
        assert told.logprobs is None
        assert told.usage.cached_tokens == 0
    groups = drafting.generate([again, prompt, again[:1]], n=2, max_tokens=2, prompt_logprobs=0)
    for one, other in groups:
        assert one.prompt_logprobs == other.prompt_logprobs
    assert [len(one.prompt_logprobs or ()) for one, _ in groups] == [len(again), len(prompt), 1]


def test_chats_and_streams_tell_their_prompts(drafting: Engine) -> None:
    answer = drafting.chat(QUESTION, max_tokens=3, prompt_logprobs=1)
    assert answer.prompt_logprobs is not None
    assert len(answer.prompt_logprobs) == answer.usage.prompt_tokens
    streamed = drafting.stream(QUESTION, max_tokens=3, prompt_logprobs=1).result()
    assert streamed.prompt_logprobs == answer.prompt_logprobs
    assert drafting.chat(QUESTION, max_tokens=3).prompt_logprobs is None


def test_what_is_forbidden_does_not_come(plain: Engine) -> None:
    free = plain.generate(PROMPT, max_tokens=40)
    word = free.text.split()[1]
    for temperature in (0.0, 1.0):
        text = plain.generate(
            PROMPT, max_tokens=40, bad_words=[word], temperature=temperature, seed=1
        ).text
        assert word not in text.split()
    tokens = plain.tokenizer.encode(" yes") + plain.tokenizer.encode(" no")
    answer = plain.generate("Is it?", max_tokens=6, allowed_token_ids=tokens, temperature=1.0)
    assert set(answer.token_ids) <= set(tokens)


def test_circles_end(plain: Engine) -> None:
    circle = plain.generate(
        "a b c a b c a b c a b", max_tokens=300, ignore_eos=True, repeat_limit=12
    )
    assert circle.finish_reason == "repetition"
    assert len(circle.token_ids) < 300
