"""`mtlqwen demo`: what the bundled model can do, and how fast, in a minute.

Uses the public surface only.
"""

from __future__ import annotations

import sys
import time

from mtlqwen.engine import Engine
from mtlqwen.reader import Stream
from mtlqwen.result import ChatResult, Completion
from mtlqwen.screen import Screen, show_stream

_QUESTION = "What is 61 times 11?"
_TOOL_QUESTION = "Find an orange umbrella for less than 45 dollars."
_STORY = "Write a short story about a farmer named Clara, a lion and a white flute."
_SEARCH = {
    "type": "function",
    "function": {
        "name": "search_products",
        "description": "Search the shop for products.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "Search words"},
                "max_price": {"type": "number", "description": "Highest price"},
            },
            "required": ["query", "max_price"],
        },
    },
}
_EIGHT = (
    "Tell me about Germany in one sentence.",
    "What is 44 centimeters in millimeters?",
    "What is the next number in the sequence 36, 42, 48, 54?",
    'What does the Italian word "buongiorno" mean in German?',
    "Make a bulleted list: purple, red, brown, gray",
    "Leo is taller than Clara. Lucy is taller than Leo. Who is the tallest?",
    "Repeat after me: The farmer from Tunis bought 13 umbrellas.",
    "Maria shares 76 tables equally among 4 friends. How many tables does each friend get?",
)


def run_demo(
    model: str = "tiny",
    *,
    threads: int | None = None,
    spec: str = "auto",
    drafter: str | None = None,
) -> None:
    """Show a chat with reasoning, a tool call, a story, and eight prompts at once."""
    screen = Screen(sys.stdout)
    screen.write("mtlqwen demo: a small Qwen 3.5 model, trained on synthetic tasks, runs here.\n")
    started = time.perf_counter()
    with Engine(model, threads=threads, spec=spec, drafter=drafter) as engine:
        loaded = time.perf_counter() - started
        screen.write(f"{engine!r} loaded in {loaded:.2f} s\n")
        chat = _show_chat(screen, engine)
        _show_tool_call(screen, engine)
        story = _show_story(screen, engine)
        together = _show_eight(screen, engine)
        _show_table(screen, engine, [chat, story], together)


def _show_chat(screen: Screen, engine: Engine) -> Completion:
    screen.heading("A chat, with reasoning")
    screen.write(f"> {_QUESTION}\n")
    stream = engine.stream([{"role": "user", "content": _QUESTION}], thinking=True, temperature=0)
    return show_stream(screen, stream)


def _show_tool_call(screen: Screen, engine: Engine) -> None:
    screen.heading("A tool call")
    screen.write(f"> {_TOOL_QUESTION}\n")
    messages = [{"role": "user", "content": _TOOL_QUESTION}]
    result = show_stream(
        screen, engine.stream(messages, tools=[_SEARCH], thinking=False, temperature=0)
    )
    if isinstance(result, ChatResult):
        for call in result.tool_calls:
            screen.write(f"parsed: {call.name}({call.arguments})\n", "bold")


def _show_story(screen: Screen, engine: Engine) -> Completion:
    screen.heading("A story (temperature 0.8, seed 7)")
    screen.write(f"> {_STORY}\n")
    messages = [{"role": "user", "content": _STORY}]
    return show_stream(
        screen,
        engine.stream(messages, thinking=False, temperature=0.8, seed=7, max_tokens=160),
    )


def _show_eight(screen: Screen, engine: Engine) -> tuple[list[Completion], float]:
    """Answer eight questions together; return the answers and how long it took."""
    screen.heading("Eight at once")
    streams: list[Stream] = []
    started = time.perf_counter()
    for prompt in _EIGHT:
        messages = [{"role": "user", "content": prompt}]
        streams.append(engine.stream(messages, thinking=True, temperature=0, max_tokens=128))
    results = [stream.result() for stream in streams]
    seconds = time.perf_counter() - started
    for prompt, result in zip(_EIGHT, results, strict=True):
        screen.write(f"> {prompt}\n  {' / '.join(result.splitlines())}\n")
    return results, seconds


def _show_table(
    screen: Screen,
    engine: Engine,
    alone: list[Completion],
    together: tuple[list[Completion], float],
) -> None:
    results, seconds = together
    tokens = sum(result.usage.completion_tokens for result in results)
    prompt_tokens = sum(result.usage.prompt_tokens for result in results)
    stats = engine.stats()
    rows = [
        ("one sequence alone", f"{max(one.timings.decode_tps for one in alone):.1f} tokens/s"),
        ("first token, alone", f"{alone[0].timings.ttft_s * 1000:.0f} ms"),
        ("eight together", f"{tokens / seconds:.1f} tokens/s ({prompt_tokens} prompt tokens too)"),
        ("first token, eight", f"{max(r.timings.ttft_s for r in results) * 1000:.0f} ms (last)"),
        ("memory", f"{float(stats['memory_bytes']) / 2**20:.0f} MiB, weights included"),
    ]
    screen.heading("Numbers")
    for name, value in rows:
        screen.write(f"{name:<20} {value}\n")
