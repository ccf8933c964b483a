"""The table at the end of a run: for each folder of tests/, how many passed, failed and were skipped, and their seconds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

COLUMNS = ("passed", "failed", "skipped", "seconds")
OUTCOMES = {
    "passed": "passed",
    "failed": "failed",
    "error": "failed",
    "skipped": "skipped",
    "xfailed": "skipped",
    "xpassed": "failed",
}


def part(nodeid: str) -> str:
    """The folder below tests/, "" for a test that stands in none."""
    folders = nodeid.partition("::")[0].split("/")[:-1]
    return folders[1] if folders[:1] == ["tests"] and len(folders) > 1 else ""


def table(stats: Mapping[str, Iterable[Any]]) -> list[str]:
    """The lines, from the reports that pytest sorts by outcome ("" holds set-ups and tear-downs that went well)."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome, reports in stats.items():
        for report in reports:
            if outcome in OUTCOMES or not outcome:  # not warnings, nor tests that were deselected
                row = rows[part(report.nodeid)]
                row["seconds"] += getattr(report, "duration", 0)  # a file that cannot be collected has none
                if outcome:
                    row[OUTCOMES[outcome]] += 1
    total = sum(rows.values(), Counter())
    width = max([5, *map(len, rows)])
    lines = [f"{'part':<{width}}" + "".join(f"{column:>9}" for column in COLUMNS)]
    for name, row in [*sorted(rows.items()), ("all", total)]:
        lines.append(f"{name or '-':<{width}}" + "".join(f"{row[column]:>9.0f}" for column in COLUMNS))
    return lines
