"""How much smaller DeepSeek-V2's latent cache is, against three baselines that give three different answers."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from mini_engine.arguments import choice
from mini_engine.catalog import get_model
from mini_engine.explain import explained
from mini_engine.units import exact

BASELINES = {
    "mha": "multi-head attention in the same architecture: 128 heads of 128 per layer",
    "deepseek-67b": "DeepSeek-67B (grouped-query attention), at equal precision",
    "deepseek-67b-6bit": "DeepSeek-67B in 16 bits, against DeepSeek-V2's cache as deployed, in 6 bits (DeepSeek-V2 paper, section 3.2.3)",
}


@explained("the scales of the 6-bit cache")
def mla_reduction(baseline: str) -> Fraction:
    """1 - (bits per token of DeepSeek-V2's latent cache) / (bits per token of a baseline). Formula F24.

    baseline: "mha" | "deepseek-67b" | "deepseek-67b-6bit". The published 93.3 % is the last: it mixes architecture
    and quantization.
    """
    latent, other = _bits(baseline)
    return 1 - Fraction(latent[0], other[0])


@mla_reduction.working
def _(reduction: Fraction, baseline: str) -> Iterator[str]:
    (latent, latent_text), (other, other_text) = _bits(baseline)
    yield f"baseline: {BASELINES[baseline]}"
    yield f"MLA: {latent_text} = {latent:,} bits per token"
    yield f"baseline: {other_text} = {other:,} bits per token"
    yield f"1 - {latent:,} / {other:,} = {exact(reduction)}; {float(1 / (1 - reduction)):.2f} times smaller"


def _bits(baseline: str) -> tuple[tuple[int, str], tuple[int, str]]:
    """(bits per token, how they come about) of the latent cache and of the baseline."""
    choice("baseline", baseline, tuple(BASELINES))
    v2, dense = get_model("deepseek-v2"), get_model("deepseek-67b")
    layers, latent = v2.num_hidden_layers, v2.latent_dim
    bits = 6 if baseline == "deepseek-67b-6bit" else 16
    mla = (layers * latent * bits, f"{layers} layers × {latent} elements × {bits} bits")
    if baseline == "mha":
        heads, dim = v2.num_attention_heads, 128
        return mla, (layers * 2 * heads * dim * 16, f"{layers} layers × 2 × {heads} heads × {dim} × 16 bits")
    per_layer = 2 * dense.num_key_value_heads * dense.head_dim
    return mla, (
        dense.num_hidden_layers * per_layer * 16,
        f"{dense.num_hidden_layers} layers × {per_layer:,} elements × 16 bits",
    )
