"""Every claim of the course has a place where a learner runs or sees it. Each is followed to its place and run."""

from __future__ import annotations

import csv
import re
from functools import cache
from types import SimpleNamespace

import pytest

from mini_engine.course import panel
from tests.lessons.lesson_run import ROOT, SOURCES, CellRun, lesson, run_cells, run_lesson
from tests.lessons.places import follow, numbers
from tools.lessons.source import Cell

CLAIMS = list(csv.DictReader((ROOT / "data/claims.csv").open(encoding="utf-8")))
PLACES = [(row, place) for row in CLAIMS for place in row["where"].split("; ")]
PARTS = {"goals", "diagram", "self-check", "question", "limits", "in-production"}


def test_claims_have_distinct_ids_and_stand_alone():
    ids = [row["id"] for row in CLAIMS]
    assert len(set(ids)) == len(ids)
    for row in CLAIMS:
        assert set(row) == {"id", "lesson", "claim", "where"}, f"{row['id']}: four columns, quote a claim with commas"
        assert re.fullmatch(r"\d\d-[a-z0-9-]+", row["id"])
        assert row["id"].startswith(row["lesson"])
        assert row["claim"].endswith(".")


@cache
def text_at(place: str, number: str) -> str:
    return follow(place, run_lesson(number))


@pytest.mark.parametrize(("row", "place"), PLACES, ids=[f"{row['id']} {place}" for row, place in PLACES])
def test_every_claim_is_followed_to_its_place_and_run(row, place):
    assert text_at(place, row["lesson"]).strip()


@pytest.mark.parametrize("row", CLAIMS, ids=lambda row: row["id"])
def test_the_numbers_of_a_claim_stand_where_it_is_shown(row):
    text = "\n".join(text_at(place, row["lesson"]) for place in row["where"].split("; "))
    missing = numbers(row["claim"]) - numbers(text)
    assert not missing, f"{sorted(missing)} are not at {row['where']}"


@pytest.mark.parametrize("number", SOURCES)
def test_every_claim_tag_is_a_claim_and_every_part_is_there(number):
    tags = {tag for cell in lesson(number).cells for tag in cell.tags}
    claimed = {place for row, place in PLACES if row["lesson"] == number}
    assert {f"cell:{tag}" for tag in tags if tag.startswith("claim-")} <= claimed
    assert tags >= PARTS


# The tests above can fail: places with nothing to see, of every kind.


def small_lesson(*cells: tuple[str, str, str]) -> list[CellRun]:
    return run_cells([Cell(kind, text, 1, tags=tags.split()) for kind, text, tags in cells])


LESSON = small_lesson(
    ("code", "x = 6 * 7", "claim-silent"),
    ("code", "print(x)", "claim-printed"),
    ("code", "x + 1", "claim-shown"),
    ("code", "", "claim-empty"),
    ("markdown", "Some words, and no more of them.", "claim-words"),
    ("markdown", "<details><summary>Why?</summary>\n\n</details>", "claim-unanswered"),
    ("markdown", "<details><summary>Why?</summary>\n\nBecause of this and that, all of it well explained.\n\n</details>", "question"),
    ("markdown", "> **Not shown**\n>\n> - the rest", "limits"),
    ("markdown", "Run `mini-engine size --list`.", ""),
)  # fmt: skip


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("cell:claim-printed", "42"), ("cell:claim-shown", "43"), ("cell:question", "Because"), ("cell:limits", "the rest"),
        ("command:mini-engine size --list", "llama-3-70b"),
    ],
)  # fmt: skip
def test_a_place_gives_what_a_learner_finds_there(place, text):
    assert text in follow(place, LESSON)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("cell:claim-nowhere", "no cell has the tag"),
        ("cell:claim-silent", "prints or shows anything"),
        ("cell:claim-empty", "is empty"),
        ("cell:claim-words", "neither answers a question nor holds a list"),
        ("cell:claim-unanswered", "no answer to"),
        ("claim-printed", "must start with one of cell:"),
        ("cell:", "names nothing"),
        ("exercise:01.kv_cache", "no cell calls check"),
        ("prediction:01.pairs", "no cell calls predict"),
        ("panel:p01_kv_cache.savings", "no cell shows a panel"),
        ("command:ls", "is no command of this package"),
        ("command:mini-engine size --model llama-9", "no model named"),
        ("command:mini-engine size --bad", "unrecognized|arguments"),
        ("command:mini-engine doctor", "no cell speaks of mini-engine doctor"),
    ],
)
def test_a_place_with_nothing_to_see_is_refused(place, message):
    with pytest.raises(AssertionError, match=message):
        follow(place, LESSON)


@pytest.mark.parametrize("place", ["exercise:01.no_such", "prediction:01.no_such"])
def test_an_id_that_nobody_defined_is_refused(place):
    with pytest.raises(KeyError, match="no_such"):
        follow(place, LESSON)


def test_a_panel_is_drawn_from_end_to_end():
    def draw(figure, low, name):
        figure.subplots().plot([0, low], [0, 1])
        return f"{low} of {name}"

    shown = panel(draw, low=(2, 1, 9), name=["a", "b", "c"])
    runs = [SimpleNamespace(panels=[(SimpleNamespace(__module__="x.p99", __name__="draw"), shown)])]
    said = follow("panel:p99.draw", runs).splitlines()
    assert {"2 of a", "1 of a", "9 of a", "2 of b", "2 of c", "1 of c", "9 of c"} == set(said)


def _nothing(figure, n):
    return "empty"


def _empty_axes(figure, n):
    figure.subplots()
    return "empty"


def _no_numbers(figure, n):
    figure.subplots().plot([1, 2], [1, float("nan") if n == 9 else 2])
    return "a line"


def _says_inf(figure, n):
    figure.subplots().plot([1, 2])
    return f"{1e999 if n == 9 else n} tokens"


def _labels_nan(figure, n):
    figure.subplots().plot([1, 2])
    figure.axes[0].set_title("nan GiB")
    return "fine"


def _warns(figure, n):
    axes = figure.subplots()
    axes.plot([1, 2])
    if n == 9:
        axes.set_xlim(1, 1)
    return "fine"


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (_nothing, "it draws nothing"),
        (_empty_axes, "nothing is drawn in it"),
        (_no_numbers, "points that are no numbers"),
        (_says_inf, "it says 'inf tokens'"),
        (_labels_nan, "it says 'nan GiB'"),
        (_warns, "identical low and high xlims"),
    ],
)
def test_a_panel_that_shows_nothing_or_nonsense_is_refused(draw, message):
    runs = [SimpleNamespace(panels=[(draw, panel(draw, n=(1, 1, 9)))])]
    with pytest.raises((AssertionError, UserWarning), match=message):
        follow(f"panel:test_claims.{draw.__name__}", runs)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1,499,500 against 1_999, a factor of 750.125", {"1499500", "1999", "750.125"}),
        ("within 1e-12 in float64, o_t for 2 heads", {"1e-12"}),
        ("320 KiB, 93.3 %, 20.4% to 38.2%.", {"320", "93.3", "20.4", "38.2"}),
        ("x2 v1.5.3 a10", set()),
    ],
)  # fmt: skip
def test_numbers_are_found_in_claims(text, found):
    assert numbers(text) == found
