"""What notebooks show, as HTML and SVG: all escaped, nothing loaded, plain text elsewhere."""

from __future__ import annotations

import html
import io
import sys
from types import SimpleNamespace

import pytest
from mtlqwen import (
    ChatResult,
    Completion,
    Piece,
    TokenLogprob,
    ToolCall,
)
from mtlqwen import Engine as RealEngine
from mtlqwen.cell import Cell
from mtlqwen.generation import _accepted_positions
from mtlqwen.markdown import markdown
from mtlqwen.memory_map import MemoryMap, grow_tree
from mtlqwen.pictures import Branch, pool_picture, tree_picture
from mtlqwen.progress import make_progress
from mtlqwen.stats import Stats
from notebook.pages import EVIL, facts, look


def card(value: object) -> str:
    bundle: dict[str, str] = value._repr_mimebundle_()  # type: ignore[attr-defined]
    assert bundle["text/plain"] == repr(value)
    assert bundle.keys() == {"text/plain", "text/html"}
    assert len(bundle["text/html"]) < 20_000
    return bundle["text/html"]


def test_a_result_is_shown_with_its_facts() -> None:
    seen = look(card(Completion(EVIL, **facts())))
    assert EVIL in seen.text
    assert (
        "7 prompt tokens (3 cached) · 2 generated · first after 250 ms · 12.5 tokens/s" in seen.text
    )
    assert "mtp: 1 of 4 drafted tokens accepted (25%) · stop" in seen.text


def test_a_chat_shows_markdown_and_folds_its_reasoning() -> None:
    call = ToolCall("look_up", {"name": "<b>"})
    rounds = [{"role": "tool", "content": "found <i>"}]
    seen = look(
        card(
            ChatResult(
                f"**bold** {EVIL}", reasoning=EVIL, tool_calls=[call], rounds=rounds, **facts()
            )
        )
    )
    assert {"strong", "details", "code"} <= set(seen.tags)
    assert "b" not in seen.tags
    assert "look_up(name='<b>')" in seen.text
    assert "found <i>" in seen.text


@pytest.mark.parametrize(
    "text", [EVIL, "<svg/onload=ran=1>", '``` "><script>\nx', "[a]: data:x\n[a]"]
)
def test_markdown_has_no_tags_of_its_own(text: str) -> None:
    look(markdown(text))


def test_markdown_without_its_package_is_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    from mtlqwen import markdown as module

    monkeypatch.setitem(sys.modules, "markdown_it", None)
    module._renderer.cache_clear()
    try:
        assert look(markdown("**a** <b>")).text == "**a** <b>"
    finally:
        module._renderer.cache_clear()


def test_long_texts_and_conversations_are_cut() -> None:
    page = Completion("x" * 200_000, **facts())._repr_mimebundle_()["text/html"]
    assert len(page) < 60_000
    assert "150000 more characters" in page


def token(text: str, logprob: float, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
    return TokenLogprob(token_id=1, token=text, logprob=logprob, top=top)


def test_tokens_are_shaded_by_how_unlikely_they_are() -> None:
    tokens = [token("sure", 0.0), token("<b>", -3.0, (token('"other"', -0.5),))]
    view = Completion("sure<b>", **facts(logprobs=tokens)).token_view()
    page = card(view)
    seen = look(page)
    assert "sure<b>" in seen.text
    sure, unlikely = page.split("<span")[1:3]
    assert "rgba(255,140,0,0.00)" in sure
    assert "rgba(255,140,0,0.57)" in unlikely
    assert ("border-bottom" in sure, "border-bottom" in unlikely) == (True, False)
    assert "\n  '\"other\"' 60.7%" in html.unescape(unlikely)
    assert repr(view).splitlines()[1:] == ["+ 100.0% 'sure'", "    5.0% '<b>'"]


def test_tokens_need_logprobs() -> None:
    with pytest.raises(ValueError, match="logprobs=5"):
        Completion("a", **facts()).token_view()


def test_stats_show_what_matters_and_fold_the_rest() -> None:
    stats = Stats(device="<x>", memory_bytes=2**30, budget_bytes=2**31, tokens=30, step_s=2.0)
    stats |= {"drafted_tokens": 8, "accepted_tokens": 6, "cache_hits": 1, "cache_misses": 3}
    seen = look(card(stats))
    assert stats == dict(stats)
    for text in (
        "<x>",
        "1.00 GiB of 2.00 GiB",
        "15.0 a second",
        "6 of 8 drafted",
        "1 of 4 prompts",
    ):
        assert text in seen.text


@pytest.mark.parametrize("n_bundles", [0, 1, 65, 5000])
def test_the_pool_has_a_square_for_each_bundle_or_for_several(n_bundles: int) -> None:
    holders = bytes((1, 2, 3, 4, 0)[at % 5] for at in range(n_bundles))
    picture = pool_picture(holders)
    seen = look(picture)
    assert f"states {holders.count(4)}" in seen.text
    assert f"sequences and checkpoints {holders.count(3)}" in seen.text
    each = -(-n_bundles // 512) or 1
    assert seen.tags.count("rect") == 4 + -(-n_bundles // each)
    assert len(picture) < 60_000


def test_the_tree_is_that_of_the_blocks() -> None:
    blocks = [(-1, 4, 0, [1]), (0, 8, 0, [2]), (1, 12, 0, [3]), (1, 12, 0, [4])]
    checkpoints = [(2, 12, 3, []), (3, 14, 1, [5])]
    root = grow_tree(blocks, checkpoints, lambda ids: f"t{ids[0]}")
    (common,) = root.branches
    assert (common.n_tokens, common.text, common.uses) == (8, "t1", None)
    assert [(b.n_tokens, b.text, b.uses) for b in common.branches] == [
        (12, "t3", 2),
        (14, "t4", 0),
    ]
    seen = look(tree_picture(root))
    assert seen.tags.count("path") == 3
    assert seen.tags.count("circle") == 2
    assert "12 tokens, found 2 times" in seen.text


def test_a_wide_or_deep_tree_stays_small() -> None:
    wide = Branch(0, "", branches=[Branch(9, EVIL, 1) for _ in range(100)])
    picture = tree_picture(wide)
    assert "and 76 more ends" in look(picture).text
    deep = Branch(0, "")
    end = deep
    for depth in range(1, 3000):
        end.branches = [Branch(depth, "x", 0)]
        (end,) = end.branches
    assert "2999: x" in look(tree_picture(deep)).text
    assert look(tree_picture(Branch(0, ""))).text == "prefix tree, up to 0 tokens"


@pytest.mark.parametrize(
    ("reports", "positions"),
    [
        ([], ()),
        ([(1, (3, 2)), (4, (1, 2)), (5, (2, 3))], (1, 2, 5)),
        ([(1, (4, 2)), (5, (2, 3))], (5,)),  # two passes in a report: nobody knows
        ([(0, (2, 3))], (0, 1)),  # the second one ended it
        ([(8, (4, 3))], (8,)),  # a stop string cut the others off
    ],
)
def test_accepted_positions_follow_the_reports(
    reports: list[tuple[int, tuple[int, int]]], positions: tuple[int, ...]
) -> None:
    assert _accepted_positions(reports, 9) == positions


class Shell:
    """IPython's display, and a shell that has a kernel."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []
        self.kernel = object()

    def display(self, bundle: dict[str, str], **_: object) -> Shell:
        self.shown.append(bundle)
        return self

    update = display


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    shell = Shell()
    module = SimpleNamespace(get_ipython=lambda: shell, display=shell)
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", shell)
    return shell


def test_a_cell_is_redrawn_at_a_bounded_rate(shell: Shell) -> None:
    now = [0.0]
    cell = Cell(lambda: now[0])
    made = 0

    def make() -> dict[str, str]:
        nonlocal made
        made += 1
        return {"text/plain": str(made)}

    for step in range(1000):
        now[0] = step / 1000
        cell.draw(make)
    assert 9 <= made <= 11
    cell.draw(make, now=True)
    assert len(shell.shown) == made

    def slow() -> dict[str, str]:
        now[0] += 1.0
        return make()

    cell.draw(slow, now=True)
    before = made
    now[0] += 8.0
    cell.draw(make)
    assert made == before
    now[0] += 2.0
    cell.draw(make)
    assert made == before + 1


def test_loading_shows_a_bar_that_goes_away(shell: Shell) -> None:
    show = make_progress(None)
    assert show is not None
    show("download", 5_000_000, 10_000_000)
    show("download", 10_000_000, 10_000_000)
    assert shell.shown[0]["text/plain"] == "download 5/10 MB"
    assert "width:50.0%" in shell.shown[0]["text/html"]
    assert shell.shown[-1]["text/html"] == ""


def test_no_bar_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert make_progress(None) is None


class Pieces(list[Piece]):
    """A stream that is over."""

    def result(self) -> Completion:
        return Completion("Hi", **facts())


def test_a_stream_is_shown_in_its_cell(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    from mtlqwen.cell import show

    call = ToolCall("f", {})
    stream = Pieces([Piece("a", kind="reasoning"), Piece("b", kind="reasoning"), Piece("*H*")])
    stream += [Piece("<f>", kind="tool_call", tool_call=call), Piece("7", kind="tool_result")]
    assert show(stream, is_markdown=True) == "Hi"  # type: ignore[arg-type]
    seen = look(shell.shown[-1]["text/html"])
    assert shell.shown[-1]["text/plain"] == "*H*"
    assert {"details", "em"} <= set(seen.tags)
    for text in ("ab", "→ f()", "← 7", "12.5 tokens/s"):
        assert text in seen.text
    assert capsys.readouterr() == ("", "")


def test_engines_sessions_and_memory_have_cards(capsys: pytest.CaptureFixture[str]) -> None:
    with RealEngine("tiny") as engine:
        session = engine.session(system=EVIL, thinking=False)
        result = session.say("Repeat after me: 335 157 335 157 335 157", logprobs=2)
        for value in (engine, session, result, result.token_view(), engine.stats()):
            look(card(value))
        assert "335 157" in look(card(session)).text
        memory = engine.memory_map()
        assert isinstance(memory, MemoryMap)
        look(card(memory))
        engine.check_integrity()
        stats = engine.stats()
        assert memory.tree.branches
        assert f"{stats['cache_checkpoints']} checkpoints" in repr(memory)
        assert memory.held(1) == 0  # nobody has a slot
        assert memory.held(2) > 0
        assert memory.held(2) * memory.bundle_bytes <= int(stats["cache_bytes"])
    assert "closed" in look(card(engine)).text
    assert capsys.readouterr() == ("", "")


def test_accepted_tokens_are_those_that_were_drafted() -> None:
    with RealEngine("tiny", spec="ngram") as engine:
        text = "Repeat after me: " + "335 157 " * 12
        result = engine.chat([{"role": "user", "content": text}], thinking=False)
        assert result.spec.accepted > 0
        assert len(result.spec.positions) == result.spec.accepted
        assert set(result.spec.positions) < set(range(len(result.token_ids)))
