"""Plant each fault of `tests/cache/faults.py` and `tests/engine/faults.py` in a copy of the project and run the tests that should notice.

python tools/mutants.py                    # all of them; prints a table and exits with 1 if one goes unnoticed
python tools/mutants.py salts watermark    # those whose name contains a word
python tools/mutants.py --write            # also puts the table into tests/README.md
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.cache.faults import FAULTS as CACHE_FAULTS  # noqa: E402
from tests.cache.faults import Fault  # noqa: E402
from tests.engine.faults import FAULTS as ENGINE_FAULTS  # noqa: E402
from tools.marks import between  # noqa: E402

FAULTS = [fault._replace(file=f"cache/{fault.file}") for fault in CACHE_FAULTS] + ENGINE_FAULTS

PARTS = ["tests/cache", "tests/scheduling", "tests/engine", "tests/backends"]
# The quick tests first; the state machines, which take longer, for what those let through.
STAGES = ["not machine and not runTest", "machine or runTest"]
IGNORED = ["--ignore-glob=*torch*", "--ignore-glob=*faults*"]  # slow to import; notices every edit
TIMEOUT = 900  # seconds; a fault that makes the engine run for ever is noticed too
README = ROOT / "tests" / "README.md"


def plant(fault: Fault | None, folder: Path) -> None:
    """Copy what the tests need into `folder`, with the fault in it."""
    for name in ("mini_engine", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "data").symlink_to(ROOT / "data")
    if fault is not None:
        path = folder / "mini_engine" / fault.file
        path.write_text(path.read_text().replace(fault.right, fault.wrong))


def noticed_by(fault: Fault | None) -> str | None:
    """The first test that fails with the fault planted; None when all pass."""
    parts = PARTS if fault is not None and fault.file.startswith("cache/") else PARTS[::-1]
    with tempfile.TemporaryDirectory() as name:
        plant(fault, folder := Path(name))
        environment = os.environ | {"PYTHONPATH": name, "MINI_ENGINE_MUTANT": "1"}
        for stage in STAGES:
            options = ["-x", "-q", "-p", "no:cacheprovider", *IGNORED, "-k", stage]
            command = [sys.executable, "-m", "pytest", *options, *parts]
            try:
                run = subprocess.run(
                    command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
                )
            except subprocess.TimeoutExpired:
                return "time ran out"
            if run.returncode:
                found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", run.stdout, re.MULTILINE)
                return found.group(1).removeprefix("tests/") if found else "the tests could not start"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only faults whose name contains one of these")
    parser.add_argument("--write", action="store_true", help="put the table into tests/README.md")
    options = parser.parse_args()
    chosen = [fault for fault in FAULTS if not options.words or any(word in fault.name for word in options.words)]
    if (failing := noticed_by(None)) is not None:
        print(f"without any fault this fails already: {failing}")
        return 1
    rows, unnoticed = [], 0
    for fault in chosen:
        test = noticed_by(fault)
        unnoticed += test is None
        print(f"{'UNNOTICED' if test is None else 'noticed  '} {fault.name}: {test or ''}", flush=True)
        rows.append(f"| {fault.name} | `{fault.file}` | {f'`{test}`' if test else '**nobody**'} |")
    score = f"{len(chosen) - unnoticed} of {len(chosen)} faults noticed."
    print(score)
    if options.write:
        table = "\n".join([score, "", "| fault | planted in | first noticed by |", "|---|---|---|", *rows])
        README.write_text(between(README.read_text(), "mutants", table))
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
