"""The Azure LLM inference trace of 2023: CSV with TIMESTAMP, ContextTokens, GeneratedTokens.

Published with "Splitwise: Efficient generative LLM inference using phase splitting" (Patel et al., ISCA 2024),
CC-BY-4.0.
"""

from __future__ import annotations

import csv
import os
from datetime import datetime, timedelta
from pathlib import Path

from mini_engine.arguments import count, shown
from mini_engine.workload.trace import Trace, TraceError, TraceRequest, lines

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
EPOCH = datetime(2000, 1, 1)
"""Where the clock of a written trace starts."""


def load_azure(path: str | os.PathLike[str]) -> Trace:
    """Read an Azure 2023 CSV. Arrivals are seconds after the first row.

    TraceError names the line of a malformed row.
    """
    path = Path(path)
    rows = csv.reader(lines(path))
    try:
        header = tuple(next(rows, ()))
        if header != COLUMNS:
            found = shown(",".join(header)) if header else "missing"
            raise TraceError(f"{path}:1: the header is {found}, expected {','.join(COLUMNS)}")
        parsed = [_row(f"{path}:{rows.line_num}", row) for row in rows if row]
    except csv.Error as error:
        raise TraceError(f"{path}:{rows.line_num}: not CSV: {error}") from None
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
            try:
                stamp = EPOCH + timedelta(seconds=request.arrival)
            except OverflowError:
                raise ValueError(f"arrival={request.arrival} is no date: its year is beyond 9999") from None
            writer.writerow((f"{stamp:%Y-%m-%d %H:%M:%S.%f}0", request.num_prompt_tokens, request.num_output_tokens))


def _row(where: str, row: list[str]) -> tuple[datetime, int, int]:
    if len(row) != len(COLUMNS):
        raise TraceError(f"{where}: {len(row)} columns, expected {len(COLUMNS)} ({', '.join(COLUMNS)})")
    try:
        time = datetime.fromisoformat(row[0].strip()[:26])  # the files have seven fractional digits, Python reads six
    except ValueError:
        raise TraceError(f"{where}: TIMESTAMP {shown(row[0])} is not like 2023-11-16 18:15:46.6805900") from None
    if time.tzinfo is not None:
        raise TraceError(f"{where}: TIMESTAMP {shown(row[0])} has a time zone, expected none")
    return time, _tokens(where, COLUMNS[1], row[1]), _tokens(where, COLUMNS[2], row[2])


def _tokens(where: str, name: str, cell: str) -> int:
    try:
        return count(name, int(cell))
    except ValueError:
        raise TraceError(f"{where}: {name}={shown(cell)} must be an integer of at least 1") from None
