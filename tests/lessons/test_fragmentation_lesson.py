"""What is particular to lesson 06: its oracles, its predictions, and the order of the shares, with nothing fitted."""

from __future__ import annotations

import itertools
import random
import xml.etree.ElementTree as ET

import pytest

from mini_engine import EngineConfig, LLMEngine
from mini_engine.cache.contiguous import RESERVATIONS, BuddyAllocator, FirstFitAllocator, Run, count_waste
from mini_engine.course.check import run
from mini_engine.course.exercise import INPUTS_UNCHANGED, Exercise, Prediction
from mini_engine.course.exercises import all_of
from mini_engine.course.exercises import answers06_holes as answers
from mini_engine.course.exercises.answers06_waste import slot_by_slot
from mini_engine.course.own_allocators import HoleListAllocator, JoiningBuddyAllocator
from mini_engine.course.panels import p06_fragmentation as pictures
from mini_engine.course.serving_memory import NoModel, serve
from mini_engine.workload import load_trace

EXERCISES = {e.id: e for e in all_of(Exercise, "06")}
MUTANTS = {f"{e.id}: {m.name}": (e, m) for e in EXERCISES.values() for m in e.mutants}
LENGTHS = [(r.num_prompt_tokens, r.num_output_tokens) for r in load_trace("synthetic_azure_conv.csv")]
SLOTS = 65_536


@pytest.mark.parametrize(("exercise", "mutant"), MUTANTS.values(), ids=MUTANTS)
def test_the_first_property_that_fails_is_the_one_that_fits(exercise, mutant):
    outcome = list(run(exercise, mutant.function))[-1]
    assert (outcome.status, outcome.property) == ("no", mutant.caught_by)


def test_every_property_is_shown_to_fail():
    for exercise in EXERCISES.values():
        assert {p.name for p in exercise.properties} <= {m.caught_by for m in exercise.mutants} | {INPUTS_UNCHANGED}


@pytest.mark.parametrize("prediction", all_of(Prediction, "06"), ids=lambda p: p.id)
def test_predictions_explain_distinct_wrong_numbers(prediction):
    wrong = [number for number, _ in prediction.mistakes]
    assert len(set(wrong)) == len(wrong) >= 3
    assert prediction.answer not in wrong
    assert prediction.because


def test_the_mean_lengths_of_the_prediction_are_those_of_the_trace():
    [prediction] = (p for p in all_of(Prediction, "06") if p.id == "06.trace_share")
    assert prediction.answer == pytest.approx(100 * sum(a + b - 1 for a, b in LENGTHS) / len(LENGTHS) / 8192, abs=1e-9)


def test_counters_agree_slot_by_slot():
    draw = random.Random(0)
    for _ in range(50):
        runs = [Run("r", 0, *sizes) for sizes in ((size, used, final) for used, final, size in _lengths(draw))]
        holes = [(20 * i, draw.randrange(1, 9)) for i in range(draw.randrange(4))]
        for needed in (1, 4, 9):
            assert count_waste(runs, holes, needed) == slot_by_slot(runs, holes, needed)


def _lengths(draw):
    return [sorted(draw.choices(range(1, 12), k=3)) for _ in range(draw.randrange(4))]


@pytest.mark.parametrize(
    ("package", "own"),
    [
        (FirstFitAllocator, lambda size: HoleListAllocator(size, answers.first_fit, answers.give_back_slots)),
        (FirstFitAllocator, lambda size: HoleListAllocator(size, answers.first_fit, answers.give_back_lists)),
        (BuddyAllocator, lambda size: JoiningBuddyAllocator(size, answers.buddy_by_division)),
    ],
)
def test_functions_of_the_exercises_put_every_run_where_the_package_does(package, own):
    draw, theirs, mine = random.Random(3), package(64), own(64)
    alive: list[str] = []
    for number in range(200):
        if alive and draw.random() < 0.45:
            name = alive.pop(draw.randrange(len(alive)))
            theirs.free(name)
            mine.free(name)
        else:
            name, size, starts = str(number), draw.randrange(1, 20), []
            for allocator in (theirs, mine):
                try:
                    starts.append(allocator.allocate(name, 1, reserve=size))
                except MemoryError as error:
                    starts.append(str(error))
            assert starts[0] == starts[1]
            alive += [name] * (name in theirs.runs)
        assert mine.memory_map() == theirs.memory_map()


def paged():
    config = EngineConfig(
        num_blocks=SLOTS // 16, block_size=16, max_num_batched_tokens=16_384, enable_prefix_caching=False
    )
    return LLMEngine(config, NoModel())


@pytest.mark.parametrize("swap", [False, True])
def test_used_shares_stand_in_the_published_order(swap):
    lengths = [(b, a) if swap else (a, b) for a, b in LENGTHS[:120]]
    used = [serve(lengths, BuddyAllocator(SLOTS), reserve=rule).shares.token for rule in RESERVATIONS]
    if not swap:
        used.append(serve(lengths, paged()).shares.token)
        assert used[-1] >= 0.95
    assert all(a < b for a, b in itertools.pairwise(used))


def test_an_oracle_loses_nothing_inside_and_a_reservation_to_the_maximum_most():
    oracle = serve(LENGTHS[:120], BuddyAllocator(SLOTS), reserve="oracle")
    assert oracle.internal == 0
    assert 0 < oracle.rounding < oracle.external
    longest = serve(LENGTHS[:120], BuddyAllocator(SLOTS), reserve="max")
    assert longest.running == 8
    assert longest.shares.internal > 0.5


def test_a_learners_functions_are_the_ones_that_serve():
    calls: dict[str, int] = {}

    def counted(function):
        def call(*arguments):
            calls[function.__name__] = calls.get(function.__name__, 0) + 1
            return function(*arguments)

        return call

    own = HoleListAllocator(SLOTS, counted(answers.first_fit), counted(answers.give_back))
    served = serve(LENGTHS[:40], own, count=counted(count_waste))
    serve(LENGTHS[:40], JoiningBuddyAllocator(SLOTS, counted(answers.buddy_join)))
    assert calls["count_waste"] == served.num_steps > 0
    assert calls["first_fit"] >= 40
    assert calls["give_back"] >= 32
    assert calls["buddy_join"] >= 32


@pytest.mark.parametrize("place", range(4))
def test_all_four_counts_are_used(place):
    def count(*memory):
        right = count_waste(*memory)
        return *right[:place], right[place] + 1, *right[place + 1 :]

    with pytest.raises(ValueError, match="must add up to 8 slots"):
        serve([(2, 3), (1, 1)], FirstFitAllocator(8), count=count, max_len=8)


def test_serving_by_hand():
    """Room for one: A (2 + 3) holds 2, 3 and 4 tokens in its three steps, then B takes its place, and nobody waits."""
    served = serve([(2, 3), (1, 1)], FirstFitAllocator(8), reserve="max", max_len=8)
    assert served[:5] == (2 + 3 + 4, 2 + 1 + 0, 3 * 4, 0, 0)
    assert (served.num_running, served.num_steps) == (3, 3)
    with pytest.raises(ValueError, match="can never run"):
        serve([(9, 2)], FirstFitAllocator(8))


def test_the_diagram_is_sound_and_adds_up():
    source, words = pictures.three_wastes()
    ET.fromstring(source)
    assert sum((8, 6, 6, 4, 8)) == 32
    assert "In all 8 used, 6 reserved, 6 internal, 4 external and 8 free: 32." in words
    assert [source.count(f'"url(#{state})"') for state in ("reserved", "internal", "external")] == [6 + 1, 6 + 1, 4 + 1]
