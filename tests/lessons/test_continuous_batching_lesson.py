"""What is particular to lesson 12: answers that run in the engine, plans worked out another way, a watchdog, the pictures."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ET

import pytest

from mini_engine import LLM, EngineConfig, SamplingParams
from mini_engine.course.check import looked_at
from mini_engine.course.engine_and_simulator import at_once, run_both
from mini_engine.course.exercise import Exercise, Prediction
from mini_engine.course.exercises import find
from mini_engine.course.exercises.answers12_admit import Reserves
from mini_engine.course.exercises.answers12_schedule import Loops, ServedSet
from mini_engine.course.exercises.bugs12_schedulers import RIGHT, WRONG
from mini_engine.course.exercises.e12_padding import simulated
from mini_engine.course.figures import new_figure
from mini_engine.course.own_scheduler import Job, SchedulerLab, make_scheduler, plans, serve
from mini_engine.course.panels import p12_continuous_batching as pictures
from mini_engine.course.timeline import timeline
from mini_engine.scheduling import Request, Scheduler
from mini_engine.simulator import NoProgressError, StaticBatch, simulate, summarize
from mini_engine.workload import load_trace

SIX = [3, 20, 5, 8, 12, 4]


def by_hand(jobs: dict[str, Job], seats: int, budget: int, num_blocks: int, size: int = 4) -> list[dict[str, int]]:
    """First come, first served with whole prompts, on plain lists: no engine, no preemption."""
    queue = sorted(jobs, key=lambda name: jobs[name].step)
    known, left, running, steps = {}, {}, [], []
    while queue or running:
        step, rest = {}, budget
        for name in running:
            known[name] += 1
            step[name], rest = 1, rest - 1
        while queue and jobs[queue[0]].step <= len(steps):
            name = queue[0]
            free = num_blocks - sum(-(-known[other] // size) for other in running)
            fits = -(-jobs[name].prompt // size) <= free
            if jobs[name].prompt > rest or (running and (len(running) == seats or not fits)):
                break
            running.append(queue.pop(0))
            known[name], left[name] = jobs[name].prompt, jobs[name].output
            step[name], rest = jobs[name].prompt, rest - jobs[name].prompt
        for name in step:
            left[name] -= 1
        running = [name for name in running if left[name]]
        assert sum(-(-known[name] // size) for name in running) <= num_blocks, "this case would preempt"
        steps.append(step)
    return steps


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", RIGHT.values(), ids=RIGHT)
def test_right_schedulers_plan_what_plain_lists_say(kind, seed):
    draw = random.Random(seed)
    jobs = {
        "abcdefgh"[i]: Job(draw.randrange(1, 17), draw.randrange(1, 9), draw.randrange(6))
        for i in range(draw.randrange(2, 8))
    }
    seats, budget = draw.randrange(1, 5), draw.randrange(20, 40)
    want = by_hand(jobs, seats, budget, 40)
    assert serve(make_scheduler(kind, max_num_seqs=seats, max_num_batched_tokens=budget, num_blocks=40), jobs) == want


def test_a_scheduler_that_would_idle_for_ever_ends_with_an_error():
    class Idle(Scheduler):
        def schedule_waiting(self, draft):
            if self.waiting and self.kv.num_free_blocks > 3:
                super().schedule_waiting(draft)

    with pytest.raises(NoProgressError, match="step 0: nothing is planned, and a would wait for ever"):
        serve(make_scheduler(Idle, num_blocks=3), {"a": (4, 2)})


def test_a_scheduler_that_goes_in_circles_ends_with_an_error():
    class Circles(Scheduler):
        def schedule_running(self, draft):
            for request in list(self.running):
                if len(self.running) > 1 or request.num_output_tokens:
                    self.preempt(request, draft)
            draft.preempted.clear()  # says nothing of it, and starts the same again

    with pytest.raises(NoProgressError, match="never ends"):
        serve(make_scheduler(Circles), {"a": (4, 40), "b": (3, 40)})


def test_a_loop_that_asks_for_the_same_request_for_ever_ends_with_an_error():
    class Forever(Loops):
        def schedule_waiting(self, draft):
            while request := self.next_in_line():
                self.start(request, draft)

    assert serve(make_scheduler(Forever), {"a": (6, 2), "b": (3, 1)}) == [{"a": 6, "b": 3}, {"a": 1}]
    with pytest.raises(NoProgressError, match="b is first in line, does not start"):
        serve(make_scheduler(Forever, max_num_batched_tokens=8), {"a": (6, 2), "b": (3, 1)})


def test_serve_waits_for_late_requests_and_refuses_a_request_twice_in_a_step():
    assert serve(make_scheduler(Scheduler), {"a": (2, 1), "b": (2, 1, 3)}) == [{"a": 2}, {}, {}, {"b": 2}]

    class Twice(Scheduler):
        def schedule_running(self, draft):
            super().schedule_running(draft)
            draft.chunks += draft.chunks

    with pytest.raises(ValueError, match="twice in one step"):
        serve(make_scheduler(Twice), {"a": (2, 3)})


@pytest.mark.parametrize("kind", RIGHT.values(), ids=RIGHT)
def test_a_prompt_that_outgrows_the_pool_ends_in_a_right_scheduler(kind):
    scheduler = make_scheduler(kind)
    assert serve(scheduler, {"a": (300, 4), "b": (2, 1)}) == [{"b": 2}]
    assert scheduler.kv.num_free_blocks == 64


def test_loops_under_another_name_are_not_the_engines_own():
    class Typo(SchedulerLab):
        def schedule_runing(self, draft):
            pass

    class Half(SchedulerLab):
        def schedule_running(self, draft):
            super().schedule_running(draft)

    exercise = find(Exercise, "12.schedule")
    assert looked_at(exercise, Typo) == "the class does not write schedule_running; is schedule_runing meant to be it?"
    assert looked_at(exercise, Half) == "the class does not write schedule_waiting"
    assert looked_at(exercise, SchedulerLab) == ""


def test_every_broken_scheduler_plans_something_else_sooner_or_later():
    draw, missed = random.Random(4), set(WRONG)
    for number in range(30):
        jobs = {
            "abcdef"[i]: Job(draw.randrange(1, 13), draw.randrange(0, 7), draw.randrange(4), draw.choice([1, 1, 2]))
            for i in range(2 + number % 5)
        }
        options = {"max_num_seqs": 3, "max_num_batched_tokens": 14, "num_blocks": 5, "watermark": 0.6 * (number % 2)}
        want = plans(make_scheduler(Scheduler, **options), jobs)
        for name in list(missed):
            scheduler = make_scheduler(WRONG[name].implementation, **options)
            try:
                same = plans(scheduler, jobs) == want and scheduler.kv.num_free_blocks == 5
            except NoProgressError:
                same = False
            if not same:
                missed.remove(name)
    assert not missed


def test_a_learners_loops_are_the_ones_that_run():
    calls = []

    class Counting(Loops):
        def schedule_running(self, draft):
            calls.append("running")
            super().schedule_running(draft)

        def schedule_waiting(self, draft):
            calls.append("waiting")
            super().schedule_waiting(draft)

        def admit(self, request):
            calls.append("admit")
            return super().admit(request)

    params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (3, 9, 5, 2)]
    prompts = [[*range(5, 25), n] for n in range(4)]
    texts = []
    for options in ({"scheduler": Counting}, {}):
        model = LLM("tiny-gqa", backend="numpy", num_blocks=64, max_num_seqs=2, **options)
        outputs = model.generate(prompts, params, progress=False)
        texts.append([output.outputs[0].token_ids for output in outputs])
    assert texts[0] == texts[1]
    assert {"running", "waiting", "admit"} == set(calls)


@pytest.mark.parametrize("kind", [Scheduler, StaticBatch, Loops, Reserves])
@pytest.mark.parametrize("memory", [{"num_blocks": 40, "block_size": 4}, {"num_blocks": 4, "block_size": 40}])
def test_engine_and_simulator_plan_alike(kind, memory):
    config = EngineConfig(**memory, max_num_seqs=6, enable_chunked_prefill=False, enable_prefix_caching=False)
    run = run_both(at_once([6, 9, 5, 7, 8, 6], SIX), config, kind)
    assert run.simulated == run.planned
    assert run.engine.stats().num_preemptions == run.result.counters.num_preemptions
    if kind is Reserves or memory["block_size"] == 40:
        assert run.result.counters.num_preemptions == 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [Loops, ServedSet])
@pytest.mark.parametrize(
    "options",
    [
        {"num_blocks": 16, "preemption": "swap", "num_swap_blocks": 12, "admission": "first_chunk"},
        {"num_blocks": 14, "policy": "priority", "enable_prefix_caching": True, "max_num_batched_tokens": 12},
    ],
)
def test_right_loops_plan_like_the_engines_own_under_pressure(options, kind, seed):
    draw = random.Random(seed)
    trace = at_once(*([draw.randrange(1, 20) for _ in range(8)] for _ in range(2)))
    config = EngineConfig(block_size=4, max_num_seqs=5, **options)
    want, got = run_both(trace, config, Scheduler), run_both(trace, config, kind)
    assert got.planned == got.simulated == want.planned
    assert want.engine.stats().num_preemptions == got.engine.stats().num_preemptions > 0


def test_the_six_users_of_the_lesson():
    config = EngineConfig(num_blocks=64, block_size=4, max_num_seqs=4, enable_chunked_prefill=False)
    static, own = (run_both(at_once([6] * 6, SIX), config, kind) for kind in (StaticBatch, Scheduler))
    assert (len(static.planned), len(own.planned)) == (32, find(Prediction, "12.steps").answer)
    assert static.result.usage.num_padding == simulated([6] * 6, SIX, 4)[1] == timeline(static.result).count("padding")
    assert own.result.usage.num_padding == timeline(own.result).count("padding") == 0


def test_predictions_agree_with_the_simulator():
    assert find(Prediction, "12.padding").answer == simulated([10, 4, 7, 10], [3, 20, 5, 8], 4)[1]
    steps = {}
    for name, outputs, seats in (("12.equal", [64] * 32, 8), ("12.who_waits", [7, 2, 3, 4], 2)):
        result = simulate(at_once([5] * len(outputs), outputs), batching="iteration", max_num_seqs=seats, record=True)
        (last,) = [each for each in result.served if each.number == len(outputs) - 1]
        steps[name] = last.spans[-1]
    assert steps == {name: find(Prediction, name).answer for name in steps}


def test_the_outgrown_end_and_the_next_in_line_gets_its_turn():
    scheduler = make_scheduler(SchedulerLab, num_blocks=2)
    outgrown, small = (Request(name, [1] * n, 4) for name, n in (("big", 9), ("small", 3)))
    for request in (outgrown, small):
        scheduler.add_request(request)
    assert scheduler.next_in_line() is small
    assert outgrown in scheduler.ending


@pytest.mark.parametrize("requests", [1, 2, 7, 12])
@pytest.mark.parametrize("spread", [0, 15])
def test_the_panels_answers_are_sixteen_tokens_on_average_and_as_far_apart_as_asked(requests, spread):
    found = pictures.lengths(requests, spread)
    assert len(found) == requests
    assert sum(found) / requests == pytest.approx(16, abs=0.51)
    assert min(found) >= 1
    if requests > 1:
        assert (min(found), max(found)) == (16 - spread, 16 + spread)
    if requests > 4 and spread:
        assert found != sorted(found)


@pytest.mark.parametrize("seats", [1, 3, 8])
@pytest.mark.parametrize("unit", pictures.POLICIES)
def test_the_panel_counts_what_the_simulator_counts(unit, seats):
    text = pictures.batching(new_figure(), unit, 8, 12, seats)
    result = pictures.run(unit, 8, 12, seats)
    assert f"{result.usage.num_steps} steps" in text
    cells = sum(pictures.lengths(8, 12))
    padding = result.usage.num_padding if unit == "request" else 0
    if unit != "iteration + chunks":
        assert f"{padding / (padding + cells):.0%} of the cells are padding" in text
    assert f"{summarize(result).e2e.mean * 1000:,.0f} ms on average" in text


def test_where_continuous_batching_gains_nothing_in_the_panel():
    for spread, seats in ((0, 4), (12, 1)):
        static, iteration = (pictures.run(unit, 8, spread, seats).usage.num_steps for unit in ("request", "iteration"))
        assert static == iteration
    assert pictures.run("request", 8, 12, 4).usage.num_steps > pictures.run("iteration", 8, 12, 4).usage.num_steps


def test_both_halves_help_alone_and_together_most():
    chats = load_trace("synthetic_azure_conv.csv").head(80).at_rate(20)
    rate = {}
    for batching in ("static", "iteration"):
        for memory in ("reserved", "paged"):
            run = simulate(chats, batching=batching, memory=memory, num_blocks=4096, max_num_seqs=64)
            rate[batching, memory] = summarize(run).requests_per_s
    least, paged, iteration, both = rate.values()
    assert least < min(paged, iteration) < max(paged, iteration) < both


def test_the_diagram_is_sound():
    source, words = pictures.loop()
    ET.fromstring(source)
    assert "after every step" in words
