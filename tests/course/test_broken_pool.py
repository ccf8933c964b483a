"""Each defect of the broken pool: its scenario fails there, and passes on the engine's own arrays and tables and when mended."""

from __future__ import annotations

from functools import partial

import pytest

from mini_engine.course.broken_pool import PagedKVPool, check_pool
from mini_engine.course.defects import DEFECTS
from mini_engine.course.defects.benches import PoolBench
from mini_engine.course.defects.labs import pool_works
from mini_engine.course.defects.pool_mends import POOL_MENDS
from mini_engine.course.defects.pool_scenarios import POOL_SCENARIOS
from tests.course.engine_benches import EnginePoolBench

each_defect = pytest.mark.parametrize("name", POOL_SCENARIOS)


def test_every_defect_has_a_scenario_and_a_mend() -> None:
    names = [defect.name for defect in DEFECTS if defect.where == "pool"]
    assert list(POOL_SCENARIOS) == names
    assert [name for name in names if name in POOL_MENDS] == list(POOL_MENDS)
    assert set(names) - set(POOL_MENDS) == {"one layer for a whole model"}


@each_defect
def test_the_engine_does_not_have_it(name: str) -> None:
    POOL_SCENARIOS[name](EnginePoolBench)


@each_defect
def test_the_broken_pool_has_it(name: str) -> None:
    error = POOL_SCENARIOS.errors.get(name, AssertionError)
    with pytest.raises(error) as caught:
        POOL_SCENARIOS[name](PoolBench)
    assert caught.type is error


@pytest.mark.parametrize("name", POOL_MENDS)
def test_a_small_mend_cures_it(name: str) -> None:
    mended = partial(PoolBench, kind=POOL_MENDS[name])
    POOL_SCENARIOS[name](mended)
    pool_works(POOL_MENDS[name])


def test_what_the_broken_pool_does_well() -> None:
    pool_works(PagedKVPool)


def test_its_own_check_finds_nothing() -> None:
    """One token, K alone, and V equal to K."""
    check_pool()


def test_the_table_of_defects() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS)
    assert {defect.lesson for defect in DEFECTS} == {"07", "08", "09"}
    assert all(defect.symptom.endswith(".") and defect.cause.endswith(".") for defect in DEFECTS)
