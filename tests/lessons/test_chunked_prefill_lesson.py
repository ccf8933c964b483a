"""What is particular to lesson 13: chunks equal the whole, a learner's chunk_size runs, budgets and their costs."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from mini_engine import LLM, EngineConfig, LLMEngine, SamplingParams, get_gpu, get_model
from mini_engine.backends import AuditBackend
from mini_engine.cache import KVCacheManager
from mini_engine.course.check import run
from mini_engine.course.chunk_requests import ChunkRun, right_answer
from mini_engine.course.exercise import Exercise, Prediction
from mini_engine.course.exercises import answers13_chunk_size, answers13_mask, find
from mini_engine.course.exercises.bugs13_chunks import CHUNK_BUGS
from mini_engine.course.exercises.e13_mask import model
from mini_engine.course.figures import new_figure
from mini_engine.course.long_prompt import (
    LONG,
    eight_prompts,
    last_step_seconds,
    prompt_flops,
    prompt_seconds,
    serve_readers,
    waits,
)
from mini_engine.course.own_chunks import MaskedBackend, chunked_logits
from mini_engine.course.panels import p13_chunked_prefill as pictures
from mini_engine.geometry import active_params, kv_bytes_per_token
from mini_engine.roofline import decode_step_time, prefill_flops
from mini_engine.scheduling import Scheduler

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
OWN = answers13_chunk_size.scheduler_with(answers13_chunk_size.by_cases)


def test_the_published_seconds_of_a_long_prompt():
    for name, gpus, tokens, seconds in (
        ("llama-3.1-8b", 1, 32768, 1.63),
        ("llama-3.1-70b", 8, 32768, 1.52),
        ("llama-3.1-70b", 8, 8192, 0.314),
        ("llama-3.1-70b", 8, 2048, 0.074),
    ):
        assert prompt_seconds(name, gpus, tokens) == pytest.approx(seconds, rel=0.01)
        older = get_model(name.replace("3.1", "3"))
        shape = older.num_attention_layers, older.num_attention_heads, older.head_dim
        assert prompt_flops(get_model(name), tokens) == prefill_flops(active_params(older), tokens, *shape)


@pytest.mark.parametrize("cuts", [(1,), (15,), (16,), (17,), (7, 8, 31), (1, 2, 3, 4)])
def test_the_logits_of_chunks_are_those_of_the_model_itself(cuts):
    draw = random.Random(3)
    prompt = [draw.randrange(1, 2000) for _ in range(33)]
    scale = model().softmax_scale

    def whole(layer, q, k, v):
        """Attention of every token in turn, by a plain loop over heads."""
        out = np.zeros_like(q)
        for t, head in itertools.product(range(len(q)), range(q.shape[1])):
            group = head // (q.shape[1] // k.shape[1])
            scores = np.exp((score := k[: t + 1, group] @ q[t, head] * scale) - score.max())
            out[t, head] = scores @ v[: t + 1, group] / scores.sum()
        return out

    want = model().forward(np.array(prompt), np.arange(33), whole)
    got = chunked_logits(model(), prompt, cuts, answers13_mask.by_tri)
    assert np.abs(got - want).max() < 1e-9


def test_a_learners_mask_is_the_one_that_runs():
    calls = []

    def mask(done, num_new):
        calls.append((done, num_new))
        return answers13_mask.chunk_mask(done, num_new)

    told = []
    for budget in (3, 64):
        calls.clear()
        config = EngineConfig(num_blocks=8, block_size=4, max_num_batched_tokens=budget)
        engine = LLMEngine(config, MaskedBackend(model(), mask))
        engine.add_request("a", list(range(5, 15)), GREEDY)
        while engine.has_unfinished_requests():
            told_now = engine.step()
        told.append(told_now[0].outputs[0].token_ids)
        starts = [done for done, _ in calls[:: model().spec.num_hidden_layers]]
        assert starts == ([0, 3, 6, 9] if budget == 3 else [0]) + [10, 11, 12, 13, 14]
    assert told[0] == told[1]


def test_a_learners_chunk_size_is_the_one_that_runs():
    asked = []

    class Counting(Scheduler):
        def chunk_size(self, num_missing, budget, num_behind):
            asked.append((num_missing, budget, num_behind))
            return answers13_chunk_size.by_sorting(num_missing, budget, num_behind)

    answers = []
    for budget in (8, 19, 256):
        asked.clear()
        options = {"max_num_batched_tokens": budget, "enable_prefix_caching": False, "num_blocks": 40}
        llm = LLM("tiny-gqa", backend="numpy", scheduler=Counting, **options)
        plain = LLM("tiny-gqa", backend="numpy", **options)
        prompts = [[5, 6, 7], list(range(30, 75)), [9]]
        for each in (llm, plain):
            answers.append([out.outputs[0].token_ids for out in each.generate(prompts, GREEDY, progress=False)])
        assert len(asked) > 6
        assert max(missing for missing, _, _ in asked) == 45
    assert all(answer == answers[0] for answer in answers)
    asked.clear()
    assert waits(serve_readers(2048, scheduler=Counting)) == waits(serve_readers(2048))
    assert asked


@pytest.mark.parametrize("policy", ["fcfs", "priority", "shortest_first"])
def test_every_budget_gives_the_same_answers_and_keeps_its_limit(policy):
    draw = random.Random(policy)
    prompts = [[draw.randrange(64) for _ in range(draw.choice([1, 3, 16, 17, 50]))] for _ in range(9)]
    answers = []
    for budget in (1, 2, 7, 16, 200):
        engine = LLMEngine(
            EngineConfig(num_blocks=60, block_size=4, max_num_batched_tokens=budget, policy=policy),
            AuditBackend(),
            scheduler=OWN,
            record=True,
        )
        told = {}
        for number, prompt in enumerate(prompts):
            engine.add_request(str(number), prompt, GREEDY, priority=number % 3)
        while engine.has_unfinished_requests():
            told |= {out.request_id: out.outputs[0].token_ids for out in engine.step()}
            engine.check_invariants()
        answers.append(told)
        sizes = [
            sum(chunk["num_tokens"] for chunk in event["chunks"]) for event in engine.film if event["kind"] == "step"
        ]
        assert max(sizes) <= budget
    assert all(told == answers[0] for told in answers)


def test_flops_are_equal_and_what_is_read_again_is_counted_three_ways():
    spec = get_model("llama-3.1-70b")
    runs = {chunk: serve_readers(chunk, readers=0) for chunk in (None, 8192, 2048, 500)}
    assert len({run.usage.flops for run in runs.values()}) == 1
    pairs = lambda chunk: sum(  # noqa: E731
        (done + 1 + i) for done in range(0, 2000, chunk) for i in range(min(chunk, 2000 - done))
    )
    assert pairs(2000) == pairs(64) == pairs(1) == 2000 * 2001 // 2
    starts = [chunk.start for step in runs[2048].steps for chunk in step.chunks if chunk.num_tokens > 1]
    assert sum(starts) == 245_760 == find(Prediction, "13.rereads").answer
    assert sum(starts) * kv_bytes_per_token(spec, "bf16") == 80_530_636_800
    assert "245,760 tokens again: 80.5 GB" in pictures.rereads(new_figure(), starts, kv_bytes_per_token(spec, "bf16"))


def test_smaller_budgets_shorten_the_gap_and_lengthen_the_first_token():
    points = [waits(serve_readers(budget)) for budget in (128, 512, 2048, 8192, None)]
    assert [gap for gap, _ in points] == sorted(gap for gap, _ in points)
    assert [ttft for _, ttft in points] == sorted((ttft for _, ttft in points), reverse=True)
    assert points[-1][0] > 1 > 0.05 > points[1][0]
    ends = [eight_prompts(budget).end for budget in (None, 2048, 512, 64)]
    assert ends == sorted(ends)


def test_the_cost_of_a_step_agrees_with_the_rooflines_own_formula():
    """Readers alone: the decode step of `roofline`, with the constants of the simulator and without the output head's lookup."""
    spec, gpu, n, context = get_model("llama-3.1-70b"), get_gpu("h100-sxm"), 8, 500
    read = spec.vocab_size * spec.hidden_size  # the table of embeddings is looked up, not read
    weights = 2 * (active_params(spec) - read) / 8
    time = decode_step_time(
        round(weights), kv_bytes_per_token(spec, "bf16") // 8, context, n, gpu.memory_bandwidth * 8 // 10,
        active_params(spec) - read, gpu.bf16_flops // 2, spec.num_hidden_layers, spec.num_attention_heads, spec.head_dim, 8,
    )  # fmt: skip
    assert last_step_seconds(n) == pytest.approx(float(time.total) + 2e-3, rel=2e-3)
    flat = [last_step_seconds(tokens) for tokens in (9, 64, 127)]
    assert max(flat) < 1.01 * min(flat)


@pytest.mark.parametrize("prediction", ["13.steps", "13.last_chunk", "13.stall"])
def test_predictions_agree_with_a_run(prediction):
    answer = find(Prediction, prediction).answer
    if prediction == "13.steps":
        run_ = ChunkRun(Scheduler, 512)
        for reader in range(40):
            run_.add(f"{reader}", [1], 60)
        run_.step()
        run_.add("long", range(3 * 472), 1)
        assert {n for step in range(3) for name, _, n in run_.step() if name == "long"} == {512 - 40}
        assert answer == -(-8192 // 472)
    elif prediction == "13.last_chunk":
        steps = [
            step for step in serve_readers(2048 + 8).steps if any(chunk.num_tokens == 2048 for chunk in step.chunks)
        ]
        assert 1000 * (steps[-1].end - steps[-1].begin) == pytest.approx(answer, rel=0.02)
    else:
        result = serve_readers(None, model="llama-3.1-8b", tp=1)
        assert waits(result)[0] == pytest.approx(answer, rel=0.1)


@pytest.mark.parametrize("name", CHUNK_BUGS.wrong)
def test_every_broken_scheduler_serves_a_short_prompt(name):
    """So that it takes a test of chunks to find it."""
    run_ = ChunkRun(CHUNK_BUGS.wrong[name].implementation, 8)
    run_.add("a", [3, 1, 2], 4)
    steps = run_.finish()
    assert run_.answer("a") == right_answer([3, 1, 2], 4)
    assert [len(step) for step in steps] == [1, 1, 1, 1]


@pytest.mark.parametrize("name", CHUNK_BUGS.wrong)
def test_no_broken_scheduler_gives_itself_away_by_an_error(name):
    """Two readers, long prompts behind and in front of them, a hit: what is wrong is the plan or the answer."""
    run_ = ChunkRun(CHUNK_BUGS.wrong[name].implementation, 8)
    run_.add("a", [1, 2], 12)
    run_.add("b", [3], 12)
    run_.step()
    run_.add("behind", range(21), 2)
    run_.add("in front", range(50, 66), 2, priority=-1)
    steps = run_.finish()
    run_.add("again", range(30), 2)
    steps += run_.finish()
    assert {each for step in steps for each, _, _ in step} == {"a", "b", "behind", "in front", "again"}
    wrong_answers = name in ("samples after every chunk", "the next chunk starts one too late")
    assert (run_.answer("behind") == right_answer(range(21), 2)) is not wrong_answers


def test_a_run_refuses_what_makes_no_sense_and_ends():
    run_ = ChunkRun(Scheduler, 8)
    run_.add("a", [1], 2)
    for name, prompt, tokens in (("a", [1], 2), ("b", [], 2), ("c", [1], 0)):
        with pytest.raises(ValueError, match="a new name"):
            run_.add(name, prompt, tokens)
    assert [len(step) for step in run_.finish()] == [1, 1]
    assert run_.step() == []
    with pytest.raises(KeyError, match="no such request; there are a"):
        run_.answer("b")


def test_a_greedy_chunk_shows_its_smallest_case():
    greedy = answers13_chunk_size.scheduler_with(answers13_chunk_size.greedy)
    failed = [o for o in run(find(Exercise, "13.chunk_size"), greedy) if o.status == "no"]
    assert "num_missing=2, budget=2, num_behind=1" in failed[0].detail
    assert "at most 1, so that each of the 1 behind" in failed[0].detail
    late = answers13_chunk_size.scheduler_with(
        lambda missing, budget, behind: max(1, min(missing, budget - behind % budget))
    )
    told = [o.detail for o in run(find(Exercise, "13.chunk_size"), late) if o.status == "no"]
    assert "1: with 2 behind, a step with 2 left has none to spare" in told[0]
    kv = KVCacheManager(8, 4)
    assert greedy(EngineConfig(num_blocks=8, block_size=4), kv).chunk_size(2, 2, 1) == 2


@pytest.mark.parametrize(("budget", "prompt"), [(64, 8192), (128, 65_536), (2048, LONG), (16_384, 8192)])
def test_the_panel_says_what_the_simulation_says(budget, prompt):
    gap, ttft = waits(serve_readers(budget, prompt, answer=1500))  # so that nobody is through before the prompt
    text = pictures.trade_off(new_figure(), budget, prompt)
    assert f"longest gap {1000 * gap:,.1f} ms" in text
    assert f"its first token after {ttft:.2f} s" in text
    assert (gap < waits(serve_readers(None, prompt))[0]) == (budget < prompt)


@pytest.mark.parametrize("budget", [64, 323, 856, 2048])
def test_the_costliest_step_is_never_beaten(budget):
    run_ = serve_readers(budget)
    assert waits(run_)[0] <= last_step_seconds(budget) * (1 + 1e-12)
    assert waits(run_)[0] > 0.9 * last_step_seconds(budget)
