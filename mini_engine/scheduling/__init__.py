"""Which sequences run in each step, and on which tokens. Integers only, no tensors."""

from mini_engine.scheduling.counters import Counters
from mini_engine.scheduling.plan import Chunk, SampledToken, StepPlan
from mini_engine.scheduling.policies import POLICIES, FirstComeFirstServed, Priority, ShortestFirst
from mini_engine.scheduling.preemption import PREEMPTIONS, Recompute, Swap
from mini_engine.scheduling.request import Request, RequestStatus
from mini_engine.scheduling.scheduler import Scheduler

__all__ = [
    "POLICIES",
    "PREEMPTIONS",
    "Chunk",
    "Counters",
    "FirstComeFirstServed",
    "Priority",
    "Recompute",
    "Request",
    "RequestStatus",
    "SampledToken",
    "Scheduler",
    "ShortestFirst",
    "StepPlan",
    "Swap",
]
