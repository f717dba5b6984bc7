"""Bytes that a pass must move, whatever kernels run it: the model of docs/performance.md."""

from __future__ import annotations

from dataclasses import dataclass

from mtlqwen._core import _testing

CONV_HISTORY = 3  # rows that the convolution keeps of a sequence
F32_BYTES = 4
F16_BYTES = 2


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What passes of one model file move."""

    weights: int  # each once a pass, however many rows
    state: int  # of one sequence, read and written
    kv: int  # of one key and value in all layers

    @classmethod
    def of(cls, path: str) -> Traffic:
        """Of a GGUF file; its speculative layers take no part."""
        config = _testing.model_config(path)
        tensors = _testing.open_gguf(path)["tensors"]
        n_layers = len(config["layers"])
        weights = sum(
            tensor["bytes"]
            for name, tensor in tensors.items()
            if not is_speculative(name, n_layers) and (config["tied"] or name != EMBEDDING)
        )
        n_gdn = config["layers"].count("gdn")
        dim, v_heads = config["gdn_head_dim"], config["gdn_v_heads"]
        channels = dim * (2 * config["gdn_k_heads"] + v_heads)
        state = v_heads * dim * dim + CONV_HISTORY * channels
        kv = 2 * config["n_kv_heads"] * config["head_dim"] * F16_BYTES
        return cls(
            weights=weights,
            state=2 * F32_BYTES * n_gdn * state,
            kv=(n_layers - n_gdn) * kv,
        )

    def decode_bytes(self, sequences: int, length: float) -> float:
        """Of a pass that decodes one row of each sequence, so many tokens long."""
        return self.weights + sequences * (self.state + length * self.kv)


EMBEDDING = "token_embd.weight"  # a row of it is read for a token, all of it only as the head


def is_speculative(name: str, n_layers: int) -> bool:
    """Whether a tensor belongs to a block after the last layer."""
    prefix, _, rest = name.partition(".")
    number = rest.partition(".")[0]
    return prefix == "blk" and number.isdigit() and int(number) >= n_layers
