"""A long chat and an agent's work, as an engine meets them: calls that grow, branch and go back.

A replay is a generator. It yields the calls that come together and is sent their results; what it
does next depends on those and on its seed alone. `play` runs one, and says of each call how much of
its prompt nobody had computed before.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from mtlqwen import ChatResult, Engine
from mtlqwen.assets import load_assets
from mtlqwen.chat import ChatFormat
from mtlqwen.hub import resolve
from mtlqwen.template import ChatTemplate

Message: TypeAlias = dict[str, Any]
Tokens: TypeAlias = npt.NDArray[np.int32]
SHARED_SYSTEM = 8  # calls that come together under one system prompt

_NAMES = ("Clara", "Leo", "Lucy", "Maria", "Hana", "Omar", "Ivan", "Nora")
_THINGS = ("umbrella", "flute", "radio", "table", "lamp", "basket", "drum", "kettle")
_COLOURS = ("red", "brown", "gray", "purple", "green", "orange", "white", "yellow")
_VERBS = ("order", "describe", "count", "paint", "mend")
_RULES = (
    "Every order has a number, a colour and a price.",
    "Prices are whole dollars; nothing is free.",
    "A customer who asks for a colour gets that colour or none.",
    "Say what you found before you say what you think of it.",
    "Never promise a day of delivery.",
    "Orders above one hundred dollars are sent in two boxes.",
)


@dataclass(frozen=True)
class Call:
    """What one `Engine.chat` is given."""

    kind: str  # what the replay does with it
    messages: list[Message]
    tools: list[dict[str, Any]] | None
    thinking: bool
    max_tokens: int


Replay: TypeAlias = Generator[list[Call], list[ChatResult], None]


@dataclass(frozen=True)
class Answered:
    """A call of the bundled model and what became of it."""

    step: int  # of the replay; those that came together have the same
    call: Call
    prompt: Tokens
    new: int  # tokens behind the longest part of the prompt that somebody had computed before
    result: ChatResult

    @property
    def computed(self) -> int:
        """Tokens of the prompt that the cache did not spare."""
        usage = self.result.usage
        return usage.prompt_tokens - usage.cached_tokens


def chat_format() -> ChatFormat:
    """Messages to tokens as the bundled model's engine does it."""
    assets = load_assets(resolve("tiny"))
    assert assets.template
    return ChatFormat(ChatTemplate(assets.template), assets.tokenizer)


def ask(engine: Engine, calls: Sequence[Call]) -> list[ChatResult]:
    """Run calls together, greedily."""
    handles = [
        engine.submit(
            call.messages,
            tools=call.tools,
            thinking=call.thinking,
            max_tokens=call.max_tokens,
            temperature=0.0,
        )
        for call in calls
    ]
    results = [handle.result(timeout=300) for handle in handles]
    return [result for result in results if isinstance(result, ChatResult)]


def n_shared(a: Tokens, b: Tokens) -> int:
    """Tokens that both begin with."""
    n = min(a.size, b.size)
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if differ.size else n


def play(engine: Engine, replay: Replay) -> Iterator[Answered]:
    """Run a replay; of calls that come together, each may use what those before it compute."""
    encoder = chat_format()
    seen: list[Tokens] = []
    calls = next(replay)
    step = 0
    while True:
        encoded = [encoder.encode(call.messages, call.tools, call.thinking) for call in calls]
        prompts = [np.array(token_ids, np.int32) for token_ids in encoded]
        results = ask(engine, calls)
        for i, (call, prompt, result) in enumerate(zip(calls, prompts, results, strict=True)):
            known = max((n_shared(prompt, other) for other in seen + prompts[:i]), default=0)
            yield Answered(step, call, prompt, prompt.size - known, result)
        for prompt, result in zip(prompts, results, strict=True):
            seen.append(np.concatenate([prompt, np.array(result.token_ids, np.int32)]))
        step += 1
        try:
            calls = replay.send(results)
        except StopIteration:
            return


def long_chat(n_turns: int, *, seed: int = 0, max_tokens: int = 48, limit: int = 6000) -> Replay:
    """A chat of n_turns, begun anew under its system prompt where a prompt passes the limit."""
    rng = random.Random(seed)
    messages = [_system(rng, 12)]
    for _ in range(n_turns):
        messages.append(_user(_question(rng)))
        [result] = yield [Call("turn", list(messages), None, rng.random() < 0.3, max_tokens)]
        messages.append(result.message)
        if result.usage.prompt_tokens > limit:
            del messages[1:]


def agent(
    n_steps: int,
    *,
    seed: int = 0,
    max_tokens: int = 32,
    n_rules: int = 24,
    n_tools: int = 3,
    limit: int = 4000,
) -> Replay:
    """An agent's n_steps: tasks, tool calls and results, edits, going back, two branches in turns.

    It begins, and every forty steps begins again, with eight calls under one new system prompt.
    Tools stand before it, so they are new, too.
    """
    return _Agent(random.Random(seed), max_tokens, n_rules, n_tools, limit).run(n_steps)


@dataclass
class _Agent:
    rng: random.Random
    max_tokens: int
    n_rules: int
    n_tools: int
    limit: int  # tokens of a prompt, behind which a branch begins anew
    tools: list[dict[str, Any]] = field(default_factory=list)

    def run(self, n_steps: int) -> Replay:
        branches: list[list[Message]] = []
        for step in range(n_steps):
            if step % 40 == 0:
                first = f"{_VERBS[step // 40 % len(_VERBS)]}_{self.rng.choice(_THINGS)}"
                names = (first, "search_products", "read_file")
                self.tools = [_tool(name) for name in names[: self.n_tools]]
                system = _system(self.rng, self.n_rules)
                yield [self._call("together", [system, self._task()]) for _ in range(SHARED_SYSTEM)]
                branches = [[system], [system]]
                continue
            here = branches[step % 2]
            kind = self._move(here)
            [result] = yield [self._call(kind, here)]
            here.append(self._answer(result))
            if result.usage.prompt_tokens > self.limit:
                del here[1:]
            elif self.rng.random() < 0.08:
                branches[1 - step % 2] = list(here)

    def _move(self, here: list[Message]) -> str:
        """Change a conversation so that the model is to speak next; what was done."""
        asked = [i for i, message in enumerate(here) if message["role"] == "user"]
        chance = self.rng.random()
        if asked and chance < 0.1:
            del here[self.rng.choice(asked[-4:]) :]
            here.append(self._task())
            return "rewind"
        calls = here[-1].get("tool_calls")
        here += [self._result() for _ in calls] if calls else [self._task()]
        if asked and chance < 0.2:
            here[self.rng.choice(asked[-4:])] = self._task()
            return "edit"
        return "result" if calls else "task"

    def _call(self, kind: str, messages: Sequence[Message]) -> Call:
        thinking = self.rng.random() < 0.3
        return Call(kind, list(messages), self.tools, thinking, self.max_tokens)

    def _task(self) -> Message:
        thing = f"{self.rng.choice(_COLOURS)} {self.rng.choice(_THINGS)}"
        if self.rng.random() < 0.4:
            return _user(_question(self.rng))
        return _user(f"Find a {thing} for less than {self.rng.randint(5, 99)} dollars.")

    def _answer(self, result: ChatResult) -> Message:
        """What the model said, or often a call of a tool in its place."""
        if result.tool_calls or self.rng.random() < 0.5:
            return result.message
        name = self.rng.choice(self.tools)["function"]["name"]
        arguments = {"query": self.rng.choice(_THINGS), "limit": self.rng.randint(1, 9)}
        call = {"type": "function", "function": {"name": name, "arguments": arguments}}
        return {"role": "assistant", "content": "", "tool_calls": [call]}

    def _result(self) -> Message:
        rows = [
            {"name": self.rng.choice(_THINGS), "price": self.rng.randint(1, 99)}
            for _ in range(self.rng.randint(1, 12))
        ]
        return {"role": "tool", "content": str(rows)}


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _system(rng: random.Random, n_rules: int) -> Message:
    rules = [f"{i + 1}. {rng.choice(_RULES)}" for i in range(n_rules)]
    intro = f"You work in the shop of {rng.choice(_NAMES)}, number {rng.randint(1, 999)}."
    return {"role": "system", "content": "\n".join([intro, *rules])}


def _tool(name: str) -> dict[str, Any]:
    properties = {
        "query": {"type": "string", "description": "Words that are in what is looked for"},
        "max_price": {"type": "number", "description": "Highest price in dollars"},
        "limit": {"type": "integer", "description": "Most results that come back"},
    }
    parameters = {"type": "object", "properties": properties, "required": ["query"]}
    what = name.replace("_", " ").capitalize()
    function = {"name": name, "description": f"{what}, here.", "parameters": parameters}
    return {"type": "function", "function": function}


def _question(rng: random.Random) -> str:
    names = rng.sample(_NAMES, 3)
    things = rng.sample(_COLOURS, 4)
    a, b = rng.randint(2, 99), rng.randint(2, 12)
    return rng.choice(
        (
            f"What is {a} times {b}?",
            f"What is {a} centimeters in millimeters?",
            f"What is the next number in the sequence {a}, {a + b}, {a + 2 * b}, {a + 3 * b}?",
            f"Make a bulleted list: {', '.join(things)}",
            f"{names[0]} is taller than {names[1]}. {names[2]} is taller than {names[0]}. "
            "Who is the tallest?",
            f"Repeat after me: {names[0]} bought {a} {rng.choice(_THINGS)}s.",
            f"{names[0]} shares {a * b} tables equally among {b} friends. "
            "How many tables does each friend get?",
        )
    )
