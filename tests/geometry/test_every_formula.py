"""What holds for every formula of geometry and roofline: bad input is refused by name, the working is complete, nothing prints nan or inf."""

from __future__ import annotations

import inspect
import re
from fractions import Fraction

import numpy as np
import pytest

from mini_engine import geometry, roofline
from tests.bad_values import NEVER, SOMETIMES, is_refused, is_refused_or_computed
from tests.geometry.valid_calls import ALL, Call

BAD = [*NEVER, -1, 1.5, None, True, False, np.True_, [1], (), {}]
FRACTIONS_ALLOWED = {
    "bits",
    "scale_bytes",
    "zero_bytes",
    "kv_per_token",
    "used",
    "reserved",
    "token",
    "internal",
    "external",
}
FRACTIONS_ALLOWED |= {
    "flops",
    "bw",
    "pcie",
    "peak",
    "step_time",
    "weight_bytes",
    "kv_bytes_per_seq",
    "n_params",
    "flops_per_seq",
}
FRACTIONS_ALLOWED |= {"weights", "overhead", "copy_bytes", "ridge", "b", "b_kv", "b_qo"}
NOT_NUMBERS = {"cfg", "windows", "lengths", "kv_dtype", "dtype", "baseline", "cache", "causal"}


def numeric_arguments() -> list:
    return [
        pytest.param(each, name, id=f"{each}-{name}")
        for each in ALL
        for name in each.arguments
        if name not in NOT_NUMBERS
    ]


def test_the_list_of_calls_is_complete():
    public = {f"{m.__name__}.{n}" for m in (geometry, roofline) for n in m.__all__ if n[0].islower()}
    assert {f"mini_engine.{c.function.__module__.split('.')[1]}.{c}" for c in ALL} == public
    for each in ALL:
        assert set(each.arguments) == set(inspect.signature(each.function).parameters), each


@pytest.mark.parametrize(("each", "name"), numeric_arguments())
def test_bad_numbers_are_refused_by_name(each: Call, name: str):
    default = inspect.signature(each.function).parameters[name].default
    for bad in BAD:
        if (isinstance(bad, float) and bad == 1.5 and name in FRACTIONS_ALLOWED) or (bad is None and default is None):
            continue
        for function in (each.function, each.function.explain):
            is_refused(function, each.arguments, name, bad)


@pytest.mark.parametrize(("each", "name"), numeric_arguments())
def test_odd_numbers_are_refused_or_computed(each: Call, name: str):
    for value in SOMETIMES:
        for function in (each.function, each.function.explain):
            is_refused_or_computed(function, each.arguments, name, value)


@pytest.mark.parametrize("each", ALL, ids=str)
def test_what_is_no_number_is_checked_too(each: Call):
    for name in NOT_NUMBERS & set(each.arguments):
        for bad in [*NEVER, None, "llama-3-70b", 2, ["bf16"], {}]:
            is_refused(each.function, each.arguments, name, bad)


def test_a_model_by_its_name_is_told_where_to_find_it():
    with pytest.raises(ValueError, match=r"cfg='llama-3-70b' must be a ModelSpec: get_model\("):
        geometry.kv_bytes_per_token("llama-3-70b")


@pytest.mark.parametrize(("each", "name"), numeric_arguments())
def test_zero_is_valid_exactly_where_it_means_something(each: Call, name: str):
    arguments = each.arguments | {name: 0}
    if name in each.zero:
        each.function(**arguments)
        check_text(each.function.explain(**arguments))
    else:
        with pytest.raises(ValueError, match=rf"\b{name}="):
            each.function(**arguments)


@pytest.mark.parametrize("each", ALL, ids=str)
def test_a_missing_argument_is_named(each: Call):
    required = [n for n, p in inspect.signature(each.function).parameters.items() if p.default is p.empty]
    for name in required:
        with pytest.raises(TypeError, match=f"'{name}'"):
            each.function(**{k: v for k, v in each.arguments.items() if k != name})


@pytest.mark.parametrize("each", [c for c in ALL if "kv_dtype" in c.arguments or "dtype" in c.arguments], ids=str)
def test_an_unknown_dtype_is_refused(each: Call):
    name = "kv_dtype" if "kv_dtype" in each.arguments else "dtype"
    for bad in ("fp4", "", None, 2, ["bf16"]):
        with pytest.raises(ValueError, match=rf"{name}=.* must be one of fp32, float32, bf16"):
            each.function(**each.arguments | {name: bad})


@pytest.mark.parametrize("each", ALL, ids=str)
def test_results_are_exact(each: Call):
    for value in flatten(each.function(**each.arguments)):
        assert isinstance(value, int | Fraction) or value is None or value in ("memory", "compute"), value


def flatten(result) -> list:
    return list(vars(result).values()) if hasattr(result, "__dict__") and not isinstance(result, Fraction) else [result]


@pytest.mark.parametrize("each", ALL, ids=str)
def test_the_working_is_complete(each: Call):
    text = each.function.explain(**each.arguments)
    check_text(text)
    lines = text.splitlines()
    assert lines[0].startswith(f"{each}: ")
    assert len(lines) > 1
    result = each.function(**each.arguments)
    if isinstance(result, int) and not isinstance(result, bool):
        assert f"{result:,}" in text


@pytest.mark.parametrize("each", [c for c in ALL if "bytes" in str(c) or c.function is geometry.kv_budget], ids=str)
def test_bytes_are_printed_in_both_units_with_what_is_left_out(each: Call):
    text = each.function.explain(**each.arguments)
    assert re.search(r"[\d.,]+ B = [\d.,e-]+ GB = [\d.,e-]+ GiB", text), text
    assert "\n  not included: " in text


def test_every_docstring_says_what_it_is_and_cites_a_formula():
    for each in ALL:
        text = inspect.getdoc(each.function)
        first = text.split("\n")[0]
        assert len(first) > 20, each
        if each.function not in (
            geometry.kv_elems_expanded,
            geometry.active_params,
            roofline.block_copy_bytes,
            roofline.effective_pcie,
        ):
            assert re.search(r"Formula F\d+", text), each


def check_text(text: str) -> None:
    working = text.split("\n", 1)[1]  # the first line is the docstring's, which may speak of None
    assert not re.search(r"\b(nan|inf|None)\b", working, re.IGNORECASE), text
    assert "Fraction(" not in text
    assert "Decimal(" not in text


@pytest.mark.parametrize("each", ALL, ids=str)
def test_the_largest_numbers_still_print(each: Call):
    largest = {name: 10**12 for name in each.arguments if name in ("S", "B", "m", "n", "tp", "tokens", "max_model_len")}
    check_text(each.function.explain(**each.arguments | largest))
