"""Which test executes which lines of `mini_engine`, and in how many seconds: measured once, and kept in build/.

The measurement of a test file is made again when that file, a helper of the tests, or `mini_engine` has changed. Lines that
run in another process are not seen, nor is the inside of a Triton kernel.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tools.mutation import forked

ROOT = forked.ROOT
STORE = ROOT / "build" / "line_map"
# These run lessons, exercises, kernels or whole processes, or read files.
NOT_FOLLOWED = (
    *("benchmarks", "browser", "course", "kernels", "lessons"),
    *("notebooks", "packaging", "quality", "teaching"),
)
IMPORT = ""  # stands for the test, where a line runs when its module is imported


@dataclass
class Reach:
    seconds: float = 0.0
    lines: dict[str, int] = field(default_factory=dict)  # file below mini_engine -> a bit for each line


class Recorder:
    """Runs inside the child: tells coverage.py which test runs, and measures it."""

    def __init__(self, target: Path, package: Path) -> None:
        self.target, self.package = target, package
        self.seconds: dict[str, float] = {}

    def pytest_configure(self) -> None:
        import coverage

        self.cov = coverage.Coverage(data_file=None, source=[str(self.package)], config_file=False)
        self.cov.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.cov.switch_context(item.nodeid)
        start = time.process_time()
        result = yield
        self.seconds[item.nodeid] = time.process_time() - start
        self.cov.switch_context(IMPORT)
        return result

    def pytest_sessionfinish(self) -> None:
        self.cov.stop()
        tests = {name: Reach(round(seconds, 4)) for name, seconds in self.seconds.items()} | {IMPORT: Reach()}
        data = self.cov.get_data()
        for file in data.measured_files():
            name = Path(file).relative_to(self.package).as_posix()
            for line, contexts in data.contexts_by_lineno(file).items():
                for test in contexts:
                    tests[test].lines[name] = tests[test].lines.get(name, 0) | 1 << line
        stored = {
            name: [test.seconds, {file: hex(bits) for file, bits in test.lines.items()}] for name, test in tests.items()
        }
        modules = [module for name, module in sys.modules.items() if name.startswith("tests.")]
        files = [Path(where) for module in modules if (where := getattr(module, "__file__", None))]
        helpers = [
            path.relative_to(self.package.parent).as_posix() for path in files if not path.name.startswith("test_")
        ]
        self.target.write_text(json.dumps([stored, helpers]))


def followed_files(parts: Collection[str] = ()) -> list[str]:
    """The test files of these folders of tests/; of all that can be followed, when none is named."""
    files = [path for path in sorted((ROOT / "tests").glob("*/test_*.py")) if path.parent.name not in NOT_FOLLOWED]
    return [path.relative_to(ROOT).as_posix() for path in files if not parts or path.parent.name in parts]


def measured(files: list[str]) -> dict[str, Reach]:
    """Every test of `files`, measured now or earlier. RuntimeError when one fails: nothing can be told from it then."""
    STORE.mkdir(parents=True, exist_ok=True)
    stored = {file: _stored(file) for file in files}
    stale = [file for file, tests in stored.items() if tests is None]
    with tempfile.TemporaryDirectory() as name:
        if stale:
            forked.copy_project(folder := Path(name).resolve())
        for part in sorted({Path(file).parent.name for file in stale}):
            members = [file for file in stale if Path(file).parent.name == part]
            print(f"measuring {len(members)} files of tests/{part}", file=sys.stderr, flush=True)
            stored |= _measure(members, folder)
    tests: dict[str, Reach] = {IMPORT: Reach()}
    for found in stored.values():
        for test, (seconds, lines) in (found or {}).items():
            known = tests.setdefault(test, Reach(seconds))
            for source, bits in lines.items():
                known.lines[source] = known.lines.get(source, 0) | int(bits, 16)
    return tests


def _kept(file: str) -> Path:
    return STORE / f"{file.removeprefix('tests/').replace('/', '-')}.json"


def _stored(file: str) -> dict[str, Any] | None:
    """Of one test file {test: [seconds, {file below mini_engine: lines}]}, if what was measured is still so."""
    if not _kept(file).exists():
        return None
    stored = json.loads(_kept(file).read_text())
    return stored["tests"] if stored["of"] == _digests(ROOT, stored["of"]) else None


def _measure(files: list[str], folder: Path) -> dict[str, dict[str, Any]]:
    log, found = STORE / "log.txt", folder / "lines.json"
    plugins: list[Any] = [forked.QuickHypothesis(), Recorder(found, folder / "mini_engine")]
    code = forked.run(folder, files, plugins, log, seconds=3600)
    if code not in (0, 5):  # 5: every test is slow
        raise RuntimeError(f"{', '.join(files)}: something fails without any fault:\n{log.read_text()[-3000:]}")
    tests, helpers = json.loads(found.read_text())
    result = {}
    for file in files:
        result[file] = {name: test for name, test in tests.items() if name.partition("::")[0] in (file, IMPORT)}
        reached = {f"mini_engine/{name}" for _, lines in result[file].values() for name in lines}
        of = _digests(folder, {file, *helpers, *reached})
        _kept(file).write_text(json.dumps({"of": of, "tests": result[file]}))
    return result


def _digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    paths = {name: folder / name for name in sorted(names)}
    return {name: hashlib.sha256(path.read_bytes()).hexdigest()[:12] for name, path in paths.items() if path.exists()}
