"""The film's pictures: small, quick, the same each time, in step with their words; and the player that shows them."""

from __future__ import annotations

import html
import re
import subprocess
import sys
import time
import urllib.parse
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mini_engine.cache.contiguous import BuddyAllocator
from mini_engine.course.film import Arrival, film, frame, frames, movie, replay
from mini_engine.course.film.theme import REQUESTS
from mini_engine.course.film.words import sentences
from tests.course import film_runs as runs

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    """Every piece of text in a picture. Rows of single letters are told apart."""
    found = []
    for element in ET.fromstring(svg).iter(f"{SVG}text"):
        if len(element.get("x", "").split()) > 1:
            found += list(element.text or "")
        else:
            found.append("".join(element.itertext()) if element.get("class") == "b" else element.text or "")
            found += [span.text or "" for span in element.iter(f"{SVG}tspan")]
    return found


def bars(svg: str) -> str:
    """The coloured parts of the memory's cells."""
    return "".join(re.findall(r'<g class="bars">.*?</g>', svg))


@pytest.fixture(scope="module")
def long() -> Any:
    return film(runs.long_film())


def test_every_frame_of_a_long_film_is_small(long: Any) -> None:
    assert len(long.stills) == 200
    assert long.stills[0].views[0].frame.memory.num_cells == 256
    sizes = [len(still.svg.encode()) for still in long.stills]
    sizes += [len(view.narrow_scene.draw(view.frame).encode()) for still in long.stills[::9] for view in still.views]
    assert max(sizes) <= 30_000
    assert max(len(still.text) for still in long.stills) <= 30_000


def test_a_frame_takes_little_time(long: Any) -> None:
    """CPU time of the best of five, so that a busy machine does not matter."""
    times = []
    for number in range(150, 155):
        start = time.process_time()
        long.slider.value = number
        times.append(time.process_time() - start)
    assert min(times) < 0.040


def test_all_blocks_at_once_are_small_too() -> None:
    engine = runs.engine(256, 16)
    for number in range(8):
        engine.add_request(f"chat-{number}", [number] * (31 * 16), runs.sampled(30, n=4))
    engine.step()
    engine.step()
    assert len(frame(engine, 0).svg.encode()) <= 30_000
    assert len(frame(engine, 1).svg.encode()) <= 30_000


@pytest.mark.parametrize("num_blocks", [1, 8, 9, 64, 65, 256, 257, 1024, 1025, 3000])
def test_any_size_of_pool_is_drawn(num_blocks: int) -> None:
    engine = runs.engine(num_blocks, 4)
    engine.add_request("a", [1, 2, 3], runs.greedy(2))
    runs.finish(engine)
    assert "step 1" in texts(frame(engine, 1).svg)


def test_numbers_in_the_picture_are_those_of_the_counters_and_of_the_text() -> None:
    engine = runs.mixed(5)
    for shown in frames(engine):
        if not shown.label.startswith("step"):
            continue
        still = frame(engine, shown.step)
        seen = texts(still.svg)
        for name, value in shown.counters.items():
            unit = ("token" if name == "read" else "slot") + "s" * (value != 1)
            assert seen[seen.index(name) + 1] == f"{value:,} {unit}"
            assert f"{name} {value}" in still.text
        for block in shown.blocks:
            assert f"{block.block_id}" in seen
            assert (f"×{block.refs}" in seen) or block.refs < 2


def test_a_copied_block_has_its_arrow_and_its_word() -> None:
    engine = runs.copy_on_write()
    still = frame(engine, 1)
    assert still.svg.count("url(#big)") == 3, "two, and one in the key"
    assert texts(still.svg).count("copy+write") == 2
    starts = re.findall(r'class="c1" d="M(\d+) (\d+)V(\d+)', still.svg)
    assert len({x for x, _, _ in starts}) == len({lane for _, _, lane in starts}) == 2, "each has its own way"
    assert frame(engine, 2).svg.count("url(#big)") == 1, "in the key"


def test_a_fork_is_seen_before_the_copy_and_a_new_token_where_it_is() -> None:
    engine = runs.engine(12, enable_prefix_caching=False)
    engine.add_request("a", list(range(7)), runs.greedy(6))
    engine.step()
    engine.fork("a", 0, last_token_id=20)
    runs.finish(engine)
    prompt, forked, copied = (still.svg for still in film(engine).stills[:3])
    assert texts(forked).count("shared") == 3, "two blocks and the counter"
    assert texts(forked).count("×2") == 2
    assert 'class="new"' not in bars(forked)
    assert bars(prompt).count('class="new"') == bars(copied).count('class="new"') == 1
    assert 'class="y"' in prompt, "slots can be told apart"


def test_nothing_jumps_from_frame_to_frame() -> None:
    engine = runs.mixed(2)
    places = {(still.height, *heights(still.svg).values()) for still in (frame(engine, step) for step in range(40))}
    assert len(places) == 1


def test_pictures_are_the_same_each_time_and_well_formed() -> None:
    first, second = (frame(runs.mixed(2), 20) for _ in range(2))
    assert first.svg == second.svg
    ET.fromstring(first.svg)
    odd = runs.engine(8)
    odd.add_request('<&">', [1, 2, 3], runs.greedy(2))
    odd.step()
    assert '<&">: 3 tokens stored' in texts(frame(odd, 0).svg)


def test_themes() -> None:
    engine = runs.copy_on_write()
    auto, light, dark = (frame(engine, 1, theme=theme).svg for theme in ("auto", "light", "dark"))
    assert "prefers-color-scheme:dark" in auto
    assert "prefers-color-scheme" not in light + dark
    assert light != dark
    with pytest.raises(ValueError, match='must be "auto", "light" or "dark"'):
        frame(engine, 1, theme="blue")


def test_neighbouring_requests_differ_in_lightness() -> None:
    def lightness(colour: str) -> float:
        red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2

    shades = [lightness(colour) for colour in REQUESTS]
    assert min(abs(a - b) for a, b in pairwise(shades)) > 0.1
    assert min(abs(a - b) for i, a in enumerate(shades[:3]) for b in shades[:i]) > 0.1
    engine = runs.engine(64)
    for number in range(8):
        engine.add_request(f"r{number}", [number] * 5, runs.greedy(3))
    engine.step()
    assert 'class="z"' in frame(engine, 0).svg, "the eighth request has the first one's colour, with stripes"


def test_side_by_side() -> None:
    arrivals = [Arrival("a", 0, 40, 20), Arrival("b", 2, 70, 9)]
    old, new = replay(arrivals, BuddyAllocator(256), max_len=128), replay(arrivals, runs.engine(16, 16))
    shown = film({"buddy": old, "paged": new[:-4]})
    assert len(shown.stills) == 20
    shown.slider.value = 2
    alts = re.findall(r'<img[^>]* alt="([^"]+)"', shown.view.value)
    assert html.unescape("\n".join(alts)) == shown.readout, "each picture has the words of its own film"
    assert shown.readout.startswith("buddy — step 2: B arrives")
    assert "paged — step 2: B arrives" in shown.readout
    shown.slider.value = 19
    assert "buddy — step 19" in shown.readout
    assert "paged — step 15" in shown.readout, "the shorter film stands still"
    assert frame({"buddy": old, "paged": new[:-4]}, 19).words == shown.readout
    with pytest.raises(ValueError, match="step=20: the film has steps 0 to 19"):
        frame({"buddy": old, "paged": new[:-4]}, 20)


def heights(svg: str) -> dict[str, str]:
    """Where the rows of a picture stand: words or tiles, and their y."""
    rows = {element.text: element.get("y", "") for element in ET.fromstring(svg).iter(f"{SVG}text")}
    return {name: rows[name] for name in ("physical memory", "allocated", "live", "wasted", "read", "used: holds K/V")}


@pytest.mark.parametrize("step", [0, 3, 12])
def test_rows_of_films_side_by_side_stand_at_one_height(step: int) -> None:
    arrivals = [Arrival(name, 0, 40, 20) for name in "abc"] + [Arrival("d", 2, 70, 9)]
    plain = runs.engine(16, 16, enable_prefix_caching=False)
    films = {"buddy": replay(arrivals, BuddyAllocator(512), max_len=128), "paged": replay(arrivals, plain)}
    for still in (frame(films, step), film(films).stills[step]):
        assert still.img.startswith('<div style="display:flex'), "no image of its own line"
        old, new = (view.scene.draw(view.frame) for view in still.views)
        assert heights(old) == heights(new)
        assert re.search(r'viewBox="([^"]*)"', old)[1] == re.search(r'viewBox="([^"]*)"', new)[1]
        assert "copied" not in texts(old) + texts(new), "a counter that stays 0 in all of them"
    assert "copied" in texts(frame(runs.copy_on_write(), 0).svg)


def test_the_key_shows_what_occurs_in_the_film() -> None:
    arrivals = [Arrival("a", 0, 20, 12), Arrival("b", 0, 40, 9), Arrival("c", 0, 40, 9)]
    plain = replay(arrivals, runs.engine(16, 16, enable_prefix_caching=False))
    told = texts(frame(plain, 0).svg)
    assert {"used: holds K/V", "wasted: still empty", "free, blank", "touched in this step", "new token"} <= set(told)
    assert not {"free, cached", "published", "in n tables"} & set(told)
    shared = texts(frame(runs.mixed(2), 0).svg)
    assert {"free, cached", "published", "in n tables"} <= set(shared)
    old = texts(frame(replay(arrivals, BuddyAllocator(128), reserve="oracle"), 0).svg)
    assert {"used: holds K/V", "reserved", "internal", "external", "free"} <= set(old)
    tight = texts(frame(replay(arrivals[:1], BuddyAllocator(32), max_len=31), 0).svg)
    assert not {"external", "wasted: still empty"} & set(tight)


def test_player_moves_words_and_picture_together() -> None:
    shown = film(runs.mixed(4))
    seen = set()
    for number, still in enumerate(shown.stills):
        shown.slider.index = number
        status, src, alt = re.search(r'<p role="status"[^>]*>(.*)</p><picture>.*<img[^>]* src="data:image/svg\+xml,([^"]*)" alt="([^"]*)">', shown.view.value).groups()  # fmt: skip
        assert html.unescape(status) == html.unescape(alt) == shown.readout == still.words
        assert urllib.parse.unquote(src) == still.svg.replace('"', "'")
        assert shown.slider.options[number][0] in still.words
        (small,) = re.findall(r'srcset="data:image/svg\+xml,([^" ]*)"', shown.view.value)
        assert still.views[0].narrow_scene.width == 486
        assert urllib.parse.unquote(small).startswith("<svg")
        assert small.endswith("%3E")
        seen.add(src)
    assert len(seen) == len(shown.stills)
    assert shown.children == (shown.slider, shown.view)
    assert shown.slider.continuous_update is False


def test_viewers_without_a_kernel_get_the_picture_and_all_of_it_in_words() -> None:
    engine = runs.copy_on_write()
    shown = film(engine)
    bundle = shown._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert shown.readout in html.unescape(bundle["text/html"]).split("<img")[0], "its sentences, above the picture"
    assert '<img class="film-frame"' in bundle["text/html"]
    assert bundle["text/plain"] == shown.still.text == frame(engine, 0).text
    assert set(frame(engine, 0)._repr_mimebundle_()) == {"text/html", "text/plain"}
    assert repr(frame(engine, 0)) == frame(engine, 0).text


def test_movie_plays_every_frame(tmp_path: Any) -> None:
    engine = runs.copy_on_write()
    source = movie(engine, tmp_path / "film.svg", seconds=2)
    assert (tmp_path / "film.svg").read_text(encoding="utf-8") == source
    root = ET.fromstring(source)
    played = [group for group in root if group.get("class", "").startswith("f0")]
    # Each has run for so long when the film begins that its turn, the first part of its cycle, comes when it should.
    total = 2 * len(played)
    assert [group.get("style") for group in played] == [f"animation-delay:{2 * n - total}s" for n in range(len(played))]
    assert len(played) == len(frames(engine))
    assert [n for n, group in enumerate(played) if group.get("class") == "f0 f1"] == [1], (
        "the copy, for who wants no motion"
    )
    assert [f"step {n}" in ET.tostring(group, encoding="unicode") for n, group in enumerate(played)] == [True] * len(
        played
    )
    assert "script" not in source


def test_the_animation_in_the_readme_is_up_to_date(tmp_path: Any) -> None:
    """After a change to the film: python -m mini_engine.course.film docs/images/film.svg"""
    from mini_engine.course.film.__main__ import example

    told = " ".join(words for shown in frames(example()) for words in sentences(shown))
    for part in ("because A1 still needs block 3", "B finds blocks 1 and 2 in the cache", "are evicted"):
        assert part in told
    stored = Path(__file__).resolve().parents[2] / "docs" / "images" / "film.svg"
    assert stored.read_text(encoding="utf-8") == movie(example(), seconds=2.5)
    assert "docs/images/film.svg" in (stored.parents[2] / "README.md").read_text(encoding="utf-8")


def test_saved_still(tmp_path: Any) -> None:
    still = frame(runs.copy_on_write(), 1)
    assert still.save(tmp_path / "frame.svg").read_text(encoding="utf-8") == still.svg


def test_nothing_heavy_is_imported_before_the_player() -> None:
    code = "import sys, mini_engine.course.film; print([m for m in ('matplotlib', 'ipywidgets', 'torch', 'IPython') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
