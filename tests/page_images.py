"""The images of an HTML page, and which of them say nothing to a reader who does not see them."""

from __future__ import annotations

import re
from html.parser import HTMLParser

WORD = re.compile(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+")  # a Chinese character counts as a word


class Images(HTMLParser):
    """The images of a page. found: their addresses and alternative texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "img":
            given = dict(attrs)
            self.found.append((given.get("src") or "", given.get("alt") or ""))

    def untold(self) -> list[str]:
        """Alternative texts that say nothing: fewer than four words, or what nbconvert writes where there is none."""
        return [
            alt or "(none)" for _, alt in self.found if len(WORD.findall(alt)) < 4 or alt.startswith("No description")
        ]
