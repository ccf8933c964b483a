"""Panels and pictures without a browser: what they say, what they show, and what viewers without a kernel get."""

from __future__ import annotations

import base64
import html
import io
import re
import struct
import subprocess
import sys
import time
from typing import Any

import ipywidgets as W
import pytest

from mini_engine.course import figures, panel, picture, svg


def draw(figure: Any, batch: int, seq_len: int) -> str:
    axes = figure.subplots()
    axes.plot([1, batch], [1, seq_len], label="KV")
    axes.set(xlabel="batch", ylabel="tokens", title="Tokens held")
    axes.legend()
    return f"{batch} sequences of {seq_len} tokens: {batch * seq_len:,} tokens"


@pytest.fixture
def shown() -> Any:
    return panel(draw, batch=(8, 1, 64), seq_len={256: [128, 256, 512]})


def parts(shown: Any) -> tuple[str, str, bytes]:
    """Readout, alternative text and picture as they stand in the one HTML value."""
    status, picture_, alt = re.fullmatch(
        r'<p role="status">(.*)</p><img src="data:image/png;base64,([^"]*)" alt="([^"]*)"[^>]*>', shown.view.value
    ).groups()
    return html.unescape(status), html.unescape(alt), base64.b64decode(picture_)


def test_readout_alt_and_picture_move_together(shown: Any) -> None:
    seen = []
    for batch, seq_len in ((8, 256), (9, 256), (9, 512), (64, 128)):
        shown.controls["batch"].value, shown.controls["seq_len"].value = batch, seq_len
        status, alt, png = parts(shown)
        assert status == alt == shown.readout == f"{batch} sequences of {seq_len} tokens: {batch * seq_len:,} tokens"
        assert png == shown.png
        seen.append(png)
    assert len(set(seen)) == len(seen)
    shown.controls["batch"].value, shown.controls["seq_len"].value = 8, 256
    assert parts(shown)[2] == seen[0], "the same values give the same picture, whatever was shown before"


def test_one_html_beside_the_controls(shown: Any) -> None:
    assert shown.children == (shown.controls["batch"], shown.controls["seq_len"], shown.view, shown.children[-1])
    assert "max-width: none" in shown.children[-1].value  # else widgets cut the long labels of a slider
    assert isinstance(shown.view, W.HTML)
    assert all(control.continuous_update is False and control.description for control in shown.controls.values())
    assert shown.controls["seq_len"].description == "seq len"


def test_still_picture_for_viewers_without_a_kernel(shown: Any) -> None:
    bundle = shown._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/plain"] == shown.readout == "8 sequences of 256 tokens: 2,048 tokens"
    assert bundle["text/html"] == shown.view.value
    shown.controls["batch"].value = 9
    assert shown._repr_mimebundle_()["text/plain"].startswith("9 ")


def test_text_is_escaped() -> None:
    shown = panel(lambda figure, n: f'{n} < 3 & "quoted"', n=(1, 1, 2))
    assert parts(shown)[:2] == ('1 < 3 & "quoted"',) * 2


def test_error_while_drawing_is_shown_and_passes() -> None:
    def fragile(figure: Any, n: int) -> str:
        if n == 2:
            raise ValueError("n < 3 & broken")
        return f"n={n}"

    shown = panel(fragile, n=(1, 1, 3))
    shown.controls["n"].value = 2
    assert shown.view.value == '<p role="status">ValueError: n &lt; 3 &amp; broken</p>'
    shown.controls["n"].value = 3
    assert parts(shown)[0] == "n=3"
    with pytest.raises(ValueError, match="broken"):
        panel(fragile, n=(2, 1, 3))


def test_kinds_of_control() -> None:
    values: dict[str, Any] = {}

    def keep(figure: Any, **given: Any) -> str:
        values.update(given)
        return "kept"

    slider = W.IntSlider(value=5)
    shown = panel(
        keep,
        whole=(2, 1, 9, 2),
        part=(0.5, 0.0, 1.0),
        some=[1, 2],
        from_here={20: [10, 20]},
        words=["a", "b"],
        tick=True,
        own=slider,
    )
    assert values == {"whole": 2, "part": 0.5, "some": 1, "from_here": 20, "words": "a", "tick": True, "own": 5}
    kinds = {name: type(control).__name__ for name, control in shown.controls.items()}
    assert kinds == {
        "whole": "IntSlider", "part": "FloatSlider", "some": "SelectionSlider", "from_here": "SelectionSlider",
        "words": "SelectionSlider", "tick": "Checkbox", "own": "IntSlider",
    }  # fmt: skip
    assert (shown.controls["whole"].step, shown.controls["whole"].readout_format) == (2, ",d")  # 2,100, as in the text
    assert slider.description == "own"


@pytest.mark.parametrize(
    "bad", [3, "text", (1, 2), (0, 1, 9), (10, 1, 9), [], {}, {3: [1, 2]}, {1: [1], 2: [2]}, ("a", "b", "c"), None]
)
def test_bad_control_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"panel: .*(n|start)"):
        panel(lambda figure, n: "never", n=bad)


def test_redraw_takes_little_time(shown: Any) -> None:
    """A redraw is felt as lag above 150 ms. CPU time of the best of five, so that a busy machine does not matter."""
    times = []
    for batch in range(10, 15):
        start = time.process_time()
        shown.controls["batch"].value = batch
        times.append(time.process_time() - start)
    assert min(times) < 0.150


def test_pictures_are_small_and_the_same_each_time() -> None:
    first, second = (picture(draw, batch=8, seq_len=256) for _ in range(2))
    assert first.data == second.data
    assert len(first.data) < 15_000
    assert struct.unpack(">II", first.data[16:24]) == (640, 320)
    assert repr(first) == first._repr_mimebundle_()["text/plain"] == "8 sequences of 256 tokens: 2,048 tokens"
    assert first._repr_mimebundle_()["text/html"] == figures.img(first.data, first.text)
    assert picture(draw, batch=9, seq_len=256).data != first.data


def test_drawing_leaves_matplotlib_as_it_was() -> None:
    import matplotlib
    import matplotlib.pyplot as plt

    before = dict(matplotlib.rcParams)
    picture(draw, batch=8, seq_len=256)
    assert dict(matplotlib.rcParams) == before
    assert plt.get_fignums() == []


def test_colours_differ_for_colour_blind_readers() -> None:
    """Neighbours in the palette differ in lightness, which every reader sees."""

    def lightness(colour: str) -> float:
        red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2

    steps = [abs(lightness(a) - lightness(b)) for a, b in zip(figures.COLOURS, figures.COLOURS[1:])]
    assert min(steps) > 0.1


def test_svg_is_an_image_with_words() -> None:
    source = '<svg xmlns="http://www.w3.org/2000/svg"><text fill="#0072B2">a & "b" 100%</text></svg>'.replace(
        "&", "&amp;"
    )
    shown = svg(source, alt='a "b" < c')
    bundle = shown._repr_mimebundle_()
    uri, alt = re.fullmatch(r'<img src="data:image/svg\+xml,([^"]*)" alt="([^"]*)">', bundle["text/html"]).groups()
    from urllib.parse import unquote

    assert unquote(uri) == source
    assert "#" not in uri
    assert "<" not in uri
    assert html.unescape(alt) == bundle["text/plain"] == repr(shown) == 'a "b" < c'


def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    code = "import sys, mini_engine.course; print([m for m in ('matplotlib', 'ipywidgets', 'torch', 'IPython') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_png_opens_elsewhere() -> None:
    from PIL import Image

    image = Image.open(io.BytesIO(picture(draw, batch=8, seq_len=256).data))
    assert image.size == (640, 320)
    assert len(image.convert("RGB").getcolors(1 << 20)) > 3
