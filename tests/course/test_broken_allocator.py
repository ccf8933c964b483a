"""Each defect of the broken allocator: its scenario fails there, and passes on the engine's own manager and when mended."""

from __future__ import annotations

from functools import partial

import pytest

from mini_engine.course.broken_allocator import BlockAllocator
from mini_engine.course.defects import DEFECTS
from mini_engine.course.defects.allocator_mends import ALLOCATOR_MENDS
from mini_engine.course.defects.allocator_scenarios import ALLOCATOR_SCENARIOS
from mini_engine.course.defects.benches import AllocatorBench
from mini_engine.course.defects.labs import allocator_works
from tests.course.engine_benches import EngineBench

each_defect = pytest.mark.parametrize("name", ALLOCATOR_SCENARIOS)


def test_every_defect_has_a_scenario_and_a_mend() -> None:
    names = [defect.name for defect in DEFECTS if defect.where == "allocator"]
    assert list(ALLOCATOR_SCENARIOS) == names
    assert list(ALLOCATOR_MENDS) == names


@each_defect
def test_the_engine_does_not_have_it(name: str) -> None:
    ALLOCATOR_SCENARIOS[name](EngineBench)


@each_defect
def test_the_broken_allocator_has_it(name: str) -> None:
    error = ALLOCATOR_SCENARIOS.errors.get(name, AssertionError)
    with pytest.raises(error) as caught:
        ALLOCATOR_SCENARIOS[name](AllocatorBench)
    assert caught.type is error


@each_defect
def test_a_small_mend_cures_it(name: str) -> None:
    mended = partial(AllocatorBench, kind=ALLOCATOR_MENDS[name])
    ALLOCATOR_SCENARIOS[name](mended)
    allocator_works(ALLOCATOR_MENDS[name])


def test_what_the_broken_allocator_does_well() -> None:
    allocator_works(BlockAllocator)
