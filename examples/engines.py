"""Two engines in one process: they share its CPU threads and the pages of the weights.

Each has slots, a context and memory of its own, so that long jobs of one take none of the other's.
"""

import threading

from mtlqwen import Engine

JOBS = [f"Write a short story about a farmer named Clara and {number} flutes." for number in "2345"]

with (
    Engine("tiny", slots=4, context=1024, memory_budget=400 << 20) as jobs,
    Engine("tiny", slots=1, context=512, memory_budget=300 << 20, spec="off") as quick,
):

    def work() -> None:
        """Tell long stories, four at a time."""
        prompts = [f"<|im_start|>user\n{job}<|im_end|>\n<|im_start|>assistant\n" for job in JOBS]
        for story in jobs.generate(prompts, max_tokens=60, temperature=0.8, seed=1):
            print("story:", " ".join(story.split())[:80])

    thread = threading.Thread(target=work)
    thread.start()
    for name in ("335 157", "12", "Hana"):
        said = quick.chat([{"role": "user", "content": f"Repeat after me: {name}"}], thinking=False)
        print("quick:", said)
    thread.join()
    for engine in (jobs, quick):
        stats = engine.stats()
        print(engine, f"{float(stats['memory_bytes']) / 2**20:.0f} MiB, {stats['passes']} passes")
