"""Sizes and counts, in integers and fractions: KV cache, weights, what fits, what is wasted, what sharing saves.


Read it in this order: `kv_size`, `kv_windows`, `kv_quant`, `sharding`, `weights`, `capacity`, `fragmentation`,
`prefix`, `forwards`, `sharing`, `mla`. Every function has `.explain(same arguments)`, which shows the arithmetic.
`docs/formulas.md` numbers the formulas.
"""

from mini_engine.geometry.capacity import concurrency_ratio, kv_budget, max_concurrency, max_context
from mini_engine.geometry.forwards import attn_pairs, forwards_with_cache, forwards_without_cache
from mini_engine.geometry.fragmentation import (
    FragBreakdown,
    frag_breakdown,
    paged_utilization,
    reservation_utilization,
    reservation_waste,
)
from mini_engine.geometry.kv_quant import kv_bytes_quant
from mini_engine.geometry.kv_size import kv_bytes_per_token, kv_elems_expanded, kv_elems_per_token, kv_total_bytes
from mini_engine.geometry.kv_windows import kv_bytes_hybrid
from mini_engine.geometry.mla import mla_reduction
from mini_engine.geometry.prefix import prefix_hit_tokens
from mini_engine.geometry.sharding import kv_bytes_per_token_per_gpu
from mini_engine.geometry.sharing import sharing_saving
from mini_engine.geometry.weights import ParamBreakdown, active_params, param_breakdown, params, weight_bytes

__all__ = [
    "FragBreakdown",
    "ParamBreakdown",
    "active_params",
    "attn_pairs",
    "concurrency_ratio",
    "forwards_with_cache",
    "forwards_without_cache",
    "frag_breakdown",
    "kv_budget",
    "kv_bytes_hybrid",
    "kv_bytes_per_token",
    "kv_bytes_per_token_per_gpu",
    "kv_bytes_quant",
    "kv_elems_expanded",
    "kv_elems_per_token",
    "kv_total_bytes",
    "max_concurrency",
    "max_context",
    "mla_reduction",
    "paged_utilization",
    "param_breakdown",
    "params",
    "prefix_hit_tokens",
    "reservation_utilization",
    "reservation_waste",
    "sharing_saving",
    "weight_bytes",
]
