"""A conversation that goes on: turns, a fork, a step back, a file. docs/sessions.md tells how."""

import tempfile
from pathlib import Path

from mtlqwen import ChatResult, Engine


def show(who: str, answer: ChatResult) -> None:
    """Print an answer, and how much of its prompt did not have to be computed again."""
    usage = answer.usage
    print(f"{who:8} {answer} ({usage.cached_tokens} of {usage.prompt_tokens} tokens cached)")


with Engine("tiny") as engine, tempfile.TemporaryDirectory() as folder:
    session = engine.session("You are Paul, a singer from Ankara.", thinking=False)
    show("turn 1:", session.say("What is your name?"))
    show("turn 2:", session.say("Where are you from?"))

    fork = session.fork()
    show("fork:", fork.say("What do you do for a living?"))

    session.rewind()  # as if turn 2 had never been
    print("again:   ", end="")
    for piece in session.stream("What do you do for a living?"):
        print(piece, end="", flush=True)
    print()

    path = Path(folder) / "paul.mtlq"
    kept = session.save(path)
    print(f"saved:   the state of {kept} tokens, {path.stat().st_size / 1e6:.1f} MB")
    with Engine("tiny") as other:
        show("loaded:", other.load_session(path).say("Where are you from?"))
