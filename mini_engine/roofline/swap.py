"""A preempted request comes back: is it faster to swap its K/V over PCIe, or to compute it again?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from mini_engine.arguments import Real, count, number, share
from mini_engine.catalog import ModelSpec, model_spec
from mini_engine.explain import explained
from mini_engine.roofline.prefill import prefill_flops, prefill_time
from mini_engine.units import dtype_bytes, format_bytes, format_rate, format_seconds, significant

NOT_INCLUDED = (
    "overlap of copies with computing, the host's memory bandwidth, that a recompute can be batched and prefix-cached"
)


@dataclass(frozen=True)
class RecomputeOrSwap:
    """Seconds to bring a preempted request back, each way. These are alternatives and have no total."""

    swap: Fraction
    recompute: Fraction

    @property
    def faster(self) -> str:
        """ "swap" or "recompute"; a tie is recomputed."""
        return "swap" if self.swap < self.recompute else "recompute"


@explained(NOT_INCLUDED)
def recompute_vs_swap(
    kv_per_token: Real, S: int, pcie: Real, flops: Real, mfu: Real, N: Real, L: int, n_q: int, d: int, links: int = 1
) -> RecomputeOrSwap:
    """Seconds to swap S tokens of K/V out and in again, and seconds to recompute them.

    Swap: 2 kv S / (pcie links). Recompute: one causal prefill. Formula F20.

    kv_per_token bytes, pcie bytes/s per direction and link, flops peak FLOP/s, mfu in (0, 1]; N, L, n_q, d as in
    `prefill_flops`.
    """
    S, links = count("S", S, minimum=0), count("links", links)
    swap = 2 * number("kv_per_token", kv_per_token) * S / (number("pcie", pcie, positive=True) * links)
    peak = number("flops", flops, positive=True)
    return RecomputeOrSwap(swap, prefill_time(prefill_flops(N, S, L, n_q, d), peak, 1, mfu))


@recompute_vs_swap.working
def _(
    times: RecomputeOrSwap,
    kv_per_token: Real,
    S: int,
    pcie: Real,
    flops: Real,
    mfu: Real,
    N: Real,
    L: int,
    n_q: int,
    d: int,
    links: int,
) -> Iterator[str]:
    moved = 2 * number("kv_per_token", kv_per_token) * S
    yield (
        f"swap, there and back: 2 × {significant(number('kv_per_token', kv_per_token), 9)} × {S:,} = "
        f"{format_bytes(moved)}, "
        f"/ ({format_rate(number('pcie', pcie))} × {links}) = {format_seconds(times.swap)}"
    )
    yield "recompute, one prefill:"
    yield from prefill_flops.steps(N, S, L, n_q, d)
    yield from prefill_time.steps(prefill_flops(N, S, L, n_q, d), flops, 1, mfu)
    yield f"{times.faster} is faster"


@explained(NOT_INCLUDED)
def breakeven_pcie(kv_per_token: Real, flops: Real, mfu: Real, n_params: Real, links: int = 1) -> Fraction:
    """Bytes/s per link at which swapping takes as long as recomputing, for short sequences.

    2 kv flops mfu / (2 n_params) / links, from 2 kv S / (pcie links) = 2 n_params S / (flops mfu) for S to 0. Above
    it, swapping wins; longer sequences lower it. Formula F20.
    """
    work = number("flops", flops, positive=True) * share("mfu", mfu)
    return (
        2
        * number("kv_per_token", kv_per_token)
        * work
        / (2 * number("n_params", n_params, positive=True))
        / count("links", links)
    )


@breakeven_pcie.working
def _(rate: Fraction, kv_per_token: Real, flops: Real, mfu: Real, n_params: Real, links: int) -> Iterator[str]:
    yield "2 kv × flops × mfu / (2 × parameters) / links"
    peak = format_rate(number("flops", flops), "FLOP/s")
    yield (
        f"= 2 × {significant(number('kv_per_token', kv_per_token), 9)} B × {peak} × {mfu} / (2 × "
        f"{significant(number('n_params', n_params), 12)}) / {links}"
        f" = {format_rate(rate)}"
    )


@explained("batching of copies")
def block_copy_bytes(cfg: ModelSpec, block: int, kv_dtype: str = "bf16") -> int:
    """Bytes of one contiguous piece of a block: the keys (or the values, or the latent) of one layer.

    A swap copies many of these.
    """
    per_element = dtype_bytes("kv_dtype", kv_dtype)
    elems = cfg.latent_dim if model_spec("cfg", cfg).is_mla else cfg.num_key_value_heads * cfg.head_dim
    return count("block", block) * elems * per_element


@block_copy_bytes.working
def _(size: int, cfg: ModelSpec, block: int, kv_dtype: str) -> Iterator[str]:
    per_element = dtype_bytes("kv_dtype", kv_dtype)
    shape = f"{cfg.latent_dim}" if cfg.is_mla else f"{cfg.num_key_value_heads} × {cfg.head_dim}"
    yield f"tokens per block × elements of one layer's K × bytes = {block} × {shape} × {per_element} = {format_bytes(size)}"


@explained("queues that keep several copies in flight")
def effective_pcie(pcie: Real, copy_bytes: Real, overhead: Real) -> Fraction:
    """Bytes/s left of `pcie` when every copy of `copy_bytes` also costs `overhead` seconds."""
    size = number("copy_bytes", copy_bytes, positive=True)
    return size / (size / number("pcie", pcie, positive=True) + number("overhead", overhead))


@effective_pcie.working
def _(rate: Fraction, pcie: Real, copy_bytes: Real, overhead: Real) -> Iterator[str]:
    size = number("copy_bytes", copy_bytes)
    yield "bytes / (bytes / pcie + overhead)"
    yield f"= {significant(size, 9)} B / ({format_seconds(size / number('pcie', pcie))} + {format_seconds(number('overhead', overhead))}) = {format_rate(rate)}"
