"""`EngineStats`: what an engine has done, and how it stands."""

from __future__ import annotations

from dataclasses import dataclass

from mini_engine.scheduling import Counters


@dataclass(slots=True)
class EngineStats(Counters):
    """Counts since the engine was made, and gauges of this moment."""

    num_free_blocks: int = 0  # nobody holds them; cached ones included
    num_cached_blocks: int = 0  # can be found by content, in use or not
    num_running: int = 0  # branches
    num_waiting: int = 0  # preempted ones included, swapped ones not
    num_swapped: int = 0
