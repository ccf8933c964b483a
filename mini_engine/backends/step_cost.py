"""How long a step takes by the roofline: the bytes it must read, the FLOPs it must do, and what every step costs besides.

The formulas are those of `roofline` (F15 for a decode, F19 for a prompt chunk), put together for a step that mixes both:

    FLOPs    2 per parameter of the layers and token, the output head for each row of logits, 4 d per score, head and layer
    bytes    the weights once, and for every chunk the K/V of its whole context, so a long prompt in chunks is read often
    seconds  max(FLOPs / reached FLOP/s, bytes / reached bytes/s) + overhead + moving blocks (swap over PCIe, copies)
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from mini_engine.arguments import Real, amount, count, flag, number, real, share
from mini_engine.cache import CacheOp
from mini_engine.catalog import GPUSpec, ModelSpec, gpu_spec, model_spec
from mini_engine.geometry import active_params, kv_budget, kv_bytes_per_token_per_gpu, params
from mini_engine.geometry.shards import decode_head_dim, one_shard, prefill_head_dim
from mini_engine.geometry.weight_reads import idle_params, lookup_params, reads
from mini_engine.scheduling import Chunk
from mini_engine.units import GB, dtype_bytes

OMITTED = (
    "communication between GPUs, the network, tokenization, what a kernel loses on ragged batches; kernel launches and "
    "sampling are in the overhead of a step"
)


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """What a GPU reaches of its data-sheet peaks, and what a step costs besides. Assumptions unless they were calibrated.

    flops, bandwidth   share of the peak that is reached, above 0
    step_overhead      seconds of every step: scheduling, launching kernels, sampling
    sequence_overhead  seconds more for every sequence in it
    overlap            reading and computing at the same time, so that a step takes the longer of the two; False: one after
                       the other, as on a CPU
    """

    flops: float = 0.5
    bandwidth: float = 0.8
    step_overhead: float = 2e-3
    sequence_overhead: float = 0.0
    overlap: bool = True

    def __post_init__(self) -> None:
        for name in ("flops", "bandwidth"):
            value = number(name, getattr(self, name), positive=True, limit=1000)
            object.__setattr__(self, name, float(value))
        for name in ("step_overhead", "sequence_overhead"):
            object.__setattr__(self, name, float(real(name, getattr(self, name), minimum=0, limit=10**6)))
        flag("overlap", self.overlap)


class Work(NamedTuple):
    """FLOPs on all GPUs together, bytes read on each."""

    flops: int
    bytes: float


class _Layers(NamedTuple):
    """Attention layers that see as far back as each other: bytes of a token's K/V on one GPU, FLOPs per score, all together."""

    window: int | None
    kv_bytes: int
    decode_flops: int
    prefill_flops: int


class StepCost:
    """The cost of steps of one model on `tp` GPUs of one kind. ValueError names an argument that makes no sense.

    num_params, num_active_params: where they cannot be counted from the configuration. pcie_bandwidth: bytes/s in one
    direction on each GPU's link, where the table has none or another is wanted.
    """

    def __init__(
        self,
        model: ModelSpec,
        gpu: GPUSpec,
        *,
        tp: int = 1,
        dtype: str = "bf16",
        kv_dtype: str = "bf16",
        num_params: Real | None = None,
        num_active_params: Real | None = None,
        efficiency: Efficiency | None = None,
        pcie_bandwidth: Real | None = None,
    ) -> None:
        self.model, self.gpu = model_spec("model", model), gpu_spec("gpu", gpu)
        self.tp = count("tp", tp, limit=10**6)
        self.efficiency = Efficiency() if efficiency is None else efficiency
        self._weight_size = dtype_bytes("dtype", dtype)
        self._num_params, self._active = _parameters(model, num_params, num_active_params)
        self.weight_bytes = -(-self._num_params * self._weight_size // tp)  # on one GPU
        self.kv_bytes_per_token = kv_bytes_per_token_per_gpu(model, tp, kv_dtype)  # on one GPU, every layer in full
        self.head_params = model.vocab_size * model.hidden_size
        self.layer_params = max(1, self._active - lookup_params(model) - self.head_params)
        pcie = (
            gpu.pcie_bandwidth
            if pcie_bandwidth is None
            else float(number("pcie_bandwidth", pcie_bandwidth, positive=True))
        )
        self.pcie_bandwidth = pcie
        self.peak_flops = tp * (gpu.fp8_flops if dtype == "fp8" and gpu.fp8_flops else gpu.bf16_flops)
        self._layers = _kinds(model, one_shard(model, tp), dtype_bytes("kv_dtype", kv_dtype))
        self._flops_rate = self.peak_flops * self.efficiency.flops
        self._read_rate = gpu.memory_bandwidth * self.efficiency.bandwidth
        self._read: dict[int, float] = {}  # tokens of a step: bytes of weights that it reads

    def num_blocks(self, block_size: int, *, util: Real = 1, overhead: Real = 2 * GB) -> int:
        """Blocks that fit beside the weights, as `mini-engine size` counts. ValueError when none does.

        util: the share of the card to use. overhead: bytes of activations and runtime on each GPU.
        """
        share("util", util)
        budget = kv_budget(self.gpu.memory_bytes, self.weight_bytes, amount("overhead", overhead), util)
        blocks = budget // (self.kv_bytes_per_token * count("block_size", block_size))
        if blocks < 1:
            raise ValueError(
                f"{self.model.name} takes {self.weight_bytes / GB:,.1f} GB of weights on each of {self.tp} {self.gpu.name}, "
                f"which has {self.gpu.memory_bytes / GB:,.0f} GB: no block of {block_size} tokens fits beside them "
                f"with util={float(util):g} and {amount('overhead', overhead) / GB:,.4g} GB of overhead; take more GPUs (tp), a "
                "larger one, a smaller dtype, or other values of these"
            )
        return blocks

    def work(self, chunks: Iterable[Chunk], num_logits: int) -> Work:
        """What a step with these chunks has to do, when `num_logits` of them end in a row of logits."""
        if len(self._layers) == 1 and self._layers[0].window is None:
            return self._uniform_work(chunks, num_logits)
        tokens, flops, read = 0, 2 * self.head_params * num_logits, 0
        for _, _, start, n in chunks:
            tokens += n
            for window, kv_bytes, decode_flops, prefill_flops in self._layers:
                flops += (decode_flops if n == 1 else prefill_flops) * num_scores(start, n, window)
                read += kv_bytes * (start + n if window is None else min(start + n, window + n - 1))
        return Work(flops + 2 * self.layer_params * tokens, read + self._weights_read(tokens))

    def _uniform_work(self, chunks: Iterable[Chunk], num_logits: int) -> Work:
        """The same for layers that are all alike: one pass of additions, as a long trace has millions of chunks."""
        tokens = context = decode_scores = prefill_scores = 0
        for _, _, start, n in chunks:
            tokens += n
            context += start + n
            if n == 1:
                decode_scores += start + 1
            else:
                prefill_scores += n * start + n * (n + 1) // 2
        _, kv_bytes, decode_flops, prefill_flops = self._layers[0]
        flops = 2 * (self.layer_params * tokens + self.head_params * num_logits)
        flops += decode_flops * decode_scores + prefill_flops * prefill_scores
        return Work(flops, kv_bytes * context + self._weights_read(tokens))

    def seconds(self, work: Work, num_seqs: int) -> float:
        """Time of a step of `num_seqs` sequences, without moving blocks."""
        computing, reading = work.flops / self._flops_rate, work.bytes / self._read_rate
        of = self.efficiency
        busy = max(computing, reading) if of.overlap else computing + reading
        return busy + of.step_overhead + of.sequence_overhead * num_seqs

    def move_seconds(self, ops: Sequence[CacheOp], block_size: int) -> float:
        """Time to move blocks before the step: swaps over PCIe, one direction at a time; copies within the device."""
        size = block_size * self.kv_bytes_per_token
        copies = sum(op.kind == "copy" for op in ops)
        seconds = 2 * size * copies / self._read_rate
        if copies < len(ops):
            seconds += size * (len(ops) - copies) / self._pcie
        return seconds

    @cached_property
    def _pcie(self) -> float:
        if self.pcie_bandwidth is None:
            raise ValueError(
                f"the table has no PCIe bandwidth for {self.gpu.name}, so nothing can be swapped: give pcie_bandwidth"
            )
        return self.pcie_bandwidth

    def _weights_read(self, tokens: int) -> float:
        """Bytes of weights that a step of `tokens` tokens reads on one GPU: of experts, those expected to be drawn."""
        read = self._read.get(tokens)
        if read is None:
            expected = reads(self.model, self._num_params, self._active, max(1, tokens)).expected
            read = self._read[tokens] = expected * self._weight_size / self.tp
        return read


def num_scores(start: int, n: int, window: int | None = None) -> int:
    """Scores of one head for tokens start .. start + n - 1, each of which sees itself and what came before, within a window."""
    whole = n if window is None else min(n, max(0, window - start))  # tokens that still see everything
    return whole * start + whole * (whole + 1) // 2 + (n - whole) * (window or 0)


def _kinds(model: ModelSpec, shard: ModelSpec, kv_size: int) -> list[_Layers]:
    sums: dict[int | None, list[int]] = defaultdict(lambda: [0, 0, 0])
    for window, (heads, dim) in zip(shard.layer_windows, shard.kv_shapes, strict=True):
        of = sums[window]
        of[0] += kv_size * (shard.latent_dim if shard.is_mla else 2 * heads * dim)
        of[1] += 4 * model.num_attention_heads * (decode_head_dim(model) if model.is_mla else dim)
        of[2] += 4 * model.num_attention_heads * (prefill_head_dim(model) if model.is_mla else dim)
    return [_Layers(window, *of) for window, of in sums.items()]


def _parameters(model: ModelSpec, total: Real | None, active: Real | None) -> tuple[int, int]:
    """(all parameters, those that one token uses)."""
    if total is None:
        if active is not None:
            raise ValueError("num_active_params needs num_params too")
        return params(model), active_params(model)
    total_ = amount("num_params", total, minimum=1)
    if active is None:
        return total_, max(1, total_ - idle_params(model))
    active_ = amount("num_active_params", active, minimum=1)
    if active_ > total_:
        raise ValueError(f"num_active_params={active_} is more than num_params={total_}")
    return total_, active_


def longest_sequence(model: ModelSpec) -> int:
    """Positions that a model knows. No K/V is kept here, so a window, which keeps the engine from going on, does not matter."""
    return dataclasses.replace(model, layer_windows=()).max_model_len
