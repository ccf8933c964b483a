"""The list of faults is of use only while each of them can be injected."""

from __future__ import annotations

from pathlib import Path

import pytest

import mini_engine.cache
from tests.cache.faults import FAULTS

CACHE = Path(mini_engine.cache.__file__).parent


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault_changes_one_place_and_still_compiles(fault):
    source = (CACHE / fault.file).read_text()
    assert source.count(fault.right) == 1
    wrong = source.replace(fault.right, fault.wrong)
    assert wrong != source
    compile(wrong, fault.file, "exec")


def test_names_are_unique():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
