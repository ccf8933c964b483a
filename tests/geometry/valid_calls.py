"""One valid call of every formula, for tests that go over all of them. `zero` lists the arguments that may be 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mini_engine import geometry, roofline
from mini_engine.catalog import get_model

LLAMA = get_model("llama-3-70b")
GEMMA = get_model("gemma-3-1b")


@dataclass
class Call:
    function: Any
    arguments: dict[str, Any]
    zero: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.function.__name__


def call(function: Any, *, zero: str = "", **arguments: Any) -> Call:
    return Call(function, arguments, frozenset(zero.split()))


GEOMETRY = [
    call(geometry.kv_elems_per_token, cfg=LLAMA),
    call(geometry.kv_elems_expanded, cfg=LLAMA),
    call(geometry.kv_bytes_per_token, cfg=LLAMA, kv_dtype="fp8"),
    call(
        geometry.kv_bytes_quant, cfg=LLAMA, bits=4, group=32, scale_bytes=2, zero_bytes=2, zero="scale_bytes zero_bytes"
    ),
    call(geometry.kv_bytes_hybrid, cfg=GEMMA, windows=GEMMA.layer_windows, S=32768, kv_dtype="bf16", zero="S"),
    call(geometry.kv_total_bytes, cfg=LLAMA, S=8192, B=16, kv_dtype="bf16", zero="S"),
    call(geometry.kv_bytes_per_token_per_gpu, cfg=LLAMA, tp=4, kv_dtype="bf16"),
    call(geometry.param_breakdown, cfg=LLAMA),
    call(geometry.params, cfg=LLAMA),
    call(geometry.active_params, cfg=get_model("mixtral-8x7b"), tokens=3),
    call(geometry.weight_bytes, cfg=LLAMA, dtype="bf16", tp=2),
    call(geometry.kv_budget, hbm=80e9, weights=70e9, overhead=2e9, util="0.9", zero="hbm weights overhead"),
    call(geometry.max_concurrency, budget=8e9, kv_per_token=163840, S=2048, block=16, zero="budget"),
    call(geometry.max_context, budget=8e9, kv_per_token=163840, B=3, zero="budget"),
    call(geometry.concurrency_ratio, num_blocks=1952, block=16, max_model_len=20000),
    call(geometry.paged_utilization, lengths=[7, 100, 330], block=16),
    call(geometry.reservation_utilization, used=1024, reserved=8192, zero="used"),
    call(geometry.reservation_waste, used=1024, reserved=8192, zero="used"),
    call(
        geometry.frag_breakdown,
        token=204,
        reserved=133,
        internal=573,
        external=89,
        zero="token reserved internal external",
    ),
    call(geometry.prefix_hit_tokens, P=2000, L=2100, B=16, zero="P"),
    call(geometry.forwards_without_cache, n=1000, m=1000),
    call(geometry.forwards_with_cache, n=1000, m=1000),
    call(geometry.attn_pairs, n=1000, m=1000, cache=False),
    call(geometry.sharing_saving, prefix=512, out=128, n=4, block=16, zero="prefix out"),
    call(geometry.mla_reduction, baseline="mha"),
]

SHAPE = {"L": 80, "n_q": 64, "d": 128}
STEP = {
    "weight_bytes": 70e9,
    "kv_per_token": 163840,
    "S": 1024,
    "B": 32,
    "bw": 3.35e12,
    "n_params": 70e9,
    "flops": 989e12,
    "n_layers": 80,
    "n_q": 64,
    "head_dim": 128,
    "tp": 2,
}

ROOFLINE = [
    call(roofline.ridge_point, flops=989e12, bw=3.35e12),
    call(roofline.gemm_intensity, M=2048, K=8192, N=4096, b=2),
    call(roofline.min_tokens_compute_bound, K=8192, N=8192, ridge=295, b=2),
    call(roofline.attn_decode_intensity, n_q=64, n_kv=8, d=128, S=8192, b_kv=2, b_qo=2, sharers=3, zero="S"),
    call(roofline.mla_decode_intensity, n_h=128, d_c=512, d_r=64, S=4096, s_q=2, b=2, zero="S d_r"),
    call(roofline.prefill_attn_intensity, S=2048, T=4096, zero="S"),
    call(roofline.decode_step_time, **STEP, zero="S weight_bytes kv_per_token n_params"),
    call(
        roofline.decode_step_time_additive,
        B=4,
        kv_bytes_per_seq=819200000,
        weight_bytes=13e9,
        bw=8.2e11,
        n_params=13e9,
        flops=1.97e14,
        chips=16,
        zero="kv_bytes_per_seq weight_bytes n_params",
    ),
    call(roofline.tokens_per_s, B=32, step_time="0.0225"),
    call(roofline.throughput_ceiling, bw=3.35e12, kv_per_token=163840, S=8192),
    call(roofline.batch_kv_equals_weights, weight_bytes=70e9, kv_per_token=163840, S=1024),
    call(roofline.batch_for_ridge, weight_bytes=70e9, kv_per_token=163840, S=512, flops_per_seq=7e10, ridge=295, zero="S kv_per_token"),
    call(roofline.prefill_flops, N=70e9, S=2000, **SHAPE, causal=True, done=16, zero="N S done"),
    call(roofline.prefill_time, flops=2.8e14, peak=989e12, gpus=2, mfu="0.5", zero="flops"),
    call(roofline.prefill_saving, P=2000, L=2100, B=16, cfg=LLAMA, zero="P"),
    call(
        roofline.recompute_vs_swap, kv_per_token=131072, S=8192, pcie=32e9, flops=989e12, mfu="0.5", N=8e9, **SHAPE, links=2, zero="kv_per_token S N"
    ),
    call(roofline.breakeven_pcie, kv_per_token=131072, flops=989e12, mfu="0.5", n_params=8e9, links=2, zero="kv_per_token"),
    call(roofline.block_copy_bytes, cfg=LLAMA, block=16, kv_dtype="bf16"),
    call(roofline.effective_pcie, pcie=32e9, copy_bytes=32768, overhead="1e-5", zero="overhead"),
]  # fmt: skip

ALL = GEOMETRY + ROOFLINE
