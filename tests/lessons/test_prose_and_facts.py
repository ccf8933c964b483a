"""Every number in the prose comes from a cell or from data/facts.json, and sentences are short."""

from __future__ import annotations

import importlib
import json
import re

import nbformat
import pytest

from tests.lessons.lesson_run import ROOT, SOURCES, lesson
from tests.lessons.prose import loose_numbers, stands_in
from tools.lessons.twins import CODE

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


@pytest.mark.parametrize("number", SOURCES)
def test_prose_numbers_are_printed_or_stored(number):
    """In both languages. What a cell prints is in the stored notebook, which other tests compare with a run."""
    printed = _outputs(number)
    code = "\n".join(cell.text for cell in lesson(number).cells if cell.kind == "code")
    facts = [(f"{fact['value']:,}", fact["unit"]) for fact in FACTS.values() if number in fact["lessons"]]
    texts = [text for cell in lesson(number).cells if cell.kind == "markdown" for text in (cell.text, cell.zh or "")]
    assert [loose for text in texts for loose in loose_numbers(text, printed, code, facts)] == []


PRINTED, SOURCE = (
    "K/V per token 320 KiB, 42,949,672,960 B, saved 93.3%\nratio 750.125",
    "budget = 1_487\nfor n in (1000, 2048):",
)


@pytest.mark.parametrize(
    ("text", "loose"),
    [
        ("It takes 320 KiB, or 42,949,672,960 B, and saves 93.3 %.", []),
        ("It takes 321 KiB.", ["321 KiB"]),
        ("| a | 93.4 % |\n|---|---|\n| b | 20.4% |", ["93.4 %", "20.4 %"]),
        ("# A heading of 12 GB", ["12 GB"]),
        ("A prompt of 1,487 tokens, of 1,000 tokens, of 100 tokens.", []),
        ("A prompt of 1,488 tokens, 5 requests, 3.5 times faster.", ["1,488 tokens", "3.5 times"]),
        ("That is 750.125 times, or 750.1 times, but not 750.2 times.", ["750.2 times"]),
        ("每个 token 占 320 KiB，节省 93.3%，共 42,949,672,960 字节。", []),
        ("每个 token 占 322 KiB，节省 93.4％，快 3.5 倍，需要 20.9 毫秒。", ["322 KiB", "93.4 %", "20.9 ms", "3.5 倍"]),
        ("共 1,488 个 token 和 1,487 个 token。", ["1,488 个 token"]),
        ("**321** KiB and $322\\,\\text{KiB}$ and 323&nbsp;KiB and <b>324</b> KiB and $93.4\\%$", ["321 KiB", "322 KiB", "323 KiB", "324 KiB", "93.4 %"]),
        ("Not in code: `9 GB`.\n```\n7 GB\n```\nFor 5 to 10 minutes. In 2023. Lesson 03. [x](y.html)", []),
        ("20.9 percent, 3,350 GB/s and 989 TFLOP/s", ["20.9 %", "3,350 GB/s", "989 TFLOP/s"]),
        ("a 32-bit number, H100, 20.9-ms steps", ["20.9 ms"]),
    ],
)  # fmt: skip
def test_the_search_finds_planted_numbers(text, loose):
    assert loose_numbers(text, PRINTED, SOURCE, []) == loose


def test_a_fact_backs_its_own_number_and_unit_only():
    text = "Between 20.4% and 20.4 GB."
    assert loose_numbers(text, "", "", [("20.4", "%")]) == ["20.4 GB"]
    assert loose_numbers("1,487 tokens", "", "", [("1,487", "token-forwards")]) == []


@pytest.mark.parametrize(
    ("number", "text"), [("1,487", "1487"), ("1,487", "x = 1_487"), ("20", "120, 20.5, 2,20, 3.20")]
)
def test_a_number_stands_in_a_text_as_a_whole(number, text):
    assert stands_in(number, text) == (number != "20")


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
