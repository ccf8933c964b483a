"""Tile sizes and split counts. A table and a rule, pure Python: nothing is tuned while the engine runs."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_H = 16  # query heads of a tile: the least that matrix instructions take
SPLIT_TOKENS = 256  # a split shorter than this costs more than it gains
MAX_SPLITS = 32


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """One kernel's tiles: `block_h` query heads by `block_n` tokens, and how the compiler schedules them."""

    block_h: int
    block_n: int
    num_warps: int
    num_stages: int


# arch -> (16-bit numbers, 16-bit and a head over 128, 32-bit, 32-bit and a head over 128)
GQA = {
    "interpreter": (KernelConfig(BLOCK_H, 64, 1, 1),) * 4,  # few large tiles: each costs the same
    "nvidia": (
        KernelConfig(BLOCK_H, 64, 4, 2),
        KernelConfig(BLOCK_H, 32, 4, 2),
        KernelConfig(BLOCK_H, 32, 8, 2),
        KernelConfig(BLOCK_H, 32, 8, 2),
    ),
    "amd": (
        KernelConfig(BLOCK_H, 64, 4, 2),
        KernelConfig(BLOCK_H, 32, 4, 2),
        KernelConfig(BLOCK_H, 32, 8, 2),
        KernelConfig(BLOCK_H, 16, 8, 2),  # of 32 tokens would not fit the shared memory
    ),
}


def gqa_config(arch: str, head_dim: int, bits: int) -> KernelConfig:
    """Tiles of paged_gqa_decode for an arch ("interpreter", "sm_90", "gfx942", ...), a head size, and bits a number of q."""
    return GQA[family(arch)][2 * (bits > 16) + (head_dim > 128)]


# arch -> (up to 16 heads, more heads, an int8 pool, 32-bit numbers)
MLA = {
    "interpreter": (
        KernelConfig(BLOCK_H, 64, 1, 1),
        KernelConfig(2 * BLOCK_H, 64, 1, 1),
        KernelConfig(BLOCK_H, 64, 1, 1),
        KernelConfig(BLOCK_H, 64, 1, 1),
    ),
    "sm_80": (
        KernelConfig(BLOCK_H, 32, 4, 2),
        KernelConfig(BLOCK_H, 32, 4, 2),
        KernelConfig(BLOCK_H, 32, 8, 2),
        KernelConfig(BLOCK_H, 16, 8, 2),
    ),
    "nvidia": (
        KernelConfig(BLOCK_H, 32, 4, 2),
        KernelConfig(2 * BLOCK_H, 32, 8, 2),
        KernelConfig(BLOCK_H, 32, 8, 2),
        KernelConfig(BLOCK_H, 16, 8, 2),
    ),
    "amd": (
        KernelConfig(BLOCK_H, 16, 4, 1),
        KernelConfig(BLOCK_H, 16, 4, 1),
        KernelConfig(BLOCK_H, 16, 4, 1),
        KernelConfig(BLOCK_H, 16, 8, 2),
    ),
}


def mla_config(arch: str, num_heads: int, bits: int, pool_bits: int | None = None) -> KernelConfig:
    """Tiles of paged_mla_decode for an arch, a number of heads, and bits a number of q and of the pool (None: the same)."""
    row = MLA[arch if arch in MLA else family(arch)]
    if bits > 16:
        return row[3]
    return row[2] if pool_bits == 8 else row[int(num_heads > BLOCK_H)]


def family(arch: str) -> str:
    """The row of the tables that an arch uses, unless it has one of its own."""
    return "interpreter" if arch == "interpreter" else "amd" if arch.startswith("gfx") else "nvidia"


def choose_num_splits(num_programs: int, max_context: int, num_processors: int) -> int:
    """Into how many parts to cut contexts of at most `max_context` tokens, where one part makes `num_programs` programs.

    The smallest power of two that gives every processor two programs, as long as a part keeps SPLIT_TOKENS tokens, and at
    most MAX_SPLITS. It depends on shapes only: the same batch is always cut the same way.
    """
    splits = 1
    while (
        splits < MAX_SPLITS and num_programs * splits < 2 * num_processors and max_context >= 2 * splits * SPLIT_TOKENS
    ):
        splits *= 2
    return splits


def padded(size: int, minimum: int = 16) -> int:
    """The power of two that holds `size`: tiles have no other sizes, and matrix instructions none below 16."""
    return max(minimum, 1 << (size - 1).bit_length())
