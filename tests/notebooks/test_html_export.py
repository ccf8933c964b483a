"""A lesson as one HTML page, as a teacher hands it round: made from the stored notebook, it shows every picture without a network."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = {
    path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "lessons").glob("**/[0-9][0-9]_*.ipynb"))
}


@pytest.mark.parametrize("path", NOTEBOOKS.values(), ids=NOTEBOOKS)
@pytest.mark.filterwarnings("ignore")  # nbconvert's own, on alternative texts
def test_page_shows_the_still_picture_of_every_panel(path: Path) -> None:
    """A widget would have to be fetched and would leave a gap; the picture stored beside it is shown in its place."""
    notebook = nbformat.read(path, as_version=4)
    outputs = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("application/vnd.jupyter.widget-view+json" in data for data in outputs)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    pictures = [data["image/png"].replace("\n", "") for data in outputs if "image/png" in data]
    assert all(picture in page.replace("\n", "") for picture in pictures)
    assert '<script type="application/vnd.jupyter.widget-view+json">' not in page
