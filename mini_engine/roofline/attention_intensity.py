"""Intensity of attention: decode over K/V heads, decode over a latent, prefill."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from mini_engine.arguments import Real, count, number
from mini_engine.explain import explained
from mini_engine.units import exact, significant


@explained("softmax, writing the new token's K/V, reading the block table")
def attn_decode_intensity(
    n_q: int, n_kv: int, d: int, S: int, b_kv: Real = 2, b_qo: Real = 2, sharers: int = 1
) -> Fraction:
    """FLOP per byte of one decode step of attention over S cached tokens, per layer.

    n_q query heads and n_kv KV heads of size d; b_kv and b_qo bytes per element of the cache and of q and o;
    `sharers` sequences that attend to the same S tokens, read once for all. 4 n_q d S x / (2 b_kv n_kv d S + 2 b_qo
    n_q d x): below x n_q / n_kv at 2 bytes, whatever S is. Formula F12.
    """
    n_q, n_kv, d = count("n_q", n_q), count("n_kv", n_kv), count("d", d)
    S, sharers = count("S", S, minimum=0), count("sharers", sharers)
    cache = 2 * number("b_kv", b_kv, positive=True) * n_kv * d * S
    query_and_output = 2 * number("b_qo", b_qo, positive=True) * n_q * d * sharers
    return 4 * n_q * d * S * sharers / (cache + query_and_output)


@attn_decode_intensity.working
def _(intensity: Fraction, n_q: int, n_kv: int, d: int, S: int, b_kv: Real, b_qo: Real, sharers: int) -> Iterator[str]:
    yield "4 n_q d S x FLOPs (scores and values) over 2 b_kv n_kv d S bytes of K and V and 2 b_qo n_q d x bytes of q and o"
    flops = 4 * n_q * d * S * sharers
    cache, rest = 2 * number("b_kv", b_kv) * n_kv * d * S, 2 * number("b_qo", b_qo) * n_q * d * sharers
    yield f"= 4 × {n_q} × {d} × {S:,} × {sharers} / (2 × {b_kv} × {n_kv} × {d} × {S:,} + 2 × {b_qo} × {n_q} × {d} × {sharers})"
    yield f"= {flops:,} FLOP / ({significant(cache, 12)} + {significant(rest, 12)}) B = {exact(intensity)} FLOP/B"


@explained("softmax, writing the new token's latent, the up-projections of q and of the output")
def mla_decode_intensity(n_h: int, d_c: int, d_r: int, S: int | None = None, s_q: int = 1, b: Real = 2) -> Fraction:
    """FLOP per byte of MLA decode with the up-projections absorbed into q and o: all heads read the same latent.

    n_h heads, latent d_c and rotary d_r elements, s_q query tokens a step. Without S the limit of long contexts,
    2 n_h s_q (2 d_c + d_r) / (b (d_c + d_r)); with S tokens q and o are read and written too. Formula F13.
    """
    n_h, d_c, d_r, s_q = count("n_h", n_h), count("d_c", d_c), count("d_r", d_r, minimum=0), count("s_q", s_q)
    b_ = number("b", b, positive=True)
    per_key = n_h * s_q * (2 * d_c + d_r)
    if S is None:
        return 2 * per_key / (b_ * (d_c + d_r))
    S = count("S", S, minimum=0)
    return 2 * per_key * S / (b_ * (S * (d_c + d_r) + per_key))


@mla_decode_intensity.working
def _(intensity: Fraction, n_h: int, d_c: int, d_r: int, S: int | None, s_q: int, b: Real) -> Iterator[str]:
    if S is None:
        yield "2 n_h s_q (2 d_c + d_r) / (b (d_c + d_r)), for S to infinity"
        yield f"= 2 × {n_h} × {s_q} × (2 × {d_c} + {d_r}) / ({b} × ({d_c} + {d_r})) = {exact(intensity)} FLOP/B"
    else:
        yield "2 n_h s_q (2 d_c + d_r) S / (b (S (d_c + d_r) + n_h s_q (2 d_c + d_r)))"
        per_key = n_h * s_q * (2 * d_c + d_r)
        yield f"= 2 × {per_key:,} × {S:,} / ({b} × ({S:,} × {d_c + d_r} + {per_key:,})) = {exact(intensity)} FLOP/B"


@explained("softmax; the causal mask, which halves the FLOPs; grouped KV heads, which read less")
def prefill_attn_intensity(S: int, T: int) -> Fraction:
    """FLOP per byte of attention of S queries over T keys, multi-head, 2 bytes, scores never written: S T / (S + T).

    Formula F14.
    """
    S, T = count("S", S, minimum=0), count("T", T)
    return Fraction(S * T, S + T)


@prefill_attn_intensity.working
def _(intensity: Fraction, S: int, T: int) -> Iterator[str]:
    yield "4 S T d FLOPs over 2 × 2 (S + T) d bytes = S T / (S + T)"
    yield f"= {S:,} × {T:,} / ({S:,} + {T:,}) = {exact(intensity)} FLOP/B"
