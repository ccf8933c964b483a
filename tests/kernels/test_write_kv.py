"""write_kv: every row in its slot, exactly, and no other byte touched."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed here")

import torch

from mini_engine.backends.kv_formats import Int8Format
from mini_engine.kernels import write_kv
from tests.kernels.checks import needs_interpreter

pytestmark = needs_interpreter


def bits(x):
    """Comparable where there is NaN too."""
    return x.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.element_size()])


def expected(pool, x, slots):
    pool = pool.clone()
    for t, slot in enumerate(slots):
        if slot >= 0:
            pool[slot // pool.shape[1], slot % pool.shape[1]] = x[t]
    return pool


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("P", "K", "D"), [(1, 3, 32), (16, 2, 80), (5, 1, 256), (256, 5, 96)])
def test_every_row_is_in_its_slot_and_no_other_byte_is_touched(P, K, D, dtype):
    T, N = 70, 80 // P + 2
    k, v = torch.randn(2, T, K, D).to(dtype)
    slots = torch.randperm(N * P)[:T].tolist()
    slots[3] = slots[-1] = -1
    pools = [torch.full((N, P, K, D), math.nan, dtype=dtype) for _ in "kv"]
    wanted = [expected(pool, x, slots) for pool, x in zip(pools, (k, v))]
    write_kv(k, v, *pools, torch.tensor(slots))
    assert all(torch.equal(bits(pool), bits(want)) for pool, want in zip(pools, wanted))


def test_views_of_a_fused_product_into_one_layer_of_many():
    qkv, layers = torch.randn(5, 8, 16), torch.zeros(3, 2, 4, 2, 16)
    write_kv(qkv[:, 4:6], qkv[:, 6:], layers[1], layers[2], torch.tensor([7, 0, -1, 3, 4]))
    assert torch.equal(layers[1], expected(torch.zeros(2, 4, 2, 16), qkv[:, 4:6], [7, 0, -1, 3, 4]))
    assert torch.equal(layers[2], expected(torch.zeros(2, 4, 2, 16), qkv[:, 6:], [7, 0, -1, 3, 4]))
    assert not layers[0].any()


def test_k_and_v_have_strides_of_their_own():
    k, v = torch.randn(3, 6, 16)[:, 2:4], torch.randn(3, 2, 24)[..., :16]
    pools = [torch.zeros(2, 4, 2, 16), torch.zeros(2, 4, 3, 20)[:, :, 1:, :16]]
    slots = [0, -1, 5]
    wanted = [expected(pool, x, slots) for pool, x in zip(pools, (k, v))]
    write_kv(k, v, *pools, torch.tensor(slots))
    assert all(torch.equal(pool, want) for pool, want in zip(pools, wanted))


def test_nothing_to_write():
    pool = torch.full((2, 4, 2, 16), math.nan)
    before = pool.clone()
    write_kv(torch.zeros(0, 2, 16), torch.zeros(0, 2, 16), pool, pool, torch.zeros(0, dtype=torch.int64))
    write_kv(torch.zeros(3, 2, 16), torch.zeros(3, 2, 16), pool, pool, torch.full((3,), -1))
    assert torch.equal(bits(pool), bits(before))


def test_a_latent_has_one_array():
    latent, pool = torch.randn(3, 1, 80), torch.zeros(2, 4, 1, 80)
    write_kv(latent, None, pool, None, torch.tensor([5, -1, 2]))
    assert torch.equal(pool, expected(torch.zeros(2, 4, 1, 80), latent, [5, -1, 2]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_int8_codes_and_scales_are_those_of_the_torch_backend(dtype):
    k, v = (torch.randn(2, 40, 3, 80) * torch.rand(2, 40, 3, 1) * 10).to(dtype)
    k[0] = 0
    k[1] = torch.arange(80) * 2 - 127 + 0.5  # ties, rounded to even
    k[1, :, 0] = 127
    slots = torch.randperm(48)[:40]
    codes, scales = torch.zeros(2, 6, 8, 3, 80, dtype=torch.int8), torch.zeros(2, 6, 8, 3)
    write_kv(k, v, codes[0], codes[1], slots, k_scale=scales[0], v_scale=scales[1])
    for x, stored, scale in zip((k, v), codes, scales):
        wanted, wanted_scale = Int8Format(dtype).encode(x)
        assert torch.equal(stored.view(48, 3, 80)[slots], wanted)
        assert torch.equal(scale.view(48, 3)[slots], wanted_scale[..., 0])


@pytest.mark.filterwarnings("ignore:invalid value")  # NumPy's, on the way
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_cannot_be_quantised_comes_back_as_nan(bad):
    k = torch.randn(2, 1, 16)
    k[0, 0, 5] = bad
    codes, scale = torch.zeros(1, 4, 1, 16, dtype=torch.int8), torch.zeros(1, 4, 1)
    write_kv(k, None, codes, None, torch.tensor([0, 1]), k_scale=scale)
    decoded = codes * scale[..., None]
    assert decoded[0, 0].isnan().all()
    assert torch.allclose(decoded[0, 1], k[1], atol=0.02)


def test_slots_beyond_two_to_the_31_numbers():
    """The memory is only reserved: next to nothing of it is touched."""
    stride, far = 1 << 28, 8
    try:
        pool = torch.empty(2 * far * stride + 4 * 32, dtype=torch.float16)
    except RuntimeError as error:
        pytest.skip(f"no room to reserve a pool beyond 2^31 numbers: {error}")
    view = pool.as_strided((far + 1, 4, 1, 32), (stride, 32, 32, 1), far * stride)
    k = torch.randn(1, 1, 32).half()
    write_kv(k, None, view, None, torch.tensor([far * 4 + 2]))
    assert torch.equal(view[far, 2], k[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slot_mapping": torch.tensor([8])}, "slots from 8 to 8, and the pool has 0 to 7"),
        ({"slot_mapping": torch.tensor([-2])}, "slots from -2"),
        ({"slot_mapping": torch.tensor([1], dtype=torch.int32)}, "slot_mapping must be int64"),
        ({"slot_mapping": torch.tensor([1, 2])}, "slot_mapping must have shape"),
        ({"v": None}, "give both, or neither"),
        ({"v": torch.zeros(1, 2, 16).half()}, "must be"),
        ({"k_pool": torch.zeros(2, 4, 1, 16)}, "k_pool must have shape"),
        ({"v_pool": torch.zeros(3, 4, 2, 16)}, "v_pool must have shape"),
        ({"k_pool": torch.zeros(2, 4, 2, 16, dtype=torch.int8)}, "a pool of torch.int8 cannot"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    right = {
        "k": torch.zeros(1, 2, 16), "v": torch.zeros(1, 2, 16), "k_pool": torch.zeros(2, 4, 2, 16),
        "v_pool": torch.zeros(2, 4, 2, 16), "slot_mapping": torch.tensor([1]),
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        write_kv(**{**right, **change})
