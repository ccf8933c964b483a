"""The timeline says what every request did in every step, whatever ran."""

from __future__ import annotations

import pytest

from mini_engine import EngineConfig, LLMEngine, SamplingParams
from mini_engine.backends import AuditBackend
from mini_engine.course.figures import picture
from mini_engine.course.timeline import LETTERS, draw, timeline
from mini_engine.course.timeline.draw import LOOKS
from mini_engine.scheduling import Chunk, Scheduler, StepPlan
from mini_engine.simulator import simulate
from mini_engine.workload import Trace, TraceRequest


def _trace(*outputs: int, prompt: int = 100) -> Trace:
    return Trace("t", tuple(TraceRequest(0.0, prompt, output) for output in outputs))


def _rows(line) -> dict[str, str]:
    return {name: row.letters for name, row in line.rows.items()}


def test_a_static_batch_pads_until_its_longest_has_ended():
    result = simulate(_trace(2, 5, 1, 3), batching="static", max_num_seqs=2, record=True)
    assert _rows(timeline(result)) == {
        "0": "Pd###   ",
        "1": "Pdddd   ",
        "2": ".....P##",
        "3": ".....Pdd",
    }
    assert timeline(result).count("padding") == result.usage.num_padding == 5
    assert timeline(result).is_timed
    assert timeline(result).ends == list(result.step_ends)


def test_iterations_take_the_free_seat_at_once():
    result = simulate(_trace(2, 5, 1, 3), batching="iteration", max_num_seqs=2, record=True)
    line = timeline(result)
    assert _rows(line) == {"0": "Pd    ", "1": "Pdddd ", "2": "..P   ", "3": "...Pdd"}
    assert line.count("padding") == 0
    assert line.count("prefill", "decode") == 11
    assert line.num_steps == 6


def test_chunks_are_told_from_the_end_of_a_prompt():
    line = timeline(simulate(_trace(2, 2), max_num_batched_tokens=64, record=True))
    assert _rows(line) == {"0": "pPd  ", "1": ".ppPd"}
    assert line.rows["1"].tokens == [0, 28, 63, 9, 1]


@pytest.mark.parametrize(("preemption", "letters"), [("recompute", "PddxxxRdd"), ("swap", "Pddsssddd")])
def test_who_loses_the_blocks_says_how(preemption, letters):
    config = EngineConfig(
        num_blocks=4,
        block_size=4,
        preemption=preemption,
        num_swap_blocks=4 if preemption == "swap" else 0,
        enable_prefix_caching=False,
    )
    engine = LLMEngine(config, AuditBackend(), record=True)
    for name, output in (("a", 6), ("b", 6)):
        engine.add_request(name, [1, 2, 3, 4, 5, 6], SamplingParams(max_tokens=output, ignore_eos=True))
    while engine.has_unfinished_requests():
        engine.step()
    line = timeline(engine)
    assert _rows(line) == {"a": "Pddddd   ", "b": letters}
    assert _rows(timeline(engine.film)) == _rows(line)
    assert not line.is_timed


def test_an_engine_and_the_simulator_give_the_same_rows():
    config = EngineConfig(num_blocks=64, block_size=4, max_num_seqs=3, max_num_batched_tokens=8)
    engine = LLMEngine(config, AuditBackend(), record=True)
    lengths = [(5, 3), (9, 4), (2, 1), (12, 6), (1, 2)]
    for number, (prompt, output) in enumerate(lengths):
        params = SamplingParams(max_tokens=output, ignore_eos=True)
        engine.add_request(str(number), [number * 8 + i % 8 for i in range(prompt)], params)
    while engine.has_unfinished_requests():
        engine.step()
    trace = Trace("t", tuple(TraceRequest(0.0, prompt, output) for prompt, output in lengths))
    options = {"block_size": 4, "num_blocks": 64, "max_num_seqs": 3, "max_num_batched_tokens": 8, "prefix_cache": False}
    assert _rows(timeline(engine)) == _rows(timeline(simulate(trace, record=True, **options)))


def test_arrivals_in_a_film_and_branches():
    engine = LLMEngine(EngineConfig(num_blocks=64, block_size=4, max_num_seqs=2), AuditBackend(), record=True)
    engine.add_request("a", [1, 2, 3], SamplingParams(max_tokens=4, ignore_eos=True, n=2))
    engine.step()
    engine.step()
    engine.add_request("b", [4, 5], SamplingParams(max_tokens=1))
    while engine.has_unfinished_requests():
        engine.step()
    assert _rows(timeline(engine)) == {"a": "Pddd ", "a.1": " ddd ", "b": "  ..P"}


def test_plans_with_prompts_arrivals_and_times():
    plans = [
        StepPlan((Chunk("a", 0, 0, 4),)),
        StepPlan((Chunk("a", 0, 4, 2), Chunk("b", 0, 0, 1))),
        StepPlan((Chunk("b", 0, 1, 1),)),
        StepPlan((Chunk("a", 0, 6, 1), Chunk("b", 0, 2, 1))),
    ]
    line = timeline(plans, prompts={"a": 6, "b": 1}, arrivals={"a": 0, "b": 1}, seconds=[0.5, 0.25, 0.25, 1])
    assert _rows(line) == {"a": "pP-d", "b": " Pdd"}
    assert line.begins == [0, 0.5, 0.75, 1.0]
    assert line.rows["b"].arrival == 0.5
    with pytest.raises(ValueError, match="3 entries for 4 steps"):
        timeline(plans, seconds=[1, 1, 1])


def test_plans_of_a_static_scheduler_of_ones_own_as_a_rectangle():
    plans = [
        StepPlan((Chunk("a", 0, 0, 4), Chunk("b", 0, 0, 2))),
        StepPlan((Chunk("b", 0, 2, 1),)),
        StepPlan((Chunk("c", 0, 0, 1),)),
    ]
    arrivals = dict.fromkeys("abc", 0)
    assert _rows(timeline(plans, arrivals=arrivals, rectangle=True)) == {"a": "P# ", "b": "Pd ", "c": "..P"}
    assert timeline(plans, arrivals=arrivals).count("padding") == 0


def test_what_was_not_recorded_is_an_error():
    with pytest.raises(ValueError, match="record=True"):
        timeline(simulate(_trace(1)))
    with pytest.raises(ValueError, match="record=True"):
        timeline(LLMEngine(EngineConfig(num_blocks=4, block_size=4), AuditBackend()))
    with pytest.raises(KeyError):
        timeline(simulate(_trace(1), record=True)).count("paddling")


def test_a_run_in_which_nobody_was_served_is_drawn_empty():
    line = timeline(simulate(_trace(4, prompt=50_000), record=True))
    assert (line.num_steps, str(line)) == (0, "")
    assert picture(lambda figure: draw(figure, line, x="seconds")).text == "0 requests, 0 steps, 0 cells busy"


def test_nothing_to_draw_and_seconds_that_are_none():
    plan = StepPlan((Chunk("a", 0, 0, 4),))
    with pytest.raises(ValueError, match="nothing to draw"):
        picture(lambda figure: draw(figure, {}))
    for bad in ([-1.0], [float("nan")], ["1"], "1", 3):
        with pytest.raises(ValueError, match="seconds="):
            timeline([plan], seconds=bad)


def test_text_folds_and_names_its_letters():
    line = timeline(simulate(_trace(30, 90), batching="static", record=True))
    text = str(line)
    assert max(map(len, text.splitlines())) <= 79
    assert text.splitlines()[-1] == "P prompt to its end   d decode   # padding"
    assert text.count("0  P") == 1
    assert "#" * 40 in text
    assert set(LETTERS) - {""} == set(LOOKS)


def test_the_picture_says_the_counts_and_takes_several_timelines():
    trace = _trace(2, 5, 1, 3)
    both = {
        batching: timeline(simulate(trace, batching=batching, max_num_seqs=2, record=True))
        for batching in ("static", "iteration")
    }
    drawn = picture(lambda figure: draw(figure, both, x="seconds"), height=4)
    assert "static: 4 requests, 8 steps, 11 cells busy" in repr(drawn)
    assert "5 padding" in repr(drawn)
    with pytest.raises(ValueError, match='x="minutes"'):
        picture(lambda figure: draw(figure, both, x="minutes"))
    untimed = timeline([StepPlan((Chunk("a", 0, 0, 4),))])
    with pytest.raises(ValueError, match="every step has a time"):
        picture(lambda figure: draw(figure, untimed, x="seconds"))


def test_each_step_of_the_picture_has_its_cells_in_its_place():
    from mini_engine.course.figures import new_figure
    from mini_engine.course.timeline.draw import draw_rows

    line = timeline(simulate(_trace(2, 5, 1), batching="static", max_num_seqs=2, record=True))
    axes = new_figure().subplots()
    draw_rows(axes, line)
    found = {}
    for bars in axes.collections:
        for path in bars.get_paths():
            box = path.get_extents()
            found[round((box.y0 + box.y1) / 2), box.x0, box.x1] = bars
    assert {(row, left, right) for row, left, right in found if row == 0} == {(0, i, i + 1) for i in range(5)}
    assert (2, 0.0, 5.0) in found
    assert (2, 5.0, 6.0) in found


def test_a_scheduler_of_ones_own_is_drawn_as_it_ran():
    class OneAtATime(Scheduler):
        def admit(self, request):
            return False

    line = timeline(simulate(_trace(2, 2), scheduler=OneAtATime, record=True))
    assert _rows(line) == {"0": "Pd  ", "1": "..Pd"}


@pytest.mark.parametrize("preemption", ["swap", "recompute"])
def test_a_simulation_tells_a_swap_from_a_loss(preemption):
    options = {"num_blocks": 20, "prefix_cache": False, "admission": "first_chunk", "preemption": preemption}
    result = simulate(_trace(30, 30, 30, prompt=90), record=True, **options)
    line = timeline(result)
    assert result.counters.num_preemptions > 0
    assert (line.count("swapped") > 0) == (preemption == "swap") == (line.count("again") == 0)
    assert (line.count("preempted") > 0) == (preemption == "recompute")
