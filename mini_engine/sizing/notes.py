"""What a reader of a sizing must know besides its figures: what was left out, what was assumed, what does not fit."""

from __future__ import annotations

from collections.abc import Iterator

from mini_engine.geometry.weight_reads import expected_experts, most_experts
from mini_engine.sizing.result import CacheSizing, Sizing
from mini_engine.units import dtype_bytes, format_bytes, format_rate, significant


def notes_of(s: Sizing) -> Iterator[str]:
    """One sentence for each, the gravest first."""
    yield from _memory(s)
    yield from _precision(s)
    yield from cache_notes(s)
    yield from _experts(s)
    yield from _hardware(s)


def cache_notes(s: CacheSizing) -> Iterator[str]:
    """Those that are about the K/V alone."""
    yield from _positions(s)
    yield from _layers(s)
    yield from _sharding(s)


def _memory(s: Sizing) -> Iterator[str]:
    if s.weights_fit:
        return
    usable = f"{float(s.util) * 100:.4g}% of {format_bytes(s.memory)}"
    if s.least_tp is None:
        yield f"the overhead of {format_bytes(s.overhead)} per GPU alone fills a card ({usable}): give less overhead"
        return
    yield (
        f"the weights do not fit: {format_bytes(s.weights_per_gpu)} per GPU, with {format_bytes(s.overhead)} of "
        f"overhead; it takes at least {s.least_tp:,} such GPUs for the weights alone. Times and rates are those of a "
        "card that could hold them"
    )


def _precision(s: Sizing) -> Iterator[str]:
    eight = s.model.quantization.endswith(" 8 bits") and dtype_bytes("dtype", s.dtype) == 1
    if s.model.quantization and not eight:
        yield (
            f"the file says that its weights are quantized ({s.model.quantization}); here every one counts as {s.dtype}: "
            "choose another with dtype (--dtype); 8 bits are the fewest it knows, without scales"
        )


def _positions(s: CacheSizing) -> Iterator[str]:
    limit = s.model.max_position_embeddings
    if not limit:
        yield f"the file has no max_position_embeddings: whether the model was made for {s.context:,} tokens is not known"
    elif s.context > limit:
        yield f"the context of {s.context:,} is more than the {limit:,} positions the model was made for"


def _layers(s: CacheSizing) -> Iterator[str]:
    m = s.model
    if s.num_windowed_layers:
        yield (
            f"{s.num_windowed_layers} of {m.num_attention_layers} attention layers keep a window smaller than the context. What fits is given for "
            "an engine that keeps every layer in full, and for one that gives windows back; a step reads and computes the "
            "windows only"
        )
    if m.layers_without_kv:
        state = "" if set(m.layers_without_kv) <= STATELESS else "; their fixed state per sequence is not counted"
        kinds = ", ".join(sorted(set(m.layers_without_kv)))
        yield f"{len(m.layers_without_kv)} of {m.num_hidden_layers} layers have no K/V of their own ({kinds}){state}"


STATELESS = frozenset(["shared K/V", "no KV heads", "mlp", "moe", "-", "E"])
"""Kinds of layers without K/V that keep nothing else either."""


def _sharding(s: CacheSizing) -> Iterator[str]:
    m, tp = s.model, s.tp
    if not m.is_mla and m.num_key_value_heads % tp:
        yield f"{tp} GPUs do not divide {m.num_key_value_heads} K/V heads evenly: some heads are held more than once; an engine may refuse this"
    if m.is_mla and tp > 1:
        yield f"the latent cache is not split by heads: each of the {tp} GPUs holds all of it"


def _experts(s: Sizing) -> Iterator[str]:
    m = s.model
    if not m.num_experts:
        return
    if s.active_deduced:
        yield (
            f"{s.num_active_params:,} parameters count as active: all that were given, less the experts that a token does "
            "not use; a better number goes beside it (num_active_params, --active-params)"
        )
    if s.batch > 1:
        most, expected = most_experts(m, s.batch), expected_experts(m, s.batch)
        yield (
            f"of {m.num_experts} experts in a layer, a step of {s.batch:,} tokens needs {m.num_experts_per_tok} if all "
            f"agree, which the floor counts, {significant(expected, 3)} on average if all are equally likely, and "
            f"{most} at most"
        )


def _hardware(s: Sizing) -> Iterator[str]:
    gpu = s.gpu
    if (s.dtype == "fp8" and not gpu.fp8_flops) or s.dtype in ("fp32", "float32", "int8"):
        yield f"no peak for {s.dtype} on {gpu.name} in the table: compute is counted at the bf16 rate, {format_rate(s.flops, 'FLOP/s')}"
    if gpu.verified != "yes":
        yield f"the figures of {gpu.name} are not all verified ({gpu.verified}): {gpu.note}"
