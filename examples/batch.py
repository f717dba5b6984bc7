"""Answers every line of a file, eight together, and prints JSON lines in their order.

Run: python batch.py [FILE]
"""

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from mtlqwen import Engine, Handle

QUESTIONS = """\
What is 61 times 11?
What is 44 centimeters in millimeters?
Repeat after me: 335 157
Good morning
"""


def answer(engine: Engine, lines: Iterable[str]) -> Iterator[dict[str, object]]:
    """Yield the answers in order, while those to the lines behind are on their way."""
    rest = iter(lines)

    def ask(line: str) -> tuple[str, Handle]:
        message = {"role": "user", "content": line}
        return line, engine.submit([message], temperature=0, max_tokens=200)

    waiting = [ask(line) for line in islice(rest, 2 * engine.slots)]
    while waiting:
        line, handle = waiting.pop(0)
        result = handle.result()
        yield {"question": line, "answer": result.text, "finish": result.finish_reason}
        waiting += [ask(line) for line in islice(rest, 1)]


def main() -> None:
    """Read, answer, write."""
    text = Path(sys.argv[1]).read_text() if len(sys.argv) > 1 else QUESTIONS
    lines = filter(None, map(str.strip, text.splitlines()))
    with Engine("tiny") as engine:
        for row in answer(engine, lines):
            print(json.dumps(row, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
