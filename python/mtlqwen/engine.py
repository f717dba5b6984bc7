"""Engine: a loaded model that generates text; the library's front door.

Its life from loading to closing; what it generates is asked for by `calls` and `async_calls`.
Knows nothing of tensors.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from mtlqwen.assets import load_assets
from mtlqwen.async_calls import AsyncCalls
from mtlqwen.calls import Calls
from mtlqwen.checks import check_flag, check_integer, check_number
from mtlqwen.download import Downloads
from mtlqwen.driver import Core, Driver
from mtlqwen.hub import ModelFiles, resolve
from mtlqwen.options import (
    CACHE_DIR_BYTES,
    DRAFTER_SPECS,
    MAX_BYTES,
    MAX_CONTEXT,
    MAX_SLOTS,
    MAX_THREADS,
    CoreOptions,
    check_block_tokens,
    check_cache_dir,
    check_device,
    check_spec,
    find_drafter,
)
from mtlqwen.prepare import Preparer
from mtlqwen.progress import Progress, make_progress
from mtlqwen.session_calls import SessionCalls
from mtlqwen.stats import Stats
from mtlqwen.tokenizer import Tokenizer
from mtlqwen.trace import Trace

if TYPE_CHECKING:
    from mtlqwen.memory_map import MemoryMap


class Engine(Calls, AsyncCalls, SessionCalls):
    """A loaded model.

    Every method may be called from any thread and from any event loop; the generations of all of
    them share the passes. Use it in a ``with`` block, or call `close`; at interpreter exit it
    closes itself. A forked child can't use it, but may make its own.

    Args:
        model: ``"tiny"`` (the bundled model), a path of a GGUF file or of a directory with
            config.json and safetensors, or a hub id ``owner/name[@REVISION][:QUANT]``, of which
            what is needed is downloaded (docs/files.md).
        device: ``"auto"``, ``"cpu"`` or ``"metal"``. Never another one than asked for.
        context: tokens that one sequence can hold, 1 to the model's own limit. Unset: that limit.
        slots: sequences that run at a time, 1 to 32; more of them wait in line.
        memory_budget: bytes that the engine may own, the model's weights included; token ids and
            indexes of n-grams, some bytes a token, do not count. Unset: what the device
            recommends. When memory runs out, the youngest sequence waits and is computed
            again later, to the same tokens.
        block_tokens: 64, 128 or 256: keys and values get memory in blocks of so many tokens. Small
            ones waste less, large ones are mapped sooner; a model with few kv heads needs large
            ones.
        prefill_share: of the rows of a pass, the part that prompts may take together while other
            sequences decode, 0 to 1. 1 brings first tokens soonest, less keeps the gaps between
            tokens short.
        threads: that run the model on a CPU, the one that drives the engine included; at most the
            CPUs that the process may use. Unset: one for each core (hardware threads of one core
            share it) within the affinity mask and the cgroup's quota. All engines of a process
            share one pool: where they ask for more than the cores, they take turns. A CPU engine
            only.
        prefetch_weights: whether a thread reads the files of the model ahead, from the loading on.
            Without it the first passes read them piece by piece.
        lock_weights: whether they are kept in memory, so that nothing else on the machine can push
            them out. Reads them whole while loading; the system may refuse.
        deterministic: the same request gives the same bits alone, in any company and after any
            interruption; slower, since one kernel family serves all.
        checkpoint_interval: tokens between the checkpoints that every prompt leaves in the prefix
            cache, beside those at likely positions (``checkpoint_at``, the messages of a chat); 0:
            those only. A prompt that begins like an earlier one is computed from the last
            checkpoint on that both share. docs/sessions.md tells more.
        cache_memory: bytes of ``memory_budget`` that the prefix cache may hold; sequences that run
            short take them back. 0: no prefix cache, neither in memory nor on disk. Unset: a
            quarter of what the weights leave of the budget.
        cache_dir: a directory that keeps checkpoints across restarts; made if missing, and open to
            any number of engines and processes. Whoever can write there is trusted. Unset: none.
        cache_dir_bytes: the size that it is kept below; what was used longest ago goes first.
        spec: who proposes tokens, so that one pass of the model may confirm several: ``"dflash"``
            (a drafter model), ``"mtp"`` (the model's own prediction head), ``"ngram"`` (what the
            text itself repeats), ``"auto"`` (n-grams, and the first of the others that is there)
            or ``"off"``. As much as makes things faster; the text does not depend on it.
            docs/speculation.md tells more.
        drafter: the DFlash drafter of ``"auto"`` and ``"dflash"``: a path or a hub id, as
            ``model``. Unset: the one that lies beside the model, if there is one.
        candidate_memory: bytes of states that a pass may keep for one sequence, to go back to when
            a proposal turns out wrong; where they do not fit, what was right is replayed. Faster
            on some machines for small models and short drafts.
        progress: ``True`` or ``False`` to show the loading on stderr or not, or a function that is
            called with (stage, done, total), in bytes for the stage "download". Unset: shown on
            a terminal.

    Raises:
        FileNotFoundError: there is no such model, or no such drafter.
        PermissionError: this user may not look there, or the hub wants its terms accepted.
        ConnectionError: they are not in the hub's local cache, and cannot be downloaded.
        FormatError: a file of the model or the drafter is broken, or cannot be read.
        ModelError: they are not what this version runs, or do not belong together.
        CapacityError: memory or disk do not suffice, or memory may not be locked.
        DeviceError: this build does not have the device.
        TypeError, ValueError: an argument is wrong.

    Example:
        >>> with Engine("tiny") as engine:
        ...     answer = engine.chat([{"role": "user", "content": "Repeat after me: 335 157"}])
        >>> print(answer)
        335 157
    """

    def __init__(
        self,
        model: str | Path,
        *,
        device: str = "auto",
        context: int | None = None,
        slots: int = 8,
        memory_budget: int | None = None,
        block_tokens: int = 128,
        prefill_share: float = 1.0,
        threads: int | None = None,
        prefetch_weights: bool = True,
        lock_weights: bool = False,
        deterministic: bool = False,
        checkpoint_interval: int = 512,
        cache_memory: int | None = None,
        cache_dir: str | Path | None = None,
        cache_dir_bytes: int = CACHE_DIR_BYTES,
        spec: str = "auto",
        drafter: str | Path | None = None,
        candidate_memory: int = 0,
        progress: Progress | bool | None = None,
    ) -> None:
        """Load a model; see the class."""
        self._device = check_device(device)
        check_flag("engine", "prefetch_weights", prefetch_weights)
        check_flag("engine", "lock_weights", lock_weights)
        check_flag("engine", "deterministic", deterministic)
        if threads is not None:
            threads = check_integer("engine", "threads", threads, 1, MAX_THREADS)
        if context is not None:
            context = check_integer("engine", "context", context, 1, MAX_CONTEXT)
        if memory_budget is not None:
            memory_budget = check_integer("engine", "memory_budget", memory_budget, 1, MAX_BYTES)
        if cache_memory is not None:
            cache_memory = check_integer("engine", "cache_memory", cache_memory, 0, MAX_BYTES)
        options = CoreOptions(
            context=context or 0,
            slots=check_integer("engine", "slots", slots, 1, MAX_SLOTS),
            memory_budget=memory_budget,
            block_tokens=check_block_tokens(block_tokens),
            prefill_share=check_number("engine", "prefill_share", prefill_share, 0.0, 1.0),
            threads=threads or 0,
            prefetch_weights=prefetch_weights,
            lock_weights=lock_weights,
            deterministic=deterministic,
            checkpoint_interval=check_integer(
                "engine", "checkpoint_interval", checkpoint_interval, 0, MAX_CONTEXT
            ),
            cache_memory=cache_memory,
            cache_dir=check_cache_dir(cache_dir),
            cache_dir_bytes=check_integer(
                "engine", "cache_dir_bytes", cache_dir_bytes, 1, MAX_BYTES
            ),
            spec=check_spec(spec, drafter),
            drafter="",
            candidate_memory=check_integer(
                "engine", "candidate_memory", candidate_memory, 0, MAX_BYTES
            ),
            progress=make_progress(progress),
        )
        how = Downloads(memory=memory_budget, progress=options.progress)
        files = resolve(model, how)
        if spec in DRAFTER_SPECS:
            options = replace(options, drafter=find_drafter(files, spec, drafter, how))
        self._name = files.name
        self._deterministic = deterministic
        self._core = _make_core(files, options)
        self._driver = Driver(self._core)
        try:
            self._prepare = Preparer(files.name, load_assets(files), self._core, self._driver)
        except BaseException:
            self._driver.close()
            raise

    def step(self) -> bool:
        """Run one pass in this thread: for programs that have a loop of their own.

        From the first call on no driver thread starts; a stream or generate call that waits runs
        passes itself where it has to. An error of a pass reaches the readers of its sequences.

        Returns:
            False when there was nothing to do. The second such step in a row gives memory back to
            the system (the driver thread does so after a second without work).

        Raises:
            RuntimeError: the driver thread has started, another step is running, or the engine is
                closed.
        """
        return self._driver.step()

    def stats(self) -> Stats:
        """Return what the engine counts. docs/tracing.md describes every key.

        Bytes by kind (``memory_bytes`` is their sum), sequences now and so far, passes and their
        rows by kind, and seconds: ``step_s`` in passes, ``gpu_s`` with the device working,
        ``outside_s`` without.

        Raises:
            RuntimeError: the engine is closed.
        """
        self._driver.check()
        return Stats(self._core.stats())

    def memory_map(self) -> MemoryMap:
        """Return who holds which part of the memory, and what the prefix cache knows.

        A notebook shows both as pictures (docs/notebook.md).

        Raises:
            RuntimeError: the engine is closed.
        """
        from mtlqwen.memory_map import MemoryMap

        self._driver.check()
        return MemoryMap(self._core.memory_map(), self.tokenizer.decode)

    def check_integrity(self) -> None:
        """Check the books of memory, slots and sequences against each other; at any time.

        Raises:
            RuntimeError: they contradict each other (a bug of mtlqwen), or the engine is closed.
        """
        self._driver.check()
        self._core.check_integrity()

    def trace(self, path: str | Path) -> Trace:
        """Write what the engine does, from now on, to a file for a trace viewer.

        One trace at a time. It costs below one percent of a pass; an engine without one pays
        nothing.

        Args:
            path: of a file in Chrome's trace event format; ui.perfetto.dev opens it.

        Returns:
            A `Trace`: stop it with its ``stop``, or use it in a ``with`` block.

        Raises:
            OSError: the file cannot be written.
            RuntimeError: a trace is running, or the engine is closed.

        Example:
            >>> import tempfile
            >>> with Engine("tiny") as engine, tempfile.TemporaryDirectory() as folder:
            ...     with engine.trace(f"{folder}/trace.json"):
            ...         text = engine.generate("Once upon a time", max_tokens=2)
        """
        self._driver.check()
        return Trace(self._core, path)

    def close(self) -> None:
        """Free everything. Whoever still waits for tokens gets an error; a second call is fine."""
        self._driver.close()

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._prepare.tokenizer

    @property
    def device(self) -> str:
        """The device that runs the model."""
        return self._device

    @property
    def drafter(self) -> str:
        """The one who proposes tokens, ``"dflash"``, ``"mtp"``, ``"ngram"`` or ``"off"``."""
        self._driver.check()
        return self._core.drafter

    @property
    def context(self) -> int:
        """Tokens that one sequence can hold."""
        self._driver.check()
        return self._core.context

    @property
    def slots(self) -> int:
        """Sequences that can run at a time."""
        self._driver.check()
        return self._core.slots

    def __enter__(self) -> Engine:
        """Return the engine itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the engine."""
        self.close()

    def __del__(self) -> None:
        """Close an engine that nobody holds any more."""
        if hasattr(self, "_driver") and not self._driver.closed:
            self._driver.close()

    def __repr__(self) -> str:
        """Return what it is in a line."""
        if self._driver.closed:
            return f"Engine({self._name!r}, closed)"
        return (
            f"Engine({self._name!r}, device={self._device!r}, context={self._core.context}, "
            f"slots={self._core.slots}{', deterministic=True' * self._deterministic})"
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from mtlqwen import cards

        if self._driver.closed:
            return cards.bundle(self, cards.frame(repr(self)))
        core = self._core
        facts = [
            f"{core.context} tokens of context",
            f"{core.slots} slots",
            f"drafter {core.drafter}",
        ]
        facts += ["deterministic"] * self._deterministic
        return cards.bundle(self, cards.engine_card(f"Engine {self._name}", facts, core.stats()))


def _make_core(files: ModelFiles, options: CoreOptions) -> Core:
    """Load the weights into a core. Tests put a scripted core here."""
    from mtlqwen import _core

    assert _core.__file__ is not None
    core: Core = _core.Engine(
        str(files.weights),
        kernels=str(Path(_core.__file__).with_name("kernels.metallib")),
        context=options.context,
        slots=options.slots,
        memory_budget=options.memory_budget,
        block_tokens=options.block_tokens,
        prefill_share=options.prefill_share,
        threads=options.threads,
        prefetch_weights=options.prefetch_weights,
        lock_weights=options.lock_weights,
        deterministic=options.deterministic,
        checkpoint_interval=options.checkpoint_interval,
        cache_memory=options.cache_memory,
        cache_dir=options.cache_dir,
        cache_dir_bytes=options.cache_dir_bytes,
        spec=options.spec,
        drafter=options.drafter,
        candidate_bytes=options.candidate_memory,
        progress=options.progress,
    )
    return core
