"""Times and intensities, in fractions: what bounds a step, and where that changes.

Read it in this order: `ridge`, `gemm`, `attention_intensity`, `decode_step`, `throughput`, `prefill`, `swap`.
Every function has `.explain(same arguments)`, which shows the arithmetic. `docs/formulas.md` numbers the formulas.
"""

from mini_engine.roofline.attention_intensity import attn_decode_intensity, mla_decode_intensity, prefill_attn_intensity
from mini_engine.roofline.decode_step import AdditiveStep, DecodeStep, decode_step_time, decode_step_time_additive
from mini_engine.roofline.gemm import gemm_intensity, min_tokens_compute_bound
from mini_engine.roofline.prefill import PrefillSaving, prefill_flops, prefill_saving, prefill_time
from mini_engine.roofline.ridge import ridge_point
from mini_engine.roofline.swap import (
    RecomputeOrSwap,
    block_copy_bytes,
    breakeven_pcie,
    effective_pcie,
    recompute_vs_swap,
)
from mini_engine.roofline.throughput import batch_for_ridge, batch_kv_equals_weights, throughput_ceiling, tokens_per_s

__all__ = [
    "AdditiveStep",
    "DecodeStep",
    "PrefillSaving",
    "RecomputeOrSwap",
    "attn_decode_intensity",
    "batch_for_ridge",
    "batch_kv_equals_weights",
    "block_copy_bytes",
    "breakeven_pcie",
    "decode_step_time",
    "decode_step_time_additive",
    "effective_pcie",
    "gemm_intensity",
    "min_tokens_compute_bound",
    "mla_decode_intensity",
    "prefill_attn_intensity",
    "prefill_flops",
    "prefill_saving",
    "prefill_time",
    "recompute_vs_swap",
    "ridge_point",
    "throughput_ceiling",
    "tokens_per_s",
]
