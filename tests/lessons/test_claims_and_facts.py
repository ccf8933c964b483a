"""Every claim has a cell that shows it, and every number in the prose comes from a cell or from data/facts.json."""

from __future__ import annotations

import csv
import importlib
import json
import re
from functools import cache
from pathlib import Path

import nbformat
import pytest

from tools.lessons.source import Lesson, read_lesson
from tools.lessons.twins import CODE, NUMBER_WITH_UNIT, UNIT_OF

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {path.stem[:2]: path for path in sorted((ROOT / "solutions").glob("[0-9][0-9]_*.py"))}
CLAIMS = list(csv.DictReader((ROOT / "data/claims.csv").open(encoding="utf-8")))
FACTS = json.loads((ROOT / "data/facts.json").read_text(encoding="utf-8"))
PARTS = {"goals", "diagram", "self-check", "question", "limits", "in-production"}


@cache
def lesson(number: str) -> Lesson:
    return read_lesson(SOURCES[number])


def test_claims_have_distinct_ids_and_stand_alone():
    ids = [row["id"] for row in CLAIMS]
    assert len(set(ids)) == len(ids)
    for row in CLAIMS:
        assert re.fullmatch(r"\d\d-[a-z0-9-]+", row["id"])
        assert row["id"].startswith(row["lesson"])
        assert row["claim"].endswith(".")


@pytest.mark.parametrize("row", CLAIMS, ids=lambda row: row["id"])
def test_every_claim_has_a_cell(row):
    assert any(row["tag"] in cell.tags for cell in lesson(row["lesson"]).cells)


@pytest.mark.parametrize("number", SOURCES)
def test_every_claim_tag_is_a_claim_and_every_part_is_there(number):
    tags = {tag for cell in lesson(number).cells for tag in cell.tags}
    claimed = {row["tag"] for row in CLAIMS if row["lesson"] == number}
    assert {tag for tag in tags if tag.startswith("claim-")} <= claimed
    assert tags >= PARTS


@pytest.mark.parametrize("name", FACTS)
def test_facts_are_recomputed_or_cited(name):
    fact = FACTS[name]
    assert fact["unit"]
    assert set(fact["lessons"]) <= set(SOURCES)
    assert ("recompute" in fact) != ("source" in fact)
    if "recompute" in fact:
        where, arguments = fact["recompute"]
        module, function = where.split(":")
        assert getattr(importlib.import_module(module), function)(*arguments) == fact["value"]


def _outputs(number: str) -> str:
    notebook = nbformat.read(ROOT / "solutions" / f"{SOURCES[number].stem}.ipynb", as_version=4)
    texts = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            texts.append(output.get("text", "") or output.get("data", {}).get("text/plain", ""))
    return "\n".join(texts)


def _prose_numbers(number: str) -> list[tuple[str, str]]:
    """(number, unit) of every number with a unit in the English prose, headings and durations left out."""
    found = []
    for cell in lesson(number).cells:
        if cell.kind != "markdown":
            continue
        text = "\n".join(line for line in CODE.sub("", cell.text).splitlines() if not line.startswith("#"))
        for match in NUMBER_WITH_UNIT.finditer(text):
            unit = UNIT_OF[match[2]] + match[3]
            if unit != "min":
                found.append((match[1], unit))
    return found


@pytest.mark.parametrize("number", SOURCES)
def test_prose_numbers_are_printed_or_stored(number):
    outputs = _outputs(number)
    stored = {(f"{fact['value']:,}", fact["unit"]) for fact in FACTS.values() if number in fact["lessons"]}
    loose = [
        f"{value} {unit}"
        for value, unit in _prose_numbers(number)
        if (value, unit) not in stored and not re.search(rf"(?<![\d.,]){re.escape(value)}(?![\d]|[.,]\d)", outputs)
    ]
    assert not loose


@pytest.mark.parametrize("number", SOURCES)
def test_sentences_are_short(number):
    """No sentence over 25 words outside tables, lists and code."""
    long = []
    for cell in lesson(number).cells:
        if cell.kind != "markdown":
            continue
        text = re.sub(r"<[^>]+>|\$\$.*?\$\$", " ", CODE.sub("x", cell.text), flags=re.DOTALL)
        for block in re.split(r"\n\s*\n|\n(?=[-|#>]|\d\.)", text):
            if block.lstrip().startswith(("|", "#", "```")):
                continue
            for sentence in re.split(r"(?<=[.?!:])[\"”)]?\s+", block):
                if len(sentence.split()) > 25:
                    long.append(" ".join(sentence.split()))
    assert not long
