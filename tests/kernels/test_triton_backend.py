"""The engine on the Triton kernels says what it says on torch: any schedule, chunked prefill, prefix hits, fork, preemption.

The interpreter is slow: few tokens, small models.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed here")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mini_engine import LLM, EngineConfig, LLMEngine, SamplingParams
from mini_engine.attention import causal_attention
from mini_engine.backends import TorchBackend, TritonBackend
from mini_engine.cache import CacheOp
from mini_engine.kernels import kernel_device, paged_gqa_decode, paged_mla_decode, write_kv
from mini_engine.models import random_model
from tests.backends.schedules import SMALL, check_any_schedule, make_batch, poison
from tests.deepseek import uncached_logits
from tests.engine.test_real_weights import prompts_of, run_under_pressure
from tests.kernels.checks import needs_interpreter

pytestmark = needs_interpreter  # the models are loaded on the CPU


PRESSURE = {
    "chunks": {"num_blocks": 60, "max_num_batched_tokens": 11},
    "recompute": {"num_blocks": 11, "max_num_batched_tokens": 24, "admission": "first_chunk"},
    "swap": {"num_blocks": 11, "admission": "first_chunk", "preemption": "swap", "num_swap_blocks": 11},
}


@pytest.fixture(scope="module", params=SMALL)
def models(request):
    """The same weights in torch and, for the oracle, in float64."""
    spec = SMALL[request.param]
    return random_model(spec, seed=3), random_model(spec, seed=3, backend="numpy")


def without_cache(model, tokens: list[int]) -> np.ndarray:
    if model.spec.is_mla:
        return uncached_logits(model, tokens)[-1]
    scale = model.spec.head_dim**-0.5
    return model.forward(tokens, range(len(tokens)), lambda layer, q, k, v: causal_attention(q, k, v, scale), [-1])[0]


@settings(max_examples=12)
@given(data=st.data(), block_size=st.sampled_from([1, 5, 16]), seed=st.integers(0, 2**16))
def test_any_schedule_equals_the_uncached_model(models, data, block_size, seed):
    check_any_schedule(
        data, TritonBackend(models[0]), lambda ids: without_cache(models[1], ids), block_size, seed, tolerance=5e-5
    )


@pytest.mark.parametrize("kv_cache_dtype", ["auto", "int8"])
def test_pools_and_logits_are_those_of_the_torch_backend(models, kv_cache_dtype):
    """A prompt, decode rows beside a chunk, decode rows alone; swapped, copied, and with slots that are skipped."""
    found = []
    for kind in (TorchBackend, TritonBackend):
        backend = kind(models[0], kv_cache_dtype=kv_cache_dtype)
        backend.init_kv(8, 4, num_swap_blocks=2)
        poison(backend)
        results = [
            backend.execute(make_batch([([5, 6, 7, 8, 9], 0, [3, 1])], 4)),
            backend.execute(make_batch([([2, 3, 4, 5, 6, 7], 0, [6, 7]), ([10], 5, [3, 1])], 4)),
            backend.execute(make_batch([([11], 6, [3, 1]), ([9, 8], 6, [6, 7]), ([1], 0, [4])], 4)),
        ]
        backend.apply_ops([CacheOp("swap_out", 3, 1), CacheOp("copy", 1, 2), CacheOp("swap_in", 1, 5)])
        padded = make_batch([([12], 7, [5, 2]), ([13], 1, [4])], 4)
        padded.slot_mapping[1] = -1  # its context ends before it: nothing is stored for this row
        padded.context_lens[1] = 1
        results.append(backend.execute(padded))
        logits = [result.logits(row) for result in results for row in range(len(result._tensor))]
        found.append((logits, {name: backend.block(block)[name] for block in (5, 2, 6) for name in backend.block(1)}))
    tolerance = 1e-2 if kv_cache_dtype == "int8" else 1e-4  # a rounded code may differ by one
    for ours, theirs in zip(found[1][0], found[0][0]):
        np.testing.assert_allclose(ours, theirs, atol=tolerance * np.abs(theirs).max())
    for name, held in found[0][1].items():
        np.testing.assert_allclose(found[1][1][name], held, atol=tolerance * 10)


def same_up_to_ties(loaded, prompt, ours: list[int], theirs: list[int]) -> None:
    """Equal tokens, up to one where the two are within 1e-3 of each other: then either is right."""
    for at, (mine, other) in enumerate(zip(ours, theirs)):
        if mine != other:
            ids = [*prompt, *ours[:at]]
            engine = LLMEngine(EngineConfig(num_blocks=64), TorchBackend(loaded.model))
            params = SamplingParams(temperature=0, max_tokens=1, logprobs=20)
            engine.add_request("tie", ids, params)
            (output,) = [output for output in iter(engine.step, []) for output in output]
            (top,) = output.outputs[0].logprobs
            assert abs(top[mine] - top[other]) < 1e-3, f"token {at}: {mine} instead of {other}"
            return
    assert len(ours) == len(theirs)


@pytest.mark.parametrize("pressure", PRESSURE)
@pytest.mark.parametrize("name", ["tiny_gqa", "tiny_mla"])
def test_under_pressure_it_says_what_torch_says(request, name, pressure):
    """Chunked prefill, prefix hits, preemption by recomputing and by swapping (all asserted by run_under_pressure)."""
    loaded = request.getfixturevalue(name)
    prompts = [prompt[:18] for prompt in prompts_of(loaded.tokenizer)[:3]] + [[5, 6, 7]]
    theirs, ours = (
        run_under_pressure(loaded.model, prompts, 4, 1, PRESSURE[pressure], backend=kind)
        for kind in (TorchBackend, TritonBackend)
    )
    for prompt, mine, other in zip(prompts, ours, theirs):
        same_up_to_ties(loaded, prompt, mine, other)


@pytest.mark.parametrize("name", ["tiny_gqa", "tiny_mla"])
def test_branches_share_blocks_and_part(request, name):
    """Parallel sampling and beam search fork; the shared last block is copied before it is written."""
    loaded = request.getfixturevalue(name)
    found = []
    for backend in ("torch", "triton"):
        llm = LLM(loaded, backend, block_size=4, num_blocks=40)
        (sampled,) = llm.generate([7, 8, 9, 10, 11], SamplingParams(n=3, temperature=1, seed=5, max_tokens=4))
        (beams,) = llm.beam_search([7, 8, 9, 10, 11], beam_width=2, max_tokens=3)
        assert llm.engine.stats().num_copied_blocks > 0
        found.append([output.token_ids for output in [*sampled.outputs, *beams.outputs]])
    assert found[0] == found[1]


@pytest.mark.parametrize(("name", "kernel"), [("tiny_gqa", paged_gqa_decode), ("tiny_mla", paged_mla_decode)])
def test_a_kernel_of_ones_own_generates_the_text(request, name, kernel):
    loaded, calls = request.getfixturevalue(name), []

    def own_decode(*args, **options):
        calls.append("decode")
        return kernel(*args, **options)

    def own_write(*args, **options):
        calls.append("write")
        return write_kv(*args, **options)

    params = SamplingParams(temperature=0, max_tokens=3)
    llm = LLM(loaded, "triton", num_blocks=20, decode=own_decode, write=own_write)
    assert llm.backend == "triton"
    (output,) = llm.generate("Call me", params)
    layers = loaded.spec.num_hidden_layers
    assert (calls.count("decode"), calls.count("write")) == (2 * layers, 3 * layers)  # the first step is a prompt
    (expected,) = LLM(loaded, num_blocks=20).generate("Call me", params)
    assert output.outputs[0].text == expected.outputs[0].text


def test_a_model_by_name_is_loaded_where_the_kernels_run(tiny_gqa):
    assert kernel_device() == torch.device("cpu")
    llm = LLM("tiny-gqa", "triton", num_blocks=20)
    assert isinstance(llm.engine.backend, TritonBackend)
    assert llm.model.device == kernel_device()
    params = SamplingParams(temperature=0, max_tokens=2)
    ours, theirs = (x.generate("It was", params)[0].outputs[0].token_ids for x in (llm, LLM(tiny_gqa)))
    assert ours == theirs


def test_half_precision_models_run(models):
    for dtype in ("float16", "bfloat16"):
        model = random_model(models[0].spec, seed=3, dtype=dtype)
        logits = []
        for kind in (TorchBackend, TritonBackend):
            backend = kind(model)
            backend.init_kv(4, 4)
            backend.execute(make_batch([([5, 6, 7, 8, 9], 0, [3, 1])], 4))
            logits.append(backend.execute(make_batch([([10], 5, [3, 1])], 4)).logits(0))
        np.testing.assert_allclose(logits[1], logits[0], atol=0.05 * np.abs(logits[0]).max())


def test_what_the_kernels_cannot_do_is_refused(models, tiny_gqa):
    with pytest.raises(ValueError, match="kv_cache_dtype='fp8'"):
        TritonBackend(models[0], kv_cache_dtype="fp8")
    with pytest.raises(ValueError, match="float64: the kernels take"):
        TritonBackend(random_model(models[0].spec, dtype="float64"))
    with pytest.raises(ValueError, match="needs a torch model and cache='paged'"):
        LLM(tiny_gqa, "triton", cache="contiguous")
    with pytest.raises(ValueError, match=r"decode=.* goes with backend='triton'"):
        LLM(tiny_gqa, decode=paged_gqa_decode)
    with pytest.raises(ValueError, match="decode=3: must be a function"):
        LLM(tiny_gqa, "triton", decode=3)


def test_kernels_backends_and_engine_need_torch_triton_and_numpy_only():
    code = """
import sys
for name in ("tqdm", "safetensors", "tokenizers", "gguf", "jinja2", "transformers", "matplotlib", "IPython", "packaging"):
    sys.modules[name] = None
import torch
from mini_engine.backends import TorchBackend, TritonBackend
from mini_engine.catalog import ModelSpec
from mini_engine.config import EngineConfig
from mini_engine.engine import LLMEngine
from mini_engine.models import random_model
from mini_engine.sampling import SamplingParams

spec = ModelSpec(num_hidden_layers=1, hidden_size=16, num_attention_heads=2, num_key_value_heads=1, head_dim=8,
                 intermediate_size=16, vocab_size=20, max_position_embeddings=32)
engine = LLMEngine(EngineConfig(num_blocks=4, block_size=8), TritonBackend(random_model(spec, seed=0)))
engine.add_request("a", [1, 2, 3], SamplingParams(temperature=0, max_tokens=2, ignore_eos=True))
while engine.has_unfinished_requests():
    outputs = engine.step()
print(len(outputs[0].outputs[0].token_ids))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.stdout.strip() == "2", run.stderr
