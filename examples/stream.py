"""Text as it comes: each piece is a string that knows whether it is reasoning or answer."""

from mtlqwen import Engine

with Engine("tiny") as engine:
    story = [
        {"role": "user", "content": "Write a story with Hana, Noah, a monkey and a red radio."}
    ]
    for piece in engine.stream(story, temperature=0.8, seed=1, max_tokens=120):
        print(f"[{piece}]" if piece.kind == "reasoning" else piece, end="", flush=True)
    print()
