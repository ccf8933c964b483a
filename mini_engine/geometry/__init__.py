"""Sizes and counts, in integers and fractions: KV cache, weights, what fits, what is wasted, what sharing saves.


Read it in this order: `kv_size`, `kv_windows`, `kv_quant`, `sharding`, `weights`, `capacity`, `fragmentation`,
`prefix`, `forwards`, `sharing`, `mla`. Every function has `.explain(same arguments)`, which shows the arithmetic.
`docs/formulas.md` numbers the formulas.
"""

from .capacity import concurrency_ratio, kv_budget, max_concurrency, max_context
from .forwards import attn_pairs, forwards_with_cache, forwards_without_cache
from .fragmentation import (
    FragBreakdown,
    frag_breakdown,
    paged_utilization,
    reservation_utilization,
    reservation_waste,
)
from .kv_quant import kv_bytes_quant
from .kv_size import kv_bytes_per_token, kv_elems_expanded, kv_elems_per_token, kv_total_bytes
from .kv_windows import kv_bytes_hybrid
from .mla import mla_reduction
from .prefix import prefix_hit_tokens
from .sharding import kv_bytes_per_token_per_gpu
from .sharing import sharing_saving
from .weights import ParamBreakdown, active_params, param_breakdown, params, weight_bytes

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
