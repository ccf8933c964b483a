"""What sharing a prompt's blocks between branches saves (parallel sampling, beam search)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from mini_engine.arguments import ceil_div, count
from mini_engine.explain import explained
from mini_engine.units import exact


@explained("beam search may also share blocks of the output, and drops branches")
def sharing_saving(prefix: int, out: int, n: int, block: int) -> Fraction:
    """Blocks without sharing over blocks with sharing, for n branches of `out` tokens on one prompt of `prefix`.

    Full prompt blocks are shared. A partly filled last one is copied by all branches but the last that writes to it, so
    in the end each branch has one of its own. Between 1 and n. Formula F23.
    """
    total, full = branch_table(prefix, out, block)
    n = count("n", n)
    return Fraction(n * total, full + n * (total - full))


@sharing_saving.working
def _(saving: Fraction, prefix: int, out: int, n: int, block: int) -> Iterator[str]:
    total, full = branch_table(prefix, out, block)
    yield f"blocks of a branch: T = ceil(({prefix:,} + {out:,}) / {block}) = {total:,}, of them shared: F = {prefix:,} // {block} = {full:,}"
    yield "n T / (F + n (T - F))"
    yield f"= {n} × {total:,} / ({full:,} + {n} × {total - full:,}) = {n * total:,} / {full + n * (total - full):,} = {exact(saving)}"


def branch_table(prefix: int, out: int, block: int) -> tuple[int, int]:
    """Blocks of one branch of prefix + out tokens, and how many of them the prefix fills. ValueError for no tokens."""
    prefix, out, block = count("prefix", prefix, minimum=0), count("out", out, minimum=0), count("block", block)
    if prefix + out == 0:
        raise ValueError("prefix and out are both 0: there are no blocks to share")
    return ceil_div(prefix + out, block), prefix // block
