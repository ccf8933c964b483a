"""docs/formulas.md: it names every public function, numbers every formula that a docstring cites, and its sample is what is printed."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from mini_engine import geometry, roofline
from mini_engine.catalog import get_model
from mini_engine.geometry import kv_total_bytes

PAGE = (Path(__file__).parents[2] / "docs" / "formulas.md").read_text(encoding="utf-8")


def test_the_sample_is_what_is_printed():
    sample = re.search(r">>> print\(.*?\)\n(.*?)\n```", PAGE, re.DOTALL).group(1)
    assert sample == kv_total_bytes.explain(get_model("llama-3-70b"), 8192, 16)


def test_every_public_function_is_on_the_page_with_its_arguments():
    for module in (geometry, roofline):
        for name in module.__all__:
            if name[0].islower() and name != "kv_elems_expanded":
                assert name in PAGE, name


def test_signatures_on_the_page_are_the_real_ones():
    found = re.findall(r"`(\w+)\(([^`)]*)\)`", PAGE)
    checked = 0
    for name, listed in found:
        function = getattr(geometry, name, None) or getattr(roofline, name, None)
        if function is None or not listed:
            continue
        names = [part.split("=")[0].strip() for part in listed.split(",")]
        parameters = list(inspect.signature(function).parameters)
        assert names == parameters[: len(names)], name
        checked += 1
    assert checked >= 30


def test_cited_formulas_exist():
    rows = set(re.findall(r"^\| (F\d+) \|", PAGE, re.MULTILINE))
    assert rows == {f"F{i}" for i in range(1, 25)}
    for module in (geometry, roofline):
        for name in module.__all__:
            for cited in re.findall(r"Formula (F\d+)", inspect.getdoc(getattr(module, name)) or ""):
                assert cited in rows, name
