"""A model directory without weights, and engines on a scripted core."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import mtlqwen.engine
import pytest
from mtlqwen import Engine
from mtlqwen.assets import read_gguf_metadata
from mtlqwen.hub import ModelFiles, resolve
from mtlqwen.options import CoreOptions
from mtlqwen.tokenizer import Tokenizer
from mtlqwen.vocabulary import Vocabulary
from python.fake_core import FakeCore, Script

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
USER_DEFINED = [
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
]
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- if message.role == 'system' and not loop.first %}
{{- raise_exception('system comes first') }}
{%- endif -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
<|im_start|>assistant
{% if enable_thinking is not defined or enable_thinking %}<think>
{% endif -%}
"""

MakeEngine: TypeAlias = Callable[..., Engine]


def byte_literals() -> list[str]:
    """Return the stand-in characters of the 256 bytes, in byte order."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return [chr(byte) if byte in visible else chr(next(hidden)) for byte in range(256)]


def gguf_metadata() -> dict[str, object]:
    """Return the metadata of a GGUF whose tokens are the 256 bytes, one merge and added tokens."""
    tokens = [*byte_literals(), "th", *CONTROL, *USER_DEFINED]
    types = [1] * 257 + [3] * len(CONTROL) + [4] * len(USER_DEFINED)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": ["t h"],
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
        "tokenizer.chat_template": TEMPLATE,
    }


def tokenizer_json() -> dict[str, object]:
    """Return the same tokenizer as a tokenizer.json."""
    vocab = {literal: index for index, literal in enumerate([*byte_literals(), "th"])}
    added = [
        {"id": 257 + index, "content": literal, "special": literal in CONTROL}
        for index, literal in enumerate([*CONTROL, *USER_DEFINED])
    ]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "added_tokens": [token | flags for token in added],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": [["t", "h"]]},
    }


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """Return a tokenizer with one token for each byte."""
    return Tokenizer.from_gguf(gguf_metadata())


@pytest.fixture(scope="session")
def bundled_tokenizer() -> Tokenizer:
    """Return the tokenizer of the bundled model."""
    files = resolve("tiny")
    return Tokenizer.from_gguf(read_gguf_metadata(files.weights), files.weights.name)


@pytest.fixture(scope="session")
def vocabulary(bundled_tokenizer: Tokenizer) -> Vocabulary:
    """Return its vocabulary, for a model with more ids than it has, as is usual."""
    ends = [bundled_tokenizer.token_id(name) for name in ("<|im_end|>", "<|endoftext|>")]
    return Vocabulary(bundled_tokenizer, 8203, [end for end in ends if end is not None])


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model directory without weights."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_5_text"}))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture
def make_engine(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeEngine]:
    """Return a function that makes an engine on a scripted core; all are closed at the end."""
    engines = []

    def make(core: FakeCore | Script, **arguments: object) -> Engine:
        fake = core if isinstance(core, FakeCore) else FakeCore(core)

        def fake_factory(files: ModelFiles, options: CoreOptions) -> FakeCore:
            fake.options = options
            return fake

        monkeypatch.setattr(mtlqwen.engine, "_make_core", fake_factory)
        engine = Engine(str(model_dir), **arguments)  # type: ignore[arg-type]
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture
def say(tokenizer: Tokenizer) -> Callable[[str], Script]:
    """Return a function that makes a script which says a text and ends its turn."""

    def make(text: str) -> Script:
        return lambda prompt: tokenizer.encode(text + "<|im_end|>")

    return make


@pytest.fixture
def echo(tokenizer: Tokenizer) -> Script:
    """A model that says the last message in brackets."""

    def script(prompt: list[int]) -> list[int]:
        text = tokenizer.decode(prompt).removesuffix("assistant\n")
        said = re.findall(r"(?:user|tool)\n(.*)\n\Z", text)
        return tokenizer.encode(f"[{said[-1]}]<|im_end|>")

    return script
