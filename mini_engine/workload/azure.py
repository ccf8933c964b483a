"""The Azure LLM inference trace of 2023: CSV with TIMESTAMP, ContextTokens, GeneratedTokens.

Published with "Splitwise: Efficient generative LLM inference using phase splitting" (Patel et al., ISCA 2024),
CC-BY-4.0.
"""

from __future__ import annotations

import csv
import os
from datetime import datetime, timedelta
from pathlib import Path

from mini_engine.workload.trace import Trace, TraceError, TraceRequest

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
EPOCH = datetime(2000, 1, 1)
"""Where the clock of a written trace starts."""


def load_azure(path: str | os.PathLike[str]) -> Trace:
    """Read an Azure 2023 CSV. Arrivals are seconds after the first row.

    TraceError names the line of a malformed row.
    """
    path = Path(path)
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        header = tuple(next(rows, ()))
        if header != COLUMNS:
            raise TraceError(f"{path}:1: the header is {','.join(header) or 'missing'}, expected {','.join(COLUMNS)}")
        parsed = [_row(f"{path}:{rows.line_num}", row) for row in rows if row]
    if not parsed:
        raise TraceError(f"{path}: there are no requests below the header")
    start = min(time for time, _, _ in parsed)
    requests = sorted(
        (TraceRequest((time - start).total_seconds(), p, o) for time, p, o in parsed), key=lambda r: r.arrival
    )
    return Trace(path.stem, tuple(requests), synthetic=path.stem.startswith("synthetic_"))


def save_azure(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace as an Azure 2023 CSV, on a clock that starts in the year 2000.

    Hash ids have no place in it and are dropped.
    """
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for request in trace:
            stamp = EPOCH + timedelta(seconds=request.arrival)
            writer.writerow((f"{stamp:%Y-%m-%d %H:%M:%S.%f}0", request.num_prompt_tokens, request.num_output_tokens))


def _row(where: str, row: list[str]) -> tuple[datetime, int, int]:
    if len(row) != len(COLUMNS):
        raise TraceError(f"{where}: {len(row)} columns, expected {len(COLUMNS)} ({', '.join(COLUMNS)})")
    try:
        time = datetime.fromisoformat(row[0].strip()[:26])  # the files have seven fractional digits, Python reads six
    except ValueError:
        raise TraceError(f"{where}: TIMESTAMP {row[0]!r} is not like 2023-11-16 18:15:46.6805900") from None
    return time, _tokens(where, COLUMNS[1], row[1]), _tokens(where, COLUMNS[2], row[2])


def _tokens(where: str, name: str, cell: str) -> int:
    try:
        tokens = int(cell)
    except ValueError:
        raise TraceError(f"{where}: {name} {cell!r} is not an integer") from None
    if tokens < 1:
        raise TraceError(f"{where}: {name} {tokens} must be at least 1")
    return tokens
