"""The engine's own memory: taken when needed, never past the budget, given back."""

from __future__ import annotations

from pathlib import Path

import pytest
from checkpoints import Geometry, random_model, write_gguf, write_hf
from engine.driving import Run, generate, run_all, step_and_read, submit
from engine.hash_model import bank_bytes, build_hash_kernels, least_budget
from mtlqwen import CapacityError, _core

CONTEXT = 384
GEOMETRY = Geometry(layers="ga", heads=2, kv_heads=2, vocab=288, context=CONTEXT)
BUNDLE_BYTES = 2 * 128 * 64 * 2  # K and V of one layer, 128 tokens of 2 heads of 32 halves
BANK_BYTES = bank_bytes(GEOMETRY, BUNDLE_BYTES)


def memory(engine: _core.Engine) -> int:
    return int(engine.stats()["memory_bytes"])


def prompt_of(length: int, start: int = 0) -> list[int]:
    return [(start + 7 * i) % GEOMETRY.vocab for i in range(length)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("memory") / "model.gguf"
    return str(write_gguf(path, random_model(GEOMETRY, seed=3)))


def test_the_pool_grows_by_heaps_and_gives_back_all_but_the_first(
    root: Path, tmp_path: Path
) -> None:
    # Bundles of 8 MiB, eight of which make a heap of 64 MiB.
    geometry = Geometry(
        hidden=32, intermediate=32, layers="a" * 8, heads=8, kv_heads=8, head_dim=256, context=512
    )
    path = write_hf(tmp_path, random_model(geometry), dtype="F32")
    engine = _core.Engine(str(path), kernels=build_hash_kernels(root), slots=20)
    heap = 64 << 20
    start = memory(engine)
    for n, heaps in ((1, 1), (8, 1), (9, 2), (17, 3), (2, 1)):
        runs = [submit(engine, [5, 6], max_tokens=1) for _ in range(n)]
        step_and_read(engine, runs)
        assert memory(engine) == start + heaps * heap, f"{n} sequences of one bundle each"
        engine.check_integrity()
        assert not engine.step()
        assert memory(engine) == start + heaps * heap, "the next request may come at once"
        assert not engine.step()
        assert memory(engine) == start + heap
        engine.check_integrity()
    engine.close()


def test_a_preempted_sequence_resumes_with_the_same_tokens_and_bits(
    kernels: str, model: str
) -> None:
    roomy = _core.Engine(model, kernels=kernels, slots=2, deterministic=True)
    prompts = [prompt_of(120), prompt_of(200, start=3)]
    alone = []
    for prompt in prompts:
        alone.append(submit(roomy, prompt, max_tokens=20))
        run_all(roomy, alone[-1:], logits=True)
    roomy.close()
    # Three blocks, and both banks of each sequence.
    budget = least_budget(model, kernels, slots=2, deterministic=True) + 2 * BANK_BYTES
    engine = _core.Engine(
        model, kernels=kernels, context=CONTEXT, slots=2, memory_budget=budget, deterministic=True
    )
    runs = [submit(engine, prompt, max_tokens=20) for prompt in prompts]
    run_all(engine, runs, logits=True)
    for run, expected in zip(runs, alone, strict=True):
        assert run.token_ids == expected.token_ids
        assert [row.tobytes() for row in run.logits] == [row.tobytes() for row in expected.logits]
    assert engine.stats()["preemptions"] == 1, "the elder needs a second block, the younger has two"
    engine.close()


@pytest.mark.parametrize("extra_bundles", [0, 1, 3])
def test_the_budget_is_kept_at_every_step(kernels: str, model: str, extra_bundles: int) -> None:
    budget = least_budget(model, kernels, slots=6) + extra_bundles * BUNDLE_BYTES
    engine = _core.Engine(model, kernels=kernels, context=CONTEXT, slots=6, memory_budget=budget)
    runs = [submit(engine, prompt_of(60 * i + 1), max_tokens=100) for i in range(6)]
    most = 0
    while step_and_read(engine, runs):
        most = max(most, memory(engine))
        assert memory(engine) <= 1.02 * budget
    assert all(run.finish_reason == "length" for run in runs)
    assert most > 0.9 * budget, "the budget is used"
    engine.close()


def test_a_budget_that_no_context_fits_is_refused_with_both_numbers(
    kernels: str, model: str
) -> None:
    least = least_budget(model, kernels, slots=2)
    with pytest.raises(CapacityError, match=rf"got {least - 1} bytes, want at least {least}\)"):
        _core.Engine(model, kernels=kernels, context=CONTEXT, slots=2, memory_budget=least - 1)
    engine = _core.Engine(model, kernels=kernels, context=CONTEXT, slots=2, memory_budget=least)
    assert engine.context == CONTEXT
    engine.close()


def test_a_context_that_nobody_asked_for_is_reduced_to_the_budget(kernels: str, model: str) -> None:
    least = least_budget(model, kernels, slots=2)
    budget = least - BUNDLE_BYTES  # of three blocks two
    engine = _core.Engine(model, kernels=kernels, slots=2, memory_budget=budget)
    assert engine.context == 256
    with pytest.raises(CapacityError, match="got 256 tokens, the context holds 256"):
        submit(engine, prompt_of(256))
    run = submit(engine, prompt_of(250), max_tokens=100)
    run_all(engine, [run])
    assert (run.finish_reason, len(run.token_ids)) == ("length", 6)
    engine.close()
    with pytest.raises(CapacityError, match="for the model and 128 tokens of context"):
        _core.Engine(model, kernels=kernels, slots=2, memory_budget=least - 3 * BUNDLE_BYTES)


def test_banks_are_taken_at_first_use_and_serve_again(kernels: str, model: str) -> None:
    engine = _core.Engine(model, kernels=kernels, slots=32)
    assert engine.stats()["bank_bytes"] == 0
    idle = 0
    for n in (1, 1, 2, 3, 3):
        runs = [submit(engine, prompt_of(3), max_tokens=3) for _ in range(n)]
        assert engine.step()
        assert engine.stats()["bank_bytes"] == max(n, idle) * BANK_BYTES, "written by one pass"
        assert engine.step()
        assert engine.stats()["bank_bytes"] == 2 * n * BANK_BYTES, "one is read, one written"
        run_all(engine, runs)
        assert not engine.step()
        idle = 2
        assert engine.stats()["bank_bytes"] == idle * BANK_BYTES, "those of the next sequence"
    engine.close()


@pytest.mark.parametrize("block_tokens", [64, 128, 256])
def test_blocks_of_every_size_give_the_same_tokens_and_bits(
    kernels: str, tmp_path: Path, block_tokens: int
) -> None:
    geometry = Geometry(layers="ga", heads=4, kv_heads=4, vocab=288, context=CONTEXT)
    model = str(write_gguf(tmp_path / "model.gguf", random_model(geometry, seed=5)))
    expected = _core.Engine(model, kernels=kernels, deterministic=True)
    engine = _core.Engine(model, kernels=kernels, deterministic=True, block_tokens=block_tokens)
    runs: list[Run] = []
    for one in (expected, engine):
        runs.append(submit(one, prompt_of(200), max_tokens=80))
        run_all(one, runs[-1:], logits=True)
        one.close()
    assert runs[0].token_ids == runs[1].token_ids
    assert [row.tobytes() for row in runs[0].logits] == [row.tobytes() for row in runs[1].logits]


def test_memory_is_bound_in_blocks(kernels: str, model: str) -> None:
    engine = _core.Engine(model, kernels=kernels, block_tokens=256)
    submit(engine, prompt_of(3), max_tokens=2)
    engine.step()
    assert engine.stats()["kv_bytes"] == 2 * BUNDLE_BYTES
    engine.check_integrity()
    engine.close()
    with pytest.raises(ValueError, match=r"block_tokens: .*\(got 96, want 64, 128 or 256\)"):
        _core.Engine(model, kernels=kernels, block_tokens=96)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def maps() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def test_sequences_that_grow_by_turns_do_not_use_up_the_mappings_of_the_process(
    kernels: str, model: str
) -> None:
    # Shared blocks would be counted once, but mapped for each.
    engine = _core.Engine(model, kernels=kernels, slots=16, cache_memory=0)
    generate(engine, prompt_of(3), max_tokens=1)  # the kernels' threads have their stacks
    before = maps()
    runs = [submit(engine, prompt_of(1 + 23 * i), max_tokens=40) for i in range(16)]
    blocks = 0
    while step_and_read(engine, runs):
        stats = engine.stats()
        banks = int(stats["bank_bytes"]) // BANK_BYTES
        # What was released is unmapped by the next pass at the latest.
        released, blocks = blocks, int(stats["kv_bytes"]) // BUNDLE_BYTES
        # A range that is mapped parts the gap around it: a block has two in each of the two planes.
        # Banks stand side by side; each has one range for either piece of its bundles.
        assert maps() <= before + 4 * max(blocks, released) + 2 * banks + 1
    engine.close()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_context_of_65536_tokens_runs_and_returns_its_memory(
    kernels: str, tmp_path: Path
) -> None:
    context = 65_536
    geometry = Geometry(
        hidden=32, intermediate=32, layers="ga", heads=2, kv_heads=2, gdn_v_heads=1, context=context
    )
    path = write_gguf(tmp_path / "long.gguf", random_model(geometry, seed=4))
    files = open_files()
    # Checkpoints would have ranges of their own.
    engine = _core.Engine(str(path), kernels=kernels, slots=8, cache_memory=0)
    generate(engine, prompt_of(3), max_tokens=1)  # the first heap, the first banks
    start = memory(engine)
    run: Run = submit(engine, prompt_of(context - 8), max_tokens=8)
    step_and_read(engine, [run])
    first_maps = maps()  # the kernels' threads have their stacks
    while step_and_read(engine, [run]):
        assert maps() < first_maps + 64, "512 blocks one after another are few ranges"
    assert (run.finish_reason, len(run.token_ids)) == ("length", 8)
    assert engine.stats()["kv_bytes"] == 0
    assert memory(engine) == start
    assert int(engine.stats()["prefill_rows"]) >= context - 8
    engine.close()
    assert open_files() == files
    assert maps() < first_maps
