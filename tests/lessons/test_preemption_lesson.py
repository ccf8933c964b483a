"""What is particular to lesson 14: victims, recompute and swap in the engine and in the simulator, livelock, break-even."""

from __future__ import annotations

import itertools
import random
import xml.etree.ElementTree as ET

import pytest

from mini_engine import LLM, SamplingParams, get_gpu, get_model
from mini_engine.course.exercise import Prediction
from mini_engine.course.exercises import find
from mini_engine.course.exercises.answers14_recompute import Recomputes, RecomputesByPart
from mini_engine.course.exercises.answers14_room import CountsBlocks, MakesRoom, OneAtATime
from mini_engine.course.exercises.answers14_victim import LeastImportant
from mini_engine.course.exercises.bugs14_preemption import RIGHT, AfterYou
from mini_engine.course.exercises.e14_break_even import break_even
from mini_engine.course.figures import new_figure
from mini_engine.course.panels import p14_preemption as pictures
from mini_engine.course.planted import planted
from mini_engine.course.tight_pool import NAMES, Run, Stuck, prompt_of, serve
from mini_engine.geometry import active_params, kv_bytes_per_token
from mini_engine.roofline import breakeven_pcie
from mini_engine.scheduling import Scheduler
from mini_engine.simulator import simulate

TWO = [(8, 12), (8, 12)]


class Mine(LeastImportant, MakesRoom, Recomputes):
    """What a learner's three exercises make."""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [Mine, CountsBlocks, OneAtATime, RecomputesByPart])
def test_answers_run_in_the_engine_step_by_step_like_its_own(kind, seed):
    draw = random.Random(seed)
    requests = [(draw.randrange(2, 20), draw.randrange(2, 14)) for _ in range(6)]
    options = {"max_num_batched_tokens": 12, "admission": "first_chunk", "check": True}
    mine, own = (serve(each, requests, 9, **options) for each in (kind, Scheduler))
    assert (mine.steps, mine.tokens, mine.ended) == (own.steps, own.tokens, own.ended)
    assert own.num_preemptions > 0


def test_a_learners_methods_are_the_ones_that_run():
    calls = []

    class Counting(Mine):
        def pick_victim(self, running):
            calls.append("pick_victim")
            return super().pick_victim(running)

        def make_room(self, request, num_tokens, position, draft):
            calls.append("make_room")
            return super().make_room(request, num_tokens, position, draft)

        def preempt(self, victim, draft):
            calls.append("preempt")
            super().preempt(victim, draft)

    prompts = [[(5 * i + 11 * who) % 2000 for i in range(40)] for who in range(3)]
    params = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)
    ample, tight = LLM("tiny-gqa", backend="numpy", num_blocks=64), LLM("tiny-gqa", backend="numpy", num_blocks=10, scheduler=Counting)  # fmt: skip
    texts = [[o.outputs[0].token_ids for o in llm.generate(prompts, params, progress=False)] for llm in (ample, tight)]
    assert texts[0] == texts[1]
    assert calls.count("pick_victim") == calls.count("preempt") == tight.engine.stats().num_preemptions > 0
    assert calls.count("make_room") > 10
    calls.clear()
    own, mine = (simulate(pictures.burst(12), num_blocks=600, prefix_cache=False, scheduler=kind) for kind in (Scheduler, Counting))  # fmt: skip
    assert mine.counters.num_preemptions == own.counters.num_preemptions == calls.count("preempt") > 0
    assert mine.end == own.end


@pytest.mark.parametrize(
    "options", [{}, {"enable_prefix_caching": False}, {"preemption": "swap", "num_swap_blocks": 6}]
)
def test_nobody_can_tell_from_the_answers(options):
    ample = serve(Scheduler, TWO, 60)
    for num_blocks in range(5, 10):
        run = serve(Scheduler, TWO, num_blocks, check=True, **options)
        assert run.tokens == ample.tokens
        assert run.num_preemptions == (1 if num_blocks < 10 else 0)


def test_a_swapped_request_computes_nothing_again():
    ample = serve(Scheduler, TWO, 60)
    assert serve(Scheduler, TWO, 6, preemption="swap", num_swap_blocks=3).num_computed == ample.num_computed
    assert serve(Scheduler, TWO, 6, enable_prefix_caching=False).num_computed == ample.num_computed + 12


def test_the_watchdog_ends_a_livelock_and_says_who_waits():
    run = Run()
    with pytest.raises(Stuck, match="61 steps without a token for anybody; a, b would wait for ever"):
        serve(AfterYou, [(24, 2), (24, 2)], 8, run=run, max_num_batched_tokens=8, enable_prefix_caching=False)
    assert run.num_preemptions == 60
    assert not any(run.tokens.values())


def test_the_watchdog_ends_a_step_that_never_ends():
    pops_the_last = planted(Recomputes, ("self.running.remove(victim)", "self.running.pop()"))

    class Pops(LeastImportant, MakesRoom, pops_the_last):
        pass

    with pytest.raises(Stuck, match="step 5 never ends: a is served again and again"):
        serve(Pops, [(8, 12, 1), (8, 12, 0)], 6)


@pytest.mark.parametrize("kind", [*RIGHT.values(), Mine])
def test_a_right_scheduler_always_progresses(kind):
    """Every pair of lengths that fits alone, in a pool that holds one and a half of them."""
    for length, answer in itertools.product((3, 8, 13), (2, 9)):
        need = -(-(length + answer - 1) // 4)
        run = serve(kind, [(length, answer)] * 3, need + need // 2, admission="first_chunk", max_num_batched_tokens=5)
        assert set(run.ended.values()) == {"length"}


def test_prompts_differ_from_their_first_token_on():
    assert len({prompt_of(name, 1)[0] for name in NAMES}) == len(NAMES)
    assert [len(prompt_of("a", length)) for length in (1, 2, 40)] == [1, 2, 40]


def test_predictions_agree_with_the_engine_and_the_simulator():
    run = serve(Scheduler, [(100, 200)] * 2, 20, 16, enable_prefix_caching=False)
    first = next(step for step, (_, preempted) in enumerate(run.steps) if preempted)
    known = 1 + (first - 1)  # a token of the prefill, and one of each step since
    assert known == find(Prediction, "14.full").answer == 61
    back = next(computed["b"] for computed, _ in run.steps[first:] if "b" in computed)
    assert back == find(Prediction, "14.again").answer == 161
    for admission, blocks, at_once in (
        ("worst_case", 40, find(Prediction, "14.worst_case").answer),
        ("whole_prompt", 40, 5),
    ):
        run = serve(Scheduler, [(100, 200)] * 6, blocks, 16, admission=admission)
        assert len(run.steps[0][0]) == at_once
    assert find(Prediction, "14.copies").answer == 32768


def test_the_break_even_is_the_published_closed_form():
    for (name, gpu, gpus), want in zip(pictures.MACHINES.values(), (8.0714, 2.2967, 9.8184)):
        kv, params, peak = kv_bytes_per_token(get_model(name)), active_params(get_model(name)), get_gpu(gpu).bf16_flops
        assert break_even(kv, params, float(peak), 0.5, gpus) / 1e9 == pytest.approx(want, abs=1e-3)
        assert float(breakeven_pcie(kv, peak * gpus, "0.5", params, gpus)) / 1e9 == pytest.approx(want, abs=1e-3)
    eight = "Llama-3-8B, one H100"
    assert [round(1000 * pictures.times(eight, 8192, rate).swap, 1) for rate in (32 * 10**9, 64 * 10**9)] == [
        67.1,
        33.6,
    ]
    assert [round(1000 * pictures.times(eight, 8192, 1, mfu).recompute, 1) for mfu in (50, 100)] == [301.6, 150.8]


def test_longer_requests_speak_for_swap():
    evens = []
    for context in (16, 512, 8192, 131072):
        both = pictures.times("Llama-3-8B, one H100", context, 10**9)
        evens.append(both.swap / both.recompute)
    assert evens == sorted(evens, reverse=True)
    assert evens[0] == pytest.approx(8.07, abs=0.01)


def test_small_copies_ruin_the_link():
    rates = [pictures.effective("Llama-3-8B, one H100", 32, block, 3) / 1e9 for block in (1, 4, 16, 64, 256)]
    assert rates == sorted(rates)
    assert rates[2] == pytest.approx(8.14, abs=0.01)
    assert pictures.effective("Llama-3-8B, one H100", 32, 1, 0) == 32e9


def test_a_cheap_link_speaks_for_recompute_and_a_tight_pool_for_neither():
    recompute = pictures.simulated(2500, None)
    assert pictures.simulated(2500, 8).end > recompute.end > pictures.simulated(2500, 16).end
    assert pictures.simulated(2500, None, admission="worst_case").end > recompute.end
    tight = pictures.simulated(1500, None)
    never = pictures.simulated(1500, None, admission="worst_case")
    assert never.end < tight.end
    assert (never.counters.num_preemptions, tight.counters.num_preemptions) == (0, 25)


def test_the_panel_says_where_both_take_as_long():
    for machine, context, block in itertools.product(pictures.MACHINES, (512, 131072), (1, 256)):
        text = pictures.which(new_figure(), machine, context, 32, block, 3)
        even = float(text.rsplit("as long at ", 1)[1].removesuffix(" GB/s"))
        both = pictures.times(machine, context, even * 1e9)
        assert both.swap == pytest.approx(both.recompute, rel=0.01)


def test_the_diagram_is_sound():
    source, words = pictures.life()
    ET.fromstring(source)
    assert "ends with capacity" in words
