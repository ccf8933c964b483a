"""The time of a step against the formulas of the roofline, which were checked by themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mini_engine.backends.step_cost import Efficiency, StepCost, num_scores
from mini_engine.cache import CacheOp
from mini_engine.catalog import get_gpu, get_model, list_gpus, list_models
from mini_engine.geometry import kv_bytes_hybrid, kv_bytes_per_token, params
from mini_engine.roofline import decode_step_time, prefill_flops
from mini_engine.scheduling import Chunk
from mini_engine.sizing import size

H100 = get_gpu("h100-sxm")
PEAK = Efficiency(flops=1, bandwidth=1, step_overhead=0)


def chunk(start: int, n: int) -> Chunk:
    return Chunk("r", 0, start, n)


@pytest.mark.parametrize("tp", [1, 2, 8])
@pytest.mark.parametrize("batch", [1, 7, 300])
def test_a_decode_step_takes_what_the_roofline_says(tp, batch):
    model = get_model("llama-3-70b")
    cost = StepCost(model, H100, tp=tp, efficiency=PEAK)
    chunks = [chunk(4095, 1)] * batch
    computed = cost.layer_params + cost.head_params
    expected = decode_step_time(
        2 * computed // tp, kv_bytes_per_token(model) // tp, 4096, batch, H100.memory_bandwidth, computed,
        H100.bf16_flops, model.num_hidden_layers, model.num_attention_heads, model.head_dim, tp,
    )  # fmt: skip
    assert cost.seconds(cost.work(chunks, batch), batch) == pytest.approx(float(expected.total), rel=1e-9)


def test_what_is_computed_is_all_but_the_table_that_a_token_reads_one_row_of():
    model = get_model("llama-3-8b")
    cost = StepCost(model, H100)
    assert cost.layer_params + cost.head_params == params(model) - model.vocab_size * model.hidden_size


@given(
    st.lists(st.integers(2, 500), min_size=1, max_size=8), st.sampled_from(["llama-3-8b", "gemma-3-27b", "deepseek-v2"])
)
def test_a_prompt_in_chunks_is_as_many_flops_as_the_whole_one(sizes, name):
    """Chunks of two tokens or more: with latent attention a single token is computed in the other, absorbed, form."""
    cost = StepCost(get_model(name), H100)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    parts = [cost.work([chunk(start, n)], start + n == sum(sizes)) for start, n in zip(starts, sizes)]
    whole = cost.work([chunk(0, sum(sizes))], 1)
    assert sum(part.flops for part in parts) == whole.flops
    assert sum(part.bytes for part in parts) >= whole.bytes  # each chunk reads the weights and the prefix again


@given(st.integers(0, 5000), st.integers(1, 5000))
def test_prefill_flops_are_those_of_the_formula(start, n):
    model = get_model("llama-3-8b")
    cost = StepCost(model, H100)
    layers = prefill_flops(cost.layer_params, n, 32, 32, 128, done=start)
    assert cost.work([chunk(start, n)], 1).flops == layers + 2 * cost.head_params


@given(st.integers(0, 40), st.integers(1, 40), st.none() | st.integers(1, 30))
def test_scores_counted_one_by_one(start, n, window):
    slow = sum(at + 1 if window is None else min(at + 1, window) for at in range(start, start + n))
    assert num_scores(start, n, window) == slow


def test_layers_with_windows_read_their_windows():
    model = get_model("gemma-3-27b")
    cost = StepCost(model, H100)
    for context in (100, 1024, 5000):
        read = cost.work([chunk(context - 1, 1)], 1).bytes - cost.work([chunk(0, 1)], 1).bytes
        of_one = kv_bytes_hybrid(model, model.layer_windows, 1, "bf16")
        assert read == kv_bytes_hybrid(model, model.layer_windows, context, "bf16") - of_one


@pytest.mark.parametrize(("start", "n"), [(0, 3000), (900, 300), (5000, 1), (5000, 2000), (1023, 2)])
def test_a_chunk_reads_each_key_that_one_of_its_tokens_sees_once(start, n):
    """A window of 1,024: token at position p sees p - 1023 .. p."""
    model = get_model("gemma-3-27b")
    read = StepCost(model, H100).work([chunk(start, n)], 1).bytes - StepCost(model, H100).work([chunk(0, n)], 1).bytes
    per_layer = 2 * 2 * model.num_key_value_heads * model.head_dim

    def bytes_of(first: int) -> int:
        total = 0
        for window in model.layer_windows:
            seen = {k for at in (first, first + n - 1) for k in range(max(0, at - (window or at + 1) + 1), at + 1)}
            oldest = min(seen)
            total += (first + n - oldest) * per_layer
        return total

    assert read == bytes_of(start) - bytes_of(0)


def test_a_batch_draws_more_experts_than_a_token():
    cost = StepCost(get_model("mixtral-8x7b"), H100, tp=2)
    one, many = (cost.work([chunk(0, 1)] * n, n).bytes for n in (1, 64))
    assert 2 < many / one < 4  # 2 of 8 experts, then nearly all


@pytest.mark.parametrize("overlap", [True, False])
def test_what_a_step_costs_besides(overlap):
    of = Efficiency(flops=0.5, bandwidth=0.25, step_overhead=1.0, sequence_overhead=0.125, overlap=overlap)
    cost = StepCost(get_model("llama-3-8b"), H100, efficiency=of)
    work = cost.work([chunk(0, 100)] * 4, 4)
    computing, reading = work.flops / (989e12 / 2), work.bytes / (3.35e12 / 4)
    busy = max(computing, reading) if overlap else computing + reading
    assert cost.seconds(work, 4) == pytest.approx(1.5 + busy)


def test_the_pool_is_what_the_size_command_says():
    for name, tp in (("llama-3-8b", 1), ("llama-3-70b", 4)):
        sizing = size(get_model(name), H100, tp=tp, util="0.9", context=16, block=16)
        assert StepCost(get_model(name), H100, tp=tp).num_blocks(16, util="0.9") == sizing.concurrency


def test_weights_that_do_not_fit_are_an_error_that_says_so():
    with pytest.raises(ValueError, match=r"llama-3-70b takes 141\.1 GB.*no block of 16 tokens.*more GPUs"):
        StepCost(get_model("llama-3-70b"), H100).num_blocks(16)


def test_moving_blocks():
    cost = StepCost(get_model("llama-3-8b"), H100, efficiency=PEAK)
    block = 16 * 131_072
    assert cost.move_seconds([CacheOp("swap_out", 1, 1), CacheOp("swap_in", 1, 2)], 16) == 2 * block / 64e9
    assert cost.move_seconds([CacheOp("copy", 1, 2)], 16) == pytest.approx(2 * block / 3.35e12)
    slow = StepCost(get_model("llama-3-8b"), get_gpu("apple-m1"), pcie_bandwidth=1e9)
    assert slow.move_seconds([CacheOp("swap_in", 1, 2)], 16) == block / 1e9
    with pytest.raises(ValueError, match=r"apple-m1.*give pcie_bandwidth"):
        StepCost(get_model("llama-3-8b"), get_gpu("apple-m1")).move_seconds([CacheOp("swap_in", 1, 2)], 16)


@pytest.mark.parametrize("name", list_models())
def test_every_model_of_the_table_has_a_step_time(name):
    model = get_model(name)
    given_params = {"num_params": 80e9, "num_active_params": 3e9} if model.layers_without_kv else {}
    for gpu in list_gpus():
        cost = StepCost(model, get_gpu(gpu), tp=2, **given_params)
        decode, prompt = (cost.seconds(cost.work([chunk(s, n)], 1), 1) for s, n in ((1023, 1), (0, 1024)))
        assert 0 < decode <= prompt < 1e4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tp": 0}, "tp=0"),
        ({"dtype": "bf8"}, "dtype="),
        ({"kv_dtype": ""}, "kv_dtype="),
        ({"num_active_params": 1}, "num_active_params needs num_params"),
        ({"num_params": 1, "num_active_params": 2}, "num_active_params=2 is more"),
        ({"pcie_bandwidth": 0}, "pcie_bandwidth=0"),
    ],
)
def test_arguments_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        StepCost(get_model("llama-3-8b"), H100, **options)


@pytest.mark.parametrize(
    "options",
    [{"flops": 0}, {"bandwidth": -1}, {"step_overhead": -1e-9}, {"sequence_overhead": float("nan")}, {"overlap": 1}],
)
def test_efficiencies_that_make_no_sense(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Efficiency(**options)
