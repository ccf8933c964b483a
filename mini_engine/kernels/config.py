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


# Rows: "half" is float16 and bfloat16; "wide" a head over 128 (GQA) or more than 16 heads (MLA). Found by
# compiling for each arch with Triton 3.7.1: what was tried spills no register and fits the shared memory.
GQA = {
    "interpreter": dict.fromkeys(
        ("half", "half wide", "float", "float wide", "float int8"), KernelConfig(BLOCK_H, 64, 1, 1)
    ),  # few large tiles: there each costs the same
    "nvidia": {
        "half": KernelConfig(BLOCK_H, 64, 4, 2),
        "half wide": KernelConfig(BLOCK_H, 32, 4, 2),
        "float": KernelConfig(BLOCK_H, 32, 8, 1),
        "float wide": KernelConfig(BLOCK_H, 16, 8, 2),
        "float int8": KernelConfig(BLOCK_H, 16, 8, 1),
    },
    "amd": {
        "half": KernelConfig(BLOCK_H, 64, 4, 2),
        "half wide": KernelConfig(BLOCK_H, 32, 4, 2),
        "float": KernelConfig(BLOCK_H, 32, 8, 2),
        "float wide": KernelConfig(BLOCK_H, 16, 8, 2),
        "float int8": KernelConfig(BLOCK_H, 16, 8, 1),
    },
}
GQA["sm_80"] = GQA["nvidia"] | {"half int8": KernelConfig(BLOCK_H, 32, 4, 2)}
MLA = {
    "interpreter": {
        "half": KernelConfig(BLOCK_H, 64, 1, 1),
        "half wide": KernelConfig(2 * BLOCK_H, 64, 1, 1),
        "half int8": KernelConfig(BLOCK_H, 64, 1, 1),
        "float": KernelConfig(BLOCK_H, 64, 1, 1),
        "float int8": KernelConfig(BLOCK_H, 64, 1, 1),
    },
    "nvidia": {
        "half": KernelConfig(BLOCK_H, 32, 4, 2),
        "half wide": KernelConfig(2 * BLOCK_H, 32, 8, 2),
        "half int8": KernelConfig(BLOCK_H, 32, 8, 2),
        "float": KernelConfig(BLOCK_H, 16, 8, 2),
        "float int8": KernelConfig(BLOCK_H, 16, 4, 1),
    },
    "amd": {
        "half": KernelConfig(BLOCK_H, 16, 4, 1),
        "half wide": KernelConfig(BLOCK_H, 16, 4, 1),
        "half int8": KernelConfig(BLOCK_H, 16, 4, 1),
        "float": KernelConfig(BLOCK_H, 16, 8, 2),
        "float int8": KernelConfig(BLOCK_H, 16, 4, 1),
    },
}
MLA["sm_80"] = MLA["nvidia"] | {"half wide": KernelConfig(BLOCK_H, 32, 4, 2)}


def gqa_config(arch: str, head_dim: int, bits: int, pool_bits: int | None = None) -> KernelConfig:
    """Tiles of paged_gqa_decode: arch ("interpreter", "sm_90", "gfx942", ...), head size, bits a number of q and of the pools
    (None: the same).
    """
    rows = GQA[arch if arch in GQA else family(arch)]
    int8 = ("float" if bits > 16 else "half") + " int8"
    if pool_bits == 8 and int8 in rows:
        return rows[int8]
    return rows[("float" if bits > 16 else "half") + (" wide" if head_dim > 128 else "")]


def mla_config(arch: str, num_heads: int, bits: int, pool_bits: int | None = None) -> KernelConfig:
    """Tiles of paged_mla_decode: arch, number of heads, bits a number of q and of the pool (None: the same)."""
    rows = MLA[arch if arch in MLA else family(arch)]
    kind = "float" if bits > 16 else "half"
    if pool_bits == 8:
        return rows[f"{kind} int8"]
    return rows["half wide" if kind == "half" and num_heads > BLOCK_H else kind]


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
