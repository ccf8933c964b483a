"""The work of a prefill, the least time it takes, and what a cached prefix saves of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from mini_engine.arguments import Real, amount, count, flag, number, share
from mini_engine.catalog import ModelSpec, model_spec
from mini_engine.explain import explained
from mini_engine.geometry import active_params, prefix_hit_tokens
from mini_engine.units import exact, format_rate, format_seconds, significant


@explained(
    "softmax, norms, rotary embeddings; the output head is counted for every token though only the last needs it"
)
def prefill_flops(N: Real, S: int, L: int, n_q: int, d: int, causal: bool = True, done: int = 0) -> int:
    """FLOPs to process S prompt tokens after `done` earlier ones.

    Two per parameter and token, and 4 d per score, head and layer.

    N parameters (embeddings included; of a mixture of experts those active per token), L layers, n_q heads of size d.
    With the causal mask, 2 N S + 2 L n_q d (2 S done + S (S + 1)); without it, 2 N S + 4 L n_q d S². Chunks add up to
    the whole exactly. Formula F19.
    """
    N_, S, done = amount("N", N), count("S", S, minimum=0), count("done", done, minimum=0)
    per_score = 2 * count("L", L) * count("n_q", n_q) * count("d", d)
    if not flag("causal", causal):
        if done:
            raise ValueError(
                f"done={done} needs causal=True: without a mask every token attends to all, so there are no chunks"
            )
        return 2 * N_ * S + 2 * per_score * S * S
    return 2 * N_ * S + per_score * (2 * S * done + S * (S + 1))


@prefill_flops.working
def _(flops: int, N: Real, S: int, L: int, n_q: int, d: int, causal: bool, done: int) -> Iterator[str]:
    linear = 2 * amount("N", N) * S
    if causal:
        yield "2 N S + 2 L n_q d (2 S done + S (S + 1))"
        yield f"= 2 × {amount('N', N):,} × {S:,} + 2 × {L} × {n_q} × {d} × (2 × {S:,} × {done:,} + {S:,} × {S + 1:,})"
    else:
        yield "2 N S + 4 L n_q d S²"
        yield f"= 2 × {amount('N', N):,} × {S:,} + 4 × {L} × {n_q} × {d} × {S:,}²"
    yield f"= {linear:,} + {flops - linear:,} = {flops:,} FLOP"


@explained("kernel launches, communication between GPUs, queueing")
def prefill_time(flops: Real, peak: Real, gpus: int = 1, mfu: Real = 1) -> Fraction:
    """Seconds for `flops` on `gpus` GPUs of `peak` FLOP/s at model FLOP utilization `mfu`. Formula F19."""
    return number("flops", flops) / (number("peak", peak, positive=True) * count("gpus", gpus) * share("mfu", mfu))


@prefill_time.working
def _(seconds: Fraction, flops: Real, peak: Real, gpus: int, mfu: Real) -> Iterator[str]:
    rate = format_rate(number("peak", peak), "FLOP/s")
    yield f"FLOPs / (peak × GPUs × MFU) = {significant(number('flops', flops), 15)} / ({rate} × {gpus} × {mfu}) = {format_seconds(seconds)}"


@dataclass(frozen=True)
class PrefillSaving:
    """What a cached prefix saves of a prefill, as shares of the whole."""

    token_share: Fraction
    flop_share: Fraction


@explained("the cost of hashing and looking up, and of the blocks the cached prefix occupies")
def prefill_saving(P: int, L: int, B: int, cfg: ModelSpec) -> PrefillSaving:
    """Share of a prompt's tokens, and of its FLOPs, that a cached prefix saves.

    P cached prefix tokens, L prompt tokens, B tokens per block. Formula F21.

    The FLOP share is smaller: the tokens that are left attend to all of the prefix.
    """
    hit, L = prefix_hit_tokens(P, L, B), count("L", L)
    whole, rest = _flops(cfg, L, 0), _flops(cfg, L - hit, hit)
    return PrefillSaving(Fraction(hit, L), 1 - Fraction(rest, whole))


def _flops(cfg: ModelSpec, tokens: int, done: int) -> int:
    head_dim = model_spec("cfg", cfg).head_dim
    return prefill_flops(
        active_params(cfg), tokens, cfg.num_attention_layers, cfg.num_attention_heads, head_dim, done=done
    )


@prefill_saving.working
def _(saving: PrefillSaving, P: int, L: int, B: int, cfg: ModelSpec) -> Iterator[str]:
    hit = prefix_hit_tokens(P, L, B)
    yield from prefix_hit_tokens.steps(P, L, B)
    yield f"token share = {hit:,} / {L:,} = {exact(saving.token_share)}"
    whole, rest = _flops(cfg, L, 0), _flops(cfg, L - hit, hit)
    yield f"FLOP share = 1 - {rest:,} / {whole:,} = {float(saving.flop_share):.4f}"
