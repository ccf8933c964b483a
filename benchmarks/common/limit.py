"""The least time a workload can take on this machine: its products at the measured rate, its reads at the measured bandwidth."""

from __future__ import annotations

from collections.abc import Sequence

from mini_engine.catalog import ModelSpec
from mini_engine.geometry import kv_bytes_per_token, param_breakdown
from mini_engine.roofline import prefill_flops
from mini_engine.roofline.measure import MachineRates


def least_seconds(spec: ModelSpec, requests: Sequence[dict], rates: MachineRates, bytes_per_weight: int) -> float:
    """Seconds of an engine that computes no token twice, runs everything at once and does nothing but products and reads.

    One step computes all prompts, a prefix that an earlier request has only once; each later step decodes one token of
    every request not yet done. A step reads the matrices (`bytes_per_weight` as held) and the fp32 K/V of its contexts; reading
    and computing overlap, so it takes the longer of the two. Norms, softmax, rotary embeddings are not counted.
    """
    parts = param_breakdown(spec)
    in_layers, head = parts.attention + parts.mlp, spec.vocab_size * spec.hidden_size
    weight_bytes = bytes_per_weight * (in_layers + head)
    per_token = kv_bytes_per_token(spec, "fp32")
    shape = spec.num_hidden_layers, spec.num_attention_heads, spec.head_dim

    prompts = [request["prompt"] for request in requests]
    flops = 2 * head * len(prompts)
    for number, prompt in enumerate(prompts):
        shared = max((_common(prompt, earlier) for earlier in prompts[:number]), default=0)
        shared = min(shared, len(prompt) - 1)  # the last token is always computed: its logits are needed
        flops += prefill_flops(in_layers, len(prompt) - shared, *shape, done=shared)
    seconds = max(flops / rates.flops, weight_bytes / rates.bandwidth)
    for step in range(1, max(request["out"] for request in requests)):
        contexts = [len(request["prompt"]) + step for request in requests if request["out"] > step]
        flops = sum(prefill_flops(in_layers + head, 1, *shape, done=context - 1) for context in contexts)
        read = weight_bytes + per_token * sum(contexts)
        seconds += max(flops / rates.flops, read / rates.bandwidth)
    return seconds


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens two prompts share."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
