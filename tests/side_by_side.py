"""Which tests share a worker when `pytest -n` runs them side by side, and in which order the workers take them.

A file stays together, so that what its fixtures build is built once. The files that run every lesson are cut by lesson: a
lesson's kernels start once, in one worker, and no worker waits for another's lesson. Long work is handed out first.
"""

from __future__ import annotations

import re
from typing import Any

LONG = ("tests/browser/", "tests/notebooks/", "tests/teaching/", "tests/lessons/", "tests/kernels/", "tests/course/")
BY_LESSON = ("tests/notebooks/test_lessons.py", "tests/lessons/test_claims.py", "tests/teaching/test_nbgrader_flow.py")
LESSON = re.compile(r"\[(?:lessons/|solutions/|zh/)*(\d\d)(?!\d)")


def group(nodeid: str) -> str:
    """The tests of one group run in one worker, one after the other."""
    file = nodeid.partition("::")[0]
    lesson = LESSON.search(nodeid) if file in BY_LESSON else None
    return f"{file} {lesson[1]}" if lesson else file


def rank(nodeid: str) -> int:
    """Groups of a lower rank start earlier."""
    return next((rank for rank, part in enumerate(LONG) if nodeid.startswith(part)), len(LONG))


def scheduler(config: Any, log: Any) -> Any:
    """pytest-xdist's scheduler for whole groups, with the groups above."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    config.option.loadscopereorder = False  # by number of tests, which says little about their seconds
    return ByGroup(config, log)
