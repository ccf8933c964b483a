"""How many prompt tokens a block-wise prefix cache saves."""

from __future__ import annotations

from collections.abc import Iterator

from mini_engine.arguments import count
from mini_engine.explain import explained


@explained()
def prefix_hit_tokens(P: int, L: int, B: int) -> int:
    """Prompt tokens served from the cache, in whole blocks, leaving at least one token to compute.

    P cached prefix tokens, L prompt tokens, B tokens per block. The last token must be computed: its logits are the
    first output. Formula F21.
    """
    P, L, B = count("P", P, minimum=0), count("L", L), count("B", B)
    return min(P // B, (L - 1) // B) * B


@prefix_hit_tokens.working
def _(hit: int, P: int, L: int, B: int) -> Iterator[str]:
    yield "min(P // B, (L - 1) // B) × B"
    yield f"= min({P:,} // {B}, {L - 1:,} // {B}) × {B} = min({P // B:,}, {(L - 1) // B:,}) × {B} = {hit:,} tokens"
    yield f"{L - hit:,} of {L:,} prompt tokens are left to compute"
