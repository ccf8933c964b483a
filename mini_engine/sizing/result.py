"""What came out for one deployment, with every assumption a field: `CacheSizing`, and `Sizing`, which knows the weights too."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from mini_engine.catalog import GPUSpec, ModelSpec
from mini_engine.geometry.weight_reads import Reads
from mini_engine.roofline import DecodeStep


@dataclass(frozen=True, kw_only=True)
class CacheSizing:
    """What can be said of the K/V without knowing the weights. Bytes are integers; `working` is the arithmetic as text."""

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

    kv_per_token: int
    """All GPUs' share of one token, without copies; every layer counted as full."""
    kv_per_token_per_gpu: int
    kv_total: int
    """batch × context, all layers full, without copies."""
    kv_per_sequence_per_gpu: int
    """One sequence of `context` tokens on one GPU, windows counted."""
    reserved_per_sequence_per_gpu: int
    """The same in whole blocks."""
    full_per_sequence_per_gpu: int
    """In whole blocks, every layer full."""
    working: tuple[str, ...]
    notes: tuple[str, ...]
    """What else a reader must know of these figures."""

    @property
    def num_windowed_layers(self) -> int:
        """Attention layers whose window is smaller than the context: a larger one changes nothing."""
        return sum(window is not None and window < self.context for window in self.model.layer_windows)

    @property
    def kv_per_gpu(self) -> int:
        """batch × context on one GPU, every layer full."""
        return self.kv_per_token_per_gpu * self.context * self.batch

    @property
    def too_large(self) -> bool:
        """Whether the batch's K/V does not fit even beside weights of no size: in whole blocks, with windows given back."""
        return self.reserved_per_sequence_per_gpu * self.batch > math.floor(self.memory * self.util) - self.overhead

    @property
    def kv_held(self) -> int:
        """The same on all GPUs together: more than `kv_total` where heads or latents are copied."""
        return self.kv_per_gpu * self.tp


@dataclass(frozen=True, kw_only=True)
class Sizing(CacheSizing):
    """What fits and how fast it can be. Times and rates are fractions."""

    num_params: int
    num_active_params: int
    """Per token."""
    reads: Reads
    """Parameters that a step of the whole batch reads."""
    counted: bool
    """Whether the parameters were counted from the configuration, not given."""
    active_deduced: bool
    """Whether all parameters were given and the active ones follow from the sizes of the experts."""
    flops: int
    """Peak of one card at the weights' precision."""

    weights_per_gpu: Fraction
    budget: int
    """Bytes for K/V on one GPU."""
    concurrency: int
    """Sequences of `context` tokens, every layer full."""
    concurrency_windowed: int
    """The same when windowed layers give back what they no longer need."""
    max_context: int
    """Tokens each of `batch` sequences may have, every layer full."""

    step: DecodeStep
    """The floor: the fewest experts are read, and each layer attends to its window only."""
    expected_step: DecodeStep
    """With the experts that uniform routing needs; for a dense model the same as `step`."""
    tokens_per_s: Fraction
    throughput_ceiling: Fraction | None
    batch_for_ridge: int | None
    ridge: Fraction
    prefill: Fraction
    """Seconds of the prefill of one prompt of `context` tokens at peak."""

    @property
    def fits(self) -> bool:
        """Whether the batch fits the budget in whole blocks, every layer full, as `concurrency` counts."""
        return self.batch <= self.concurrency

    @property
    def fits_windowed(self) -> bool:
        """Whether it fits when windowed layers give back what they no longer need."""
        return self.batch <= self.concurrency_windowed

    @property
    def verdict(self) -> str:
        """'fits', 'fits only if windows are given back' or 'does not fit'."""
        if self.fits:
            return "fits"
        return "fits only if windows are given back" if self.fits_windowed else "does not fit"

    @property
    def need(self) -> int:
        """Bytes per GPU, in whole blocks, that `verdict` is about: with every layer full if that fits, else the least."""
        return (self.full_per_sequence_per_gpu if self.fits else self.reserved_per_sequence_per_gpu) * self.batch

    @property
    def weights_fit(self) -> bool:
        """Whether weights and overhead leave any room on the card."""
        return self.budget > 0

    @property
    def least_tp(self) -> int | None:
        """The smallest number of GPUs whose memory holds the weights; None when the overhead alone fills a card."""
        usable = math.floor(self.memory * self.util) - self.overhead
        return math.floor(self.weights_per_gpu * self.tp / usable) + 1 if usable > 0 else None

    @property
    def obstacle(self) -> str:
        """Why there is no room for K/V, as a clause; "" when there is."""
        if self.weights_fit:
            return ""
        return "the weights do not fit" if self.least_tp else "the overhead alone fills a card"


def sequences(number: int) -> str:
    """A number of sequences in words: '1 sequence', '1,549 sequences'."""
    return f"{number:,} sequence{'' if number == 1 else 's'}"
