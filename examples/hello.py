"""One prompt, one answer, on the bundled model."""

from mtlqwen import Engine

with Engine("tiny") as engine:
    answer = engine.chat([{"role": "user", "content": "What is 61 times 11?"}], thinking=True)
    print("thought:", answer.reasoning)
    print("answer: ", answer)
    print(f"{answer.usage.completion_tokens} tokens, {answer.timings.decode_tps:.0f} tokens/s")
