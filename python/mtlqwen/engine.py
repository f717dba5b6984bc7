"""Engine: a loaded model that generates text; the library's front door.

Only the surface: `prepare` understands what callers say, `driver` runs the passes, `reader` hands
the text back. Knows nothing of tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, overload

from mtlqwen.assets import load_assets
from mtlqwen.driver import Core, Driver
from mtlqwen.errors import DeviceError
from mtlqwen.hub import ModelFiles, resolve
from mtlqwen.prepare import Preparer, is_list_of_prompts, is_messages
from mtlqwen.progress import Progress, make_progress
from mtlqwen.reader import Stream, collect
from mtlqwen.result import ChatResult, Completion
from mtlqwen.sampling import SamplingParams, check_integer
from mtlqwen.tokenizer import Tokenizer

DEVICES = ("metal",) if sys.platform == "darwin" else ("cpu",)
SPECS = ("auto", "off")
MAX_SLOTS = 32
MAX_CONTEXT = 2**31 - 1


class Engine:
    """A loaded model.

    Every method may be called from any thread; generations of several threads share the passes.
    Use it in a ``with`` block, or call `close`; at interpreter exit it closes itself.

    Args:
        model: ``"tiny"`` (the bundled model), a path of a GGUF file or of a directory with
            config.json and safetensors, or a hub id ``owner/name`` or ``owner/name:QUANT``.
        device: ``"auto"``, ``"cpu"`` or ``"metal"``. Never another one than asked for.
        context: tokens that one sequence can hold, 1 to the model's own limit. Unset: that limit.
        slots: sequences that run at a time, 1 to 32; more of them wait in line.
        spec: ``"auto"`` or ``"off"``: speculative decoding. This version has no drafter, so both
            mean the same.
        progress: ``True`` or ``False`` to show the loading on stderr or not, or a function that is
            called with (stage, done, total). Unset: shown on a terminal.

    Raises:
        FileNotFoundError: there is no such model.
        FormatError: a file of the model is broken.
        ModelError: the model is not one that this version runs.
        CapacityError: memory does not suffice.
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
        spec: str = "auto",
        progress: Progress | bool | None = None,
    ) -> None:
        """Load a model; see the class."""
        self._device = _check_device(device)
        if spec not in SPECS:
            want = " or ".join(map(repr, SPECS))
            raise ValueError(f"[engine] spec: not in this version (got {spec!r}, want {want})")
        slots = check_integer("engine", "slots", slots, 1, MAX_SLOTS)
        if context is not None:
            context = check_integer("engine", "context", context, 1, MAX_CONTEXT)
        shown = make_progress(progress)
        files = resolve(model)
        self._name = files.name
        self._core = _make_core(files, context or 0, slots, shown)
        self._driver = Driver(self._core)
        try:
            self._prepare = Preparer(files.name, load_assets(files), self._core, self._driver)
        except BaseException:
            self._driver.close()
            raise

    @overload
    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        sampling: SamplingParams | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        ignore_eos: bool | None = None,
    ) -> Completion: ...
    @overload
    def generate(
        self,
        prompt: list[str] | Sequence[Sequence[int]],
        *,
        sampling: SamplingParams | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        ignore_eos: bool | None = None,
    ) -> list[Completion]: ...
    def generate(
        self,
        prompt: str | Sequence[int] | Sequence[str] | Sequence[Sequence[int]],
        *,
        sampling: SamplingParams | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        ignore_eos: bool | None = None,
    ) -> Completion | list[Completion]:
        """Continue a prompt, or several prompts together.

        Literals of added tokens in a prompt (``<|im_start|>``) become those tokens: a prompt is
        the caller's own. `chat` is the way for text that others wrote.

        Args:
            prompt: text, token ids, or a list of those (a list of results comes back).
            sampling: how to choose; the keywords below go before it.
            temperature: see `SamplingParams`, as for the other keywords.
            seed: random seed; each prompt of a list gets the same.
            max_tokens: tokens to generate at most.
            stop: string or strings that end the text.
            ignore_eos: go on past end-of-turn tokens.

        Returns:
            The text as a `Completion`, which is a ``str``.

        Raises:
            TypeError, ValueError: an argument is wrong, or a prompt is empty.
            CapacityError: a prompt is longer than the context.
            RuntimeError: the engine is closed.
        """
        over = SamplingParams(
            temperature=temperature,
            seed=seed,
            max_tokens=max_tokens,
            stop=stop,
            ignore_eos=ignore_eos,
        )
        self._driver.check()
        params = self._prepare.params(sampling, over)
        if is_list_of_prompts(prompt):
            generations = [self._prepare.completion(one, params) for one in prompt]
            return collect(self._driver, generations)
        return collect(self._driver, [self._prepare.completion(prompt, params)])[0]

    def stream(
        self,
        prompt: str | Sequence[int] | Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        sampling: SamplingParams | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        ignore_eos: bool | None = None,
        thinking: bool | None = None,
    ) -> Stream:
        """Return an iterator over the text as it comes.

        Args:
            prompt: a prompt as for `generate`, or messages as for `chat`.
            tools: as for `chat`; only with messages.
            sampling: how to choose; the keywords below go before it.
            temperature: see `SamplingParams`, as for the other keywords.
            seed: random seed.
            max_tokens: tokens to generate at most.
            stop: string or strings that end the text.
            ignore_eos: go on past end-of-turn tokens.
            thinking: as for `chat`; only with messages.

        Returns:
            A `Stream` of `Piece`: strings with ``token_ids`` and ``kind``. The generation has
            started when it returns; dropping the stream cancels it.

        Raises:
            The same as `generate` and `chat`.
        """
        over = SamplingParams(
            temperature=temperature,
            seed=seed,
            max_tokens=max_tokens,
            stop=stop,
            ignore_eos=ignore_eos,
            thinking=thinking,
        )
        self._driver.check()
        params = self._prepare.params(sampling, over)
        if is_messages(prompt):
            return Stream(self._prepare.turn(prompt, tools, params), self._driver, self)
        if tools is not None:
            raise ValueError("[chat] tools: only with messages (got a plain prompt)")
        return Stream(self._prepare.completion(prompt, params), self._driver, self)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        sampling: SamplingParams | None = None,
        temperature: float | None = None,
        seed: int | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] | None = None,
        ignore_eos: bool | None = None,
        thinking: bool | None = None,
    ) -> ChatResult:
        """Answer a conversation.

        Literals like ``<|im_end|>`` in the messages stay text; they can't end a turn.

        Args:
            messages: dicts with ``role`` (system, user, assistant, tool) and ``content``. A
                result's ``message`` is the one to append for the model's own turn.
            tools: JSON schemas of functions that the model may call.
            sampling: how to choose; the keywords below go before it.
            temperature: see `SamplingParams`, as for the other keywords.
            seed: random seed.
            max_tokens: tokens to generate at most, reasoning included.
            stop: string or strings that end the answer.
            ignore_eos: go on past end-of-turn tokens.
            thinking: reason before the answer or not. Unset: as the model's template says.

        Returns:
            The answer as a `ChatResult`, which is a ``str``, with ``reasoning`` and ``tool_calls``.

        Raises:
            TypeError, ValueError: an argument is wrong, or the template refuses the messages.
            ModelError: the model has no chat template, or a broken one.
            CapacityError: the conversation is longer than the context.
            RuntimeError: the engine is closed.
        """
        over = SamplingParams(
            temperature=temperature,
            seed=seed,
            max_tokens=max_tokens,
            stop=stop,
            ignore_eos=ignore_eos,
            thinking=thinking,
        )
        self._driver.check()
        params = self._prepare.params(sampling, over)
        (result,) = collect(self._driver, [self._prepare.turn(messages, tools, params)])
        assert isinstance(result, ChatResult)
        return result

    def step(self) -> bool:
        """Run one pass in this thread: for programs that have a loop of their own.

        From the first call on no driver thread starts; a stream or generate call that waits runs
        passes itself where it has to. An error of a pass reaches the readers of its sequences.

        Returns:
            False when there was nothing to do.

        Raises:
            RuntimeError: the driver thread has started, another step is running, or the engine is
                closed.
        """
        return self._driver.step()

    def stats(self) -> dict[str, int | float | str]:
        """Return what the engine counts: tokens, passes, seconds, bytes.

        Raises:
            RuntimeError: the engine is closed.
        """
        self._driver.check()
        return dict(self._core.stats())

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
            f"slots={self._core.slots})"
        )


def _make_core(files: ModelFiles, context: int, slots: int, progress: Progress | None) -> Core:
    """Load the weights into a core. Tests put a scripted core here."""
    from mtlqwen import _core

    assert _core.__file__ is not None
    kernels = Path(_core.__file__).with_name("kernels.metallib")
    core: Core = _core.Engine(
        str(files.weights), kernels=str(kernels), context=context, slots=slots, progress=progress
    )
    return core


def _check_device(device: object) -> str:
    if device == "auto":
        return DEVICES[0]
    if device not in DEVICES:
        want = " or ".join(("auto", *DEVICES))
        raise DeviceError(f"[engine] device: not in this build (got {device!r}, want {want})")
    return str(device)
