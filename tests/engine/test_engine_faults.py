"""The list of faults is only worth something while each of them can still be planted."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.engine.faults import FAULTS

PACKAGE = Path(__file__).parents[2] / "mini_engine"


def test_every_fault_has_a_name_of_its_own_and_there_are_enough():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 25


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_planted(fault):
    source = (PACKAGE / fault.file).read_text()
    assert source.count(fault.right) == 1, f"{fault.file} has this {source.count(fault.right)} times:\n{fault.right}"
    ast.parse(source.replace(fault.right, fault.wrong))
