"""Where rows go, how long there is, and how a GPU is timed."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

FLUSH_BYTES = 512 << 20  # more than any cache; clearing it also gives the host time to queue what is timed
SECONDS_A_ROW = 0.25
FEWEST, MOST = 5, 50


class Bench:
    """Rows, flushed to a file as they come; phases with an end; medians of GPU time. In a dry run nothing is timed."""

    def __init__(self, path: Path, *, dry: bool, budget: float) -> None:
        self.dry = dry
        self.device = torch.device("cpu" if dry else "cuda")
        self.began = time.monotonic()
        self.end = self.began + budget
        self.rows: list[dict[str, Any]] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")
        self._flush = None if dry else torch.empty(FLUSH_BYTES, dtype=torch.int8, device=self.device)
        self.copy_rate: float | None = None  # bytes a second, read and written
        self.matmul_rate: float | None = None  # floating point operations a second

    def row(self, phase: str, **values: Any) -> dict[str, Any]:
        """Keep a row, show it, and flush it to the file at once: what has been measured is never lost."""
        row = {"phase": phase, **values}
        self.rows.append(row)
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        print(
            f"{time.monotonic() - self.began:6.1f} s  " + "  ".join(f"{k} {_short(v)}" for k, v in row.items()),
            flush=True,
        )
        return row

    def within(self, phase: str, cases: list[Any], seconds: float) -> Iterator[Any]:
        """The cases, until the phase or the whole budget has used its time; a row says how many were left."""
        end = min(time.monotonic() + seconds, self.end)
        for done, case in enumerate(cases):
            if time.monotonic() > end and not self.dry:
                self.row(phase, skipped=f"{len(cases) - done} of {len(cases)}: out of time")
                return
            yield case

    def attempt(self, phase: str, about: dict[str, Any], run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A row of `about` and what `run` returns; what goes wrong is a row too, and the next case goes on."""
        try:
            return self.row(phase, **about, **run())
        except Exception as error:
            too_large = isinstance(error, MemoryError | torch.OutOfMemoryError)
            if not self.dry:
                torch.cuda.empty_cache()
            return self.row(
                phase,
                **about,
                **{"skipped" if too_large else "error": f"{type(error).__name__}: {error}".splitlines()[0]},
            )

    def seconds(self, run: Callable[[], object]) -> float | None:
        """Median GPU seconds of a call that finds the caches cold. None in a dry run, which calls it once."""
        run()
        if self._flush is None:
            return None
        torch.cuda.synchronize()
        spent: list[float] = []
        began = time.monotonic()
        while len(spent) < FEWEST or (len(spent) < MOST and time.monotonic() - began < SECONDS_A_ROW):
            events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(FEWEST)]
            for start, stop in events:
                self._flush.zero_()
                start.record()
                run()
                stop.record()
            torch.cuda.synchronize()
            spent += [start.elapsed_time(stop) / 1e3 for start, stop in events]
        return statistics.median(spent)

    def rates(self, seconds: float | None, num_bytes: int, flops: int) -> dict[str, Any]:
        """A time as microseconds, GB/s and TFLOPS, and of both how much of the measured ceiling that is."""
        if seconds is None:
            return {"us": None}
        found = {"us": round(seconds * 1e6, 1), "GB/s": round(num_bytes / seconds / 1e9, 1)}
        if self.copy_rate:
            found["% of copy"] = round(100 * num_bytes / seconds / self.copy_rate, 1)
        found["TFLOPS"] = round(flops / seconds / 1e12, 2)
        if self.matmul_rate:
            found["% of matmul"] = round(100 * flops / seconds / self.matmul_rate, 1)
        return found


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) and abs(value) < 0.01 else str(value)
