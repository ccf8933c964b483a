"""What was found, as tables: of the named faults in tests/README.md, of the random ones in tests/random_mutants.md."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping

from tools.marks import between
from tools.mutation.edits import Edit
from tools.mutation.forked import ROOT

README = ROOT / "tests" / "README.md"
PAGE = ROOT / "tests" / "random_mutants.md"
REASONS = ROOT / "tests" / "random_mutants.toml"
COLUMNS = ("planted", "noticed", "equivalent", "missed", "noticed, of all planted")

Found = Mapping[str, str | None]  # name of an edit -> the test that noticed it


def write_between(mark: str, lines: list[str]) -> None:
    """Replace what stands between <!-- mark --> and <!-- /mark --> in tests/README.md."""
    README.write_text(between(README.read_text(encoding="utf-8"), mark, "\n".join(lines)), encoding="utf-8")


def named_table(edits: list[Edit], found: Found) -> list[str]:
    noticed = sum(found[edit.name] is not None for edit in edits)
    rows = [
        f"| {edit.name} | `{edit.file}` | {f'`{test}`' if (test := found[edit.name]) else '**nobody**'} |"
        for edit in edits
    ]
    return [
        f"{noticed} of {len(edits)} faults noticed.",
        "",
        "| fault | planted in | first noticed by |",
        "|---|---|---|",
        *(row.replace("`tests/", "`") for row in rows),
    ]


def score(edits: list[Edit], found: Found, heading: str, of: Callable[[Edit], str]) -> list[str]:
    """A table with a row for each group."""
    equivalent = _reasons("equivalent")
    lines = [f"| {' | '.join([heading, *COLUMNS])} |", f"|{'---|' * (len(COLUMNS) + 1)}"]
    for group in [*dict.fromkeys(of(edit) for edit in edits), "all"]:
        members = [edit for edit in edits if group in ("all", of(edit))]
        noticed = sum(found[edit.name] is not None for edit in members)
        same = sum(found[edit.name] is None and edit.name in equivalent for edit in members)
        cells = [group, len(members), noticed, same, len(members) - noticed - same, f"{noticed / len(members):.1%}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def package(edit: Edit) -> str:
    return edit.file.partition("/")[0]


def random_page(edits: Mapping[int, list[Edit]], found: Found, command: str) -> str:
    """tests/random_mutants.md: for each seed the score, and what nobody noticed."""
    lines = [
        "# Random mutants",
        "",
        f"`{command}` writes this page. The reasons stand in `tests/random_mutants.toml`, under the names of the edits.",
        "An edit is equivalent when no test could tell it from the right code.",
    ]
    for seed, chosen in edits.items():
        by_kind = sorted(chosen, key=lambda edit: edit.kind)
        lines += ["", f"## Seed {seed}", "", *score(chosen, found, "package", package), ""]
        lines += [*score(by_kind, found, "kind of edit", lambda edit: edit.kind), "", "Nobody noticed:", ""]
        lines += [line for edit in chosen if found[edit.name] is None for line in _survivor(edit)]
    return "\n".join([*lines, ""])


def random_score(edits: Mapping[int, list[Edit]], found: Found) -> list[str]:
    lines = []
    for seed, chosen in edits.items():
        lines += [f"Seed {seed}:", "", *score(chosen, found, "package", package), ""]
    return lines[:-1]


def _survivor(edit: Edit) -> list[str]:
    equivalent, missed = _reasons("equivalent"), _reasons("missed")
    verdict = "Equivalent" if edit.name in equivalent else "Missed"
    why = equivalent.get(edit.name) or missed.get(edit.name, "**no reason is written down yet**")
    place, _, rest = edit.name.partition(": ")
    text, _, change = rest.rpartition("  |  ")
    return [f"- `{place}`. {verdict}: {why}", "  ```text", f"  {text}", f"  # {change}", "  ```"]


def _reasons(kind: str) -> dict[str, str]:
    return tomllib.loads(REASONS.read_text(encoding="utf-8")).get(kind, {}) if REASONS.exists() else {}
