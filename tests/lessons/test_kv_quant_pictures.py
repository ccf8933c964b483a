"""The pictures of lesson 05 say in words what they show, and the words are right."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from mini_engine.attention import causal_attention, fp8_e4m3
from mini_engine.course import panel, picture
from mini_engine.course.panels import p05_quantization as pictures
from mini_engine.course.panels import p05_trade_off as panels

RNG = np.random.default_rng(0)
Q = RNG.normal(size=(64, 4, 32))
LOUD = np.ones(32)
LOUD[9] = 30
K, V = RNG.normal(size=(64, 2, 32)) * LOUD, RNG.normal(size=(64, 2, 32))


def keep(draw, **values):
    """The picture, and the figure that it was drawn on."""
    figures = []
    return picture(lambda figure, **v: figures.append(figure) or draw(figure, **v), **values), figures[0]


def test_the_diagram_is_small_well_formed_svg_with_words():
    source, words = pictures.who_shares_a_scale()
    root = ET.fromstring(source)
    width, height = int(root.get("width")), int(root.get("height"))
    assert len(source) < 6_000
    assert len(words) > 60
    for shape in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert int(shape.get("x", 0)) + int(shape.get("width")) <= width
        assert int(shape.get("y", 0)) + int(shape.get("height")) <= height


def test_loudness_names_the_loud_channels():
    shown, figure = keep(pictures.loudness, keys=K, values=V)
    first = re.match(r"keys: loudest channels (\d+) of head (\d) and (\d+) of head (\d)", shown.text)
    assert {(first[1], first[2]), (first[3], first[4])} == {("9", "0"), ("9", "1")}
    for axes, x in zip(figure.axes, (K, V)):
        assert np.allclose(axes.images[0].get_array(), np.abs(x).reshape(8, 8, 64).mean(axis=1))


def test_relative_error_by_hand():
    x = np.array([[[3.0, 4.0]], [[1.0, 0.0]]])
    back = x + np.array([[[0.3, 0.4]], [[0.0, 0.1]]])
    assert pictures.relative_error(x, back, axis=0) == pytest.approx([0.1, 0.1])
    assert pictures.relative_error(x, back, axis=1) == pytest.approx([0.3 / 10**0.5, (0.16 + 0.01) ** 0.5 / 4])


def test_errors_shows_four_pictures_of_two_lines_and_their_means():
    shown, figure = keep(pictures.errors, keys=K, values=V, bits=4, group=32)
    assert [len(axes.lines) for axes in figure.axes] == [2, 2, 2, 2]
    means = [float(n) for n in re.findall(r"(\d\.\d{3})", shown.text)]
    assert means[0] > 1.3 * means[1], "one loud channel spoils keys per token"
    assert means[2] == pytest.approx(means[3], rel=0.2), "values have none"


def test_number_lines_counts_the_numbers_it_draws():
    shown, _ = keep(pictures.number_lines)
    assert "int8: 128 numbers" in shown.text
    assert f"fp8 e4m3: {len(np.unique(fp8_e4m3(np.linspace(0, 16, 200_001))))} numbers" in shown.text
    assert "1 apart near 16" in shown.text


@pytest.fixture(scope="module")
def trade_off():
    return panels.TradeOff(Q, K, V)


@pytest.mark.parametrize(("bits", "group"), [(8, 32), (4, 32), (2, 8)])
def test_trade_off_counts_bits_and_measures_attention(trade_off, bits, group):
    texts = {}
    for layout in panels.LAYOUTS:
        shown, figure = keep(trade_off.draw, bits=bits, group=group, layout=layout)
        assert f": {bits + 32 / group:g} bits a number" in shown.text
        assert f", {2 * 2 * 32 * (bits + 32 / group) / 8:g} B a token" in shown.text
        assert sum(patch.get_height() for patch in figure.axes[0].patches) == pytest.approx(bits + 32 / group)
        texts[layout] = float(re.search(r"off by (\d\.\d+)", shown.text)[1])
    if bits >= 4:
        assert texts["K per channel, V per token"] < 0.75 * texts["K and V per token"]
    assert (np.array([texts[name] for name in texts]) < 2).all()


def test_trade_off_compares_with_exact_attention(trade_off):
    assert np.array_equal(trade_off.exact, causal_attention(Q, K, V, 32**-0.5))
    assert len(trade_off.points) == len(panels.BITS) * len(panels.GROUPS) * len(panels.LAYOUTS)


@pytest.mark.parametrize(
    ("tokens", "window", "sinks", "words"),
    [
        (64, 16, 4, "sees 20; tokens 4 to 47 are gone"),
        (64, 16, 0, "sees 16; tokens 0 to 47 are gone"),
        (16, 16, 0, "sees 16; nothing is gone yet"),
        (20, 16, 4, "sees 20; nothing is gone yet"),
        (21, 16, 4, "sees 20; token 4 is gone"),
        (1, 1, 0, "sees 1; nothing is gone yet"),
        (1, 96, 16, "sees 1; nothing is gone yet"),
    ],
)
def test_kept_says_what_is_gone(tokens, window, sinks, words):
    shown, figure = keep(panels.kept, tokens=tokens, window=window, sinks=sinks)
    assert words in shown.text
    assert figure.axes[1].lines[1].get_ydata()[-1] == min(tokens, window + sinks)


def test_the_panels_redraw_quickly():
    """A budget of work, not of time: fixed margins, no layout engine."""
    shown = panel(panels.kept, tokens=(64, 1, 96), window=(16, 1, 96), sinks=(4, 0, 16))
    assert shown.figure.get_layout_engine() is None
