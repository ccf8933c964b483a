"""Every lesson in a real JupyterLab: it runs to its end, and its sliders move words and picture together.

Of the Chinese notebooks, whose code cells are those of the English ones (tests/notebooks), one is run on every push, the
others in `make test-all`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.browser.lab import CHROMIUM_ARGUMENTS, ERROR, Lab
from tools.build_lessons import main

ROOT = Path(__file__).resolve().parents[2]
FIXTURE = ROOT / "tests" / "notebooks" / "fixture"
SCREENSHOTS = ROOT / "build" / "screenshots"
STORED = sorted(
    p.relative_to(ROOT).as_posix() for p in (ROOT / "lessons").glob("**/*.ipynb") if ".ipynb_checkpoints" not in p.parts
)
FIXTURES = ["lessons/98_fixture.ipynb", "lessons/zh/98_fixture.ipynb"]
CHINESE_ON_EVERY_PUSH = "lessons/zh/00_start_here.ipynb"  # the shortest

pytestmark = pytest.mark.browser


def skip(reason: str) -> None:
    if os.environ.get("REQUIRE_BROWSER", "0") not in ("", "0"):
        pytest.fail(f"REQUIRE_BROWSER is set, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium from this machine, without a window."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        skip("there is no Chromium on the PATH (Debian: apt install chromium fonts-noto-cjk)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        skip("playwright is not installed (pip install -e .[test])")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def lab(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One server for all: a copy of the lessons, with the small lesson of the build's own tests beside them."""
    home = tmp_path_factory.mktemp("lab")
    root = home / "root"
    shutil.copytree(FIXTURE, root)
    assert main(["--stamp"], root) == 0
    assert main([], root) == 0
    if STORED:
        shutil.copytree(ROOT / "lessons", root / "lessons", dirs_exist_ok=True)
    with Lab(root, home) as server:
        yield server


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    opened.set_default_timeout(30_000)
    opened.page_errors = []
    opened.on("pageerror", lambda error: opened.page_errors.append(str(error)))
    yield opened
    context.close()


def shot(page: Any, path: str, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{path.removesuffix('.ipynb').replace('/', '-')}-{name}.png")


def numbers(text: str) -> set[float]:
    """Every number in a text, thousands separators left out."""
    return {float(n.replace(",", "")) for n in re.findall(r"\d(?:[\d,]*\d)?(?:\.\d+)?", text)}


def what_it_shows(panel: Any) -> tuple[str, str, str]:
    """The words, the alternative text and the picture of a panel."""
    image = panel.locator(".widget-html img").first  # films side by side: the first one's words tell of all
    return panel.locator("p[role=status]").inner_text(), image.get_attribute("alt"), image.get_attribute("src")


def is_slow(path: str) -> bool:
    return path.startswith("lessons/zh/") and path != CHINESE_ON_EVERY_PUSH


@pytest.mark.parametrize("path", [pytest.param(p, marks=[pytest.mark.slow] if is_slow(p) else []) for p in STORED])
def test_lesson_runs_and_its_sliders_work(path: str, lab: Lab, page: Any) -> None:
    notebook = nbformat.read(lab.root / path, as_version=4)  # before JupyterLab saves it, perhaps half run
    lab.open(page, path)
    lab.run_all(page)
    page.locator(".jp-Cell").first.scroll_into_view_if_needed()
    shot(page, path, "top")
    widgets = [
        o
        for c in notebook.cells
        for o in c.get("outputs", [])
        if "application/vnd.jupyter.widget-view+json" in o.get("data", {})
    ]
    panels = page.locator(".widget-vbox", has=page.locator("p[role=status]"))
    for _ in widgets:
        panels.nth(len(widgets) - 1).wait_for()
    assert panels.count() == len(widgets)
    for number in range(len(widgets)):
        move_each_slider(panels.nth(number), page)
        panels.nth(number).scroll_into_view_if_needed()
        shot(page, path, f"panel{number}")
    assert page.locator(ERROR).all_inner_texts() == []
    assert page.page_errors == []


def move_each_slider(panel: Any, page: Any) -> None:
    """One key press on each slider: its new value stands in the words and in the alternative text, and the picture is another."""
    rows = panel.locator(".widget-slider")
    assert rows.count(), "a panel without a slider"
    for number in range(rows.count()):
        row, label = rows.nth(number), rows.nth(number).locator(".widget-readout")
        before, value = what_it_shows(panel), label.inner_text()
        row.locator(".noUi-handle").focus()
        for key in ("ArrowRight", "ArrowLeft"):  # at its upper end a slider moves left only
            page.keyboard.press(key)
            page.wait_for_timeout(100)
            if label.inner_text() != value:
                break
        assert label.inner_text() != value, "the slider does not move"
        panel.locator("p[role=status]").filter(has_not_text=before[0]).wait_for()
        words, alt, picture = what_it_shows(panel)
        assert words == alt
        assert numbers(label.inner_text()) <= numbers(words), "the words do not name the new value"
        assert picture != before[2]
        assert (
            panel.locator(".widget-html img").first.evaluate("image => image.decode().then(() => image.naturalWidth)")
            > 300
        )


def test_final_numbers_after_many_presses(lab: Lab, page: Any) -> None:
    """Keys pressed faster than the picture is drawn: in the end words and picture show the last value, not one on the way."""
    lab.open(page, FIXTURES[0])
    lab.run_all(page)
    panel = page.locator(".widget-vbox", has=page.locator("p[role=status]"))
    panel.locator(".widget-slider", has_text="batch").locator(".noUi-handle").focus()
    for _ in range(12):
        page.keyboard.press("ArrowRight")
    panel.locator("p[role=status]", has_text="batch 20, 256 tokens: 5,120 in all").wait_for()
    panel.locator(".widget-slider", has_text="seq len").locator(".noUi-handle").focus()
    page.keyboard.press("ArrowRight")
    words = "batch 20, 512 tokens: 10,240 in all"
    panel.locator("p[role=status]", has_text=words).wait_for()
    assert what_it_shows(panel)[:2] == (words, words)
