"""Mooncake's traces (FAST'25 release, Apache-2.0): one JSON object a line with timestamp (ms), input_length,
output_length, hash_ids.

A hash id stands for 512 tokens of the prompt together with everything before them; the last one may cover fewer.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from mini_engine.arguments import ceil_div
from mini_engine.workload.trace import Trace, TraceError, TraceRequest

BLOCK_TOKENS = 512


def load_mooncake(path: str | os.PathLike[str], block_tokens: int = BLOCK_TOKENS) -> Trace:
    """Read a Mooncake JSONL file. Arrivals are seconds after the first.

    TraceError names the line of a malformed row.
    """
    path = Path(path)
    with path.open(encoding="utf-8") as file:
        requests = [_row(f"{path}:{n}", line, block_tokens) for n, line in enumerate(file, 1) if line.strip()]
    if not requests:
        raise TraceError(f"{path}: there are no requests")
    requests.sort(key=lambda request: request.arrival)
    start = requests[0].arrival
    moved = tuple(
        TraceRequest((r.arrival - start) / 1000, r.num_prompt_tokens, r.num_output_tokens, r.hash_ids) for r in requests
    )
    return Trace(path.stem, moved, block_tokens, synthetic=path.stem.startswith("synthetic_"))


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


def _row(where: str, line: str, block_tokens: int) -> TraceRequest:
    """A line as a request whose arrival is still in milliseconds."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise TraceError(f"{where}: not JSON: {error}") from None
    if not isinstance(row, dict):
        raise TraceError(f"{where}: a {type(row).__name__}, expected an object")
    time = _integer(where, row, "timestamp", 0)
    prompt, output = _integer(where, row, "input_length", 1), _integer(where, row, "output_length", 1)
    ids = row.get("hash_ids")
    if not isinstance(ids, list) or not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
        raise TraceError(f"{where}: hash_ids must be a list of integers of at least 0")
    blocks = ceil_div(prompt, block_tokens)
    if len(ids) != blocks:
        raise TraceError(
            f"{where}: {len(ids)} hash_ids for {prompt} tokens, expected {blocks} of {block_tokens} tokens each"
        )
    return TraceRequest(time, prompt, output, tuple(ids))


def _integer(where: str, row: dict[str, Any], name: str, least: int) -> int:
    value = row.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise TraceError(
            f"{where}: {name} is {value!r}, expected an integer" if name in row else f"{where}: {name} is missing"
        )
    if value < least:
        raise TraceError(f"{where}: {name} {value} must be at least {least}")
    return value
