"""Every number in the prose comes from a cell or from data/facts.json, and sentences are short."""

from __future__ import annotations

import importlib
import json
import re

import nbformat
import pytest

from tests.lessons.lesson_run import ROOT, SOURCES, lesson
from tools.lessons.twins import CODE, NUMBER_WITH_UNIT, UNIT_OF

FACTS = json.loads((ROOT / "data/facts.json").read_text(encoding="utf-8"))


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
