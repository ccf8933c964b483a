"""How the tests are dealt out to workers, and how a run is summed up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.part_table import part, table
from tests.side_by_side import BY_LESSON, LONG, group, rank

ROOT = Path(__file__).resolve().parents[2]
LESSONS, CLAIMS, CLASS = BY_LESSON


@pytest.mark.parametrize("path", [*LONG, *BY_LESSON])
def test_what_is_named_is_there(path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize(
    ("nodeid", "expected"),
    [
        (f"{LESSONS}::test_valid_and_small[lessons/zh/05_kv_quantization]", f"{LESSONS} 05"),
        (f"{LESSONS}::test_chinese_twin_has_the_same_code_and_outputs[05_kv_quantization-lessons]", f"{LESSONS} 05"),
        (f"{CLAIMS}::test_every_claim_is_followed_to_its_place_and_run[05-goals cell:goals]", f"{CLAIMS} 05"),
        (f"{CLAIMS}::test_every_claim_tag_is_a_claim_and_every_part_is_there[05]", f"{CLAIMS} 05"),
        (f"{CLAIMS}::test_numbers_are_found_in_claims[1,499,500 against 1_999-found0]", CLAIMS),
        (f"{CLASS}::test_only_what_is_right_gets_points[05]", f"{CLASS} 05"),
        (f"{CLAIMS}::test_a_panel_is_drawn_from_end_to_end", CLAIMS),
        ("tests/cache/test_block_pool.py::test_sizes[16-4]", "tests/cache/test_block_pool.py"),
    ],
)
def test_a_lesson_and_a_file_stay_together(nodeid, expected):
    assert group(nodeid) == expected


def test_the_longest_come_first():
    assert rank("tests/browser/test_lessons.py::test") == 0
    assert rank(LESSONS) < rank(CLAIMS) < rank("tests/cache/test_block_pool.py")


@pytest.mark.parametrize(
    ("nodeid", "expected"),
    [
        ("tests/cache/test_block_pool.py::test_a[b/c]", "cache"),
        ("tests/notebooks/deep/test_b.py::T::test_c", "notebooks"),
        ("tests/test_d.py::test_e", ""),
        ("lessons/00_start_here.ipynb::Cell 1", ""),
        ("test_f.py::test_g", ""),
    ],
)
def test_the_part_is_the_folder_below_tests(nodeid, expected):
    assert part(nodeid) == expected


def test_the_table_counts_each_test_once_and_all_its_seconds():
    def report(nodeid, duration):
        return SimpleNamespace(nodeid=nodeid, duration=duration)

    good, bad, other = "tests/cache/test_a.py::good", "tests/cache/test_a.py::bad", "tests/engine/test_b.py::test"
    stats = {
        "": [report(good, 10.0), report(bad, 1.0)],
        "passed": [report(good, 2.0)],
        "failed": [report(bad, 4.0)],
        "error": [SimpleNamespace(nodeid="tests/engine/test_c.py")],  # could not be collected
        "skipped": [report(other, 0.4)],
        "deselected": [SimpleNamespace(nodeid=other)],
        "warnings": [SimpleNamespace(nodeid=good)],
    }
    assert [line.split() for line in table(stats)] == [
        ["part", "passed", "failed", "skipped", "seconds"],
        ["cache", "1", "1", "0", "17"],
        ["engine", "0", "1", "1", "0"],
        ["all", "1", "2", "1", "17"],
    ]
