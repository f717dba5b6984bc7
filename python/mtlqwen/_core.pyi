"""Native engine of mtlqwen."""

from collections.abc import Callable, Sequence
from typing import Any


__version__: str
_testing: Any  # for the tests; untyped

class Poll:
    """What has become of a sequence since the last poll."""

    @property
    def token_ids(self) -> list[int]:
        """New token ids, the stop token included."""

    @property
    def finish_reason(self) -> str | None:
        """'stop', 'length', 'cancelled' or 'deadline'; None while it goes on."""

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def cached_tokens(self) -> int:
        """Of the prompt, taken from the prefix cache."""

    @property
    def drafter(self) -> str:
        """Who proposed tokens: off, ngram, mtp or dflash."""

    @property
    def draft_passes(self) -> int:
        """Passes that verified a draft."""

    @property
    def drafted_tokens(self) -> int: ...

    @property
    def accepted_tokens(self) -> int:
        """Of those drafted."""

    @property
    def completion_tokens(self) -> int: ...

    @property
    def logprobs(self) -> list[float]:
        """
        Logarithms of probability of the new tokens, where they were asked for.
        """

    @property
    def top_logprobs(self) -> list[list[tuple[int, float]]]:
        """The likeliest ids in the place of each, the first first."""

    @property
    def prompt_logprobs(self) -> list[float]:
        """
        The same of the prompt's tokens but the first: of all of them, or none.
        """

    @property
    def top_prompt_logprobs(self) -> list[list[tuple[int, float]]]: ...

    @property
    def ttft_s(self) -> float:
        """Seconds from submit to the first token; 0 before it."""

    @property
    def prefill_s(self) -> float:
        """Seconds from getting a slot to the first token."""

    @property
    def decode_s(self) -> float:
        """Seconds from the first token to the last."""

class Engine:
    """Model, memory and sequences. All methods are thread safe."""

    def __init__(self, model: str, *, kernels: str, context: int = 0, slots: int = 8, memory_budget: int | None = None, block_tokens: int = 128, checkpoint_interval: int = 512, cache_memory: int | None = None, cache_dir: str = '', cache_dir_bytes: int = 10737418240, prefill_share: float = 1.0, threads: int = 0, prefetch_weights: bool = True, lock_weights: bool = False, deterministic: bool = False, spec: str = 'off', drafter: str = '', draft_noise: bool = False, candidate_bytes: int = 0, progress: Callable[[str, int, int], None] | None = None) -> None:
        """
        Load a .gguf file or a directory with config.json and safetensors. progress(stage, done, total).
        """

    def submit(self, token_ids: Sequence[int], *, max_tokens: int, temperature: float, seed: int, stop_ids: Sequence[int], priority: int = 0, deadline_s: float | None = None, checkpoint_at: Sequence[int] = [], recall: bool = True, sample_index: int = 0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, presence_penalty: float = 0.0, frequency_penalty: float = 0.0, repetition_penalty: float = 1.0, logit_bias: Sequence[tuple[int, float]] = [], allowed_ids: Sequence[int] = [], bad_words: Sequence[Sequence[int]] = [], min_tokens: int = 0, logprobs: int | None = None, prompt_logprobs: int | None = None, thinking_budget: tuple[int, int, Sequence[int]] | None = None, constraint: tuple[int, int | None] | None = None) -> int:
        """
        Queue a request and return its sequence id. constraint: (key, token id or None): masks hold the text, from the first token on or behind that one. Raises ValueError or CapacityError.
        """

    def set_mask_fn(self, function: Callable[..., list[Exception | None]]) -> None:
        """
        Fill masks by function(items, masks), called inside step; once. items: of each text (key, tokens told before, tokens since, drafted tokens, first row); masks: uint32 (rows, mask_words), not to be kept. Returns of each item None, or why it ends. Raises: the step raises it, the next one repeats the pass.
        """

    def step(self) -> bool:
        """
        Run one pass; False when there is nothing to do. The second of two such steps in a row gives memory back to the system. One thread at a time.
        """

    def news(self) -> list[int]:
        """The sequences that poll has something for."""

    def poll(self, sequence: int) -> Poll:
        """
        Tokens since the last poll. Raises the sequence's error once it failed.
        """

    def cancel(self, sequence: int) -> None:
        """Stop a sequence, within the running pass."""

    def release(self, sequence: int) -> None:
        """Forget a sequence; a live one is cancelled first."""

    def close(self) -> None:
        """Cancel everything and free all memory."""

    def check_integrity(self) -> None:
        """
        Raise RuntimeError where bundles, banks, slots and sequences contradict each other. Between steps.
        """

    def stats(self) -> dict[str, int | float | str]:
        """Counters, bytes and seconds."""

    def memory_map(self) -> dict[str, Any]:
        """
        Who holds each bundle (holders: 1 sequences, 2 checkpoints, 4 states), and the prefix tree: (block it stands behind or -1, tokens up to it, uses, first token ids).
        """

    def save_checkpoint(self, path: str, token_ids: Sequence[int], note: str, with_state: bool) -> int:
        """
        Write token ids, a note and the state of their deepest checkpoint to a file; return the tokens that the state stands after.
        """

    def load_checkpoint(self, path: str) -> tuple[list[int], str, int]:
        """
        Read such a file into the prefix cache: token ids, note, tokens that are cached now. Raises FormatError, ModelError.
        """

    def start_trace(self, path: str) -> None:
        """Write a trace of the steps to come; one at a time."""

    def stop_trace(self) -> bool:
        """Complete the trace; False where it could not be written whole."""

    @property
    def drafter(self) -> str:
        """Who proposes tokens: off, ngram, mtp or dflash."""

    @property
    def context(self) -> int:
        """Tokens that one sequence can hold."""

    @property
    def slots(self) -> int:
        """Sequences that run at once."""

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding."""

    @property
    def mask_words(self) -> int:
        """Words of 32 ids that a mask has."""

    @property
    def eos_ids(self) -> list[int]:
        """End-of-sequence ids that the model file names."""

def read_gguf_metadata(path: str) -> dict[str, object]:
    """All metadata of a GGUF file. Raises FormatError."""

def read_tensors(path: str) -> list[dict[str, object]]:
    """
    name, file, format, runs, shape and bytes of all tensors of a GGUF file, a safetensors file or a directory of those. Raises FormatError.
    """

def read_config(path: str) -> dict[str, object]:
    """
    The shapes of a model that runs, bytes of keys and values of a token (token_bytes) and of states of a sequence (state_bytes), and why its prediction head does not run (mtp_problem). Raises FormatError, ModelError.
    """

def drafter_problem(model: str, drafter: str) -> str:
    """Why a drafter does not run with a model; empty where it does."""

def recommended_bytes() -> int:
    """What an engine may own where no memory_budget is given."""
