"""Both kinds of tokenizer files against the `tokenizers` library, over texts in many scripts."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mtlqwen
import pytest
import tokenizers
from mtlqwen.assets import read_gguf_metadata
from mtlqwen.tokenizer import Tokenizer
from python.conftest import CONTROL, USER_DEFINED
from python.texts import PATTERN, SCRIPTS, as_gguf, draw_text, train

TINY = Path(mtlqwen.__file__).parent / "models" / "tiny" / "tiny-qwen3.5-Q8_0.gguf"
LITERALS = [*CONTROL, *USER_DEFINED]


@dataclass(frozen=True)
class Three:
    """One tokenizer: the library's own, and ours of either file."""

    theirs: tokenizers.Tokenizer
    from_json: Tokenizer
    from_gguf: Tokenizer


def make_three(folder: Path, data: dict[str, Any], metadata: dict[str, Any]) -> Three:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(data))
    return Three(
        tokenizers.Tokenizer.from_file(str(path)),
        Tokenizer.from_json(path),
        Tokenizer.from_gguf(metadata),
    )


def bundled() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the bundled GGUF's tokenizer as a tokenizer.json, and its metadata."""
    metadata = dict(read_gguf_metadata(TINY))
    tokens, types = (metadata[f"tokenizer.ggml.{key}"] for key in ("tokens", "token_type"))
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        flags | {"id": i, "content": tokens[i], "special": kind == 3}
        for i, kind in enumerate(types)
        if kind in (3, 4)
    ]
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated"}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    data = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [split | {"invert": False}, level | {"use_regex": False}],
        },
        "decoder": level | {"use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {tokens[i]: i for i, kind in enumerate(types) if kind not in (3, 4, 5)},
            "merges": metadata["tokenizer.ggml.merges"],
        },
    }
    return data, metadata


@pytest.fixture(scope="module", params=["trained", "bundled"])
def three(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Three:
    if request.param == "bundled":
        data, metadata = bundled()
    else:
        rng = random.Random(1)
        added = [{"content": name, "special": name in CONTROL} for name in LITERALS]
        data = train(lambda: draw_text(rng, []), 3000, added)
        metadata = as_gguf(data, padding=7)
    return make_three(tmp_path_factory.mktemp(request.param), data, metadata)


def test_texts_in_many_scripts_give_the_same_tokens(three: Three) -> None:
    rng = random.Random(2)
    texts = [*SCRIPTS.values(), *(draw_text(rng, LITERALS) for _ in range(1000))]
    for text in texts:
        wanted = three.theirs.encode(text, add_special_tokens=False).ids
        assert three.from_json.encode(text) == wanted, ascii(text)
        assert three.from_gguf.encode(text) == wanted, ascii(text)


def test_any_tokens_give_the_same_text(three: Three) -> None:
    rng = random.Random(3)
    last = three.theirs.get_vocab_size()
    for _ in range(500):
        ids = [rng.randrange(last) for _ in range(rng.randint(1, 40))]
        wanted = three.theirs.decode(ids, skip_special_tokens=True)
        assert three.from_json.decode(ids) == wanted
        assert three.from_gguf.decode(ids) == wanted


def test_long_words_take_merges_of_many_characters(three: Three) -> None:
    lengths = [len(three.theirs.id_to_token(i) or "") for i in range(three.theirs.get_vocab_size())]
    assert max(lengths) > 8  # or the texts above show little
    for text in ("加拿大" * 500, "a" * 5000, "👍🏽" * 300, " " * 3000, "\u0301" * 1000):
        wanted = three.theirs.encode(text, add_special_tokens=False).ids
        assert three.from_gguf.encode(text) == wanted
        assert three.from_json.encode(text) == wanted


def test_plain_text_never_holds_an_added_token(three: Three) -> None:
    rng = random.Random(4)
    for ours in (three.from_json, three.from_gguf):
        added = {token.token_id for token in ours.added.values()}
        assert {"<|im_end|>", "<think>"} <= ours.added.keys()
        for _ in range(300):
            text = draw_text(rng, list(ours.added))
            ids = ours.encode(text, plain=True)
            assert not added & set(ids)
            assert ours.decode(ids) == three.theirs.normalizer.normalize_str(text)


def test_flags_of_added_tokens_mean_what_they_mean_to_the_library(tmp_path: Path) -> None:
    rng = random.Random(5)
    added = [
        {"content": "<m>", "special": True},
        {"content": "<m>a", "special": True},
        {"content": "mark", "special": False, "single_word": True},
        {"content": "<both>", "special": True, "lstrip": True, "rstrip": True},
        {"content": "<r>", "special": False, "rstrip": True},
        {"content": "<l>", "special": True, "lstrip": True, "single_word": True},
    ]
    data = train(lambda: draw_text(rng, []), 1000, added)
    three = make_three(tmp_path, data, as_gguf(data, padding=0))
    pieces = [str(token["content"]) for token in added] + [
        *" \n_x1²ⅷéⒶ👍",
        "\u0301",
        "\u200d",
        "\u2003",
    ]
    for _ in range(2000):
        text = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 10)))
        wanted = three.theirs.encode(text, add_special_tokens=False).ids
        assert three.from_json.encode(text) == wanted, ascii(text)
