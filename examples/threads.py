"""One engine, many threads: whoever asks waits for its own answer, and all share the passes."""

import time
from concurrent.futures import ThreadPoolExecutor

from mtlqwen import ChatResult, Engine

QUESTIONS = [f"What is {number} plus {number}?" for number in range(3, 15)]

with Engine("tiny", slots=8) as engine, ThreadPoolExecutor(max_workers=6) as pool:

    def ask(question: str) -> ChatResult:
        """Answer one question; called in any thread."""
        return engine.chat([{"role": "user", "content": question}], temperature=0, max_tokens=60)

    started = time.perf_counter()
    answers = list(pool.map(ask, QUESTIONS))
    seconds = time.perf_counter() - started

    for question, answer in zip(QUESTIONS, answers, strict=True):
        print(f"{question:24} {' '.join(answer.split())}")
    tokens = sum(answer.usage.completion_tokens for answer in answers)
    print(f"{tokens} tokens, {tokens / seconds:.0f} a second, {engine.stats()['passes']} passes")
