"""Sessions and the prefix cache with the bundled model: what is said, what is computed again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mtlqwen import Engine, FormatError, ModelError, Session, ToolCall

SYSTEM = "You are Paul, a singer from Ankara."
QUESTIONS = {
    "What is your name?": "My name is Paul.",
    "Where are you from?": "I live in Ankara.",
    "What do you do for a living?": "I work as a singer.",
}
FILLER = "Once upon a time there was a monkey who had a red radio. " * 40
READ_FILE = {
    "name": "read_file",
    "description": "Read a text file.",
    "parameters": {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "File path"}},
        "required": ["path"],
    },
}
CANDLE = "The teacher from Ljubljana bought 3 hammers."


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine("tiny", deterministic=True, slots=4) as engine:
        yield engine


@pytest.fixture(scope="module")
def cold() -> Iterator[Engine]:
    """An engine that computes every prompt as a whole."""
    with Engine("tiny", deterministic=True, slots=4, cache_memory=0) as engine:
        yield engine


def ask(session: Session, question: str) -> int:
    """Check an answer; return how many tokens of its prompt came from the cache."""
    answer = session.say(question)
    assert answer == QUESTIONS[question]
    return answer.usage.cached_tokens


def test_a_session_says_what_a_cold_engine_says(engine: Engine, cold: Engine) -> None:
    for thinking in (False, True):
        sessions = [one.session(SYSTEM, thinking=thinking) for one in (engine, cold)]
        for question in [*QUESTIONS, *QUESTIONS]:
            warm, whole = (session.say(question, max_tokens=60) for session in sessions)
            assert warm.token_ids == whole.token_ids
            assert warm.usage.prompt_tokens == whole.usage.prompt_tokens
            assert whole.usage.cached_tokens == 0
        assert warm.usage.cached_tokens > 0


def test_each_turn_begins_where_the_one_before_it_ended(engine: Engine) -> None:
    session = engine.session(SYSTEM + " " + FILLER, thinking=False)
    ends: list[int] = []
    for number in range(4):
        answer = session.say(f"Good morning {number}", max_tokens=8)
        if ends:
            assert answer.usage.cached_tokens >= ends[-1]
        messages = session.messages[:-1]
        prompt = engine._prepare.format.encode(messages, None, False)
        ends.append(engine._prepare.format.boundaries(prompt)[-1])


def test_a_system_prompt_is_shared_by_sessions(engine: Engine) -> None:
    first, second = (engine.session("Be brief. " + FILLER, thinking=False) for _ in range(2))
    first.say("Good morning", max_tokens=4)
    length = first.say("Good morning", max_tokens=4).usage.prompt_tokens
    assert second.say("Good evening", max_tokens=4).usage.cached_tokens > length // 2


def test_forks_and_rewinds_go_on_from_what_is_there() -> None:
    with Engine("tiny") as engine:
        session = engine.session(SYSTEM, thinking=False)
        assert ask(session, "What is your name?") == 0
        second = ask(session, "Where are you from?")
        assert second > 0
        fork = session.fork()
        assert ask(fork, "What do you do for a living?") > second
        session.rewind()
        assert ask(session, "What do you do for a living?") >= second
        assert len(session.messages) == 5
        assert len(fork.messages) == 7
        engine.check_integrity()


def test_forks_in_threads_say_what_a_cold_engine_says(engine: Engine, cold: Engine) -> None:
    texts = [*QUESTIONS, "Good morning", "What is 61 times 11?", "Repeat after me: 335 157"]

    def run(one: Engine) -> list[list[int]]:
        session = one.session(SYSTEM + " Be kind.", thinking=True)
        session.say("Good morning", max_tokens=30)
        forks = [session.fork() for _ in texts]
        with ThreadPoolExecutor(len(texts)) as pool:
            answers = list(pool.map(lambda fork, text: fork.say(text, max_tokens=40), forks, texts))
            answers += pool.map(lambda fork: fork.say("Good morning", max_tokens=20), forks)
        return [answer.token_ids for answer in answers]

    assert run(engine) == run(cold)
    engine.check_integrity()


def test_a_loop_of_calls_reuses_all_before_it(engine: Engine, cold: Engine) -> None:
    said: list[dict[str, Any]] = [{"role": "tool", "content": CANDLE}]
    answers = []
    for one in (engine, cold):
        session = one.session("You are a helpful assistant.", [READ_FILE], thinking=False)
        call = session.say("Show me what is in /data/candle.md.")
        assert call.tool_calls == [ToolCall("read_file", {"path": "/data/candle.md"})]
        answers.append(session.say(said))
        assert answers[-1] == f"The file /data/candle.md contains:\n\n{CANDLE}"
    assert answers[0].token_ids == answers[1].token_ids
    assert answers[0].usage.cached_tokens > answers[1].usage.cached_tokens == 0


def test_an_idle_session_holds_no_slot(engine: Engine) -> None:
    sessions = [engine.session(f"You are Paul {n}.", thinking=False) for n in range(8)]
    for session in sessions:  # twice as many as slots
        session.say("Good morning", max_tokens=2)
    assert engine.stats()["live"] == 0
    assert all(session.say("Hello", max_tokens=2).usage.cached_tokens for session in sessions)


def test_a_saved_session_goes_on_in_another_engine(engine: Engine, tmp_path: Path) -> None:
    session = engine.session(SYSTEM, thinking=False)
    ask(session, "What is your name?")
    path = tmp_path / "paul.mtlq"
    kept = session.save(path)
    assert kept > 0
    with Engine("tiny", deterministic=True) as other:
        loaded = other.load_session(path)
        assert loaded.messages == session.messages
        assert ask(loaded, "Where are you from?") >= kept


def test_a_damaged_file_is_refused(engine: Engine, tmp_path: Path) -> None:
    session = engine.session(SYSTEM, thinking=False)
    ask(session, "What is your name?")
    path = tmp_path / "paul.mtlq"
    session.save(path)
    data = bytearray(path.read_bytes())
    refused = 0
    with Engine("tiny", deterministic=True) as other:
        for at in range(0, len(data), len(data) // 100 + 1):
            data[at] ^= 1
            path.write_bytes(data)
            data[at] ^= 1
            try:
                loaded = other.load_session(path)
            except (FormatError, ModelError):  # the fingerprint of the model may be what was hit
                refused += 1
                continue
            assert loaded.messages == session.messages  # only what pads the file was hit
        assert refused > 50
        path.write_bytes(data)
        ask(other.load_session(path), "Where are you from?")


def test_without_a_cache_sessions_work_and_are_saved(cold: Engine, tmp_path: Path) -> None:
    session = cold.session(SYSTEM, thinking=False)
    assert ask(session, "What is your name?") == 0
    assert session.save(tmp_path / "a") == 0
    assert ask(cold.load_session(tmp_path / "a"), "Where are you from?") == 0


def test_a_directory_keeps_checkpoints_across_engines(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": FILLER}, {"role": "user", "content": "Good morning"}]
    cached = []
    for _ in range(2):
        with Engine("tiny", deterministic=True, cache_dir=tmp_path) as engine:
            answer = engine.chat(messages, max_tokens=4, thinking=False)
            cached.append((answer.token_ids, answer.usage.cached_tokens))
    assert cached[0][1] == 0
    assert cached[1][1] > 400
    assert cached[0][0] == cached[1][0]


def test_positions_of_a_prompt_are_kept(engine: Engine) -> None:
    text = "A tale of tales. " + FILLER
    prompt = engine.tokenizer.encode(text)
    first = engine.generate(prompt, max_tokens=4, checkpoint_at=[100])
    assert first.usage.cached_tokens == 0
    other = engine.generate([*prompt[:110], *prompt[:20]], max_tokens=4)
    assert 100 <= other.usage.cached_tokens <= 110
    again = engine.generate(prompt, max_tokens=4)
    assert again.token_ids == first.token_ids
    assert len(prompt) > again.usage.cached_tokens >= len(prompt) - 256


def test_asyncio_sessions_run_together(engine: Engine) -> None:
    async def main() -> list[str]:
        sessions = [engine.session(SYSTEM, thinking=False) for _ in QUESTIONS]
        pairs = zip(sessions, QUESTIONS, strict=True)
        return list(await asyncio.gather(*(session.asay(text) for session, text in pairs)))

    assert asyncio.run(main()) == list(QUESTIONS.values())
