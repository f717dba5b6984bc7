"""A program with a loop of its own, a game for instance, that runs the model between its frames."""

import time

from mtlqwen import Engine, Handle

FRAME_S = 1 / 60


def draw(frame: int, handles: dict[str, Handle]) -> None:
    """Show the frame: here, how far the answers are."""
    if frame % 20 == 0:
        print(frame, {name: repr(handle) for name, handle in handles.items()})


with Engine("tiny") as engine:
    engine.step()  # from here on no thread of the engine's runs passes: this one does
    handles = {
        "guard": engine.submit(
            [{"role": "user", "content": "Good morning"}], thinking=False, priority=1
        ),
        "bard": engine.submit("Once upon a time", max_tokens=40),
    }
    frame = 0
    while not all(handle.done for handle in handles.values()):
        end = time.perf_counter() + FRAME_S
        draw(frame, handles)
        while time.perf_counter() < end and engine.step():
            pass  # one pass each; what is left of the frame decides how many
        frame += 1
    print(frame, "frames")
    for name, handle in handles.items():
        print(f"{name}: {handle.result()}")
