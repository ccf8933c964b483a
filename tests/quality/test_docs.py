"""What the documents point at is there: files, headings' files, and every name that a link says a file defines."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from nbconvert.filters import markdown2html

from tests.page_images import Images

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for pattern in ("*.md", "docs/**/*.md", "data/**/*.md", "tests/**/*.md", "benchmarks/**/*.md")
    for page in ROOT.glob(pattern)
)
LINK = re.compile(r"!?\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")

NAME = re.compile(r"`(?!\w+\.py`)[\w.]+`")


def _links(page: Path) -> list[tuple[str, str]]:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    return [(match["text"], match["target"]) for match in LINK.finditer(text)]


def _defined(path: Path) -> set[str]:
    """Every function, class and name of a module, methods as Class.method and by themselves."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return names


def wrong_links(page: Path) -> list[str]:
    wrong = []
    for text, target in _links(page):
        if "://" in target or target.startswith(("#", "mailto:")):
            continue
        path = page.parent / target.partition("#")[0]
        if not path.exists():
            wrong.append(f"{target}: not there")
        elif path.suffix == ".py" and NAME.fullmatch(text) and text.strip("`") not in _defined(path):
            wrong.append(f"{target} defines no {text}")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_to_what_they_say(page: Path) -> None:
    assert not wrong_links(page)


def test_a_wrong_link_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class A:\n    def b(self): ...\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[`A.b`](a.py) [`A`](a.py) [text](a.py#L1) [`A.c`](a.py) [x](gone.md) [y](https://example.org/gone)\n"
    )
    assert wrong_links(page) == ["a.py defines no `A.c`", "gone.md: not there"]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_images_say_what_is_seen(page: Path) -> None:
    assert Images(markdown2html(page.read_text(encoding="utf-8"))).untold() == []


@pytest.mark.parametrize(
    "alt", ["", " ", "image", "a chart", "lesson.png", "No description has been provided for this image"]
)
def test_an_alternative_text_says_what_is_seen(alt: str) -> None:
    assert Images(f'<p><img src="a.png" alt="{alt}"></p>').untold()
    assert Images('<img src="a.png">').untold()
    assert not Images('<img src="a.png" alt="Three requests share two blocks of 16 tokens">').untold()


def test_the_house_on_paper_is_the_house() -> None:
    """The table of floors names every room of the package, and no other."""
    from tests.quality.test_import_floors import FLOORS

    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for number, rooms in enumerate(FLOORS):
        row = re.search(rf"^\| {number} \| (.*?) \|", page, flags=re.M)
        assert row is not None, f"no row for floor {number}"
        assert {name.removesuffix(".py").rstrip("/") for name in re.findall(r"`([^`]+)`", row[1])} == rooms
