"""Plant small faults, one at a time, in a copy of the project, and ask the tests that execute the line: somebody must notice.

python tools/mutants.py                    # the named faults, and 200 random ones
python tools/mutants.py named salts        # of the named ones, those whose name contains a word
python tools/mutants.py random --count 20  # a few random ones; --seed 7: others; --seed 1 2: of both seeds
python tools/mutants.py random --again     # those that nobody noticed last time
python tools/mutants.py --write            # also puts the results into tests/README.md and tests/random_mutants.md

Exits with 1 when a named fault goes unnoticed, or more than 15 % of the random ones. The first run measures which test
executes what, for some minutes; later runs measure what has changed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.cache.faults import FAULTS as CACHE_FAULTS  # noqa: E402
from tests.engine.faults import FAULTS as ENGINE_FAULTS  # noqa: E402
from tools.mutation import forked, line_map, pages  # noqa: E402
from tools.mutation.asking import failing_without_edit, noticed_by  # noqa: E402
from tools.mutation.edits import Edit, chosen, named_edit  # noqa: E402

PACKAGES = ["cache", "scheduling", "geometry", "roofline", "attention"]  # where random faults are planted
ASKED = [*PACKAGES, "backends", "engine"]  # folders of tests
LEAST = {"named": 1.0, "random": 0.85}
RESULTS = ROOT / "build" / "mutants.json"  # kind -> name -> the test that noticed it last time


def planned(kind: str, count: int, seeds: list[int]) -> dict[int, list[Edit]]:
    """The edits by seed; named ones need none."""
    package = ROOT / "mini_engine"
    if kind == "random":
        return {seed: chosen(package, PACKAGES, -(-count // len(PACKAGES)), seed) for seed in seeds}
    faults = [fault._replace(file=f"cache/{fault.file}") for fault in CACHE_FAULTS] + ENGINE_FAULTS
    return {0: [named_edit(*fault, (package / fault.file).read_text(encoding="utf-8")) for fault in faults]}


def ask(edits: list[Edit]) -> dict[str, str | None]:
    """For each edit the test that notices it. Those tests must pass without one."""
    tests = line_map.measured(line_map.followed_files(ASKED))
    found: dict[str, str | None] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        forked.copy_project(folder)
        for edit in edits:
            start = time.monotonic()
            test = found[edit.name] = noticed_by(edit, tests, folder)
            seconds = time.monotonic() - start
            print(
                f"{'UNNOTICED' if test is None else 'noticed  '} {seconds:5.1f} s  {edit.name}: {test or ''}",
                flush=True,
            )
        named = sorted({test for test in found.values() if test in tests})
        if named and (wrong := failing_without_edit(named, tests, folder)) is not None:
            raise SystemExit(f"without any fault this fails already: {wrong}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=list(LEAST), help="only this kind")
    parser.add_argument("words", nargs="*", help="only those whose name contains one of these")
    parser.add_argument("--seed", type=int, nargs="+", default=[1], help="which random ones")
    parser.add_argument(
        "--count", type=int, default=200, help="how many for each seed, the same number in each package"
    )
    parser.add_argument("--again", action="store_true", help="only those that nobody noticed last time")
    parser.add_argument("--write", action="store_true", help="write the results down, those of earlier runs included")
    options = parser.parse_args()
    if options.count < 1:
        parser.error(f"--count {options.count}: at least 1 is planted")
    kinds = [options.kind] if options.kind else list(LEAST)
    plans = {kind: planned(kind, options.count, options.seed) for kind in kinds}
    names = [edit.name for plan in plans.values() for edits in plan.values() for edit in edits]
    if options.words and not any(word in name for word in options.words for name in names):
        parser.error(f"no fault's name contains {' or '.join(options.words)}; one name is {names[0]!r}")
    forked.warm_up()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    failed = False
    for kind, edits in plans.items():
        known = results.setdefault(kind, {})
        every = list({edit.name: edit for members in edits.values() for edit in members}.values())
        asked = [edit for edit in every if not options.words or any(word in edit.name for word in options.words)]
        asked = [edit for edit in asked if not options.again or known.get(edit.name) is None]
        found = ask(asked)
        noticed = sum(test is not None for test in found.values())
        print(f"{kind}: {noticed} of {len(asked)} noticed", flush=True)
        failed |= noticed < LEAST[kind] * len(asked)
        known |= found
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1))
        if options.write:
            write(kind, edits, known, options)
    return int(failed)


def write(kind: str, edits: dict[int, list[Edit]], known: dict[str, str | None], options: argparse.Namespace) -> None:
    if missing := [edit.name for members in edits.values() for edit in members if edit.name not in known]:
        raise SystemExit(f"{len(missing)} of the {kind} ones were never planted, for instance: {missing[0]}")
    if kind == "named":
        pages.write_between("mutants", pages.named_table(edits[0], known))
        return
    seeds = " ".join(map(str, options.seed))
    command = f"python tools/mutants.py random --seed {seeds} --count {options.count} --write"
    pages.PAGE.write_text(pages.random_page(edits, known, command), encoding="utf-8")
    pages.write_between("random mutants", pages.random_score(edits, known))


if __name__ == "__main__":
    sys.exit(main())
