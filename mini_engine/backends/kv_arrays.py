"""What a model leaves in the cache: keys and values, or with latent attention (MLA) one latent for both."""

from __future__ import annotations

from mini_engine.catalog import ModelSpec

KV_CACHE_DTYPES = ("auto", "fp8", "int8")
"""How a paged cache can keep what it caches; "auto" is the model's own dtype."""

MLA_DECODE = ("absorbed", "expanded")
"""How a backend can compute latent attention for rows of one query."""


def kv_arrays(spec: ModelSpec) -> dict[str, tuple[int, int]]:
    """The arrays that cache a layer, by name: (heads, size) of what each keeps of one token.

    A latent is one head that all query heads share: the vector that keys and values are made from, then the rotary key.
    """
    if spec.is_mla:
        return {"latent": (1, spec.latent_dim)}
    return dict.fromkeys(("k", "v"), (spec.num_key_value_heads, spec.head_dim))
