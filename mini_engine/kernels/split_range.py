"""Which tokens a program attends to: shared by the decode kernels."""

from __future__ import annotations

from mini_engine.kernels._mode import import_triton

triton = import_triton()
import triton.language as tl  # noqa: E402


@triton.jit
def token_range(length, split, WINDOW: tl.constexpr, NUM_SPLITS: tl.constexpr, BLOCK_N: tl.constexpr):
    """First token of a split and the one after its last, for a context of `length` tokens. WINDOW 0: no window.

    What the window leaves is cut, not the whole context: no split is spent on tokens that nobody looks at. Splits are whole
    tiles, so only the last tile of a context is partial; splits past the end are empty.
    """
    first = 0
    if WINDOW > 0:
        first = tl.maximum(length - WINDOW, 0)
    tiles = tl.cdiv(length - first, BLOCK_N)
    tokens = tl.cdiv(tiles, NUM_SPLITS) * BLOCK_N
    begin = tl.minimum(first + split * tokens, length)
    end = tl.minimum(begin + tokens, length)
    return begin, end
