"""Every lesson in a real JupyterLab: it runs to its end, its panels are worked by keyboard alone, every picture says what it
shows, and nothing but long lines of code scrolls sideways.

Of the Chinese notebooks, whose code cells are those of the English ones (tests/notebooks), one is run on every push, the
others in `make test-all`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.browser.lab import CHROMIUM_ARGUMENTS, ERROR, Lab
from tests.page_images import Images
from tools.build_lessons import main

ROOT = Path(__file__).resolve().parents[2]
FIXTURE = ROOT / "tests" / "notebooks" / "fixture"
SCREENSHOTS = ROOT / "build" / "screenshots"
STORED = sorted(
    p.relative_to(ROOT).as_posix() for p in (ROOT / "lessons").glob("**/*.ipynb") if ".ipynb_checkpoints" not in p.parts
)
FIXTURES = ["lessons/98_fixture.ipynb", "lessons/zh/98_fixture.ipynb"]
CHINESE_ON_EVERY_PUSH = "lessons/zh/00_start_here.ipynb"  # the shortest

CONTROLS = ".noUi-handle, select, input, textarea, button"
KEYS = {"slider": ("ArrowRight", "ArrowLeft"), "checkbox": (" ",)}
VALUE = """control => control.type === 'checkbox' ? String(control.checked)
                    : control.closest('.widget-slider').querySelector('.widget-readout').textContent"""
LOOK = """control => { const {outline, boxShadow, borderColor, backgroundColor} = getComputedStyle(control);
                       return [outline, boxShadow, borderColor, backgroundColor].join(); }"""
WIDER = """notebook => [document.documentElement, ...notebook.querySelectorAll('*')].filter(box =>
             box.clientWidth && box.scrollWidth > box.clientWidth + 1 && !box.classList.contains('cm-scroller') &&
             (box === document.documentElement || ['auto', 'scroll'].includes(getComputedStyle(box).overflowX))
           ).map(box => box.textContent.trim().slice(0, 80))"""

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


def what_it_shows(panel: Any) -> tuple[str, str, list[str]]:
    """The words, the alternative texts and the pictures of a panel."""
    images = panel.locator(".widget-html img").all()
    alt = "\n".join(image.get_attribute("alt") for image in images)
    return panel.locator("p[role=status]").inner_text(), alt, [image.get_attribute("src") for image in images]


def is_slow(path: str) -> bool:
    return path.startswith("lessons/zh/") and path != CHINESE_ON_EVERY_PUSH


@pytest.mark.parametrize("path", [pytest.param(p, marks=[pytest.mark.slow] if is_slow(p) else []) for p in STORED])
def test_lesson_runs_and_its_panels_work(path: str, lab: Lab, page: Any) -> None:
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
        work_by_keyboard(panels.nth(number), page)
        panels.nth(number).scroll_into_view_if_needed()
        shot(page, path, f"panel{number}")
    shown = page.locator(".jp-Notebook")
    assert Images(shown.inner_html()).untold() == []
    assert shown.evaluate(WIDER) == [], "wider than the page: it scrolls sideways"
    assert page.locator(ERROR).all_inner_texts() == []
    assert page.page_errors == []


def work_by_keyboard(panel: Any, page: Any) -> None:
    """From the cell, Tab leads to each control in turn, and one can see where one is. The keys of a control move words and
    picture together.
    """
    panel.locator("xpath=ancestor::*[contains(@class, 'jp-CodeCell')]").evaluate("cell => cell.focus()")
    controls = panel.locator(CONTROLS)
    assert controls.count(), "a panel without a control"
    for number in range(controls.count()):
        control = controls.nth(number)
        without_focus = control.evaluate(LOOK)
        for _ in range(
            4
        ):  # the cell's own buttons come first, and after a slider its number, where one may type another
            page.keyboard.press("Tab")
            if control.evaluate("control => control === document.activeElement"):
                break
        assert control.evaluate("control => control === document.activeElement"), (
            f"Tab does not lead to control {number}"
        )
        page.wait_for_timeout(50)
        assert control.evaluate(LOOK) != without_focus, f"control {number} looks the same with the focus"
        kind = control.evaluate("control => control.type || 'slider'")
        if kind == "text":
            type_another(panel, page, control)
        else:
            press_once(panel, page, control, KEYS[kind])


def press_once(panel: Any, page: Any, control: Any, keys: Sequence[str]) -> None:
    """The first of the keys that changes the control (at its upper end a slider moves left only): the new value stands in the
    words and in the alternative text, and the picture is another.
    """
    before, old = what_it_shows(panel), control.evaluate(VALUE)
    for key in keys:
        page.keyboard.press(key)
        page.wait_for_timeout(100)
        if control.evaluate(VALUE) != old:
            break
    new = control.evaluate(VALUE)
    assert new != old, f"{keys} change nothing"
    panel.locator("p[role=status]").filter(has_not_text=before[0]).wait_for()
    words, alt, pictures = what_it_shows(panel)
    assert words == alt
    if keys is KEYS["slider"]:
        assert numbers(new) <= numbers(words) if numbers(new) else new in words, "the words do not name the new value"
    assert pictures != before[2]
    for image in panel.locator(".widget-html img").all():
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 300


def type_another(panel: Any, page: Any, control: Any) -> None:
    """Another text changes the words, the old one brings them back."""
    before, old = what_it_shows(panel), control.input_value()
    for text, wanted in (("80e9", {"has_not_text": before[0]}), (old, {"has_text": before[0]})):
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.type(text) if text else page.keyboard.press("Delete")
        page.keyboard.press("Enter")
        panel.locator("p[role=status]").filter(**wanted).wait_for()
    assert what_it_shows(panel) == before


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
