"""A lesson as one HTML page, as a teacher hands it round: made from the stored notebook, it shows every picture without a
network, and says in words what each one shows.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter, SlidesExporter

from tests.page_images import Images

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = {
    path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "lessons").glob("**/[0-9][0-9]_*.ipynb"))
}


@pytest.mark.parametrize("path", NOTEBOOKS.values(), ids=NOTEBOOKS)
def test_page_shows_and_tells_every_picture(path: Path) -> None:
    """A widget would have to be fetched and would leave a gap; the picture stored beside it is shown in its place."""
    notebook = nbformat.read(path, as_version=4)
    outputs = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("application/vnd.jupyter.widget-view+json" in data for data in outputs)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert '<script type="application/vnd.jupyter.widget-view+json">' not in page
    images = Images(page)
    stored = [image for data in outputs for image in Images(data.get("text/html", "")).found]
    assert [image for image in stored if image not in images.found] == []
    assert len(stored) >= sum("application/vnd.jupyter.widget-view+json" in data for data in outputs)
    assert images.untold() == []


@pytest.mark.parametrize("path", NOTEBOOKS.values(), ids=NOTEBOOKS)
def test_a_slide_begins_at_every_heading_and_exercise(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        turns = cell.metadata.get("slideshow", {}).get("slide_type") in ("slide", "subslide")
        heading = cell.cell_type == "markdown" and re.search(
            r"^##? ", re.sub(r"```.*?```", "", cell.source, flags=re.S), re.M
        )
        assert turns == bool(heading or cell.metadata.get("nbgrader", {}).get("solution")), cell.source[:60]


@pytest.mark.filterwarnings("ignore")
def test_a_lesson_becomes_slides() -> None:
    notebook = nbformat.read(next(iter(NOTEBOOKS.values())), as_version=4)
    pages = sum("slideshow" in cell.metadata for cell in notebook.cells)
    show, _ = SlidesExporter(reveal_scroll=True).from_notebook_node(notebook)
    starts = sum(cell.metadata.get("slideshow", {}).get("slide_type") == "slide" for cell in notebook.cells)
    assert show.count("<section") == pages + starts  # nbconvert wraps each slide and those below it in one more
