"""What pages and notebooks point at is there: files, headings, and every name that a link says a file defines.

`make lint` runs this file too. Addresses outside the project are left alone: a test needs no network.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nbformat
import pytest

from tools.lessons.links import ELSEWHERE
from tools.lessons.twins import CODE, LINK

ROOT = Path(__file__).parents[2]
FOLDERS = ("", "benchmarks", "data", "docs", "lessons", "solutions", "tests")
PAGES = sorted(
    page
    for folder in FOLDERS
    for pattern in ("*.md", "*.ipynb")
    for page in ((ROOT / folder).rglob(pattern) if folder else ROOT.glob(pattern))
    if ".ipynb_checkpoints" not in page.parts
)
NAMED = re.compile(r"\[`(?P<name>(?!\w+\.py`)[\w.]+)`\]\((?P<target>[^)\s#]+\.py)\)")


def text_of(page: Path) -> str:
    """The Markdown of a page, or of all text cells of a notebook."""
    if page.suffix == ".ipynb":
        cells = nbformat.read(page, as_version=4).cells
        return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """What can stand behind `#`: the headings of a page as GitHub names them, of a notebook as JupyterLab does."""
    headings = re.findall(r"^#{1,6} +(.*?)\s*$", re.sub(r"```.*?```", "", text_of(page), flags=re.S), flags=re.M)
    if page.suffix == ".ipynb":
        return {heading.replace(" ", "-") for heading in headings}
    found: list[str] = []
    for heading in headings:
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{sum(f.rpartition('-')[0] == slug for f in found) + 1}")
    return set(found)


def defined(path: Path) -> set[str]:
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
    """Every link of a page or notebook to a file, heading or name that is not there."""
    text, wrong = text_of(page), []
    prose = "".join(CODE.split(text)[:: CODE.groups + 1])
    for match in LINK.finditer(prose):
        target = match[1] or match[2]
        file, _, fragment = target.partition("#")
        path = page.parent / file if file else page
        if ELSEWHERE.match(target) and not target.startswith("#"):
            continue
        if not path.exists():
            wrong.append(f"{target}: not there")
        elif fragment and path.suffix in (".md", ".ipynb") and fragment not in anchors(path):
            wrong.append(f"{target}: no such heading")
    for match in NAMED.finditer(text):
        path = page.parent / match["target"]
        if path.exists() and match["name"] not in defined(path):
            wrong.append(f"{match['target']} defines no `{match['name']}`")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_to_what_they_say(page: Path) -> None:
    assert not wrong_links(page)


def test_a_wrong_link_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class A:\n    def b(self): ...\n")
    (tmp_path / "other.md").write_text("# Ends, and *means*\n\n## Twice\n\n## Twice\n")
    page, notebook = tmp_path / "page.md", tmp_path / "page.ipynb"
    links = (
        "# A page\n\n[`A.b`](a.py) [`A`](a.py) [text](a.py#L1) [`A.c`](a.py) [x](gone.md) [y](https://example.org/gone)\n"
        "[a](#a-page) [b](other.md#ends-and-means) [c](other.md#twice-1) [d](other.md#thrice) [e](#gone) `[f](code.md)`\n"
        '<img src="gone.png" alt="gone">\n'
    )
    page.write_text(links)
    faults = ["gone.md: not there", "other.md#thrice: no such heading", "#gone: no such heading", "gone.png: not there"]
    assert wrong_links(page) == [*faults, "a.py defines no `A.c`"]
    nbformat.write(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# A page\n[a](#A-page) [b](#a-page)")]), notebook
    )
    assert wrong_links(notebook) == ["#a-page: no such heading"]
