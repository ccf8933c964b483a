"""The NumPy backend against the same model without any cache, at 1e-9, under everything a scheduler does."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mini_engine.attention import causal_attention, paged_attention, write_kv
from mini_engine.backends import NumpyBackend
from mini_engine.catalog import ModelSpec
from mini_engine.config import EngineConfig
from mini_engine.engine import LLMEngine
from mini_engine.models import random_model
from mini_engine.sampling import SamplingParams
from tests import deepseek

SPEC = ModelSpec(
    num_hidden_layers=2,
    hidden_size=24,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=4,
    intermediate_size=16,
    vocab_size=50,
    max_position_embeddings=128,
)


LATENT = dataclasses.replace(
    SPEC,
    architecture="DeepseekV2ForCausalLM",
    num_key_value_heads=6,
    head_dim=10,
    kv_lora_rank=7,
    qk_nope_head_dim=6,
    qk_rope_head_dim=4,
    v_head_dim=5,
)


@pytest.fixture(scope="module", params=[SPEC, LATENT], ids=["grouped", "latent"])
def model(request):
    return random_model(request.param, seed=3, backend="numpy")


def uncached_logits(model, token_ids: list[int]) -> np.ndarray:
    """Logits behind the last token, everything computed from nothing."""
    if model.spec.is_mla:
        return deepseek.uncached_logits(model, token_ids)[-1]

    def attend(layer, q, k, v):
        return causal_attention(q, k, v, SPEC.head_dim**-0.5)

    return model.forward(token_ids, range(len(token_ids)), attend, [len(token_ids) - 1])[0]


class Recording(NumpyBackend):
    """Keeps the logits of every row, with the history they stand for."""

    def execute(self, batch):
        result = super().execute(batch)
        self.rows = [result.logits(row).copy() for row in range(len(batch.logits_rows))]
        return result


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize("block_size", [1, 5, 16])
def test_every_logit_equals_the_uncached_one(model, preemption, block_size):
    backend = Recording(model)
    num_blocks = -(-34 // block_size) + 1
    swap = {"preemption": "swap", "num_swap_blocks": num_blocks} if preemption == "swap" else {}
    config = EngineConfig(num_blocks=num_blocks, block_size=block_size, max_num_batched_tokens=7, **swap)
    engine = LLMEngine(config, backend)
    shared = list(range(10, 21))
    engine.add_request("a", shared, SamplingParams(n=2, seed=1, max_tokens=12))
    engine.add_request("b", [*shared, 1, 2], SamplingParams(temperature=0, max_tokens=12))
    engine.add_request("c", [7], SamplingParams(temperature=0, max_tokens=20))
    checked, num_steps = 0, 0
    while engine.has_unfinished_requests():
        known = {key: list(request.token_ids) for key, request in engine.scheduler.requests.items()}
        plan_of = engine.scheduler.schedule

        def schedule(plan_of=plan_of):
            engine.plan = plan_of()
            return engine.plan

        engine.scheduler.schedule = schedule
        engine.step()
        del engine.scheduler.schedule
        engine.check_invariants()
        num_steps += 1
        ends = [c for c in engine.plan.chunks if c.start + c.num_tokens == len(known[c.request_id, c.index])]
        assert len(ends) == len(backend.rows) or not engine.plan.chunks
        for chunk, logits in zip(ends, backend.rows if engine.plan.chunks else []):
            np.testing.assert_allclose(
                logits, uncached_logits(model, known[chunk.request_id, chunk.index]), atol=1e-9, rtol=0
            )
            checked += 1
    assert checked >= 12 + 11 + 12 + 20  # one prefill for both branches of a
    assert engine.stats().num_preemptions > 0
    assert num_steps < 200


def test_a_block_shows_its_arrays_and_fresh_ones_are_nan():
    model = random_model(SPEC, backend="numpy")
    backend = NumpyBackend(model)
    engine = LLMEngine(EngineConfig(num_blocks=3, block_size=4), backend)
    engine.add_request("a", [1, 2, 3, 4, 5], SamplingParams(temperature=0, max_tokens=2))
    engine.step()
    first, second = engine.scheduler.requests["a", 0].block_table
    for name in ("k", "v"):
        assert backend.block(first)[name].shape == (2, 4, 2, 4)
        assert np.isfinite(backend.block(first)[name]).all()
        assert np.isfinite(backend.block(second)[name][:, 0]).all()
        assert np.isnan(backend.block(second)[name][:, 1:]).all()


def test_functions_of_ones_own_store_and_attend_in_every_layer():
    calls = {"write": 0, "attend": 0}

    def write(*arguments):
        calls["write"] += 1
        write_kv(*arguments)

    def attend(q, k_pool, v_pool, table, context_len, scale):
        calls["attend"] += 1
        return paged_attention(q, k_pool, v_pool, table, context_len, scale)

    model = random_model(SPEC, seed=3, backend="numpy")
    tokens = {}
    for own in ({}, {"write_kv": write, "paged_attention": attend}):
        engine = LLMEngine(
            EngineConfig(num_blocks=9, block_size=4, max_num_batched_tokens=7), NumpyBackend(model, **own)
        )
        for name, prompt in (("a", list(range(10, 21))), ("b", [7]), ("c", list(range(10, 22)))):
            engine.add_request(name, prompt, SamplingParams(temperature=0, max_tokens=6))
        outputs = []
        while engine.has_unfinished_requests():
            outputs += engine.step()
            engine.check_invariants()
        done = {output.request_id: output.outputs[0].token_ids for output in outputs if output.finished}
        tokens[bool(own)] = done
    assert tokens[True] == tokens[False]
    stats = engine.stats()
    assert calls["attend"] == 2 * (stats.num_prefill_tokens + stats.num_decode_tokens)
    assert calls["write"] >= 2 * 6


def test_a_latent_model_has_no_keys_and_values_for_functions_of_ones_own():
    latent = random_model(LATENT, seed=3, backend="numpy")
    for own in ({"write_kv": write_kv}, {"paged_attention": paged_attention}):
        with pytest.raises(ValueError, match="latent attention"):
            NumpyBackend(latent, **own)
