"""Plant one edit in a copy of the project and ask the tests that execute its lines, the quick ones first."""

from __future__ import annotations

import importlib.util
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.mutation import forked
from tools.mutation.edits import Edit
from tools.mutation.line_map import IMPORT, Reach

# Seconds that the tests of other folders may be asked, when those of the package let an edit through.
ELSEWHERE = 20.0
# A test may take so many seconds of the processor, and so many times what it takes without a fault.
PATIENCE = 10.0, 10.0


class Chosen:
    """Runs inside the child: only these tests, in this order, each with a limit; notes the first that fails."""

    def __init__(self, tests: dict[str, float], found: Path) -> None:
        self.tests, self.found = tests, found
        self.order = {name: i for i, name in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self.order), key=lambda item: self.order[item.nodeid]
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        base, times = PATIENCE
        self.found.write_text(item.nodeid)  # so that it is known if the time runs out
        signal.setitimer(signal.ITIMER_PROF, base + times * self.tests[item.nodeid])
        result = yield
        signal.setitimer(signal.ITIMER_PROF, 0)
        return result


def stages_of(edit: Edit, tests: dict[str, Reach]) -> list[dict[str, float]]:
    """{test: seconds} in two stages: the tests of the package itself, then those of the others.

    What runs at import is asked of every test that runs something of the file.
    """
    reaching = {
        name: test for name, test in tests.items() if name != IMPORT and test.lines.get(edit.file, 0) & edit.lines
    }
    if not reaching and tests[IMPORT].lines.get(edit.file, 0) & edit.lines:
        reaching = {name: test for name, test in tests.items() if name != IMPORT and edit.file in test.lines}
    own: dict[str, float] = {}
    others: dict[str, float] = {}
    left = ELSEWHERE
    for name, test in sorted(reaching.items(), key=lambda pair: pair[1].seconds):
        if name.startswith(f"tests/{edit.file.partition('/')[0]}/"):
            own[name] = test.seconds
        elif (left := left - test.seconds) > 0:
            others[name] = test.seconds
    return [_by_file(stage) for stage in (own, others) if stage]


def _by_file(tests: dict[str, float]) -> dict[str, float]:
    """The files that take least first, and each in one go: what their fixtures build is built once."""
    total: dict[str, float] = defaultdict(float)
    for name, seconds in tests.items():
        total[name.partition("::")[0]] += seconds
    return dict(
        sorted(tests.items(), key=lambda pair: (total[pair[0].partition("::")[0]], pair[0].partition("::")[0], pair[1]))
    )


def noticed_by(edit: Edit, tests: dict[str, Reach], folder: Path) -> str | None:
    """The first test that fails, or how else the edit shows; None when all tests pass. `folder` holds a copy."""
    path = folder / "mini_engine" / edit.file
    right = path.read_bytes()
    _write(path, edit.applied_to(right))
    try:
        for stage in stages_of(edit, tests):
            if (found := _failing(stage, folder)) is not None:
                return found
    finally:
        _write(path, right)
    return None


def _write(path: Path, source: bytes) -> None:
    """Python takes compiled code of the same second and size for that of this source: away with it."""
    path.write_bytes(source)
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def failing_without_edit(names: list[str], tests: dict[str, Reach], folder: Path) -> str | None:
    return _failing(_by_file({name: tests[name].seconds for name in names}), folder)


def _failing(stage: dict[str, float], folder: Path) -> str | None:
    found = folder / "running.txt"
    found.write_text("")
    files = list(dict.fromkeys(name.partition("::")[0] for name in stage))
    plugins = [forked.QuickHypothesis(), Chosen(stage, found)]
    code = forked.run(folder, files, plugins, folder / "log.txt", seconds=1800)
    if code in (0, 5):
        return None
    if not found.read_text():
        return "no test can be collected"
    return found.read_text() + (" (time ran out)" if code == forked.OUT_OF_TIME else "")
