"""The rows as a page of Markdown, a table for each phase."""

from __future__ import annotations

from typing import Any

TITLES = {
    "environment": "Environment", "ceiling": "Ceilings", "compile": "Compiled kernels", "correct": "Against float64",
    "gqa": "GQA decode", "mla": "MLA decode", "engine": "Engine",
}  # fmt: skip
NOTE = """Times are medians of GPU time with cold caches. GB/s counts each needed byte of the cache once, TFLOPS the products of
attention; both also as a share of what was measured under Ceilings. Errors are relative to float64."""


def markdown(rows: list[dict[str, Any]], *, dry: bool) -> str:
    """Rows without values in a column leave it empty. The environment is a list."""
    lines = ["# Kernels on a GPU", ""]
    lines += ["**A dry run in the interpreter: nothing here was timed.**", ""] if dry else [NOTE, ""]
    for phase, title in TITLES.items():
        of = [{k: v for k, v in row.items() if k != "phase"} for row in rows if row["phase"] == phase]
        if not of:
            continue
        lines += [f"## {title}", ""]
        if phase == "environment":
            lines += [f"- {name}: {value}" for name, value in of[0].items()] + [""]
            continue
        columns = list(dict.fromkeys(name for row in of for name in row))
        lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
        lines += ["| " + " | ".join(_cell(row.get(name)) for name in columns) + " |" for row in of] + [""]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.2g}" if 0 < abs(value) < 0.01 else f"{value:,}"
    return str(value).replace("|", "\\|")
