"""Everything of a GGUF file but its weights: shapes, tokenizer, template, defaults of sampling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtlqwen.assets import END_TOKENS, GGUF_SAMPLING, default_sampling, read_json, read_template
from mtlqwen.conversion.config import CONV_TAPS, Config
from mtlqwen.conversion.gguf_file import Int32, Value
from mtlqwen.conversion.vocabulary import vocabulary
from mtlqwen.errors import ModelError
from mtlqwen.hub import ModelFiles

_ARCHITECTURE = "qwen35"
_QUANTIZATION_VERSION = 2  # of the blocks' layout


def metadata(
    files: ModelFiles, config: Config, name: str, file_number: int, *, mtp: bool
) -> dict[str, Value]:
    """Return the key-value pairs of the file, in its order.

    Args:
        files: the source.
        config: its shapes.
        name: the model's.
        file_number: of the format that most matrices have.
        mtp: whether the prediction head is in the file.

    Raises:
        FormatError, ModelError: the tokenizer or a file beside it is missing, broken or not one
            that GGUF can hold.
    """
    path = files.sidecar("tokenizer.json")
    if path is None:
        raise ModelError(f"[convert] {files.weights}: no tokenizer.json in it")
    generation = read_json(files.sidecar("generation_config.json"))
    out: dict[str, Value] = {
        "general.architecture": _ARCHITECTURE,
        "general.name": name,
        "general.file_type": file_number,
        "general.quantization_version": _QUANTIZATION_VERSION,
    }
    out |= _sampling(generation)
    out |= {f"{_ARCHITECTURE}.{key}": value for key, value in _shapes(config, mtp=mtp).items()}
    tokens = read_json(path)
    out |= vocabulary(tokens, path, config.vocab)
    out |= _special_ids(files, tokens, generation, config.vocab)
    template = read_template(files)
    return out | ({"tokenizer.chat_template": template} if isinstance(template, str) else {})


def _shapes(config: Config, *, mtp: bool) -> dict[str, Value]:
    layers = len(config.attention)
    out: dict[str, Value] = {
        "block_count": layers + mtp,
        "context_length": config.context,
        "embedding_length": config.hidden,
        "feed_forward_length": config.intermediate,
        "attention.head_count": config.heads,
        "attention.head_count_kv": config.kv_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "attention.layer_norm_rms_epsilon": config.eps,
        "attention.recurrent_layers": [not one for one in config.attention] + [False] * mtp,
        "rope.dimension_count": config.rotary_dim,
        "rope.freq_base": config.rope_theta,
        "vocab_size": config.vocab,
        "ssm.conv_kernel": CONV_TAPS,
        "ssm.state_size": config.gdn_head_dim,
        "ssm.group_count": config.k_heads,
        "ssm.time_step_rank": config.v_heads,
        "ssm.inner_size": config.v_heads * config.gdn_head_dim,
    }
    if config.rope_sections:
        sections = (*config.rope_sections, 0, 0, 0, 0)[:4]
        out["rope.dimension_sections"] = [Int32(size) for size in sections]
    interval = config.attention.index(True) + 1 if any(config.attention) else layers + 1
    if config.attention == tuple((i + 1) % interval == 0 for i in range(layers)):
        out["full_attention_interval"] = interval  # for readers that know no list
    return out | ({"nextn_predict_layers": 1} if mtp else {})


def _sampling(generation: Mapping[str, Any]) -> dict[str, Value]:
    """Return the defaults of sampling; GGUF has no key for a number of tokens."""
    if not generation:
        return {}
    defaults = default_sampling(generation)
    said = {key: getattr(defaults, name) for name, key in GGUF_SAMPLING.items()}
    whole = {key: Int32(value) if key.endswith(".top_k") else value for key, value in said.items()}
    return {key: value for key, value in whole.items() if said[key] is not None}


def _special_ids(
    files: ModelFiles, tokens: Mapping[str, Any], generation: Mapping[str, Any], vocab: int
) -> dict[str, Value]:
    """Return the ids of the end and of padding: by their names in its config, or by number."""
    named = read_json(files.sidecar("tokenizer_config.json"))
    config = read_json(files.sidecar("config.json"))
    inner = config.get("text_config")
    levels = [generation, inner if isinstance(inner, dict) else {}, config]
    by_text = {one.get("content"): one.get("id") for one in tokens.get("added_tokens", [])}
    out: dict[str, Value] = {}
    for name, key in (("eos", "eos_token_id"), ("pad", "padding_token_id")):
        text = named.get(f"{name}_token")
        text = text.get("content") if isinstance(text, dict) else text
        said = [by_text.get(str(text)), *(level.get(f"{name}_token_id") for level in levels)]
        ids = [i for one in said for i in (one if isinstance(one, list) else [one])]
        known = list(dict.fromkeys(i for i in ids if type(i) is int and 0 <= i < vocab))
        if known:
            out[f"tokenizer.ggml.{key}"] = known[0]
        # Readers know the usual ends by their names.
        others = [i for i in known[1:] if i not in map(by_text.get, END_TOKENS)]
        if name == "eos" and others:
            out["tokenizer.ggml.eot_token_id"] = others[0]
    return out | {"tokenizer.ggml.add_bos_token": False}
