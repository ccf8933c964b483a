"""Many simulations, one for each point of a grid, on every core: what a worker is sent is a `Point`, what comes back is JSON.

An executor is anything with `submit(function, point)` that returns something with `result()`: those of
`concurrent.futures`, and a Dask client, for sweeps that outgrow one machine.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from mini_engine.arguments import count, shown
from mini_engine.simulator import simulate, summarize
from mini_engine.simulator.summary import SimulationSummary
from mini_engine.workload import Trace, load_trace

MOST_POINTS = 10_000


@dataclass(frozen=True, kw_only=True)
class Point:
    """One simulation: which requests, `options` of `simulate`, `limits` (seconds) for goodput."""

    trace: str | Trace
    requests: int | None = None
    rate: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)

    def load(self) -> Trace:
        """The trace, cut to `requests` and brought to `rate`. ValueError for what is no trace."""
        trace = load_trace(self.trace) if isinstance(self.trace, str) else self.trace
        if not isinstance(trace, Trace):
            raise ValueError(f"trace={shown(trace)} must be a Trace, or the name or path of one")
        if self.requests is not None:
            trace = trace.head(self.requests)
        return trace if self.rate is None else trace.at_rate(self.rate)

    def run(self, progress: Callable[[int], object] = lambda num_ended: None) -> SimulationSummary:
        """Simulate the point and sum it up; progress(num_ended) is called as requests end."""
        return summarize(simulate(self.load(), progress=progress, **self.options), **self.limits)


class Executor(Protocol):
    """What a sweep needs of the machine, or machines, that it runs on."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        """Something with `result()`."""


class Here:
    """Runs what it is given at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future:
        """Call fn(*args) now; the future holds its value or its exception."""
        future: Future = Future()
        try:
            future.set_result(fn(*args))
        except Exception as error:  # Ctrl-C is for the sweep, not for one point
            future.set_exception(error)
        return future


def run_point(point: Point) -> dict[str, Any]:
    """A summary as JSON; {"error": why} for a point that cannot be simulated, so that it does not take the others along."""
    try:
        return point.run().to_json()
    except (ValueError, KeyError, OSError, RuntimeError) as error:
        return {"error": str(error.args[0]) if isinstance(error, KeyError) else str(error)}


def grid(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values of each axis, the last one fastest. ValueError for more than anybody can read."""
    size = math.prod(map(len, axes.values()))
    if size > MOST_POINTS:
        raise ValueError(f"a sweep of {size:,} runs, at most {MOST_POINTS:,}: give fewer values, or fewer options")
    return [dict(zip(axes, values)) for values in itertools.product(*axes.values())]


def sweep(
    points: Sequence[Point], executor: Executor, progress: Callable[[int], object] = lambda num_done: None
) -> list[dict[str, Any]]:
    """What `run_point` returns for each point, in their order."""
    futures = [executor.submit(run_point, point) for point in points]
    results = []
    try:
        for future in futures:
            results.append(future.result())
            progress(1)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return results


@contextmanager
def local_executor(workers: int | None = None) -> Iterator[Executor]:
    """Worker processes, one for each core unless said otherwise; none when one is enough."""
    workers = os.cpu_count() or 1 if workers is None else count("workers", workers, limit=1024)
    if workers == 1:
        yield Here()
        return
    before = set(multiprocessing.active_children())
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            yield _Deaf(pool)
        except BaseException:  # nobody waits for the runs that have begun
            for process in set(multiprocessing.active_children()) - before:
                process.terminate()
            raise


class _Deaf:
    """Workers that do not hear Ctrl-C: the terminal sends it to them too, and they would each print a traceback."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any:
        if not hasattr(signal, "pthread_sigmask"):
            return self._pool.submit(fn, *args)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a process inherits what is blocked
        try:
            return self._pool.submit(fn, *args)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """A Dask cluster, by the address of its scheduler. The workers need mini_engine installed."""
    try:
        from dask.distributed import Client  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise RuntimeError(
            f"--dask {address} needs Dask here and on the workers: pip install distributed. Without it, --workers N uses "
            "the cores of this machine"
        ) from None
    with Client(address) as client:
        yield client
