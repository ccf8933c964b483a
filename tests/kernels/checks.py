"""What every decode kernel must do, as checks that raise AssertionError: for the engine's kernels and for broken ones.

Each takes a Run (see `worlds`) and `shape`, the sizes of a world that the kernel can read.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mini_engine.course.kernel_watch import watched
from mini_engine.kernels import is_interpreted, memory_check
from tests.kernels.memory import poisoned_memory
from tests.kernels.worlds import Run, check_numbers, errors, make_world

needs_interpreter = pytest.mark.skipif(
    not is_interpreted(), reason="looks into the interpreter: TRITON_INTERPRET=1 python -m pytest tests/kernels"
)


def skip_unless_interpreted() -> None:
    """For checks that look at memory: those of a GPU are made elsewhere."""
    if not is_interpreted():
        pytest.skip("looks into the interpreter: TRITON_INTERPRET=1 python -m pytest tests/kernels")


TILE = 64  # tokens that the interpreter's configuration takes at a time
RAGGED = (0, 1, 15, 16, 17, 2 * TILE, 2 * TILE + 3)


def check_ragged(run: Run, **shape: object) -> None:
    """Lengths around blocks and tiles, in one batch, in one part and in several, some of them empty."""
    for num_splits in (1, 2, 5):
        with poisoned_memory():
            check_numbers(run, make_world(RAGGED, **shape), num_splits=num_splits)


def check_large_scores(run: Run, **shape: object) -> None:
    """Scores that rise and fall by hundreds from tile to tile: only a running maximum, and rescaling, survive that."""
    world = make_world((3 * TILE + 5, TILE + 1), **shape)
    q = world.q * 60
    for num_splits in (1, 3):
        check_numbers(run, type(world)(**{**vars(world), "q": q}), 1e-5, num_splits=num_splits)


def check_unlike_heads(run: Run, **shape: object) -> None:
    """Every second head's scores are 60 times as large: one maximum for a whole tile of heads would leave the others nothing."""
    world = make_world((TILE, 2 * TILE + 3), **shape)
    q = world.q.clone()
    q[:, ::2] *= 60
    check_numbers(run, replace(world, q=q), 1e-5)


def check_low_scores(run: Run, **shape: object) -> None:
    """All scores lie far below 0: a maximum that starts at 0 would make all weights vanish."""
    world = make_world((TILE, 2 * TILE + 3), **shape)
    pools = {"k": -world.k.abs()}
    if world.value_dim is not None:
        pools["v"] = pools["k"]
    check_numbers(run, replace(world, q=world.q.abs() * 60, **pools), 1e-5)


def check_strides(run: Run, **shape: object) -> None:
    """The pools of K and V are views with strides of their own."""
    world = make_world((TILE + 3,), **shape)
    N, P, K, D = world.v.shape
    wide = torch.full((N, P, K + 1, D + 4), torch.nan)
    wide[:, :, :K, :D] = world.v
    check_numbers(run, replace(world, v=wide[:, :, :K, :D]))


def check_any_order(run: Run, **shape: object) -> None:
    """Programs may run in any order, and no two of them store in one place."""
    skip_unless_interpreted()
    for backwards in (False, True):
        for num_splits in (1, 3):
            with watched(backwards=backwards):
                check_numbers(run, make_world((5, TILE + 1), **shape), num_splits=num_splits)


def check_window(run: Run, **shape: object) -> None:
    """Windows of one token, around a block and a tile, and wider than a context."""
    for window in (1, 16, 17, TILE, 2 * TILE + 2):
        world = make_world((0, 1, 16, 17, 2 * TILE + 3), window=window, **shape)
        for num_splits in (1, 3):
            with poisoned_memory():
                check_numbers(run, world, num_splits=num_splits)


def check_small_values(run: Run, **shape: object) -> None:
    """Scales of about 1e-5, which times a weight a float16 could only hold with few digits."""
    world = make_world((TILE + 6,), int8=True, dtype=torch.float16, **shape)
    assert world.v_scale is not None
    world.v_scale.mul_(1e-3)
    check_numbers(run, world)


def check_reads(run: Run, **shape: object) -> None:
    """Read of each pool what the contexts hold, once and nothing else; of the tables what that needs and nothing else."""
    skip_unless_interpreted()
    for num_splits in (1, 3):
        world = make_world(RAGGED, **shape)
        with memory_check(record=True) as reads:
            run(world, num_splits=num_splits)
        places = [world.place(*at) for at in world.slots()]
        for name, pool in (("k", world.k), ("v", world.v)):
            block, slot, head, dim = pool.stride()
            rows = np.array([b * block + s * slot for b, s in places])
            within = np.add.outer(np.arange(pool.shape[2]) * head, np.arange(pool.shape[3]) * dim).ravel()
            wanted = np.sort(np.add.outer(rows, within).ravel())
            assert np.array_equal(reads.of(pool), wanted), f"{name}_pool: not each needed number once"
        entries = {row * world.tables.stride(0) + token // world.block_size for row, token in world.slots()}
        assert set(reads.of(world.tables).tolist()) == entries, "block_tables: entries that no token needs were read"


def check_writes(run: Run, **shape: object) -> None:
    """Nothing around `out` is written, whatever its strides."""
    skip_unless_interpreted()
    world = make_world((5, TILE + 1), **shape)
    _, H, Dv = world.expected().shape
    for num_splits in (1, 3):
        around = torch.full((4, H + 32, Dv + 8), 7.0, dtype=world.q.dtype)
        out = around[1:3, 16 : H + 16, 4:-4]
        assert run(world, num_splits=num_splits, out=out) is out
        assert (errors(out, world.expected()) < 1e-5).all()
        out.fill_(7.0)
        assert (around == 7.0).all(), "something outside out was written"


def check_far_blocks(run: Run, **shape: object) -> None:
    """A block more than 2^31 numbers into the pool. The memory is only reserved: next to nothing of it is touched."""
    skip_unless_interpreted()
    stride, far = 1 << 28, 8  # 8 * 2^28 = 2^31: as an int32 it is -2^31, which lies in the lower half
    near = make_world((5,), P=8, dtype=torch.float16, **shape)
    P, K, D = near.k.shape[1:]
    try:
        pools = [
            torch.empty(2 * far * stride + P * K * D, dtype=torch.float16) for _ in range(1 if near.value_dim else 2)
        ]
    except RuntimeError as error:
        pytest.skip(f"no room to reserve a pool beyond 2^31 numbers: {error}")
    views = [x.as_strided((far + 1, P, K, D), (stride, K * D, D, 1), far * stride) for x in pools]
    block = int(near.tables[0, 0])
    for view, pool in zip(views, (near.k, near.v)):
        view[far] = pool[block]
        view[far][5:] = 0
    tables = torch.full_like(near.tables, far)
    world = type(near)(**{**vars(near), "k": views[0], "v": views[-1], "tables": tables})
    assert (errors(run(world), near.expected()) < 1e-3).all(), "a far block was not found"
