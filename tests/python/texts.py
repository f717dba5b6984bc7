"""Texts in many scripts, drawn at random, and tokenizers trained on them."""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Callable
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

# As the tokenizer.json of Qwen 3.5 has it, letter by letter.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SCRIPTS = {
    "latin": "the quick brown fox I'm WE'LL don't naïve façade Straße İstanbul ﬁne Ǆ",
    "marks": "e\u0301a\u0323\u0302 Việt Nam Ạ\u0301 n\u0303 o\u0328\u0304 q\u0307\u0323 Å Ω",
    "cyrillic": "съешь же ещё этих мягких французских булок ѝ й",
    "greek": "Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία ᾳ ΐ",
    "hebrew": "שָׁלוֹם עֲלֵיכֶם מַה שְׁלוֹמְךָ",
    "arabic": "السَّلَامُ عَلَيْكُمْ كَيْفَ الحال ٱلْكِتَـٰبُ",
    "devanagari": "नमस्ते दुनिया क्षत्रिय क़लम हिन्दी",
    "tamil": "வணக்கம் உலகம் கொ கௌ",
    "thai": "สวัสดีชาวโลก น้ำ กำลัง ที่นี่",
    "tibetan": "བཀྲ་ཤིས་བདེ་ལེགས",
    "han": "人民共和国 加拿大 機器學習 你好\uff0c世界\uff01 𠮷野家 豈 﨑",
    "kana": "こんにちは世界 ガギグゲゴ カ\u3099 ﾊﾟﾝ ゟ",
    "hangul": "안녕하세요 세계 각 \u1112\u1161\u11ab",
    "emoji": "👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 1️⃣ ❤️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ☺ 🧑🏿‍🚀",
    "digits": "0 12 1234567 3.14 1e-9 0x1F ٣٤٥ १२३ \uff14\uff12 ² ½ Ⅷ ④ 10,000",
    "code": "def f(x):\n\treturn x**2  #\r\n    if (a != b) { ++i; }\n\n\n<p class='a'>&amp;</p>",
    "space": "a  b   c\t\td \n e\u00a0f\u2003g\u200bh\ufeffi\u2028j  \r\n\r\n   k   ",
    "odd": "\u0000\u0007\u001b[0m \u00ad \ue000 \ufffd \U0010ffff \u0301\u0301 ‍ ️ \u0378",
}


def draw_text(rng: random.Random, literals: list[str]) -> str:
    """Return a few pieces of a few scripts, some in another normal form, some broken up."""
    out = []
    for _ in range(rng.randint(1, 8)):
        words = SCRIPTS[rng.choice(list(SCRIPTS))].split(" ")
        start = rng.randrange(len(words))
        piece = " ".join(words[start : start + rng.randint(1, 4)])
        if rng.random() < 0.2:
            form = rng.choice(["NFC", "NFD", "NFKC", "NFKD"])
            piece = unicodedata.normalize(form, piece)  # type: ignore[arg-type]
        if rng.random() < 0.2 and piece:
            piece = piece[rng.randrange(len(piece)) :]
        if rng.random() < 0.2:
            piece = rng.choice([str.upper, str.title, str.swapcase])(piece)
        if rng.random() < 0.2 and literals:
            literal = rng.choice(literals)
            piece += literal if rng.random() < 0.7 else literal[: rng.randrange(len(literal))]
        out += [piece, rng.choice(["", " ", "\n", ". "])]
    return "".join(out)


def train(draw: Callable[[], str], vocab: int, added: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the tokenizer.json, laid out as Qwen's, of a BPE that learned from texts."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((draw() for _ in range(2000)), trainer)
    data: dict[str, Any] = json.loads(tokenizer.to_str())
    first = max(data["model"]["vocab"].values()) + 1
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    data["added_tokens"] = [flags | token | {"id": first + i} for i, token in enumerate(added)]
    return data


def as_gguf(data: dict[str, Any], padding: int) -> dict[str, object]:
    """Return a tokenizer.json as GGUF metadata, as llama.cpp's converter writes it."""
    vocab = {**data["model"]["vocab"]}
    types = dict.fromkeys(vocab.values(), 1)
    for token in data["added_tokens"]:
        vocab[token["content"]] = token["id"]
        types[token["id"]] = 3 if token["special"] else 4
    for i in range(len(vocab), len(vocab) + padding):
        vocab[f"[PAD{i}]"] = i
        types[i] = 5
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in data["model"]["merges"]]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.tokens": sorted(vocab, key=vocab.__getitem__),
        "tokenizer.ggml.token_type": [types[i] for i in range(len(types))],
        "tokenizer.ggml.merges": merges,
    }
