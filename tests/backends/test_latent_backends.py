"""Latent attention over paged and contiguous caches, against the model without any: both backends, both forms."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_engine import LLM
from mini_engine.attention import mla_absorbed, mla_expanded
from mini_engine.backends import NumpyBackend, TorchBackend, numpy_latent
from mini_engine.backends.contiguous import ContiguousKVCache, make_attend
from mini_engine.backends.torch_attention import AttentionPlan
from mini_engine.backends.torch_latent import latent_attention, paged_latent_attention
from mini_engine.cache import CacheOp
from mini_engine.catalog import ModelSpec
from mini_engine.geometry import kv_bytes_per_token
from mini_engine.models import random_model
from mini_engine.models.latent_attention import UpProjection
from mini_engine.sampling import SamplingParams
from tests.backends.schedules import check_any_schedule, make_batch, poison
from tests.deepseek import uncached_logits
from tests.engine.test_beam_search import plain_search

SPEC = ModelSpec(
    architecture="DeepseekV2ForCausalLM", model_type="deepseek_v2", num_hidden_layers=2, hidden_size=24,
    num_attention_heads=3, num_key_value_heads=3, head_dim=14, intermediate_size=40, vocab_size=50,
    max_position_embeddings=64, kv_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=10, v_head_dim=6, q_lora_rank=12,
    rope_interleave=True,
)  # fmt: skip
BACKENDS = {"torch": TorchBackend, "numpy": NumpyBackend}
MODES = ["absorbed", "expanded"]


@pytest.fixture(scope="module")
def models():
    return {name: random_model(SPEC, seed=3, backend=name) for name in BACKENDS}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", BACKENDS)
@settings(max_examples=30)
@given(data=st.data(), block_size=st.sampled_from([1, 2, 5, 16]), seed=st.integers(0, 2**16))
def test_any_schedule_equals_the_uncached_model(models, name, mode, data, block_size, seed):
    backend = BACKENDS[name](models[name], mla_decode=mode)
    check_any_schedule(
        data,
        backend,
        lambda ids: uncached_logits(models["numpy"], ids)[-1],
        block_size,
        seed,
        tolerance=1e-9 if name == "numpy" else 2e-5,
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_only_the_latent_is_cached_and_every_byte_is_counted(models, name):
    backend = BACKENDS[name](models[name])
    backend.init_kv(num_blocks=9, block_size=5, num_swap_blocks=3)
    assert {key: tuple(pool.shape) for key, pool in backend.pools.items()} == {"latent": (2, 10, 5, 1, 16 + 4)}
    assert backend.block(1)["latent"].shape == (2, 5, 1, 20)
    if name == "torch":
        assert backend.kv_bytes_per_block == 5 * kv_bytes_per_token(SPEC, "fp32") == 5 * 2 * (16 + 4) * 4
        assert sum(pool.nbytes for pool in backend.pools.values()) == 10 * backend.kv_bytes_per_block
        half = TorchBackend(random_model(SPEC, dtype="bfloat16"))
        half.init_kv(num_blocks=1, block_size=16)
        assert half.kv_bytes_per_block == 16 * kv_bytes_per_token(SPEC, "bf16")


@pytest.mark.parametrize("name", BACKENDS)
def test_copies_and_swaps_move_the_latent(models, name):
    backend = BACKENDS[name](models[name])
    backend.init_kv(4, 4, num_swap_blocks=2)
    poison(backend)
    tokens = [5, 6, 7, 8, 9, 10]
    backend.execute(make_batch([(tokens, 0, [3, 1])], 4))
    backend.apply_ops(
        [CacheOp("swap_out", 3, 1), CacheOp("copy", 1, 2), CacheOp("copy", 2, 1), CacheOp("swap_in", 1, 4)]
    )
    for pool in backend.pools.values():
        pool[:, [1, 3]] = np.nan
    expected = uncached_logits(models["numpy"], [*tokens, 11])[-1]
    found = backend.execute(make_batch([([11], 6, [4, 2])], 4)).logits(0)
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())


def test_decode_rows_are_absorbed_and_chunks_expanded(models, monkeypatch):
    """A chunk of n queries multiplies its context out, once; decode rows never do, unless they are asked to."""
    expanded, absorbed = [], []
    expand, absorb = UpProjection.expand, UpProjection.absorb
    monkeypatch.setattr(UpProjection, "expand", lambda up, x: expanded.append(len(x)) or expand(up, x))
    monkeypatch.setattr(UpProjection, "absorb", lambda up, x: absorbed.append(len(x)) or absorb(up, x))
    batch = make_batch([([1, 2, 3], 4, [1, 2]), ([4], 6, [3, 4]), ([5], 3, [5]), ([6, 7], 0, [6])], 4)
    for mode, expected in (("absorbed", ([8, 2], [2])), ("expanded", ([8, 2, 16], []))):
        backend = TorchBackend(models["torch"], mla_decode=mode)
        backend.init_kv(8, 4)
        for pool in backend.pools.values():
            pool.zero_()
        expanded.clear()
        absorbed.clear()
        backend.execute(batch)
        assert (expanded, absorbed) == tuple(2 * calls for calls in expected)  # two layers; 16: two rows of two blocks


def test_numpy_chooses_the_form_by_the_number_of_queries(models, monkeypatch):
    used = []
    for form in (mla_absorbed, mla_expanded):
        watched = lambda *args, form=form: used.append((form.__name__, len(args[0]))) or form(*args)  # noqa: E731
        monkeypatch.setattr(numpy_latent, form.__name__, watched)
    backend = NumpyBackend(models["numpy"])
    backend.init_kv(8, 4)
    backend.execute(make_batch([([1, 2, 3], 0, [1]), ([5], 0, [5])], 4))
    assert used == 2 * [("mla_expanded", 3), ("mla_absorbed", 1)]  # two layers


@pytest.mark.parametrize("backend", BACKENDS.values())
def test_an_unknown_form_is_refused(models, backend):
    with pytest.raises(ValueError, match="mla_decode='naive' must be one of absorbed, expanded"):
        backend(models["numpy"], mla_decode="naive")


@pytest.mark.parametrize("name", BACKENDS)
def test_beams_share_and_copy_latents(models, name):
    """Forks, copy-on-write and prefix hits, in a pool so small that beams are also thrown out and come back."""

    def next_logprobs(ids):
        row = uncached_logits(models["numpy"], ids)[-1]
        return row - row.max() - np.log(np.exp(row - row.max()).sum())

    llm = LLM(loaded(models[name]), num_blocks=14, block_size=2, max_num_batched_tokens=7)
    prompts = [[4, 8, 15, 16, 23], [4, 8, 15, 16, 42, 7]]
    for prompt, output in zip(prompts, llm.beam_search(prompts, beam_width=3, max_tokens=8)):
        expected = plain_search(prompt, 3, 8, (), next_logprobs)
        assert [beam.token_ids for beam in output.outputs] == [tokens for tokens, _ in expected]
        found = [beam.cumulative_logprob for beam in output.outputs]
        np.testing.assert_allclose(found, [score for _, score in expected], rtol=1e-9 if name == "numpy" else 1e-4)
    stats = llm.engine.stats()
    assert min(stats.num_copied_blocks, stats.num_prefix_hit_tokens, stats.num_preemptions) > 0


# -- one sequence, contiguous -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", ["contiguous", "none"])
@pytest.mark.parametrize("name", BACKENDS)
def test_contiguous_cache_and_none(models, name, cache):
    model, ids = models[name], np.random.default_rng(0).integers(0, 50, 30).tolist()
    expected = uncached_logits(models["numpy"], ids)
    attend = make_attend(model, 30, cache)
    for start, end in [(0, 12), (12, 20), (20, 21), (21, 22), (22, 30)]:
        start = 0 if cache == "none" else start
        logits = model.forward(ids[start:end], range(start, end), attend)
        np.testing.assert_allclose(logits, expected[start:end], rtol=0, atol=2e-5 * np.abs(expected).max())


def test_the_contiguous_cache_reserves_the_latent_only():
    cache = ContiguousKVCache(SPEC, 7)
    assert cache.nbytes == 7 * 2 * (16 + 4) * 8
    (first,) = cache.append(0, np.ones((3, 1, 20)))
    (second,) = cache.append(0, np.full((2, 1, 20), 2.0))
    assert np.shares_memory(first, second)
    assert second.shape == (5, 1, 20)


@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 9), (2, 2), (9, 9), (2, 9), (8, 9)])
@pytest.mark.parametrize("value_dim", [3, 6, 20])
def test_torch_equals_numpy(T, S, value_dim):
    """Values narrower and wider than keys, from the first token on."""
    generator = np.random.default_rng(T + S)
    q, latent = generator.normal(size=(T, 3, 10 + 4)), generator.normal(size=(S, 16 + 4))
    weight = generator.normal(size=(3, 10 + value_dim, 16))
    up = UpProjection(torch.from_numpy(weight.reshape(-1, 16)), heads=3, key_dim=10)
    ours = latent_attention(torch.from_numpy(q), torch.from_numpy(latent), up, 0.3, offset=S - T)
    for form in (mla_expanded, mla_absorbed):
        truth = form(
            q[..., :10], q[..., 10:], latent[:, :16], latent[:, 16:], weight[:, :10], weight[:, 10:], 0.3, S - T
        )
        np.testing.assert_allclose(ours.numpy(), truth, rtol=0, atol=1e-12 * np.abs(truth).max())


def test_rows_of_many_lengths_share_one_absorption():
    """Groups by length are computed apart and land in their own rows."""
    generator = torch.Generator().manual_seed(0)
    lengths = [3, 60, 1, 20, 61, 19]
    tables, starts = np.zeros((6, 16), np.int32), np.arange(7, dtype=np.int32)
    for row, length in enumerate(lengths):
        tables[row, : -(-length // 4)] = np.arange(-(-length // 4)) * 6 + row + 1
    batch = SimpleNamespace(
        query_start_loc=starts, context_lens=np.array(lengths, np.int32), block_tables=tables
    )  # all of a BatchInput that a plan looks at
    plan = AttentionPlan(batch, 4, torch.device("cpu"))
    assert len(plan.groups) > 2
    assert sorted(int(row) for group in plan.groups for row in group.rows) == list(range(6))
    pool = torch.randn(100, 4, 1, 20, generator=generator, dtype=torch.float64)
    q = torch.randn(6, 3, 14, generator=generator, dtype=torch.float64)
    up = UpProjection(torch.randn(3 * 16, 16, generator=generator, dtype=torch.float64), heads=3, key_dim=10)

    def read(gather):
        return [gather.read(pool, torch.empty(plan.scratch_blocks, 4, 1, 20, dtype=torch.float64))]

    out = {mode: paged_latent_attention(plan, q, None, up, read, 0.3, mode) for mode in MODES}
    torch.testing.assert_close(out["absorbed"], out["expanded"], rtol=0, atol=1e-12)
    for row, length in enumerate(lengths):
        latent = pool[tables[row].tolist()].view(-1, 20)[:length]
        torch.testing.assert_close(out["absorbed"][row], latent_attention(q[row : row + 1], latent, up, 0.3)[0])


# -- a learner's own parts ----------------------------------------------------------------------------------------------


def loaded(model):
    return SimpleNamespace(model=model, tokenizer=None, spec=model.spec)


@pytest.mark.parametrize("name", BACKENDS)
def test_an_own_attention_goes_into_the_engine_with_one_argument(models, name):
    calls = []

    def mine(q_nope, q_rope, latent, k_rope, w_uk, w_uv, scale, offset=0):
        arrays = (q_nope, q_rope, latent, k_rope, w_uk, w_uv)
        assert all(type(x) is np.ndarray for x in arrays)
        calls.append(([x.shape for x in arrays], scale, offset))
        return mla_expanded(*arrays, scale, offset)

    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    prompt = [7, 8, 9, 10, 11]
    (ours,) = LLM(loaded(models[name]), attention=mine).generate([prompt], params, progress=False)
    (theirs,) = LLM(loaded(models["numpy"])).generate([prompt], params, progress=False)
    assert ours.outputs[0].token_ids == theirs.outputs[0].token_ids
    shapes, scale, offset = calls[2]  # of the second forward pass, in which one token attends to six
    assert shapes == [(1, 3, 10), (1, 3, 4), (6, 16), (6, 4), (3, 10, 16), (3, 6, 16)]
    assert (scale, offset) == (pytest.approx(14**-0.5), 5)


def test_an_own_attention_of_the_wrong_shape_is_named(models):
    llm = LLM(loaded(models["numpy"]), attention=lambda q_nope, *rest: q_nope)
    with pytest.raises(ValueError, match=r"attention gave shape \(2, 3, 10\) in layer 0: must be \(2, 3, 6\)"):
        llm.generate([[1, 2]], SamplingParams(temperature=0, max_tokens=2), progress=False)


@pytest.mark.parametrize("name", BACKENDS)
def test_an_own_cache_class_keeps_the_latent(models, name):
    """A class written for keys and values serves: one head of Dc + Dr."""
    made = []

    class Mine:
        def __init__(self, num_layers, capacity, num_kv_heads, head_dim):
            made.append((num_layers, capacity, num_kv_heads, head_dim))
            self.k = [np.empty((0, num_kv_heads, head_dim))] * num_layers
            self.v = list(self.k)

        def append(self, layer, k, v):
            self.k[layer], self.v[layer] = (np.concatenate(pair) for pair in ((self.k[layer], k), (self.v[layer], v)))
            return self.k[layer], self.v[layer]

    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    (ours,) = LLM(loaded(models[name]), cache=Mine).generate([[7, 8, 9]], params, progress=False)
    (theirs,) = LLM(loaded(models["numpy"])).generate([[7, 8, 9]], params, progress=False)
    assert ours.outputs[0].token_ids == theirs.outputs[0].token_ids
    assert made == [(2, 8, 1, 20)]
