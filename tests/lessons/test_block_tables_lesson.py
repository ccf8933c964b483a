"""What is particular to lesson 07: its oracles, the learner's parts at work in the engine, and what paging costs."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from mini_engine import LLM, EngineConfig, LLMEngine, SamplingParams, get_gpu, get_model
from mini_engine.attention import decode_attention, slot_mapping
from mini_engine.backends import AuditBackend, NumpyBackend
from mini_engine.cache import KVCacheManager
from mini_engine.course.broken_pool import PagedKVPool
from mini_engine.course.defects.benches import PoolBench
from mini_engine.course.exercise import Prediction
from mini_engine.course.exercises import all_of
from mini_engine.course.exercises.answers07_addresses import slots_by_a_loop, write_by_a_loop
from mini_engine.course.exercises.answers07_attention import by_loops
from mini_engine.course.exercises.e07_addresses import slot_by_slot
from mini_engine.course.exercises.e07_attention import LONG, PAGED_ATTENTION, case_of
from mini_engine.course.exercises.e07_grow import GROW
from mini_engine.course.panels import p07_block_tables as pictures
from mini_engine.geometry import kv_bytes_per_token, paged_utilization, weight_bytes
from mini_engine.models import load_model
from mini_engine.roofline import decode_step_time_additive
from mini_engine.workload import load_trace

STORED = [r.num_prompt_tokens + r.num_output_tokens - 1 for r in load_trace("synthetic_azure_conv.csv")]
PREDICTIONS = {p.id: p for p in all_of(Prediction, "07")}
PARAMS = SamplingParams(temperature=0, max_tokens=15, ignore_eos=True)
PROMPTS = ["The young lady", "Emma was"]


def finish(engine):
    outputs = {}
    while engine.has_unfinished_requests():
        for output in engine.step():
            outputs[output.request_id] = output.outputs[0].token_ids
        engine.check_invariants()
    return outputs


def test_the_learners_parts_are_the_ones_that_run():
    calls = Counter()

    def counted(function):
        def call(*arguments):
            calls[function.__name__] += 1
            return function(*arguments)

        return call

    class Counting(GROW.reference):
        def grow(self, request, num_tokens):
            calls["grow"] += 1
            super().grow(request, num_tokens)

    tiny = load_model("tiny-gqa", backend="numpy")
    backend = NumpyBackend(tiny.model, write_kv=counted(write_by_a_loop), paged_attention=counted(by_loops))
    config = EngineConfig(num_blocks=24, block_size=4, enable_prefix_caching=False)
    engine = LLMEngine(config, backend, tokenizer=tiny.tokenizer, kv_manager=Counting)
    for prompt in PROMPTS:
        engine.add_request(prompt, tiny.tokenizer.encode(prompt), PARAMS)
    done = finish(engine)
    alone = LLM(tiny, cache="contiguous").generate(PROMPTS, PARAMS, progress=False)
    assert [done[prompt] for prompt in PROMPTS] == [output.outputs[0].token_ids for output in alone]
    layers, stats = tiny.spec.num_hidden_layers, engine.stats()
    assert calls["by_loops"] == layers * (stats.num_prefill_tokens + stats.num_decode_tokens)
    assert calls["write_by_a_loop"] == layers * PARAMS.max_tokens
    assert calls["grow"] >= 2


@pytest.mark.parametrize("manager", [GROW.reference, *GROW.alternatives])
def test_right_managers_serve_a_pool_that_is_too_small(manager):
    """Audited: what is read is what was written, whoever is preempted."""
    engines = {}
    for kind in (KVCacheManager, manager):
        engine = engines[kind] = LLMEngine(EngineConfig(num_blocks=7, block_size=4), AuditBackend(), kv_manager=kind)
        for name, length in (("a", 9), ("b", 6), ("c", 3)):
            engine.add_request(name, list(range(1, length + 1)), SamplingParams(temperature=0, max_tokens=12))
    want, got = (finish(engine) for engine in engines.values())
    assert got == want
    assert engines[manager].stats().num_preemptions > 0


def test_a_wrong_manager_is_noticed_by_the_audit_or_the_engine():
    [late] = [m.function for m in GROW.mutants if m.name == "one token late"]
    engine = LLMEngine(EngineConfig(num_blocks=7, block_size=4), AuditBackend(), kv_manager=late)
    engine.add_request("a", [1, 2, 3], SamplingParams(temperature=0, max_tokens=6))
    with pytest.raises((AssertionError, IndexError, ValueError)):
        finish(engine)


def test_slots_of_the_engine_are_those_of_the_formula():
    class Watched(AuditBackend):
        seen = 0

        def execute(self, batch):
            starts = batch.query_start_loc
            for row, table in enumerate(batch.block_tables):
                positions = batch.positions[starts[row] : starts[row + 1]]
                for function in (slot_mapping, slots_by_a_loop, slot_by_slot):
                    slots = np.asarray(function(table, positions, 5))
                    assert slots.tolist() == batch.slot_mapping[starts[row] : starts[row + 1]].tolist()
                self.seen += len(positions)
            return super().execute(batch)

    backend = Watched()
    engine = LLMEngine(EngineConfig(num_blocks=9, block_size=5, max_num_batched_tokens=6), backend)
    for name, length in (("a", 11), ("b", 4), ("c", 13)):
        engine.add_request(name, list(range(1, length + 1)), SamplingParams(temperature=0, max_tokens=8))
    finish(engine)
    assert backend.seen > 11 + 4 + 13


@pytest.mark.parametrize("answer", [PAGED_ATTENTION.reference, *PAGED_ATTENTION.alternatives])
def test_right_attention_is_right_beyond_the_cases_of_the_exercise(answer):
    for length in (*range(1, 17), 61):
        for heads in ((1, 1), (4, 1), (6, 3)):
            q, k, v, k_pool, v_pool = case_of(length, heads)
            got = answer(q, k_pool, v_pool, np.array([*LONG, 0]), length, 0.7)
            np.testing.assert_allclose(got, decode_attention(q, k, v, 0.7), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("size", "mean", "worst", "tried"), [(16, 180, 360, 354), (32, 372, 744, 738)])
def test_when_96_percent_are_used(size, mean, worst, tried):
    """By the formula with the mean of (B - 1) / 2, and by trying all lengths from the worst case's bound on."""
    lost = Fraction(size - 1, 2)
    assert mean / (mean + lost) == Fraction(96, 100)
    assert worst / (worst + 2 * lost) == Fraction(96, 100)
    used = [paged_utilization([length], size) for length in range(tried, worst + 4 * size)]
    assert min(used) >= Fraction(96, 100) > paged_utilization([tried - 1], size)
    assert paged_utilization([size + 1], size) < Fraction(54, 100)
    if size == 32:
        assert PREDICTIONS["07.tokens_96"].answer == mean


def test_last_blocks_of_the_trace_are_as_empty_as_chance_would_have_it():
    empty = [15 - (tokens - 1) % 16 for tokens in STORED]
    assert sum(empty) == 7476
    assert max(empty) == 15
    assert abs(sum(empty) / len(empty) - 7.5) < 3 * 4.61 / len(empty) ** 0.5  # three standard errors


def test_the_share_of_attention_in_a_step_by_hand():
    llama, gpu = get_model("llama-3-8b"), get_gpu("h100-sxm")
    kv, weights = 32 * 1024 * kv_bytes_per_token(llama), weight_bytes(llama)
    step = decode_step_time_additive(
        32, 1024 * kv_bytes_per_token(llama), weights, gpu.memory_bandwidth, weights // 2, gpu.bf16_flops, 1
    )
    assert step.kv / step.total == Fraction(kv, kv + weights)
    assert f"{kv / (kv + weights):.1%}" == "21.1%"
    assert f"{0.26 * kv / (kv + weights):.1%}" == "5.5%"


def test_the_front_of_a_list_costs_more_in_a_larger_pool():
    moved = [PoolBench(num_blocks=n, kind=PagedKVPool).work_of_one_block() for n in (10, 1000)]
    assert moved == [9, 999]


class Sheet:
    """Enough of a figure to draw on, without a canvas."""

    def __new__(cls):
        from matplotlib.figure import Figure

        return Figure()


@pytest.mark.parametrize("block_size", [1, 2, 4, 8, 16, 32])
def test_the_panel_says_the_slot_that_it_draws(block_size):
    draw = random.Random(block_size)
    every = pictures.scattered(pictures.POOL // block_size, pictures.POOL // block_size)
    assert sorted(every) == list(range(1, pictures.POOL // block_size + 1))
    for _ in range(4):
        context, position = draw.randrange(1, 129), draw.randrange(128)
        words = pictures.address(Sheet(), block_size, context, position)
        at = min(position, context - 1)
        assert words.startswith(f"position {at} ")
        table = pictures.scattered(-(-context // block_size), pictures.POOL // block_size)
        assert int(re.search(r"= (\d+)\. \d+ slots of the last", words)[1]) == slot_by_slot(table, [at], block_size)[0]
        assert f"{-context % block_size} slots of the last block are empty" in words


def test_the_histogram_counts_every_request():
    words = pictures.tails(Sheet(), [1, 4, 5, 6, 8], 4)
    assert words.startswith(
        "5 requests in blocks of 4: each number of empty slots from 0 to 3 is left by 0 to 2 requests"
    )
    assert "on average 1.60, and 1.5 if" in words


def test_the_diagram_is_sound():
    source, words = pictures.block_table()
    ET.fromstring(source)
    assert slot_by_slot([5, 2, 6], [9], 4) == [25]
    assert "block 6, slot 25" in words
