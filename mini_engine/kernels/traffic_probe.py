"""A kernel of known traffic, by which the counter is tested before it is trusted."""

from __future__ import annotations

from mini_engine.kernels._mode import import_triton

triton = import_triton()
import triton.language as tl  # noqa: E402


@triton.jit
def probe_kernel(x_ptr, out_ptr, length, BLOCK: tl.constexpr):
    """Each program reads x[0] again, without a mask, and doubles BLOCK elements of x, of which there are `length`."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(x_ptr)
    x = tl.load(x_ptr + i, mask=i < length, other=0.0)
    tl.store(out_ptr + i, (x + x + first * 0.0).to(tl.float16), mask=i < length)
