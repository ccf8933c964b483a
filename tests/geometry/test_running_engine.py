"""The formulas against counters of the running engine: bytes of its caches, blocks of its pool, tokens it forwards."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mini_engine import LLMEngine, SamplingParams
from mini_engine.backends import AuditBackend
from mini_engine.backends.contiguous import ContiguousKVCache
from mini_engine.catalog import get_model
from mini_engine.config import EngineConfig
from mini_engine.generation import GenerationStats, generate_tokens
from mini_engine.geometry import (
    attn_pairs,
    forwards_with_cache,
    forwards_without_cache,
    kv_budget,
    kv_bytes_per_token,
    kv_total_bytes,
    max_concurrency,
    paged_utilization,
    params,
    prefix_hit_tokens,
)


@pytest.mark.parametrize(("dtype", "name"), [(np.float32, "fp32"), (np.float16, "fp16"), (np.int8, "int8")])
@pytest.mark.parametrize("model", ["gpt-2", "smollm2-135m", "llama-3.2-1b"])
def test_bytes_of_the_contiguous_cache(model, dtype, name):
    spec = get_model(model)
    cache = ContiguousKVCache(spec, 100, empty=lambda shape: np.empty(shape, dtype))
    assert cache.nbytes == kv_total_bytes(spec, 100, 1, name)


def test_bytes_of_a_block_of_the_paged_cache(tiny_gqa):
    from mini_engine.backends import TorchBackend

    backend = TorchBackend(tiny_gqa.model)
    backend.init_kv(num_blocks=5, block_size=16)
    assert backend.kv_bytes_per_block == 16 * kv_bytes_per_token(tiny_gqa.spec, "fp32")
    held = sum(array.nbytes for array in backend.block(1).values())
    assert held == backend.kv_bytes_per_block


def test_parameters_of_a_real_checkpoint(tiny_gqa):
    from safetensors import safe_open

    with safe_open(str(tiny_gqa.path / "model.safetensors"), "np") as file:
        stored = sum(int(np.prod(file.get_slice(name).get_shape())) for name in file.keys())  # noqa: SIM118
    assert params(tiny_gqa.spec) == stored


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 10), (7, 5), (16, 2)])
def test_forwards_of_the_generation_loop(tiny_gqa, n, m):
    for cache, formula in (("none", forwards_without_cache), ("contiguous", forwards_with_cache)):
        stats = GenerationStats()
        options = SamplingParams(temperature=0.0, max_tokens=m, ignore_eos=True)
        for _ in generate_tokens(tiny_gqa.model, list(range(5, 5 + n)), options, cache=cache, stats=stats):
            pass
        assert stats.num_forward_tokens == formula(n, m)
        assert stats.num_forwards == m


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 4), (12, 3)])
def test_scores_of_the_generation_loop(n, m):
    """Query-key pairs that causal attention really scores: rows of every pass times the keys each may see."""
    scored = {True: 0, False: 0}
    for s in range(n, n + m):
        scored[False] += sum(range(1, s + 1))
        scored[True] += sum(range(1, s + 1)) if s == n else s
    for cache in (True, False):
        assert attn_pairs(n, m, cache) == scored[cache]


def engine(**options) -> LLMEngine:
    config = EngineConfig(**{"num_blocks": 64, "block_size": 4, "max_num_seqs": 64} | options)
    return LLMEngine(config, AuditBackend(1000))


def run(engine: LLMEngine) -> None:
    while engine.has_unfinished_requests():
        engine.step()


@pytest.mark.parametrize("P", [1, 3, 4, 5, 8, 11, 12])
@pytest.mark.parametrize("more", [0, 1, 4, 6])
def test_hits_of_the_prefix_cache(P, more):
    one = engine()
    prompt = list(range(100, 100 + P))
    options = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)
    one.add_request("first", prompt, options)
    run(one)
    one.add_request("second", prompt + list(range(500, 500 + more)), options)
    run(one)
    assert one.stats().num_prefix_hit_tokens == prefix_hit_tokens(P, P + more, 4)


@pytest.mark.parametrize("lengths", [[1], [4], [5, 3, 9], [16, 17, 15]])
def test_blocks_of_the_pool(lengths):
    one = engine(enable_prefix_caching=False, max_num_batched_tokens=256)
    for i, length in enumerate(lengths):
        one.add_request(str(i), list(range(i * 50, i * 50 + length)), SamplingParams(max_tokens=2, ignore_eos=True))
    one.step()
    used = 64 - one.stats().num_free_blocks
    assert paged_utilization(lengths, 4) == Fraction(sum(lengths), 4 * used)


def test_concurrency_is_what_the_scheduler_admits():
    """A pool of a budget's blocks runs as many requests of S tokens as the formula says, and no more."""
    spec = get_model("llama-3-8b")
    per_token = kv_bytes_per_token(spec)
    budget = kv_budget(40 * per_token * 4, 0, 0)
    one = engine(num_blocks=budget // (4 * per_token), enable_prefix_caching=False, max_num_batched_tokens=4096)
    S = 10
    for i in range(30):
        one.add_request(str(i), list(range(i * 20, i * 20 + S)), SamplingParams(max_tokens=1, ignore_eos=True))
    one.scheduler.schedule()
    assert one.stats().num_running == max_concurrency(budget, per_token, S, 4) == 13
