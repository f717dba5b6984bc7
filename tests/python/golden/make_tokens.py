"""Writes tokens.json: texts and their tokens, by the `tokenizers` library on a tokenizer.json.

The tests compare them with the tokenizer that is built from the arrays of the bundled GGUF.
Run: python tests/python/golden/make_tokens.py TOKENIZER_JSON
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import tokenizers

TEXTS = [
    "Hello, world! It's 2026, isn't it? WE'LL see; they'd've gone.",
    "def f(x):\n    return x ** 2  # square\n\n\n\tprint(f(1234567))\r\n",
    "<|im_start|>user\nWhat is 61 times 11?<|im_end|>\n<|im_start|>assistant\n<think>\n",
    "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    "<|im_end|<|im_end|><think></think <|draft_mask|>",
    "Grüße aus Zürich: naïve façade, Ångström, ﬁnal, e\u0301 n\u0303 \u1e9b\u0323",
    "日本語のテキスト 한국어 텍스트 中文文本 Русский текст עברית العربية हिन्दी ไทย",
    "😀👨‍👩‍👧‍👦🏳️‍🌈 \u200b\ufeff\u00a0\u2028\ue000\U0010ffff",
    "   leading, trailing   \n \n  \t mixed \u3000 spaces ",
    "1 22 333 4444 ½ ² ٣ Ⅷ 3.14e-10 $1,000.00 50% #tag @name http://a.b/c?d=e&f=g",
    "",
]


def main() -> None:
    tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
    chance = random.Random(20261129)
    letters = "ab eEé\u0301\n\r\t'<>|_1\uff19漢😀\u0e01\u0e31\u093f"
    texts = TEXTS + ["".join(chance.choices(letters, k=30)) for _ in range(50)]
    rows = [[text, tokenizer.encode(text, add_special_tokens=False).ids] for text in texts]
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    Path(__file__).with_name("tokens.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
