"""The pictures of lessons 00 and 01 say in words what they show, and the words are right."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from mini_engine.course import picture
from mini_engine.course.exercises.e01_counting import count_passes
from mini_engine.course.panels import p00_start_here, p01_kv_cache

DIAGRAMS = [p00_start_here.life_of_a_request, p00_start_here.course_map, p01_kv_cache.causal_triangle]


@pytest.mark.parametrize("diagram", DIAGRAMS, ids=lambda f: f.__name__)
def test_diagrams_are_small_well_formed_svg_with_words(diagram):
    source, words = diagram()
    root = ET.fromstring(source)
    assert root.tag.endswith("svg")
    assert len(source) < 6000
    assert len(words) > 60
    width, height = int(root.get("width")), int(root.get("height"))
    for shape in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y = int(shape.get("x", 0)), int(shape.get("y", 0))
        assert x + int(shape.get("width")) <= width
        assert y + int(shape.get("height")) <= height


@pytest.mark.parametrize(("prompt", "output"), [(1, 1), (4, 6), (12, 1), (1, 12), (12, 12)])
def test_passes_counts_what_it_draws(prompt, output):
    figures = []
    shown = picture(
        lambda figure, **v: figures.append(figure) or p00_start_here.passes(figure, **v), prompt=prompt, output=output
    )
    without, cached = count_passes(prompt, output, False), count_passes(prompt, output, True)
    unit = "token-forward" if without == 1 else "token-forwards"
    assert f": {without} {unit} without a cache, {cached} with one" in shown.text
    assert ("nothing to save" in shown.text) == (output == 1)
    for axes, ran in zip(figures[0].axes, (without, cached)):
        dark = [p for p in axes.patches if p.get_facecolor()[:3] == pytest.approx((0, 0.447, 0.698), abs=0.01)]
        assert len(dark) == ran
        assert len(axes.patches) == without
        assert axes.get_title(loc="left").endswith(f": {ran} {unit}")
        for ticks, last in ((axes.get_xticks(), prompt + output - 1), (axes.get_yticks(), output)):
            assert ticks[0] == 1, "passes and tokens are numbered from 1, as in the text"
            assert ticks[-1] == last, "no numbers beyond the last token and the last pass"
            assert len(ticks) <= 7


@pytest.mark.parametrize(("prompt", "output"), [(1, 1), (1000, 1000), (4000, 10)])
def test_savings_readout(prompt, output):
    text = picture(p01_kv_cache.savings, prompt=prompt, output=output).text
    numbers = [int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*(?= token-forwards| with one| B)", text)]
    cached = count_passes(prompt, output, True)
    assert numbers == [count_passes(prompt, output, False), cached, cached * 4096]


@pytest.mark.parametrize(("output", "note"), [(1, "nothing saved"), (2, "2.0 times fewer")])
def test_savings_shows_something_for_an_answer_of_any_length(output, note):
    figures = []
    picture(lambda figure, **v: figures.append(figure) or p01_kv_cache.savings(figure, **v), prompt=1000, output=output)
    work, memory = figures[0].axes
    for line in (*work.lines, *memory.lines):
        assert len(line.get_xdata()) > 1 or line.get_marker() == "o"
        x, y = line.get_xdata()[-1], line.get_ydata()[-1]
        axes = line.axes
        assert axes.get_xlim()[0] < x < axes.get_xlim()[1]
        assert axes.get_ylim()[0] < y < axes.get_ylim()[1]
    assert "log" in work.get_title("left")
    assert note in [text.get_text() for text in work.texts]


def test_step_cost_reads_slopes_off_its_curves():
    t = np.logspace(1, 6, 26)
    text = picture(p01_kv_cache.step_cost, contexts=t, without=5 * t**2, cached=7 * t).text
    assert re.findall(r"\d\.\d\d", text) == ["2.00", "2.00", "1.00", "1.00"]
