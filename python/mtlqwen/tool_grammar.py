"""The grammar of Qwen's tool calls: known functions with arguments of their types, and no others.

A call reads ``<tool_call>``, ``<function=name>``, of each argument ``<parameter=key>``, its value
and ``</parameter>``, then ``</function>`` and ``</tool_call>``, each on a line of its own. Strings
stand there as they are, all other values as JSON; that is what `chat.parse_tool_calls` reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mtlqwen.messages import function_of
from mtlqwen.structured import JSON_OPTIONS, Form
from mtlqwen.tokenizer import Tokenizer
from mtlqwen.tool_calls import kinds_of, resolved

_NAME = re.compile(r"[^>\n]{1,256}")
_CLOSING = "</parameter>"


def tool_form(
    tools: Sequence[Mapping[str, Any]], choice: str | Mapping[str, str], tokenizer: Tokenizer
) -> tuple[Form, tuple[int, ...]]:
    """Return the form of a turn's tool calls, and the opening before it (see `Constraint`).

    Args:
        tools: the functions, one at least, as `check_tools` returns them.
        choice: ``"auto"``: the model decides, but its calls are well formed: the form begins with
            the first ``<tool_call>``. ``"required"``: calls and nothing else, one at least.
            ``{"name": function}``: one call of it. (``"none"`` takes no grammar.)
        tokenizer: the model's.

    Raises:
        ValueError: no tool has the chosen name; or one cannot be called in this format.
    """
    functions = [function_of(tool) for tool in tools]
    if not isinstance(choice, str):
        got, want = choice["name"], ", ".join(function["name"] for function in functions)
        functions = [function for function in functions if function["name"] == got]
        if not functions:
            raise ValueError(f"[structured] tool_choice: no such tool (got {got!r}, want {want})")
    begin, end = tokenizer.token_id("<tool_call>"), tokenizer.token_id("</tool_call>")
    if begin is None or end is None:
        raise ValueError(
            "[structured] tool_choice: the model has no tokens <tool_call> and </tool_call>"
        )
    rules = [_text_rule(), f"call: <[{begin}]> body", f'body: "\\n" (FUNCTIONS) "\\n" <[{end}]>']
    for at, function in enumerate(functions):
        rules += _function_rules(at, function)
    rules[2] = rules[2].replace("FUNCTIONS", " | ".join(f"f{at}" for at in range(len(functions))))
    many = {"auto": 'body ("\\n" call)*', "required": 'call ("\\n" call)*'}
    rules.append(f"start: {many[choice] if isinstance(choice, str) else 'call'}")
    return Form("tools", "\n".join(rules), str), (begin,) if choice == "auto" else ()


def _text_rule() -> str:
    """Return the rule of a text with the closing tag behind it: no line in it begins like that tag.

    It could be said with less, as a lazy text, but llguidance would look at every token of the
    vocabulary then, behind every token of the text.
    """
    line = ""
    for character in reversed(_CLOSING):
        others = f"[^{character}\\n][^\\n]*"
        line = f"({others}|{re.escape(character)}{line})?" if line else f"({others})?"
    line = line.replace("/", "\\/")
    return f"text: /{line}(\\n{line})*\\n<\\/parameter>\\n/"


def _function_rules(at: int, function: Mapping[str, Any]) -> list[str]:
    parameters = function.get("parameters") or {}
    required = parameters.get("required") or []
    parts, rules = [], []
    for number, (name, schema) in enumerate((parameters.get("properties") or {}).items()):
        rule = f"f{at}_{number}"
        parts.append(rule if name in required else f"{rule}?")
        head = _quoted(f"<parameter={_checked(name)}>\n")
        rules += _value_rules(rule, head, schema, parameters)
    head = _quoted(f"<function={_checked(function['name'])}>\n")
    return [" ".join([f"f{at}:", head, *parts, '"</function>"']), *rules]


def _value_rules(rule: str, head: str, schema: object, parameters: Mapping[str, Any]) -> list[str]:
    """Return the rules of one argument: one of some values, text as it is, or JSON."""
    tail = _quoted("\n</parameter>\n")
    schema = resolved(schema, parameters)
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if values is not None:
        texts = [item if isinstance(item, str) else json.dumps(item) for item in values]
        return [f"{rule}: {head} ({' | '.join(map(_quoted, texts))}) {tail}"]
    kinds = kinds_of(schema, parameters)
    if "string" in kinds or not kinds:
        return [f"{rule}: {head} text"]
    shared = {key: parameters[key] for key in ("$defs", "definitions") if key in parameters}
    inner = json.dumps({"x-guidance": JSON_OPTIONS, **schema, **shared})
    return [f"{rule}: {head} {rule}_value {tail}", f"{rule}_value: %json {inner}"]


def _checked(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"[structured] tools: a name that no call can hold (got {name!r}, want 1 to 256 "
            "characters, without > and line ends)"
        )
    return name


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
