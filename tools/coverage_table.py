"""How much of each package of `mini_engine` its tests execute: a table, from the lines that `make mutants` needs anyway.

python tools/coverage_table.py          # prints it
python tools/coverage_table.py --write  # puts it into tests/README.md
python tools/coverage_table.py cache    # of one package, under its own tests
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections import defaultdict
from pathlib import Path

import coverage

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tools.mutation import forked, line_map, pages  # noqa: E402

PACKAGE = ROOT / "mini_engine"
NOT_BY_LINES = ("course", "kernels")  # they are held by named wrong versions


def executed(prefix: str, tests: dict[str, line_map.Reach]) -> dict[str, set[int]]:
    """The lines that the tests below `prefix` and the imports execute, by file below mini_engine."""
    lines: dict[str, int] = defaultdict(int)
    for name, test in tests.items():
        if name.startswith(prefix) or name == line_map.IMPORT:
            for file, bits in test.lines.items():
                lines[file] |= bits
    return {file: {line for line in range(bits.bit_length()) if bits >> line & 1} for file, bits in lines.items()}


def counted(files: list[Path], lines: dict[str, set[int]]) -> tuple[int, int]:
    """Statements of these files, and how many of them are executed."""
    run = coverage.Coverage(data_file=None, config_file=False)
    run.get_data().add_lines({str(PACKAGE / file): numbers for file, numbers in lines.items()})
    total = missed = 0
    for file in files:
        _, statements, _, missing, _ = run.analysis2(str(file))
        total, missed = total + len(statements), missed + len(missing)
    return total, total - missed


def table(tests: dict[str, line_map.Reach], parts: list[str]) -> list[str]:
    everybody = executed("tests/", tests)
    packages = sorted(folder for folder in PACKAGE.iterdir() if (folder / "__init__.py").exists())
    rows = [(folder.name, sorted(folder.rglob("*.py"))) for folder in packages if folder.name not in NOT_BY_LINES]
    rows.append(("modules of no package", sorted(PACKAGE.glob("*.py"))))
    rows = [row for row in rows if not parts or row[0] in parts]
    rows.append(("all of these", [file for _, files in rows for file in files]))
    lines = [
        "| package | statements | executed by its own folder of tests | by all that were run |",
        "|---|---|---|---|",
    ]
    for name, files in rows:
        total, by_all = counted(files, everybody)
        has_own = (ROOT / "tests" / name).is_dir()
        own = f"{counted(files, executed(f'tests/{name}/', tests))[1] / total:.1%}" if has_own else ""
        lines.append(f"| {name} | {total:,} | {own} | {by_all / total:.1%} |")
    return lines


def named_mutants() -> list[str]:
    """What holds the packages that are not in the table."""
    from mini_engine.course.exercise import Exercise
    from mini_engine.course.exercises import all_of
    from tests.kernels.faults import FAULTS

    exercises = list(all_of(Exercise))
    wrong = sum(len(exercise.mutants) for exercise in exercises)
    return [
        f"Two packages are not measured by lines. The inside of a Triton kernel shows no lines: `kernels` is held by the {len(FAULTS)} named",
        f"faults of `tests/kernels/faults.py`. `course` is held by {wrong:,} wrong answers to its {len(exercises)} exercises, each named with the",
        "property that rejects it. Each of both must be noticed in every run of the tests.",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="only these folders of tests, and the packages of these names")
    parser.add_argument("--write", action="store_true", help="put the table into tests/README.md")
    options = parser.parse_args()
    forked.warm_up()
    files = line_map.followed_files(options.parts)
    lines = [*table(line_map.measured(files), options.parts), "", *named_mutants()]
    print("\n".join(lines))
    if options.write:
        day = datetime.date.today().isoformat()
        parts = ", ".join(sorted({Path(file).parent.name for file in files}))
        command = " ".join(["python tools/coverage_table.py", *options.parts, "--write"])
        head = f"Lines, with coverage.py {coverage.__version__} under the quick tests of {parts}. `{command}`, {day}:"
        pages.write_between("coverage", [head, "", *lines])
    return 0


if __name__ == "__main__":
    sys.exit(main())
