"""What a reader of a sizing must know besides its figures: what was left out, what was assumed, what does not fit."""

from __future__ import annotations

from collections.abc import Iterator

from mini_engine.sizing.result import Sizing
from mini_engine.units import format_bytes, format_rate


def notes_of(s: Sizing) -> Iterator[str]:
    """One sentence for each, the gravest first."""
    yield from _memory(s)
    yield from _layers(s)
    yield from _sharding(s)
    yield from _experts(s)
    yield from _hardware(s)


def _memory(s: Sizing) -> Iterator[str]:
    if not s.weights_fit:
        remedy = (
            f"it takes at least {s.least_tp:,} such GPUs for the weights alone"
            if s.least_tp
            else "the overhead alone fills a card"
        )
        yield (
            f"the weights do not fit: {format_bytes(s.weights_per_gpu)} per GPU, with {format_bytes(s.overhead)} of "
            f"overhead; {remedy}. Times and rates are those of a card that could hold them"
        )
    if s.context > s.model.max_position_embeddings:
        yield f"the context of {s.context:,} is more than the {s.model.max_position_embeddings:,} positions the model was made for"


def _layers(s: Sizing) -> Iterator[str]:
    m = s.model
    if m.num_windowed_layers:
        yield (
            f"{m.num_windowed_layers} of {m.num_attention_layers} attention layers keep a window: concurrency is given "
            "both for an engine that keeps every layer in full and for one that gives windows back; FLOPs of attention "
            "are counted as if all layers were full"
        )
    if m.layers_without_kv:
        yield f"{len(m.layers_without_kv)} of {m.num_hidden_layers} layers have no K/V; their fixed state per sequence is not counted"


def _sharding(s: Sizing) -> Iterator[str]:
    m, tp = s.model, s.tp
    if not m.is_mla and m.num_key_value_heads % tp:
        yield f"{tp} GPUs do not divide {m.num_key_value_heads} KV heads evenly: some heads are held more than once; an engine may refuse this"
    if m.is_mla and tp > 1:
        yield f"the latent cache is not split by heads: each of the {tp} GPUs holds all of it"


def _experts(s: Sizing) -> Iterator[str]:
    if s.model.num_experts and s.num_active_params == s.num_params and not s.counted:
        yield (
            "all parameters count as used by every token, which is far too much for a mixture of experts: give the "
            "active ones (num_active_params, --active-params) for its times"
        )
    elif s.model.num_experts:
        yield f"a step reads at most {s.num_read_params:,} parameters, counting only the experts its tokens can be routed to"


def _hardware(s: Sizing) -> Iterator[str]:
    gpu = s.gpu
    if (s.dtype == "fp8" and not gpu.fp8_flops) or s.dtype in ("fp32", "float32", "int8"):
        yield f"no peak for {s.dtype} on {gpu.name} in the table: compute is counted at the bf16 rate, {format_rate(s.flops, 'FLOP/s')}"
    if gpu.verified != "yes":
        yield f"the figures of {gpu.name} are not all verified ({gpu.verified}): {gpu.note}"
