"""A scheduler of one's own with a slip in it: the slip is named, the engine works on, and nothing runs for ever."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mini_engine import EngineConfig, LLMEngine, SamplingParams
from mini_engine.backends import AuditBackend
from mini_engine.scheduling import Chunk, Request, Scheduler, StepPlan
from mini_engine.scheduling.own import yes
from mini_engine.scheduling.watch import WATCHED, NoProgressError, Watch
from tests.simulator.helpers import run, trace_of


def own(**methods: Any) -> type[Scheduler]:
    return type("Own", (Scheduler,), methods)


def answers(method: str, answer: Any) -> type[Scheduler]:
    return own(**{method: lambda self, *args: answer})


def start_twice(self, draft):
    request = self.waiting.first()
    self.start(request, draft)
    self.start(request, draft)


def chunk_twice(self, draft):
    Scheduler.schedule_running(self, draft)
    for chunk in draft.chunks[:1]:
        draft.add_chunk(self.requests[chunk.request_id, chunk.index], 1)


def chunk_of_one_that_waits(self, draft):
    Scheduler.schedule_running(self, draft)
    for request in list(self.waiting)[:1]:
        draft.add_chunk(request, 1)


def chunk_of_one_that_still_waits(self, draft):
    Scheduler.schedule_waiting(self, draft)
    draft.chunks[:] = [Chunk(request.request_id, request.index, 0, 1) for request in self.waiting] or draft.chunks


def chunk_of_nobody(self, draft):
    Scheduler.schedule_running(self, draft)
    draft.chunks.append(Chunk("nobody", 0, 0, 1))
    draft.budget -= 1


def chunk_from_the_beginning(self, draft):
    Scheduler.schedule_running(self, draft)
    draft.chunks[:] = [chunk._replace(start=0) for chunk in draft.chunks]


def no_room(self, draft):
    for request in self.running:
        draft.add_chunk(request, 1)


def keeps_blocks(self, victim, draft):
    self.running.remove(victim)
    draft.preempted.append(victim)
    self.waiting.add(victim)


def leaves_no_status(self, victim, draft):
    self.running.remove(victim)
    self.kv.free(victim)
    self.waiting.add(victim)


def queues_nowhere(self, victim, draft):
    self.running.remove(victim)
    draft.cache_ops += self.preemption.preempt(victim, self.kv)


def keeps_running(self, victim, draft):
    draft.cache_ops += self.preemption.preempt(victim, self.kv)
    self.waiting.add(victim)


def forgets_tokens(self, victim, draft):
    Scheduler.preempt(self, victim, draft)
    del victim.token_ids[victim.num_prompt_tokens :]


def keeps_computed(self, victim, draft):
    computed = victim.num_computed_tokens
    Scheduler.preempt(self, victim, draft)
    victim.num_computed_tokens = computed


def starts_without_leaving(self, request, draft):
    self.kv.allocate(request, request.num_tokens)
    self._run(request)
    draft.add_chunk(request, min(draft.budget, request.num_tokens))
    return True


def forgets_to_return(self, plan, result):
    Scheduler.commit(self, plan, result)


SLIPS = [
    *((answers("chunk_size", bad), "chunk_size=") for bad in (None, 1.0, True, "3", [1], float("nan"))),
    *((answers("chunk_size", bad), "take 1 to") for bad in (0, -1, 10**9)),
    *((answers(name, bad), f"{name} returned") for name in ("admit", "start", "make_room") for bad in (None, "no", 0)),
    (answers("start", False), "makes no progress"),
    (answers("start", True), "start returned True"),
    (answers("make_room", False), "make_room returned False"),
    (answers("make_room", True), "make_room comes before add_chunk"),
    *((answers("pick_victim", bad), "pick_victim returned") for bad in (None, 0, "a", [])),
    (own(pick_victim=lambda self, running: running.pop()), "pick_victim returned"),
    (own(pick_victim=lambda self, running: 1 // 0), "by zero"),
    (answers("preempt", None), "still runs"),
    (own(preempt=keeps_blocks), "still runs"),
    (own(preempt=leaves_no_status), "still runs"),
    (own(preempt=keeps_running), "still runs"),
    (own(preempt=queues_nowhere), "in no queue"),
    (own(preempt=forgets_tokens), "keep them all"),
    (own(preempt=keeps_computed), "set num_computed_tokens to 0"),
    (own(schedule_waiting=start_twice), "does not wait"),
    (own(schedule_waiting=lambda self, draft: self.start("a", draft)), "'a' does not wait"),
    (own(start=starts_without_leaving), "start returned True"),
    (own(schedule_running=chunk_twice), "two chunks"),
    (own(schedule_running=chunk_of_one_that_waits), "does not run|two chunks"),
    (own(schedule_waiting=chunk_of_one_that_still_waits), "which does not run"),
    (own(schedule_running=chunk_of_nobody), "nobody.* which does not run"),
    (own(schedule_running=chunk_from_the_beginning), "begin where its computed tokens end"),
    (own(schedule_running=no_room), "make_room comes before add_chunk"),
    (answers("schedule", None), "schedule returned None"),
    (answers("schedule", []), "schedule returned"),
    (answers("commit", None), "commit returned None"),
    (own(commit=forgets_to_return), "commit returned None"),
]


def engine_of(scheduler: type[Scheduler], **options: Any) -> LLMEngine:
    sizes = {"num_blocks": 14, "block_size": 4, "max_num_batched_tokens": 24, "max_num_seqs": 4}
    return LLMEngine(EngineConfig(**{**sizes, **options}), AuditBackend(), scheduler=scheduler)


def to_the_end(engine: LLMEngine) -> None:
    while engine.has_unfinished_requests():
        engine.step()


@pytest.mark.parametrize(("scheduler", "message"), SLIPS)
def test_a_slip_is_named_and_the_engine_works_on(scheduler, message):
    engine = engine_of(scheduler)
    for number, length in enumerate((10, 8, 8, 8)):
        engine.add_request(f"{number}", [number + 1] * length, SamplingParams(max_tokens=14))
    with pytest.raises((ValueError, RuntimeError, ZeroDivisionError), match=message):
        to_the_end(engine)
    if scheduler.commit is Scheduler.commit:  # else nothing can be told of the plan that was lost
        engine.check_invariants()
    for number in range(4):
        engine.abort(f"{number}")
    engine.step()
    assert not engine.has_unfinished_requests()
    assert engine.stats().num_free_blocks == 14


@pytest.mark.parametrize(("scheduler", "message"), SLIPS)
def test_the_simulator_names_it_too(scheduler, message):
    with pytest.raises((ValueError, RuntimeError, ZeroDivisionError), match=message):
        run(trace_of(*((0.0, length, 14) for length in (10, 8, 8, 8))), num_blocks=14, scheduler=scheduler)


@pytest.mark.parametrize("answer", [False, True])
def test_an_answer_of_numpys_is_the_same_answer(answer):
    assert yes("admit", np.bool_(answer)) is answer
    assert yes("admit", answer) is answer


@pytest.mark.parametrize("answer", [False, True, np.False_, np.True_])
def test_either_answer_of_admit_serves_everybody(answer):
    engine = engine_of(answers("admit", answer))
    for number in range(3):
        engine.add_request(f"{number}", [1] * 8, SamplingParams(max_tokens=4))
    to_the_end(engine)
    engine.check_invariants()


def test_the_watch_asks_every_256_steps_whether_there_is_progress():
    requests = [Request("a", [1] * 20, 4)]
    idle, busy = StepPlan(), StepPlan(chunks=(Chunk("a", 0, 0, 8),))

    def steps_until_stopped(before: list[StepPlan]) -> int:
        def circle():
            watch = Watch()
            for plan in [*before, *[busy] * 2000]:
                watch.step(plan, False, requests)

        with pytest.raises(NoProgressError) as stopped:
            circle()
        return int(str(stopped.value).partition(" steps computed")[0])

    assert steps_until_stopped([]) == WATCHED
    assert steps_until_stopped([idle] * WATCHED) == 2 * WATCHED  # too little was computed to be sure
    watch = Watch()
    for number in range(1, 10 * WATCHED):
        watch.step(busy, number % WATCHED == 0, requests)  # a token in time: there is progress


def test_circles_end_in_the_engine_as_in_the_simulator():
    """A prompt of two steps is thrown away after each of them."""

    def everybody_goes(self, draft):
        for request in list(self.running):
            self.preempt(request, draft)
        draft.preempted.clear()

    engine = engine_of(own(schedule_running=everybody_goes), max_num_batched_tokens=8, enable_prefix_caching=False)
    engine.add_request("a", [1] * 20, SamplingParams(max_tokens=2))
    with pytest.raises(NoProgressError, match="in circles"):
        to_the_end(engine)
    engine.check_invariants()


@pytest.mark.parametrize("scheduler", [object, own(__init__=lambda self, config, kv: None)])
def test_what_is_no_scheduler_is_refused_at_once(scheduler):
    with pytest.raises(ValueError, match=r"derive it from Scheduler|super\(\).__init__"):
        engine_of(scheduler)
