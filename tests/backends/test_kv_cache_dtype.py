"""Quantised pools behind the torch backend: bytes, codes, and text that no schedule can change.

Models run in float64, where rounding in products never moves a code: what is compared is then equal to 1e-9, and greedy text
token by token.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_engine import LLM, SamplingParams, get_model
from mini_engine.attention import Fp8Codec, IntCodec, causal_attention, fp8_e4m3
from mini_engine.backends.kv_arrays import kv_arrays
from mini_engine.backends.kv_formats import FORMATS, bytes_per_token, kv_format
from mini_engine.backends.torch_backend import TorchBackend
from mini_engine.cache import CacheOp
from mini_engine.geometry import kv_bytes_per_token, kv_bytes_quant
from mini_engine.models import random_model
from tests.backends.schedules import SMALL, check_any_schedule, make_batch, poison
from tests.deepseek import uncached_attend
from tests.engine.test_real_weights import PRESSURE, run_under_pressure

QUANTISED = ("fp8", "int8")


@pytest.fixture(scope="module", params=SMALL)
def model(request):
    return random_model(SMALL[request.param], seed=3, dtype="float64")


def rounded(x: np.ndarray, kv_cache_dtype: str) -> np.ndarray:
    """x[T, K, D] as the cache holds it, from the definition of the format."""
    if kv_cache_dtype == "fp8":
        return fp8_e4m3(x.astype(np.float32))
    scale = (np.abs(x).max(axis=-1, keepdims=True) / 127).astype(np.float32).astype(np.float64)
    return np.rint(x / scale) * scale


def oracle_logits(model, tokens: list[int], kv_cache_dtype: str) -> np.ndarray:
    """Every row of one pass over the whole sequence, in which whatever is cached is rounded before anyone reads it."""
    exact = uncached_attend(model)

    def attend(layer, q, *new):
        if model.spec.is_mla:
            latent, up = new
            out = exact(layer, q.numpy(), rounded(latent.numpy(), kv_cache_dtype), up)
        else:
            k, v = (rounded(x.numpy(), kv_cache_dtype) for x in new)
            out = causal_attention(q.numpy(), k, v, model.softmax_scale)
        return torch.from_numpy(out)

    return model.forward(tokens, range(len(tokens)), attend).numpy()


@pytest.mark.parametrize("kv_cache_dtype", QUANTISED)
@settings(max_examples=25)
@given(data=st.data(), block_size=st.sampled_from([1, 4, 16]), seed=st.integers(0, 2**16))
def test_every_query_reads_what_the_cache_holds_whatever_the_schedule(model, kv_cache_dtype, data, block_size, seed):
    backend = TorchBackend(model, kv_cache_dtype=kv_cache_dtype)
    check_any_schedule(
        data, backend, lambda ids: oracle_logits(model, ids, kv_cache_dtype)[-1], block_size, seed, tolerance=1e-6
    )


@pytest.mark.parametrize("kv_cache_dtype", QUANTISED)
def test_copies_and_swaps_take_the_scales_along(model, kv_cache_dtype):
    backend = TorchBackend(model, kv_cache_dtype=kv_cache_dtype)
    backend.init_kv(4, 4, num_swap_blocks=2)
    poison(backend)
    tokens = [5, 6, 7, 8, 9, 10]
    backend.execute(make_batch([(tokens, 0, [3, 1])], 4))
    before = backend.block(3)
    backend.apply_ops(
        [CacheOp("swap_out", 3, 1), CacheOp("copy", 1, 2), CacheOp("copy", 2, 1), CacheOp("swap_in", 1, 4)]
    )
    for name, held in backend.block(4).items():
        assert held.shape == (2, 4, *kv_arrays(backend.spec)[name])
        assert np.isfinite(held).all()
        np.testing.assert_array_equal(held, before[name])
    for pool in backend.pools.values():
        pool[:, [1, 3]] = math.nan if pool.is_floating_point() else 0x7F
    expected = oracle_logits(model, [*tokens, 11], kv_cache_dtype)[-1]
    result = backend.execute(make_batch([([11], 6, [4, 2])], 4))
    np.testing.assert_allclose(result.logits(0), expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("kv_cache_dtype", QUANTISED)
@pytest.mark.parametrize("pressure", PRESSURE)
def test_text_is_the_same_under_every_feature_of_the_engine(model, kv_cache_dtype, pressure):
    """Chunks, prefix hits, preemption by recompute and by swap: greedy text is that of one pass without a cache."""
    rng = np.random.default_rng(1)
    shared = rng.integers(0, 50, 22).tolist()
    prompts = [shared + rng.integers(0, 50, n).tolist() for n in (1, 2, 5, 9, 14)]
    prompts += [rng.integers(0, 50, n).tolist() for n in (1, 2, 7, 16, 33)]
    answers = run_under_pressure(model, prompts, 12, 3, PRESSURE[pressure], kv_cache_dtype=kv_cache_dtype)
    for prompt, answer in zip(prompts, answers):
        rows = oracle_logits(model, prompt + answer[:-1], kv_cache_dtype)[len(prompt) - 1 :]
        assert rows.argmax(axis=-1).tolist() == answer


@pytest.mark.parametrize("kv_cache_dtype", QUANTISED)
def test_branches_that_share_and_copy_blocks_say_what_they_say_alone(model, kv_cache_dtype):
    """Copy-on-write: three branches sampled together equal each of them computed without a cache."""
    llm = LLM(
        SimpleNamespace(model=model, tokenizer=None, spec=model.spec),
        num_blocks=64,
        block_size=4,
        kv_cache_dtype=kv_cache_dtype,
    )
    prompt = list(range(1, 11))  # two and a half blocks
    params = SamplingParams(n=3, temperature=1.0, seed=5, max_tokens=8, ignore_eos=True, logprobs=1)
    (output,) = llm.generate([prompt], params)
    assert llm.engine.stats().num_copied_blocks > 0
    assert len({tuple(branch.token_ids) for branch in output.outputs}) == 3
    for branch in output.outputs:
        rows = oracle_logits(model, prompt + branch.token_ids[:-1], kv_cache_dtype)[len(prompt) - 1 :]
        rows -= np.log(np.exp(rows - rows.max(axis=-1, keepdims=True)).sum(axis=-1, keepdims=True)) + rows.max(
            axis=-1, keepdims=True
        )
        for row, token, logprobs in zip(rows, branch.token_ids, branch.logprobs):
            assert logprobs[token] == pytest.approx(row[token], abs=1e-5)


def test_rounding_reaches_the_logits(model):
    """The three formats differ, and int8 is the nearer one: none of the tests above compares a thing with itself."""
    tokens = list(range(30))
    found = {}
    for kv_cache_dtype in FORMATS:
        backend = TorchBackend(model, kv_cache_dtype=kv_cache_dtype)
        backend.init_kv(8, 4)
        found[kv_cache_dtype] = backend.execute(make_batch([(tokens, 0, list(range(1, 9)))], 4)).logits(0)
    error = {name: np.abs(found[name] - found["auto"]).max() for name in QUANTISED}
    assert 1e-4 < error["int8"] < error["fp8"] < 1


# -- bytes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["smollm2-135m", "llama-3-8b", "deepseek-v2-lite", "deepseek-v2"])
def test_bytes_of_a_token_are_the_formulas(name):
    spec = get_model(name)
    size = spec.latent_dim if spec.is_mla else spec.head_dim
    assert bytes_per_token(spec, kv_format("auto", torch.bfloat16)) == kv_bytes_per_token(spec, "bf16")
    assert bytes_per_token(spec, kv_format("fp8", torch.bfloat16)) == kv_bytes_per_token(spec, "fp8")
    assert bytes_per_token(spec, kv_format("int8", torch.bfloat16)) == kv_bytes_quant(spec, 8, size, 4)


@pytest.mark.parametrize("kv_cache_dtype", FORMATS)
def test_pools_take_exactly_the_bytes_that_are_reported(model, kv_cache_dtype):
    backend = TorchBackend(model, kv_cache_dtype=kv_cache_dtype)
    backend.init_kv(7, 16, num_swap_blocks=2)
    assert sum(pool.nbytes for pool in backend.pools.values()) == 8 * backend.kv_bytes_per_block
    assert sum(pool.nbytes for pool in backend._host.values()) == 3 * backend.kv_bytes_per_block
    assert backend.kv_bytes_per_block == 16 * backend.kv_bytes_per_token


@pytest.mark.parametrize("kv_cache_dtype", FORMATS)
def test_a_cache_of_so_many_bytes_holds_more_blocks_of_fewer_bytes(tiny_gqa, kv_cache_dtype):
    llm = LLM(tiny_gqa, kv_cache_bytes=10_000_000, kv_cache_dtype=kv_cache_dtype)
    of_a_block = 16 * {"auto": 2048, "fp8": 512, "int8": 512 + 4 * 2 * 2 * 4}[kv_cache_dtype]
    assert llm.engine.stats().num_free_blocks == 10_000_000 // of_a_block
    assert llm.engine.backend.kv_bytes_per_block == of_a_block


# -- formats -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_codes_are_those_of_the_numpy_codecs(dtype):
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(64, 3, 32)) * 10).to(dtype)
    x[5] = 0
    truth = x.double().numpy()
    (codes,) = kv_format("fp8", dtype).encode(x)
    np.testing.assert_array_equal(codes.numpy(), Fp8Codec().encode(truth.astype(np.float32)).codes)

    form, codec = kv_format("int8", dtype), IntCodec(8, scale_type="float32")
    codes, scale = form.encode(x)
    encoded = codec.encode(truth)
    np.testing.assert_allclose(scale.squeeze(-1).numpy(), encoded.scale.squeeze(-1), rtol=2e-7, atol=1e-37)
    stored = encoded.codes.reshape(x.shape).astype(int) - 127
    apart = codes.numpy().astype(int) != stored
    apart[5] = False  # all zeros: any code will do
    # Scales differ in their last bit at most, so codes differ only where a number lies halfway between two.
    ratio = truth / scale.double().numpy()
    assert (np.abs(np.abs(ratio[apart] - np.trunc(ratio[apart])) - 0.5) < 1e-4).all()
    decoded = form.decode((codes, scale))
    assert decoded.dtype == dtype
    bound = scale.double().numpy() / 2 * (1 + 1e-6) + np.abs(truth) * torch.finfo(dtype).eps
    assert (np.abs(decoded.double().numpy() - truth) <= bound).all()


@pytest.mark.parametrize("kv_cache_dtype", QUANTISED)
def test_what_is_not_a_number_is_not_hidden(kv_cache_dtype):
    form = kv_format(kv_cache_dtype, torch.float32)
    x = torch.ones(2, 1, 8)
    x[0, 0, 3] = math.nan
    decoded = form.decode(form.encode(x))
    assert decoded[0, 0, 3].isnan()
    assert torch.equal(decoded[1], x[1])
    large = form.decode(form.encode(torch.tensor([[[1e4, -1e5, 0.0, 1.0]]])))
    assert large[0, 0, 1] == (-448 if kv_cache_dtype == "fp8" else -1e5)


def test_auto_costs_nothing():
    x = torch.ones(2, 1, 8)
    form = kv_format("auto", torch.float32)
    assert form.decode(form.encode(x)) is x


def test_what_cannot_be_is_refused(model, tiny_gqa):
    with pytest.raises(ValueError, match="kv_cache_dtype='int4' must be one of auto, fp8, int8"):
        TorchBackend(model, kv_cache_dtype="int4")
    with pytest.raises(ValueError, match="must be one of auto, fp8, int8"):
        LLM(tiny_gqa, kv_cache_dtype="fp16")
    with pytest.raises(ValueError, match="only backend='torch' keeps K/V in another type"):
        LLM("tiny-gqa", backend="numpy", kv_cache_dtype="int8")
    with pytest.raises(ValueError, match="kv_cache_dtype: only cache='paged' has such options"):
        LLM(tiny_gqa, cache="contiguous", kv_cache_dtype="int8")
    assert LLM("tiny-gqa", backend="numpy", kv_cache_dtype="auto").engine.stats().num_free_blocks > 0


@pytest.mark.parametrize("cache", ["paged", "contiguous", "none"])
@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_auto_goes_with_every_cache_and_backend(cache, backend):
    loaded = SimpleNamespace(model=random_model(SMALL["latent"], backend=backend), tokenizer=None, spec=SMALL["latent"])
    prompt, params = [[3, 1, 4, 1, 5]], SamplingParams(temperature=0, max_tokens=4)
    said, expected = (
        LLM(loaded, cache=cache, **options).generate(prompt, params, progress=False)[0].outputs[0].token_ids
        for options in ({"kv_cache_dtype": "auto"}, {})
    )
    assert said == expected


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("cache", ["paged", "contiguous", "none"])
@pytest.mark.parametrize("backend", ["torch", "numpy"])
@pytest.mark.parametrize("spec", SMALL.values(), ids=SMALL)
def test_logits_that_are_nan_are_an_error_and_not_token_0(spec, backend, cache, temperature):
    loaded = SimpleNamespace(model=random_model(spec, backend=backend), tokenizer=None, spec=spec)
    llm, forward = LLM(loaded, cache=cache), loaded.model.forward
    prompt, params = [[3, 1, 4], [1, 5]], SamplingParams(temperature=temperature, max_tokens=4, seed=1)
    expected = [output.outputs[0].token_ids for output in llm.generate(prompt, params, progress=False)]
    loaded.model.forward = lambda *args, **options: forward(*args, **options) * math.nan
    with pytest.raises(ValueError, match="logit 0 is nan: the model's output is broken"):
        llm.generate(prompt, params, progress=False)
    loaded.model.forward = forward
    assert [output.outputs[0].token_ids for output in llm.generate(prompt, params, progress=False)] == expected
