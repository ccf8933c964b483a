"""The serving simulator: the engine's scheduler and cache on a virtual clock, for any model and GPU of the catalogue.

from mini_engine.simulator import simulate
from mini_engine.workload import load_trace

result = simulate(load_trace("synthetic_azure_conv.csv"), model="llama-3-8b", gpu="h100-sxm", batching="static")
print(summarize(result, ttft=1.0, tpot=0.05))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mini_engine.backends.step_cost import Efficiency
from mini_engine.cache import KVCacheManager
from mini_engine.scheduling import Scheduler
from mini_engine.scheduling.watch import NoProgressError
from mini_engine.simulator.options import SimulationOptions
from mini_engine.simulator.result import Rejected, Served, SimulationResult, Step
from mini_engine.simulator.simulator import Simulator
from mini_engine.simulator.static_batch import StaticBatch
from mini_engine.simulator.summary import Percentiles, SimulationSummary, summarize
from mini_engine.workload import Trace

__all__ = [
    "Efficiency",
    "NoProgressError",
    "Percentiles",
    "Rejected",
    "Served",
    "SimulationOptions",
    "SimulationResult",
    "SimulationSummary",
    "Simulator",
    "StaticBatch",
    "Step",
    "simulate",
    "summarize",
]


def simulate(
    trace: Trace,
    *,
    scheduler: type[Scheduler] | None = None,
    kv_manager: type[KVCacheManager] = KVCacheManager,
    record: bool = False,
    progress: Callable[[int], object] = lambda num_ended: None,
    **options: Any,
) -> SimulationResult:
    """Serve a trace on a simulated machine. `options` are the fields of `SimulationOptions`."""
    chosen = SimulationOptions(**options)
    backend = chosen.backend()
    simulator = Simulator(
        chosen.config(backend), backend, scheduler=scheduler or chosen.scheduler, kv_manager=kv_manager, record=record
    )
    return simulator.run(trace, progress)
