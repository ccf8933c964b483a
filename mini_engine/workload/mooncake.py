"""Mooncake's traces (FAST'25 release, Apache-2.0): one JSON object a line with timestamp (ms), input_length,
output_length, hash_ids.

A hash id stands for 512 tokens of the prompt together with everything before them; the last one may cover fewer.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from mini_engine.arguments import COUNT_LIMIT, ceil_div, count
from mini_engine.workload.trace import ID_LIMIT, Trace, TraceError, TraceRequest, lines

BLOCK_TOKENS = 512


def load_mooncake(path: str | os.PathLike[str], block_tokens: int = BLOCK_TOKENS) -> Trace:
    """Read a Mooncake JSONL file. Arrivals are seconds after the first.

    TraceError names the line of a malformed row.
    """
    path, block_tokens = Path(path), count("block_tokens", block_tokens)
    rows = []
    for n, line in enumerate(lines(path), 1):
        if line.strip():
            rows.append(_row(f"{path}:{n}", line, block_tokens))
    if not rows:
        raise TraceError(f"{path}: there are no requests")
    rows.sort(key=lambda row: row[0])
    start = rows[0][0]
    requests = tuple(TraceRequest((time - start) / 1000, n, m, ids) for time, n, m, ids in rows)
    return Trace(path.stem, requests, block_tokens, synthetic=path.stem.startswith("synthetic_"))


def save_mooncake(trace: Trace, path: str | os.PathLike[str]) -> None:
    """Write a trace as Mooncake JSONL, with whole milliseconds as the format has them."""
    with Path(path).open("w", encoding="utf-8") as file:
        for r in trace:
            row = {
                "timestamp": round(r.arrival * 1000),
                "input_length": r.num_prompt_tokens,
                "output_length": r.num_output_tokens,
                "hash_ids": list(r.hash_ids),
            }
            file.write(json.dumps(row) + "\n")


def _row(where: str, line: str, block_tokens: int) -> tuple[int, int, int, tuple[int, ...]]:
    """A line as milliseconds, prompt tokens, output tokens and ids of blocks."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:  # broken JSON, a number of thousands of digits, endless nesting
        raise TraceError(f"{where}: not JSON: {error}") from None
    if not isinstance(row, dict):
        raise TraceError(f"{where}: a {type(row).__name__}, expected an object")
    time = _integer(where, row, "timestamp", 0, 10**14)
    prompt, output = _integer(where, row, "input_length", 1), _integer(where, row, "output_length", 1)
    ids = row.get("hash_ids")
    if not isinstance(ids, list) or not all(type(i) is int and 0 <= i <= ID_LIMIT for i in ids):
        raise TraceError(f"{where}: hash_ids must be a list of integers of at least 0")
    blocks = ceil_div(prompt, block_tokens)
    if len(ids) != blocks:
        raise TraceError(
            f"{where}: {len(ids)} hash_ids for {prompt} tokens, expected {blocks} of {block_tokens} tokens each"
        )
    return time, prompt, output, tuple(ids)


def _integer(where: str, row: dict[str, Any], name: str, least: int, limit: int = COUNT_LIMIT) -> int:
    if name not in row:
        raise TraceError(f"{where}: {name} is missing")
    try:
        return count(name, row[name], minimum=least, limit=limit)
    except ValueError as error:
        raise TraceError(f"{where}: {error}") from None
