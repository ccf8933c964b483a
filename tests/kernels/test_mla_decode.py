"""paged_mla_decode against float64: DeepSeek's sizes and small ones, over pools that are poisoned wherever nobody may look."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("triton", reason="the kernels need Triton, which is not installed here")

import numpy as np
import torch

from mini_engine.attention import mla_expanded
from mini_engine.kernels import paged_mla_decode
from tests.kernels import checks
from tests.kernels.memory import poisoned_memory
from tests.kernels.worlds import check_numbers, make_world, mla_run

RUN = mla_run(paged_mla_decode)
TILE = checks.TILE
SMALL = {"K": 1, "G": 8, "D": 80, "value_dim": 64}

# latent, rotary key, heads, block size
SHAPES = [(64, 16, 8, 16), (64, 16, 3, 1), (512, 64, 16, 64), (512, 64, 20, 256), (96, 24, 17, 5), (128, 32, 40, 32)]
CASES = [
    (shape, dtype, num_splits, int8)
    for shape, dtype, (num_splits, int8) in itertools.product(
        SHAPES, [torch.float32, torch.float16, torch.bfloat16], [(1, False), (3, False), (None, True)]
    )
]


def name(case) -> str:
    (Dc, Dr, H, P), dtype, num_splits, int8 = case
    return f"Dc{Dc}-Dr{Dr}-H{H}-P{P}-{str(dtype)[6:]}-splits{num_splits}{'-int8' * int8}"


@pytest.mark.parametrize("case", CASES, ids=name)
def test_every_case_is_as_exact_as_its_dtype(case):
    (Dc, Dr, H, P), dtype, num_splits, int8 = case
    lengths = (0, 1, P - 1, P + 1, 2 * TILE + 3)
    world = make_world(
        lengths, P=P, K=1, G=H, D=Dc + Dr, value_dim=Dc, dtype=dtype, int8=int8, seed=CASES.index(case) % 3
    )
    with poisoned_memory():
        check_numbers(RUN, world, num_splits=num_splits)


@pytest.mark.parametrize("check", ["ragged", "large_scores", "reads", "writes", "far_blocks"])
def test_what_every_decode_kernel_must_do(check):
    getattr(checks, f"check_{check}")(RUN, **SMALL)


def test_int8_latents_are_read_with_their_scales_and_nothing_else():
    checks.check_ragged(RUN, int8=True, **SMALL)
    checks.check_reads(RUN, int8=True, **SMALL)
    checks.check_small_values(RUN, **SMALL)


def test_heads_beyond_one_tile_and_splits_change_rounding_only():
    for H in (1, 9, 63, 128):
        for num_splits in (1, 2, 7):
            check_numbers(RUN, make_world((0, 5, 130), K=1, G=H, D=80, value_dim=64), num_splits=num_splits)


def test_page_size_changes_no_bit():
    outs = [RUN(make_world((3, 64, 150), P=P, **SMALL), num_splits=2) for P in (1, 5, 16, 256)]
    assert all(torch.equal(out, outs[0]) for out in outs)


def test_absorbed_queries_give_what_expanded_attention_gives():
    """Down to the heads' own values: W_UK on the way in, W_UV on the way out."""
    H, Dn, Dr, Dv, Dc, length = 4, 12, 16, 20, 32, 70
    rng = np.random.default_rng(0)
    q_nope, q_rope = rng.normal(size=(1, H, Dn)), rng.normal(size=(1, H, Dr))
    w_uk, w_uv = rng.normal(size=(H, Dn, Dc)), rng.normal(size=(H, Dv, Dc))
    world = make_world((length,), K=1, G=H, D=Dc + Dr, value_dim=Dc)
    cached = np.stack([world.k.numpy()[world.place(0, token)][0] for token in range(length)]).astype(np.float64)
    scale = (Dn + Dr) ** -0.5
    expected = mla_expanded(q_nope, q_rope, cached[:, :Dc], cached[:, Dc:], w_uk, w_uv, scale, offset=length - 1)
    absorbed = torch.from_numpy(np.einsum("qhn,hnc->qhc", q_nope, w_uk)).float()
    out = paged_mla_decode(
        absorbed, torch.from_numpy(q_rope).float(), world.k[:, :, 0], world.tables, world.lengths, scale
    )
    values = np.einsum("qhc,hvc->qhv", out.double().numpy(), w_uv)
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-4)


def test_no_sequences():
    assert RUN(make_world((), **SMALL)).shape == (0, 8, 64)


@checks.needs_interpreter
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q_rope": torch.zeros(1, 8, 15)}, "latent_pool must have shape"),
        ({"q_rope": torch.zeros(1, 7, 16)}, "q_rope must have shape"),
        ({"q_rope": torch.zeros(1, 8, 16).half()}, "q_rope must have q_latent's dtype"),
        ({"latent_pool": torch.zeros(2, 4, 80).half()}, "a pool of torch.float16 cannot be read"),
        ({"latent_pool": torch.zeros(2, 4, 80, dtype=torch.int8)}, "a pool of torch.int8 cannot be read"),
        ({"latent_scale": torch.zeros(2, 4)}, "belong to pools of int8"),
        ({"context_lens": torch.tensor([9], dtype=torch.int32)}, "room for 8"),
        ({"block_tables": torch.tensor([[0, 2]], dtype=torch.int32)}, "a table names block 2"),
        ({"out": torch.zeros(1, 8, 80)}, "out must have shape"),
        ({"out": torch.zeros(1, 8, 64).half()}, "out must have q's dtype"),
        ({"num_splits": 0}, "num_splits=0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_is_named(change, message):
    right = {
        "q_latent": torch.zeros(1, 8, 64), "q_rope": torch.zeros(1, 8, 16), "latent_pool": torch.zeros(2, 4, 80),
        "block_tables": torch.tensor([[0, 1]], dtype=torch.int32),
        "context_lens": torch.tensor([8], dtype=torch.int32), "scale": 1.0,
    }  # fmt: skip
    with pytest.raises(ValueError, match=message):
        paged_mla_decode(**{**right, **change})
