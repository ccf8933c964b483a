"""`Sizing`: what came out for one deployment, with every assumption a field."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from mini_engine.catalog import GPUSpec, ModelSpec
from mini_engine.roofline import DecodeStep


@dataclass(frozen=True)
class Sizing:
    """What fits and how fast it can be.

    Bytes are integers, times and rates fractions; `working` holds the arithmetic as text.
    """

    model: ModelSpec
    gpu: GPUSpec
    tp: int
    context: int
    batch: int
    kv_dtype: str
    dtype: str
    util: Fraction
    overhead: int
    block: int
    memory: int
    """Bytes of one card that were counted on."""
    num_params: int
    num_active_params: int
    """Per token."""
    num_read_params: int
    """In a step of the whole batch, at most."""
    counted: bool
    """Whether the parameters were counted from the configuration, not given."""
    flops: int
    """Peak of one card at the weights' precision."""

    kv_per_token: int
    """All GPUs' share of one token, without copies; every layer counted as full."""
    kv_per_token_per_gpu: int
    kv_total: int
    """batch × context, all layers full, without copies."""
    kv_per_sequence_per_gpu: int
    """One sequence of `context` tokens on one GPU, windows counted."""
    reserved_per_sequence_per_gpu: int
    """The same in whole blocks."""
    weights_per_gpu: Fraction
    budget: int
    """Bytes for K/V on one GPU."""
    concurrency: int
    """Sequences of `context` tokens, every layer full."""
    concurrency_windowed: int
    """The same when windowed layers give back what they no longer need."""
    max_context: int
    """Tokens each of `batch` sequences may have, every layer full."""
    fits: bool
    """Whether batch × context fits the budget, in whole blocks and with windows counted."""

    step: DecodeStep
    tokens_per_s: Fraction
    throughput_ceiling: Fraction | None
    batch_for_ridge: int | None
    ridge: Fraction
    prefill: Fraction
    """Seconds of the prefill of one prompt of `context` tokens at peak."""
    working: tuple[str, ...]
    notes: tuple[str, ...]
    """What else a reader must know of these figures."""

    @property
    def weights_fit(self) -> bool:
        """Whether weights and overhead leave any room on the card."""
        return self.budget > 0

    @property
    def least_tp(self) -> int | None:
        """The smallest number of GPUs whose memory holds the weights; None when the overhead alone fills a card."""
        usable = math.floor(self.memory * self.util) - self.overhead
        return math.floor(self.weights_per_gpu * self.tp / usable) + 1 if usable > 0 else None


def sequences(number: int) -> str:
    """A number of sequences in words: '1 sequence', '1,549 sequences'."""
    return f"{number:,} sequence{'' if number == 1 else 's'}"
