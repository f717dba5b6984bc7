"""Chat templates: what they may do, and what stops those that want too much."""

from __future__ import annotations

import threading
import time

import pytest
from mtlqwen import ModelError, sandbox
from mtlqwen.template import ChatTemplate

GROW = "{{% set ns = namespace(x={start}) %}}{{% for i in range(60) %}}{body}{{% endfor %}}"
WIDE = "x" * 100_000

TOO_MUCH = [
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
    "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "{% for i in range(99999) %}" + WIDE + "{% endfor %}",
    "{% macro m() %}{% for i in range(99999) %}" + WIDE + "{% endfor %}{% endmacro %}{{ m() }}",
    "{{ 'a' * 9999999999 }}",
    "{{ 9999999999 * 'a' }}",
    "{{ [1] * 9999999999 }}",
    "{{ 9 ** 9 ** 9 }}",
    "{{ 'a'.ljust(9999999999) }}",
    "{{ 'a'.center(9999999999) }}",
    "{{ '%9999999999d' % 1 }}",
    "{{ '{:>9999999999}'.format('') }}",
    "{{ 'a' | center(9999999999) }}",
    "{{ [1] | tojson(indent=9999999999) }}",
    "{{ range(9999999999) }}",
    GROW.format(start="'a'", body="{% set ns.x = ns.x + ns.x %}"),
    GROW.format(start="'a'", body="{% set ns.x = ns.x ~ ns.x %}"),
    GROW.format(start="['a']", body="{% set ns.x = ns.x + ns.x %}"),
    GROW.format(start="9", body="{% set ns.x = ns.x * ns.x %}"),
    GROW.format(start="'a'", body="{% set ns.x = ns.x.replace('a', 'aaaa') %}"),
    GROW.format(start="'a'", body="{% set ns.x = ns.x | replace('a', 'aaaa') %}"),
    GROW.format(start="'a'", body="{% set ns.x = [ns.x, ns.x] | join %}"),
    GROW.format(start="'a'", body="{% set ns.x = ns.x.join([ns.x, ns.x, ns.x]) %}"),
    GROW.format(start="'a'", body="{% set ns.x = [ns.x, ns.x] | tojson %}"),
    GROW.format(start="'a'", body="{% set ns.x = [ns.x, ns.x] | string %}"),
    GROW.format(start="'a'", body="{% set ns.x = (ns.x, ns.x) %}"),
    GROW.format(start="'a'", body="{% set ns.x = {'a': ns.x, 'b': ns.x} %}"),
    GROW.format(start="'a'", body="{% set x %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = x %}"),
    "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "{{ 1 }}" + " " * sandbox.MAX_SOURCE,
]


@pytest.mark.parametrize("source", TOO_MUCH, ids=range(len(TOO_MUCH)))
def test_a_template_that_wants_too_much_is_stopped(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("MAX_STEPS", "MAX_OUTPUT", "MAX_WORK"):
        monkeypatch.setattr(sandbox, limit, getattr(sandbox, limit) // 32)  # the test is quick then
    started = time.monotonic()
    with pytest.raises(ModelError, match=r"\[chat\] template: "):
        ChatTemplate(source).render({})
    assert time.monotonic() - started < 10


def test_seconds_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_SECONDS", 0.0)
    with pytest.raises(ModelError, match="more seconds than allowed"):
        ChatTemplate("{% for i in range(9) %}{% endfor %}").render({})


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{% include 'file' %}",
        "{% import 'file' as f %}",
        "{{ missing.attribute }}",
        "{{ namespace(x=1) }}",
    ],
)
def test_a_template_cannot_reach_out(source: str) -> None:
    messages = [{"role": "user"}]
    with pytest.raises(ModelError):
        ChatTemplate(source).render({"messages": messages})
    assert messages == [{"role": "user"}]


@pytest.mark.parametrize("source", ["{% if %}", "{{ a | nosuchfilter }}", "{% endfor %}"])
def test_a_template_that_is_no_jinja(source: str) -> None:
    with pytest.raises(ModelError, match="not valid Jinja"):
        ChatTemplate(source)


def test_a_refusal_carries_the_words_of_the_template() -> None:
    with pytest.raises(ValueError, match="the template refuses them: only one system message"):
        ChatTemplate("{{ raise_exception('only one system message') }}").render({})


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ {'b': '<é>', 'a': [1, none, true]} | tojson }}", '{"b": "<é>", "a": [1, null, true]}'),
        (
            "{%- for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}",
            "13",
        ),
        ("{% if true %}\n  a\n  {% endif %}\nb", "  a\nb"),
        ("{% set ns = namespace(n=0) %}{% set ns.n = ns.n + 2 %}{{ ns.n * 3 }}", "6"),
        ("{{ ['a', 'b'][::-1] | join('-') }}{{ 'x' ~ 1 ~ none }}", "b-ax1None"),
        ("{% macro m(a, b='c') %}{{ a }}{{ b }}{% endmacro %}{{ m('1') }}", "1c"),
        ("{{ ' x ' | trim }}{{ 'a-b'.split('-')[-1] }}{{ 'ab'.startswith('a') }}", "xbTrue"),
        ("{{ 7 % 4 }}{{ 'a' in 'abc' }}{{ {'k': 'v'}.items() | list }}", "3True[('k', 'v')]"),
        ("{{ (strftime_now('%Y') | int) > 2000 }}", "True"),
        (
            "{% for i in [1, 2, 3] %}{{ loop.index0 }}{{ loop.last }}{{ loop.nextitem }}{%endfor%}",
            "0False21False32True",
        ),
    ],
)
def test_what_templates_of_the_hub_use(source: str, text: str) -> None:
    assert ChatTemplate(source).render({}) == text


def test_threads_have_budgets_of_their_own() -> None:
    template = ChatTemplate("{% for i in range(n) %}{{ i }},{% endfor %}")
    texts: dict[int, str] = {}

    def render(n: int) -> None:
        texts[n] = template.render({"n": n})

    threads = [threading.Thread(target=render, args=(n,)) for n in range(1000, 1008)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {n: "".join(f"{i}," for i in range(n)) for n in range(1000, 1008)}
