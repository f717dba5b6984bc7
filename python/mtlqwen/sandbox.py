"""The sandbox that chat templates run in, and the budget that each rendering pays from.

Imports jinja2, so it is imported only where a template is used. Knows nothing of messages.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from mtlqwen.errors import ModelError

MAX_SOURCE = 256 * 1024  # characters of a template; official ones have about 8,000
MAX_STEPS = 1_000_000  # loop rounds and macro calls of one rendering
MAX_OUTPUT = 16 * 1024 * 1024  # characters of one rendering: above any context
MAX_WORK = 8 * MAX_OUTPUT  # characters made on the way
MAX_SECONDS = 10.0

# Methods and filters that can make much of little, and that no chat template needs.
_NO_METHODS = {"center", "encode", "expandtabs", "format", "format_map"}
_NO_METHODS |= {"ljust", "rjust", "translate", "zfill"}
_NO_FILTERS = {"batch", "center", "filesizeformat", "format", "indent", "pprint", "random", "slice"}
_NO_FILTERS |= {"striptags", "urlencode", "urlize", "wordwrap", "xmlattr"}
_NO_GLOBALS = ("cycler", "dict", "joiner", "lipsum")
_MAX_BITS = 1024  # of an integer


class TemplateRefusal(Exception):
    """The template called raise_exception: it does not accept these messages."""


class Budget:
    """What one rendering may still spend."""

    def __init__(self) -> None:
        """Start full."""
        self._steps = 0
        self._work = 0
        self._deadline = time.monotonic() + MAX_SECONDS

    def spend(self, steps: int, characters: int) -> None:
        """Pay.

        Raises:
            ModelError: the budget is gone.
        """
        self._steps += steps
        self._work += characters
        if self._steps > MAX_STEPS:
            raise too_much("takes more loop rounds than allowed", MAX_STEPS)
        if self._work > MAX_WORK:
            raise too_much("makes more text than allowed", MAX_WORK)
        if time.monotonic() > self._deadline:
            raise too_much("takes more seconds than allowed", MAX_SECONDS)


def too_much(what: str, limit: float) -> ModelError:
    """Return the error of a template that wants more than it may have."""
    return ModelError(f"[chat] template: {what} (want at most {limit:,}); pick another file")


class _Meter(NodeTransformer):
    """Adds the payments to a parsed template."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.body.insert(0, self._payment(node))
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Macro:
        self.generic_visit(node)
        node.body.insert(0, self._payment(node))
        return node

    visit_CallBlock = visit_Macro

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:
        self.generic_visit(node)
        return self._call("pay_join", node.nodes, node.lineno)

    def visit_List(self, node: nodes.List) -> nodes.Expr:
        self.generic_visit(node)
        return self._made(node, node.items)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        self.generic_visit(node)
        return node if node.ctx == "store" else self._made(node, node.items)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:
        self.generic_visit(node)
        return self._made(node, [pair.value for pair in node.items])

    def _made(self, node: nodes.Expr, items: list[nodes.Expr]) -> nodes.Expr:
        """Pay for all that a list stands for: in lists of lists one text can stand many times."""
        if all(isinstance(item, nodes.Const) for item in items):
            return node
        return self._call("pay_value", [node], node.lineno)

    @staticmethod
    def _call(method: str, args: list[nodes.Expr], line: int) -> nodes.Call:
        callee = nodes.EnvironmentAttribute(method)
        return nodes.Call(callee, args, [], None, None).set_lineno(line)  # type: ignore[return-value]

    @staticmethod
    def _payment(node: nodes.Node) -> nodes.ExprStmt:
        """One step, and the constant text that a round of ``node`` writes."""
        written = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        texts = (c.value for c in node.find_all(nodes.Const) if isinstance(c.value, str))
        cost = nodes.Const(written + sum(map(len, texts)))
        pay = _Meter._call("pay_round", [cost], node.lineno)
        return nodes.ExprStmt(pay, lineno=node.lineno)


class _Generation(Extension):
    """``{% generation %}`` marks what trainers learn from; it renders as what it holds."""

    tags = {"generation"}  # noqa: RUF012  Jinja's own form

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Environment(ImmutableSandboxedEnvironment):
    """The sandbox with a budget and what the templates of the hub expect."""

    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self) -> None:
        """Set up the rules; nothing is paid outside of `spending`."""
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _Generation],
            finalize=self.pay_value,
        )
        self._local = threading.local()
        self.filters["tojson"] = _tojson
        self.filters = {
            name: self._paying(name, function)
            for name, function in self.filters.items()
            if name not in _NO_FILTERS
        }
        for name in _NO_GLOBALS:
            self.globals.pop(name, None)
        self.globals.update(raise_exception=_refuse, strftime_now=_strftime_now)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Meter().visit(super()._parse(source, name, filename))
        return tree

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Give this thread a full budget for one rendering."""
        self._local.budget = Budget()
        try:
            yield
        finally:
            del self._local.budget

    def pay(self, steps: int, characters: int) -> None:
        """Take from this thread's budget."""
        budget: Budget | None = getattr(self._local, "budget", None)
        if budget is not None:  # None while constants are folded at compile time
            budget.spend(steps, characters)

    def pay_round(self, characters: int) -> str:
        """Pay for one round of a loop, or one call of a macro, that writes so much itself."""
        self.pay(1, characters)
        return ""

    def pay_value(self, value: Any) -> Any:
        """Pay for writing ``value``, and return it."""
        self.pay(0, _written_size(value))
        return value

    def pay_join(self, *parts: Any) -> str:
        """Join ``parts`` as the operator ``~`` does."""
        self.pay(0, sum(map(_written_size, parts)))
        return "".join(map(str, parts))

    def _paying(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a filter: it pays before it makes much of little, and for what it made."""
        skip = 1 if hasattr(function, "jinja_pass_arg") else 0

        @wraps(function)
        def paying(*args: Any, **kwargs: Any) -> Any:
            if name == "join" and not isinstance(args[skip], (str, list, tuple)):
                args = (*args[:skip], list(args[skip]), *args[skip + 1 :])
            if name == "replace" and kwargs:
                raise SecurityError("replace takes no keywords here")
            self.pay(0, _filter_size(name, args[skip:]))
            made = function(*args, **kwargs)
            self.pay(0, _size(made))
            return made

        return paying

    def wrap_str_format(self, value: Any) -> None:
        """Give no way around the rule for str.format."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Keep some string methods away."""
        if isinstance(obj, str) and attr in _NO_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Pay for what an operator makes."""
        if operator == "**" or (operator == "%" and isinstance(left, str)):
            raise SecurityError(f"the operator {operator} is not allowed here")
        for value in (left, right):
            if isinstance(value, int) and value.bit_length() > _MAX_BITS:
                raise SecurityError("a number is too large")
        product = operator == "*"
        self.pay(0, _product_size(left, right) if product else _size(left) + _size(right))
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Pay for what a string method makes."""
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            self.pay(0, _method_size(owner, getattr(obj, "__name__", ""), args))
        return super().call(context, obj, *args, **kwargs)


def _size(value: object) -> int:
    return len(value) if isinstance(value, (str, list, tuple)) else 0


def _written_size(value: object) -> int:
    """Return about how many characters ``value`` has when written, what it holds included."""
    size, stack = 0, [value]
    while stack and size <= MAX_WORK:
        item = stack.pop()
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, (list, tuple, Mapping)):
            size += 16 * len(item)
            stack.extend(item)
            stack.extend(item.values() if isinstance(item, Mapping) else ())
        elif isinstance(item, Namespace):
            raise ModelError("[chat] template: writes a namespace as text")
    return size


def _product_size(left: object, right: object) -> int:
    for many, count in ((left, right), (right, left)):
        if isinstance(many, (str, list, tuple)) and isinstance(count, int):
            return len(many) * max(count, 0)
    return 0


def _method_size(owner: str, name: str, args: tuple[Any, ...]) -> int:
    """Return about how many characters a string method makes."""
    if name == "replace" and len(args) >= 2 and all(isinstance(arg, str) for arg in args[:2]):
        return len(owner) + (owner.count(args[0]) if args[0] else len(owner) + 1) * len(args[1])
    if name == "join" and args and isinstance(args[0], (list, tuple)):
        return sum(_size(item) + len(owner) for item in args[0])
    return len(owner)


def _filter_size(name: str, args: tuple[Any, ...]) -> int:
    """Return about how many characters a filter makes, for those that can make much of little."""
    if name == "replace":
        return _written_size(args[0]) + _method_size(str(args[0]), name, args[1:])
    if name == "join":
        between = _size(args[1]) if len(args) > 1 else 0
        return sum(_written_size(item) + between for item in args[0])
    return _written_size(args[0]) if name in ("string", "tojson") else 0


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as the hub's templates expect it: no HTML escapes, keys in order, text as it is."""
    if indent is not None and indent > 16:
        raise ValueError(f"tojson: indent too wide (got {indent}, want at most 16)")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: object) -> None:
    raise TemplateRefusal(message)


def _strftime_now(format: str) -> str:
    return datetime.now().astimezone().strftime(format)
