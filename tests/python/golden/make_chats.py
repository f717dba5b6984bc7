"""Writes chats.json: what transformers makes of templates and conversations, as short hashes.

transformers is no dependency; make an environment for it, without torch:
    python -m venv V && V/bin/pip install transformers jinja2
    V/bin/python tests/python/golden/make_chats.py
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import transformers
from jinja2 import TemplateError
from transformers.utils.chat_template_utils import render_jinja_template

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from python.chat_cases import CONVERSATIONS, TEMPLATES, TOOLS, cases

WHOLE = [("3.5", "loop", "two"), ("3.6", "calls", "none"), ("3.8", "loop", "two")]


def render(template: str, conversation: str, tools: str, switches: dict[str, Any]) -> str:
    """Return the prompt, or the words of the template's refusal."""
    try:
        rendered, _ = render_jinja_template(
            conversations=[CONVERSATIONS[conversation]],
            tools=TOOLS[tools],
            chat_template=template,
            add_generation_prompt=True,
            **switches,
        )
    except TemplateError as error:
        return f"refused: {error}"
    return str(rendered[0])


def main() -> None:
    hashes = {}
    for family, template in TEMPLATES.items():
        texts = [render(template, *case) for case in cases(family)]
        hashes[family] = "".join(hashlib.sha256(t.encode()).hexdigest()[:8] for t in texts)
    golden: dict[str, Any] = {"transformers": transformers.__version__, "hashes": hashes}
    golden["whole"] = [[*case, render(TEMPLATES[case[0]], *case[1:], {})] for case in WHOLE]
    Path(__file__).with_name("chats.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
