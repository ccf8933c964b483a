"""The traffic counter, and by it: the decode kernels read what they need of a cache, each byte as often as is said."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed here")

import numpy as np
import torch
import triton.language as tl

from mini_engine.kernels import combine, gqa_decode, paged_gqa_decode, paged_mla_decode, write_kv
from mini_engine.kernels import traffic as counter
from mini_engine.kernels.split_range import token_range, triton
from mini_engine.kernels.traffic import traffic
from tests.kernels.checks import TILE, needs_interpreter
from tests.kernels.worlds import make_world

pytestmark = needs_interpreter
LATENT_LENGTHS = (17, 5 * TILE + 3, 2000)  # queries of many heads weigh more: they come once a sequence
LENGTHS = (0, 17, TILE, 5 * TILE + 3, 1500)  # whole tiles and partial ones


def gqa(world, **options):
    with traffic() as launches:
        paged_gqa_decode(
            world.q, world.k, world.v, world.tables, world.lengths, world.scale, window=world.window,
            k_scale=world.k_scale, v_scale=world.v_scale, **options,
        )  # fmt: skip
    return launches


def mla(world, **options):
    q_latent, q_rope = world.q.tensor_split([world.value_dim], dim=-1)
    scale = None if world.k_scale is None else world.k_scale[..., 0]
    with traffic() as launches:
        paged_mla_decode(
            q_latent, q_rope, world.k[:, :, 0], world.tables, world.lengths, world.scale, latent_scale=scale, **options
        )
    return launches


@pytest.mark.parametrize(
    ("shape", "reads"),
    [
        ({"K": 2, "G": 4, "D": 128}, 1),
        ({"K": 3, "G": 1, "D": 64, "P": 1}, 1),
        ({"K": 1, "G": 20, "D": 80, "P": 5}, 2),  # a group of 20 heads is two tiles of 16
        ({"K": 2, "G": 4, "D": 128, "int8": True}, 1),
        ({"K": 2, "G": 4, "D": 128, "window": 300}, 1),
    ],
    ids=str,
)
def test_gqa_moves_no_more_than_a_twentieth_above_the_least(shape, reads):
    (launch,) = gqa(make_world(LENGTHS, dtype=torch.float16, **shape), num_splits=1)
    K, D, itemsize = shape["K"], shape["D"], 1 if shape.get("int8") else 2
    tokens = sum(min(length, shape.get("window", length)) for length in LENGTHS)
    pool, scales = reads * tokens * K * D * itemsize, reads * tokens * K * 4
    expected = {"k_ptr": pool, "v_ptr": pool}
    if shape.get("int8"):
        expected |= {"k_scale_ptr": scales, "v_scale_ptr": scales}
    assert launch.reads == reads
    assert launch.least() == expected
    assert {name: launch.loaded[name] for name in expected} == expected
    assert {name: reads * launch.distinct[name] for name in expected} == expected
    assert launch.stored == {"out_ptr": launch.arguments["q_ptr"].numel() * 2}
    assert 1 < launch.ratio <= 1.05


@pytest.mark.parametrize(
    ("shape", "reads"),
    [({"G": 16, "D": 576, "value_dim": 512}, 1), ({"G": 48, "D": 576, "value_dim": 512}, 2), ({"G": 8, "D": 80, "value_dim": 64}, 1)],
    ids=str,
)  # fmt: skip
def test_mla_moves_no_more_than_a_tenth_above_the_least(shape, reads):
    (launch,) = mla(make_world(LATENT_LENGTHS, K=1, dtype=torch.float16, **shape), num_splits=1)
    assert launch.reads == reads
    assert launch.least() == {"pool_ptr": reads * sum(LATENT_LENGTHS) * shape["D"] * 2}
    assert launch.loaded["pool_ptr"] == reads * launch.distinct["pool_ptr"] == launch.least()["pool_ptr"]
    assert set(launch.loaded) == {"q_latent_ptr", "q_rope_ptr", "pool_ptr", "table_ptr", "len_ptr"}
    assert 1 < launch.ratio <= 1.1


def test_splits_read_the_cache_no_more_often_and_parts_are_seen():
    world = make_world((1000, 900), K=2, G=4, D=128, dtype=torch.float16)
    whole = gqa(world, num_splits=1)[0]
    decode, combining = gqa(world, num_splits=4)
    assert [decode.loaded[x] for x in ("k_ptr", "v_ptr")] == [whole.loaded[x] for x in ("k_ptr", "v_ptr")]
    parts, lse = 4 * world.q.numel() * 4, 4 * world.q[..., 0].numel() * 4
    assert decode.stored == {"out_ptr": parts, "lse_ptr": lse}
    assert combining.loaded == {"part_ptr": parts, "lse_ptr": 2 * lse}
    assert combining.stored == {"out_ptr": world.q.numel() * 2}
    assert combining.least() == {}
    assert combining.ratio != combining.ratio


@triton.jit
def whole_tiles(length, split, WINDOW: tl.constexpr, NUM_SPLITS: tl.constexpr, BLOCK_N: tl.constexpr):
    begin, end = token_range(length, split, WINDOW, NUM_SPLITS, BLOCK_N)
    return begin, tl.cdiv(end, BLOCK_N) * BLOCK_N


def test_a_kernel_without_a_mask_is_above_the_least(monkeypatch):
    """It reads whole tiles where contexts end one token into a tile."""
    world = make_world((TILE + 1,) * 2, K=1, G=4, D=64, dtype=torch.float16)
    tables = torch.zeros((2, 2 * TILE // world.block_size), dtype=torch.int32)  # a block that is there
    monkeypatch.setattr(gqa_decode, "token_range", whole_tiles)
    with traffic() as launches:
        paged_gqa_decode(world.q, world.k, world.v, tables, world.lengths, world.scale, num_splits=1)
    (launch,) = launches
    assert launch.loaded["k_ptr"] == launch.least()["k_ptr"] / (TILE + 1) * 2 * TILE
    assert launch.ratio > 1.9


def test_write_kv_moves_each_row_once_and_skipped_ones_not_at_all():
    new, pool = torch.ones(10, 2, 64, dtype=torch.float16), torch.zeros(4, 16, 2, 64, dtype=torch.float16)
    slots = torch.tensor([3, -1, 7, 40, -1, 0, 1, 2, 63, 62])
    with traffic() as launches:
        write_kv(new, new.clone(), pool, pool.clone(), slots)
    row = 2 * 64 * 2
    assert launches[0].stored == {"k_pool_ptr": 8 * row, "v_pool_ptr": 8 * row}
    assert {name: launches[0].loaded[name] for name in ("k_ptr", "v_ptr")} == {"k_ptr": 8 * row, "v_ptr": 8 * row}


def test_views_into_one_memory_are_told_apart():
    """q and the new k and v of a fused projection lie in one tensor."""
    fused = torch.randn(3, 4, 64, dtype=torch.float16)
    k, v = fused[:, 1:3], fused[:, 2:4]  # they even share a head: the first has it
    pool = torch.zeros(1, 16, 2, 64, dtype=torch.float16)
    with traffic() as launches:
        write_kv(k, v, pool, pool.clone(), torch.arange(3))
    head = 3 * 64 * 2
    assert {name: launches[0].loaded[name] for name in ("k_ptr", "v_ptr")} == {"k_ptr": 3 * head, "v_ptr": head}
    assert launches[0].distinct["k_ptr"] == 2 * head


def test_several_launches_are_counted_each_for_itself():
    parts, lse, out = torch.zeros(2, 1, 4, 16), torch.zeros(2, 1, 4), torch.zeros(1, 4, 16)
    with traffic() as launches:
        combine(parts, lse, out)
        combine(parts, lse, out)
    combine(parts, lse, out)
    assert [launch.kernel for launch in launches] == ["combine_kernel"] * 2
    assert launches[0].loaded == launches[1].loaded
    assert launches[0].bytes_stored == 4 * 16 * 4


def test_the_table_says_how_often_and_how_much():
    text = str(gqa(make_world((64,), K=1, G=20, D=64, dtype=torch.float16), num_splits=1)[0])
    assert text.startswith("gqa_decode_kernel, grid 2 x 1 x 1")
    assert f"least {2 * 2 * 64 * 64 * 2:,} (the cache 2 times)" in text
    assert any(line.split() == ["k", "16,384", "8,192", "0", "16,384"] for line in text.splitlines())


def test_a_change_in_the_interpreter_is_noticed(monkeypatch):
    """Say, one that loads by another method: what is not seen would be missing without a word."""
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    methods = builder.create_masked_load, builder.create_masked_store
    monkeypatch.setattr(counter, "_tested", False)
    monkeypatch.setattr(
        builder, "create_load", lambda self, ptr, *options: methods[0](self, ptr, *all_lanes(ptr), *options)
    )
    with pytest.raises(RuntimeError, match="is counted wrongly"), traffic():
        pytest.fail("counting began")
    assert (builder.create_masked_load, builder.create_masked_store) == methods


def all_lanes(ptr):
    """Mask and other of an unmasked load."""
    return type(ptr)(np.ones_like(ptr.data, dtype=bool), tl.int1), None
