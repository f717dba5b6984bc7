"""Renders a model's own chat template: a Jinja program that came with a weight file.

Such a program is hostile until shown otherwise. It runs in Jinja's immutable sandbox, and every
loop round, macro call and character it makes is paid from a budget. Knows nothing of messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from mtlqwen.errors import ModelError


class ChatTemplate:
    """One compiled template; rendering is thread-safe.

    Example:
        >>> ChatTemplate("{% for m in messages %}[{{ m.content }}]{% endfor %}").render(
        ...     {"messages": [{"content": "a"}, {"content": "b"}]}
        ... )
        '[a][b]'
    """

    def __init__(self, source: str) -> None:
        """Compile ``source``.

        Raises:
            ModelError: it is too long or not valid Jinja.
        """
        from jinja2 import TemplateError

        from mtlqwen import sandbox

        if len(source) > sandbox.MAX_SOURCE:
            raise sandbox.too_much("is longer than allowed", sandbox.MAX_SOURCE)
        self.source = source
        self._environment = sandbox.Environment()
        try:
            self._template = self._environment.from_string(source)
        except (TemplateError, MemoryError, RecursionError, SyntaxError, ValueError) as error:
            raise ModelError(f"[chat] template: not valid Jinja ({error})") from error

    @cached_property
    def variables(self) -> frozenset[str]:
        """The names that the template reads and does not set itself."""
        from jinja2 import meta

        tree = self._environment.parse(self.source)
        return frozenset(meta.find_undeclared_variables(tree)) - self._environment.globals.keys()

    def render(self, variables: Mapping[str, Any]) -> str:
        """Return the text that the template makes of ``variables``.

        Raises:
            ValueError: the template refuses the messages; its own words are in the error.
            ModelError: the template itself fails, or spends more than its budget.
        """
        from mtlqwen.sandbox import TemplateRefusal

        try:
            with self._environment.spending():
                return "".join(self._bounded(self._template.generate(**variables)))
        except TemplateRefusal as refusal:
            raise ValueError(f"[chat] messages: the template refuses them: {refusal}") from None
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(f"[chat] template: fails ({type(error).__name__}: {error})") from error

    @staticmethod
    def _bounded(chunks: Iterator[str]) -> Iterator[str]:
        from mtlqwen.sandbox import MAX_OUTPUT, too_much

        size = 0
        for chunk in chunks:
            size += len(chunk)
            if size > MAX_OUTPUT:
                raise too_much("renders more text than allowed", MAX_OUTPUT)
            yield chunk
