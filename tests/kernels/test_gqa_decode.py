"""paged_gqa_decode against float64: shapes, dtypes, splits and windows, over pools that are poisoned wherever nobody may look."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed here")

import torch

from mini_engine.kernels import paged_gqa_decode
from tests.kernels import checks
from tests.kernels.memory import poisoned_memory
from tests.kernels.worlds import check_numbers, gqa_run, make_world

RUN = gqa_run(paged_gqa_decode)
TILE = checks.TILE

# head size, block size, group, key/value heads
SHAPES = [
    (32, 1, 3, 3),
    (64, 16, 4, 2),
    (64, 5, 20, 1),  # more heads in a group than a tile has
    (80, 8, 7, 1),
    (96, 32, 1, 5),
    (128, 128, 8, 1),
    (128, 16, 9, 2),
    (256, 256, 16, 1),
]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
CASES = [
    (shape, dtype, num_splits, window, int8)
    for (shape, dtype), (num_splits, window, int8) in itertools.product(
        itertools.product(SHAPES, DTYPES), [(1, None, False), (3, None, False), (None, 1, False), (2, 70, True)]
    )
]


def name(case) -> str:
    (D, P, G, K), dtype, num_splits, window, int8 = case
    return f"D{D}-P{P}-G{G}-K{K}-{str(dtype)[6:]}-splits{num_splits}-window{window}{'-int8' * int8}"


@pytest.mark.parametrize("case", CASES, ids=name)
def test_every_case_is_as_exact_as_its_dtype(case):
    (D, P, G, K), dtype, num_splits, window, int8 = case
    lengths = (0, 1, P - 1, P, P + 1, 2 * TILE + 3)
    seed = CASES.index(case) % 3
    world = make_world(lengths, P=P, K=K, G=G, D=D, dtype=dtype, window=window, int8=int8, seed=seed)
    with poisoned_memory():
        check_numbers(RUN, world, num_splits=num_splits)


def test_there_are_enough_cases():
    assert len(CASES) >= 60


@pytest.mark.parametrize("check", ["ragged", "large_scores", "window", "reads", "writes"])
@pytest.mark.parametrize("shape", [{"P": 16, "K": 2, "G": 2}, {"P": 1, "K": 1, "G": 3, "D": 80}], ids=str)
def test_what_every_decode_kernel_must_do(check, shape):
    getattr(checks, f"check_{check}")(RUN, **shape)


def test_int8_pools_are_read_with_their_scales_and_nothing_else():
    checks.check_ragged(RUN, int8=True)
    checks.check_reads(RUN, int8=True)


def test_blocks_beyond_two_to_the_31_numbers():
    checks.check_far_blocks(RUN, K=2)


def test_small_values_survive_float16_with_scales():
    checks.check_small_values(RUN)


def test_page_size_and_order_of_blocks_change_no_bit():
    outs = []
    for P, seed in [(1, 0), (2, 0), (16, 0), (64, 0), (256, 0), (16, 0)]:
        world = make_world((3, 64, 150), P=P, K=2, G=3, seed=seed)
        if len(outs) == 5:  # the same blocks elsewhere in the pool
            order = torch.randperm(len(world.k), generator=torch.Generator().manual_seed(1))
            known = world.tables < len(world.k)
            tables = world.tables.clone()
            tables[known] = torch.argsort(order)[tables[known].long()].int()
            world = type(world)(**{**vars(world), "k": world.k[order], "v": world.v[order], "tables": tables})
        outs.append(RUN(world, num_splits=2))
    assert all(torch.equal(out, outs[0]) for out in outs)


@pytest.mark.parametrize("num_splits", [1, 2, 3, 7, 32, None])
def test_the_number_of_splits_changes_rounding_only(num_splits):
    check_numbers(RUN, make_world((0, 5, 64, 65, 500)), num_splits=num_splits)


def test_any_view_of_q_and_any_layout_of_the_pools():
    world = make_world((0, 17, 70), K=2, G=3, D=32)
    expected = RUN(world)
    fused = torch.randn(3, 10, 32)
    fused[:, 2:8] = world.q
    turned = world.q.permute(2, 0, 1).contiguous().permute(1, 2, 0)
    assert turned.stride(-1) != 1
    layers = torch.full((3, *world.k.shape), float("nan"))
    layers[1] = world.k
    both = torch.stack((world.k, world.v), dim=3)  # K and V of a head side by side
    for q, k, v in [
        (fused[:, 2:8], layers[1], world.v),
        (turned, both[..., 0, :], both[..., 1, :]),
        (world.q, world.k.transpose(1, 2).contiguous().transpose(1, 2), world.v),
    ]:
        other = type(world)(**{**vars(world), "q": q, "k": k, "v": v})
        assert torch.equal(RUN(other), expected)


def test_no_sequences():
    world = make_world(())
    assert RUN(world).shape == (0, 4, 32)


@checks.needs_interpreter
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": torch.tensor([33], dtype=torch.int32)}, "a context of 33 tokens, and its block table has room for 32"),
        ({"lengths": torch.tensor([-1], dtype=torch.int32)}, "a context of -1 tokens"),
        ({"lengths": torch.tensor([5])}, "context_lens must be int32"),
        ({"lengths": torch.tensor([5, 5], dtype=torch.int32)}, "context_lens must have shape"),
        ({"tables": torch.tensor([[99, 0]], dtype=torch.int32)}, "a table names block 99, and the pool has blocks 0 to"),
        ({"tables": torch.tensor([[-1, 0]], dtype=torch.int32)}, "a table names block -1"),
        ({"tables": torch.tensor([[0, 0]])}, "block_tables must be int32"),
        ({"window": 0}, "window=0"),
        ({"q": torch.zeros(1, 4, 32, device="meta")}, "on one device, found cpu and meta"),
        ({"q": torch.zeros(1, 3, 32)}, "3 query heads cannot share 2"),
        ({"q": torch.zeros(1, 4, 16)}, "k_pool must have shape"),
        ({"q": torch.zeros(1, 4, 32, dtype=torch.float64)}, "q must be float16"),
        ({"q": torch.zeros(1, 4, 32, dtype=torch.float16)}, "a pool of torch.float32 cannot be read"),
        ({"v": torch.zeros(3, 16, 2, 32)}, "v_pool must have shape"),
        ({"k_scale": torch.zeros(4, 16, 2)}, "give both, or neither"),
        ({"k_scale": torch.zeros(4, 16, 2), "v_scale": torch.zeros(4, 16, 2)}, "belong to pools of int8"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_does_not_fit_is_named(change, message):
    world = make_world((17 - 1,))
    with pytest.raises(ValueError, match=message):
        RUN(type(world)(**{**vars(world), **change}))


@pytest.mark.parametrize("num_splits", [0, -1, True, 1.5, 2000])
def test_num_splits_must_be_a_number_of_splits(num_splits):
    with pytest.raises(ValueError, match="num_splits="):
        RUN(make_world((3,)), num_splits=num_splits)
