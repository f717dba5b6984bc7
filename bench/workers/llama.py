"""The side of llama.cpp: its C interface through the package llama-cpp-python.

One `llama_decode` a pass, and the best of the logits that it returns, found by NumPy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import llama_cpp
import numpy as np
from serve import serve

PASS_TOKENS = 512  # as many prompt tokens as llama.cpp runs at once by default

SILENT = llama_cpp.llama_log_callback(lambda level, text, user_data: None)


class Llama:
    """A model with one context for a sequence alone and one for all of them together."""

    def __init__(self, model: str, threads: int, sequences: int, context: int) -> None:
        """Map the model as llama.cpp does by default, everything on the CPU."""
        llama_cpp.llama_log_set(SILENT, ctypes.c_void_p(None))
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(model.encode(), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {model}")
        vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(vocab)
        self.contexts = {n: self._context(n, threads, n * context) for n in sorted({1, sequences})}
        self.batch = llama_cpp.llama_batch_init(PASS_TOKENS, 0, 1)
        self.context = self.contexts[1]
        self.generated: list[list[int]] = []
        self.positions: list[int] = []

    def _context(self, sequences: int, threads: int, tokens: int) -> llama_cpp.llama_context_p:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = tokens
        params.n_batch = params.n_ubatch = PASS_TOKENS
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = threads
        context = llama_cpp.llama_init_from_model(self.model, params)
        if not context:
            raise RuntimeError("llama.cpp cannot make a context")
        return context

    def _add(self, token: int, sequence: int, wants_logits: bool) -> None:
        i = self.batch.n_tokens
        self.batch.token[i] = token
        self.batch.pos[i] = self.positions[sequence]
        self.batch.n_seq_id[i] = 1
        self.batch.seq_id[i][0] = sequence
        self.batch.logits[i] = wants_logits
        self.batch.n_tokens += 1
        self.positions[sequence] += 1

    def _run(self) -> None:
        code = llama_cpp.llama_decode(self.context, self.batch)
        if code != 0:
            raise RuntimeError(f"llama_decode returns {code}")

    def _best(self, i: int) -> int:
        logits = llama_cpp.llama_get_logits_ith(self.context, i)
        return int(np.ctypeslib.as_array(logits, (self.n_vocab,)).argmax())

    def forget(self) -> None:
        """Both contexts."""
        for context in self.contexts.values():
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)

    def prompt(self, prompts: Sequence[Sequence[int]]) -> None:
        """As many prompts in one call as fit into it; one longer than that takes several."""
        self.context = self.contexts[len(prompts)]
        self.generated = [[] for _ in prompts]
        self.positions = [0] * len(prompts)
        ends: dict[int, int] = {}  # place of a prompt's last token in the batch: its sequence
        self.batch.n_tokens = 0
        for sequence, prompt in enumerate(prompts):
            for i, token in enumerate(prompt):
                if self.batch.n_tokens == PASS_TOKENS:
                    self._finish(ends)
                last = i + 1 == len(prompt)
                if last:
                    ends[self.batch.n_tokens] = sequence
                self._add(token, sequence, last)
        self._finish(ends)

    def _finish(self, ends: dict[int, int]) -> None:
        self._run()
        for i, sequence in ends.items():
            self.generated[sequence].append(self._best(i))
        ends.clear()
        self.batch.n_tokens = 0

    def decode(self) -> None:
        """A token of every sequence in one call."""
        self.batch.n_tokens = 0
        for sequence, tokens in enumerate(self.generated):
            self._add(tokens[-1], sequence, True)
        self._run()
        for i, tokens in enumerate(self.generated):
            tokens.append(self._best(i))

    def token_ids(self) -> list[list[int]]:
        """All of them."""
        return self.generated


if __name__ == "__main__":
    built = llama_cpp.llama_print_system_info().decode().strip(" |")
    serve("llama.cpp", f"llama-cpp-python {llama_cpp.__version__} ({built})", Llama)
