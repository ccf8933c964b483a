"""What is particular to lesson 15: own engines that really run, the loop beside the simulator, the plan that nobody undercuts, the map of vLLM."""

from __future__ import annotations

import dataclasses
import random
import re
import xml.etree.ElementTree as ET

import pytest

from mini_engine import EngineConfig, LLMEngine, SamplingParams
from mini_engine.backends import AuditBackend
from mini_engine.course import capacity_plan as service
from mini_engine.course.capacity_plan import DAYS, LEAST_COST, PRICES, RATE, SHARE, TOLERANCE, Plan
from mini_engine.course.check import run
from mini_engine.course.exercise import Exercise, Prediction
from mini_engine.course.exercises import all_of, answers15_serve, e15_predictions, find
from mini_engine.course.exercises.answers15_execute import Executes, ExecutesByRows
from mini_engine.course.exercises.answers15_step import Steps, StepsWithElse
from mini_engine.course.figures import new_figure
from mini_engine.course.own_engine import OPTIONAL, PIECES, Arrival, EngineLab, VirtualClock, assemble, without_cache
from mini_engine.course.panels import p15_whole_engine as pictures
from mini_engine.simulator import SimulationOptions, Simulator
from mini_engine.simulator.ablation import Service, measure, rungs, rungs_alone
from mini_engine.workload import load_trace
from tests.lessons.lesson_run import ROOT


class Own(Steps, Executes):
    """An engine made of both answers."""


def serve_all(engine, prompts, **params):
    tokens = {}
    for number, prompt in enumerate(prompts):
        engine.add_request(str(number), prompt, SamplingParams(max_tokens=5, seed=number, **params))
    while engine.has_unfinished_requests():
        for output in engine.step():
            tokens[output.request_id] = [branch.token_ids for branch in output.outputs]
        engine.check_invariants()
    return tokens, engine.stats()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("answer", [EngineLab, Own, StepsWithElse, ExecutesByRows])
def test_own_engines_do_what_the_engine_does(answer, seed):
    draw = random.Random(seed)
    prompts = [[draw.randrange(5) for _ in range(draw.randrange(1, 12))] for _ in range(9)]
    config = EngineConfig(
        num_blocks=12, block_size=4, max_num_batched_tokens=6, max_num_seqs=4, admission="first_chunk"
    )
    for params in ({"temperature": 0}, {"n": 2}):
        got, want = (serve_all(kind(config, AuditBackend()), prompts, **params) for kind in (answer, LLMEngine))
        assert got == want


def test_a_learners_pieces_are_the_ones_that_run(capsys):
    calls = []
    exercises = {exercise.id: exercise for exercise in all_of(Exercise)}

    def counted(id, method):
        def call(self, *args, **kwargs):
            calls.append(id)
            return method(self, *args, **kwargs)

        return call

    def counting(id):
        reference = exercises[id].reference
        if not isinstance(reference, type):
            return lambda *args: calls.append(id) or reference(*args)
        return type(
            "Counting", (reference,), {name: counted(id, getattr(reference, name)) for name in exercises[id].methods}
        )

    mine = {id: counting(id) for id in PIECES if id in exercises}
    config = EngineConfig(num_blocks=9, block_size=4, max_num_batched_tokens=8, admission="first_chunk")
    prompts = [[1, 2, 3, 4, 5, 6, 7, 8, 9]] * 3
    preemptions = []
    for reserved in (True, False):
        entered = {id: piece for id, piece in mine.items() if reserved or id not in OPTIONAL}
        scheduler, cache = assemble(entered)
        assert f"yours: {', '.join(entered)}\n" in capsys.readouterr().out
        calls.clear()
        own, stats = serve_all(Own(config, AuditBackend(), scheduler=scheduler, kv_manager=cache), prompts, n=2)
        assert own == serve_all(LLMEngine(config, AuditBackend()), prompts, n=2)[0]
        preemptions.append(stats.num_preemptions)
        assert set(entered) - set(calls) <= ({"14.victim", "14.make_room", "14.recompute"} if reserved else set())
    assert preemptions[0] < preemptions[1]  # who is admitted with room mostly stays


def test_a_wrong_piece_is_replaced_and_an_unknown_one_is_an_error(capsys):
    class Nothing(find(Exercise, "09.match").reference):
        def match(self, request):
            return [0]

    _, cache = assemble({"09.match": Nothing})
    told = capsys.readouterr().out
    assert "[no] 09.match" in told
    assert "yours: none yet" in told
    assert Nothing not in cache.__mro__
    with pytest.raises(KeyError, match=r"'09.bugs' is no piece of an engine; those are .*09\.match"):
        assemble({"09.bugs": Nothing})


@pytest.mark.parametrize("answer", [answers15_serve.serve, answers15_serve.by_number])
def test_the_loop_gives_the_times_of_the_simulator(answer):
    trace = load_trace("synthetic_azure_conv.csv").head(60).at_rate(4)
    options = SimulationOptions(gpu="l40s", max_num_batched_tokens=512)
    backend = options.backend()

    class Virtual(VirtualClock):
        __call__, wait_until = staticmethod(backend.clock), staticmethod(backend.wait_until)

    scheduler, cache = assemble()
    engine = Own(options.config(backend), backend, scheduler=scheduler, kv_manager=cache, clock=backend.clock)
    arrivals = [
        Arrival(
            r.arrival, str(i), [i] * r.num_prompt_tokens, SamplingParams(temperature=0, max_tokens=r.num_output_tokens)
        )
        for i, r in enumerate(trace)
    ]
    outputs, refused = answer(engine, arrivals, Virtual())
    simulator = SimulationOptions(gpu="l40s", max_num_batched_tokens=512)
    other = simulator.backend()
    want = {str(each.number): each for each in Simulator(simulator.config(other), other).run(trace).served}
    assert refused == []
    assert set(outputs) == set(want)
    result = Simulator(simulator.config(simulator.backend()), simulator.backend()).run(trace)
    times = {str(each.number): result.token_times(each) for each in result.served}
    for name, output in outputs.items():
        assert output.metrics.token_times == pytest.approx(times[name])


def test_predictions_say_what_engine_and_simulator_say():
    assert (e15_predictions.computed_after_a_failure(), e15_predictions.passes_of()) == (32, 4)
    assert pictures.kept(8, 2048) == pytest.approx(e15_predictions.KEPT_AT_8, abs=0.005)
    assert f"{pictures.kept(4, 2048):.1f} of 4" in find(Prediction, "15.overload").question


def test_gains_alone_and_together():
    rows = measure([*rungs_alone(), *rungs()], Service())
    alone, together = rows[:5], rows[5:]
    factors = {row.name: row.capacity / alone[0].capacity for row in alone[1:]}
    said = dict(zip(factors, e15_predictions.ALONE.values()))
    assert factors == pytest.approx(said, abs=0.05)
    assert together[-1].capacity / alone[0].capacity == pytest.approx(e15_predictions.TOGETHER, abs=0.5)


def cheaper(gpu):
    """Plans that would cost less than the least."""
    for gpus in range(1, 20):
        for budget in (384, 512, 640, 1024):
            plan = Plan(gpu, gpus, 14_000, budget)
            if LEAST_COST - PRICES[gpu] - 1e-9 <= plan.cost < LEAST_COST:
                yield plan


@pytest.mark.parametrize("gpu", PRICES)
def test_nobody_keeps_the_promise_for_less(gpu):
    plans = list(cheaper(gpu))
    assert plans
    assert not [str(plan) for plan in plans if service.holds(plan)]


def test_the_least_cost_is_reached_and_one_more_is_within_the_tolerance():
    exercise = find(Exercise, "15.plan")
    for make in (exercise.reference, *exercise.alternatives):
        plan = service.plan_of(make())
        assert service.holds(plan)
        assert plan.cost == LEAST_COST
    assert LEAST_COST + min(PRICES.values()) > LEAST_COST * (1 + TOLERANCE)


def test_least_gpus_by_counting():
    plan = Plan("l40s", 1, 14_000, 512)
    fewest = next(n for n in range(4, 12) if service.holds(dataclasses.replace(plan, gpus=n)))
    assert service.least_gpus(plan) == fewest == 7
    assert service.least_gpus(dataclasses.replace(plan, num_blocks=10), most=8) is None


def test_a_plan_that_fails_is_told_what_would_do():
    exercise = find(Exercise, "15.plan")
    outcome = list(run(exercise, exercise.mutants[4].function))[-1]
    assert outcome.status == "no"
    assert "with these settings: 7 of them keep it on both days" in outcome.detail
    assert all(re.search(r"\d", line) for line in outcome.detail.splitlines())


def test_a_plan_needs_a_gpu():
    with pytest.raises(ValueError, match="gpus=0"):
        service.share_met(Plan("l40s", 0, 14_000, 512))


def test_blocks_that_fit_are_those_of_the_simulator():
    for gpu in PRICES:
        options = SimulationOptions(gpu=gpu, model=service.MODEL)
        assert service.most_blocks(gpu) == options.config(options.backend()).num_blocks


def test_days_differ_and_have_enough_requests():
    one, other = map(service.trace, DAYS)
    assert [r.num_prompt_tokens for r in one] != [r.num_prompt_tokens for r in other]
    assert len(one) >= RATE * service.WINDOW / 2
    assert SHARE * len(one) > 1


@pytest.mark.parametrize("budget", pictures.BUDGETS)
@pytest.mark.parametrize("rate", pictures.RATES)
def test_the_panel_says_what_it_draws(rate, budget):
    figure = new_figure()
    text = pictures.load(figure, rate, budget)
    left, right = figure.axes
    (dot,) = [line for line in left.lines if line.get_marker() == "o"]
    assert f": {dot.get_ydata()[0]:.2f} of them in time" in text
    assert dot.get_xdata()[0] == rate
    assert max(max(line.get_ydata()) for line in right.lines if len(line.get_xdata()) > 2) < right.get_ylim()[1]


def test_the_diagram_is_sound():
    source, words = pictures.life_of_a_step()
    ET.fromstring(source)
    assert "rollback" in words
    assert len(source) < 6000


PAGE = (ROOT / "docs/reading_vllm.md").read_text(encoding="utf-8")


def test_the_script_of_the_page_runs_and_its_fields_are_ours():
    script = re.search(r"```python\n(.*?)```", PAGE, re.S)[1]
    assert script.startswith("from mini_engine import LLM, SamplingParams\n")
    printed = []
    exec(script, {"print": lambda *words: printed.append(words)})
    assert len(printed) == 2
    shared = re.search(r"with vLLM's names: (.*?)\.", PAGE, re.S)[1]
    named = {name.strip() for name in shared.replace("\n", " ").split(",")}
    assert named == {field.name for field in dataclasses.fields(SamplingParams)}


def test_without_cache_is_what_the_engine_says():
    engine = LLMEngine(EngineConfig(num_blocks=8), AuditBackend())
    assert serve_all(engine, [[5, 9]], temperature=0)[0] == {"0": [without_cache([5, 9], 5)]}
