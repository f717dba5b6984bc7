"""Notebooks in a kernel of their own, and their pages in a browser without a window."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from mtlqwen import ChatResult
from notebook.pages import EVIL, browse, facts, look, page_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def executed(root: Path) -> Any:
    """The example notebook, executed once."""
    pytest.importorskip("ipykernel", reason="install the dependency group `notebook`")
    import nbclient
    import nbformat

    book = nbformat.read(root / "examples/notebook.ipynb", as_version=4)
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
    return book


def outputs(book: Any) -> list[Any]:
    return [output for cell in book.cells for output in cell.get("outputs", [])]


def pages(book: Any) -> list[str]:
    return ["".join(o["data"]["text/html"]) for o in outputs(book) if "data" in o]


def test_the_example_is_short_and_has_no_outputs(root: Path) -> None:
    book = json.loads((root / "examples/notebook.ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert sum(len(cell["source"]) for cell in code) < 60
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)


def test_every_cell_shows_cards_and_nothing_else(executed: Any) -> None:
    assert [o for o in outputs(executed) if o["output_type"] in ("stream", "error")] == []
    texts = [look(page).text for page in pages(executed)]
    assert texts[0] == ""  # the bar of loading has gone
    shown = "\n".join(texts)
    for text in (
        "Engine tiny",
        "335 157 335 157",
        "the less likely",
        "Session(",
        "bundles of the pool",
    ):
        assert text in shown
    assert "tokens/s" in texts[2]  # the streamed answer, finished


def test_the_book_becomes_a_page(executed: Any) -> None:
    import nbconvert

    body, _ = nbconvert.HTMLExporter(template_name="basic").from_notebook_node(executed)
    assert "Engine tiny" in body
    assert "<svg" in body


@pytest.mark.skipif(not shutil.which("chromium"), reason="apt-get install chromium")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_read_well(executed: Any, dark: bool, tmp_path: Path) -> None:
    hostile = look_alike()
    document = browse(page_of([*pages(executed), hostile], dark=dark), tmp_path, "page")
    title = re.search(r"<title>(\{.*?\})</title>", document)
    assert title, document[:400]
    measured = json.loads(unescape(title[1]))
    assert measured["spans"] >= 8
    assert measured["svg"] == 2
    wanted = {"faint": [], "wide": [], "outside": 0, "ran": False}
    assert {name: measured[name] for name in wanted} == wanted
    assert (tmp_path / "page.png").stat().st_size > 20_000


def look_alike() -> str:
    """A card with all that a model may try."""
    table, code = "| a | b |\n|---|---|\n| 1 | 2 |", f"```python\n{'x = 1; ' * 60}\n```"
    text = "\n\n".join([EVIL, table, code, "long" * 200])
    page: str = ChatResult(text, reasoning=EVIL, **facts())._repr_mimebundle_()["text/html"]
    return page.replace("<details", "<details open")
