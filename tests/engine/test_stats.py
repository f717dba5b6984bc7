"""What `stats` counts."""

from __future__ import annotations

from engine.driving import generate, open_tiny, run_all, submit


def test_memory_is_the_sum_of_its_kinds(kernels: str) -> None:
    engine = open_tiny(kernels)
    kinds = ["weights_bytes", "weights_copied_bytes", "arena_bytes", "pool_bytes"]
    for n_prompt in (0, 3, 300):
        if n_prompt:
            generate(engine, range(10, 10 + n_prompt), max_tokens=2)
        stats = engine.stats()
        assert sum(int(stats[kind]) for kind in kinds) == stats["memory_bytes"]
        assert (stats["pool_bytes"] == 0) == (n_prompt == 0)
        assert (stats["bank_bytes"] == 0) == (n_prompt == 0)
        assert int(stats["kv_bytes"]) + int(stats["bank_bytes"]) <= int(stats["pool_bytes"])
        assert int(stats["memory_bytes"]) <= int(stats["budget_bytes"])
    engine.close()


def test_counters_of_known_work(kernels: str) -> None:
    engine = open_tiny(kernels)
    runs = [submit(engine, range(10, 10 + n), max_tokens=5) for n in (3, 20, 150)]
    assert (engine.stats()["live"], engine.stats()["waiting"]) == (0, 3)
    engine.step()
    assert (engine.stats()["live"], engine.stats()["waiting"]) == (3, 0)
    run_all(engine, runs)
    stats = engine.stats()
    assert stats["submitted"] == 3
    assert stats["tokens"] == 15
    assert stats["prefill_rows"] == 3 + 20 + 150
    assert stats["decode_rows"] == 3 * 4
    assert (stats["passes_stopped"], stats["passes_failed"], stats["preemptions"]) == (0, 0, 0)
    step_s, gpu_s, outside_s = (float(stats[key]) for key in ("step_s", "gpu_s", "outside_s"))
    assert gpu_s > 0
    assert outside_s > 0
    assert abs(step_s - gpu_s - outside_s) < 1e-6
    engine.close()
