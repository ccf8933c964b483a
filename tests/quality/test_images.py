"""Images of the pages say what is seen, for readers who do not see them."""

from __future__ import annotations

from pathlib import Path

import pytest
from nbconvert.filters import markdown2html

from tests.page_images import Images
from tests.quality.test_links import PAGES, ROOT

MARKDOWN = [page for page in PAGES if page.suffix == ".md"]


@pytest.mark.parametrize("page", MARKDOWN, ids=[str(page.relative_to(ROOT)) for page in MARKDOWN])
def test_images_say_what_is_seen(page: Path) -> None:
    assert Images(markdown2html(page.read_text(encoding="utf-8"))).untold() == []


@pytest.mark.parametrize(
    "alt", ["", " ", "image", "a chart", "lesson.png", "No description has been provided for this image"]
)
def test_an_alternative_text_says_what_is_seen(alt: str) -> None:
    assert Images(f'<p><img src="a.png" alt="{alt}"></p>').untold()
    assert Images('<img src="a.png">').untold()
    assert not Images('<img src="a.png" alt="Three requests share two blocks of 16 tokens">').untold()
