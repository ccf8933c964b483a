"""`SimulationOptions`: every knob of a simulation, checked by name; from them come the backend, the pool and the scheduler."""

from __future__ import annotations

from dataclasses import dataclass, field

from mini_engine.arguments import COUNT_LIMIT, Real, amount, choice, count, flag, shown
from mini_engine.backends.simulated import SimulatedBackend
from mini_engine.backends.step_cost import Efficiency
from mini_engine.catalog import GPUSpec, ModelSpec, get_gpu, get_model
from mini_engine.config import EngineConfig
from mini_engine.scheduling import Scheduler
from mini_engine.simulator.static_batch import StaticBatch
from mini_engine.units import GB

BATCHING = ("chunked", "iteration", "static")
MEMORY = ("paged", "reserved")
MOST_BLOCKS = 10**7
"""The books of so many take a second to open, and most of a GB."""


@dataclass(frozen=True, kw_only=True)
class SimulationOptions:
    """ValueError names a field that makes no sense. Those not listed here are `EngineConfig`'s and `StepCost`'s.

    batching   chunked: one token budget for prompts in chunks and decodes (Sarathi-Serve); iteration: prompts whole, sequences
               join and leave at every step (Orca); static: a batch starts and ends together, padded to its longest
    memory     paged: blocks as a sequence grows; reserved: room for `reserve_tokens` (default max_model_len) from start to end
    num_blocks           blocks of the pool; None fills the GPU (util, overhead) as `mini-engine size` counts
    max_num_batched_tokens   tokens of one step; None: 2048 when chunked, else as many as it takes for every prompt
    swap_bytes           host memory of each GPU for preemption="swap"
    """

    model: ModelSpec | str = "llama-3-8b"
    gpu: GPUSpec | str = "h100-sxm"
    tp: int = 1
    dtype: str = "bf16"
    kv_dtype: str = "bf16"
    util: Real = 1
    overhead: Real = 2 * GB
    num_params: Real | None = None
    num_active_params: Real | None = None

    batching: str = "chunked"
    memory: str = "paged"
    reserve_tokens: int | None = None
    block_size: int = 16
    num_blocks: int | None = None
    max_num_seqs: int = 256
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    prefix_cache: bool = True
    prefix_index: str = "hash"
    admission: str = "whole_prompt"
    policy: str = "fcfs"
    preemption: str = "recompute"
    swap_bytes: Real = 64 * GB
    pcie_bandwidth: Real | None = None
    watermark: float = 0.0

    efficiency: Efficiency = field(default_factory=Efficiency)

    def __post_init__(self) -> None:
        choice("batching", self.batching, BATCHING)
        choice("memory", self.memory, MEMORY)
        flag("prefix_cache", self.prefix_cache)
        amount("swap_bytes", self.swap_bytes)
        if not isinstance(self.efficiency, Efficiency):
            raise ValueError(f"efficiency={shown(self.efficiency)} must be an Efficiency")
        if self.reserve_tokens is not None:
            count("reserve_tokens", self.reserve_tokens)
            if self.memory != "reserved":
                raise ValueError(f"reserve_tokens={self.reserve_tokens} needs memory='reserved'")

    def backend(self) -> SimulatedBackend:
        """The simulated GPUs that these options describe."""
        return SimulatedBackend(
            get_model(self.model) if isinstance(self.model, str) else self.model,
            get_gpu(self.gpu) if isinstance(self.gpu, str) else self.gpu,
            tp=self.tp,
            dtype=self.dtype,
            kv_dtype=self.kv_dtype,
            num_params=self.num_params,
            num_active_params=self.num_active_params,
            efficiency=self.efficiency,
            pcie_bandwidth=self.pcie_bandwidth,
        )

    def config(self, backend: SimulatedBackend) -> EngineConfig:
        """The engine's own configuration for this backend. A reserved region is a block as long as the region."""
        longest = backend.max_model_len if self.max_model_len is None else count("max_model_len", self.max_model_len)
        block_size = count("block_size", self.block_size)
        if self.memory == "reserved":
            block_size = longest if self.reserve_tokens is None else self.reserve_tokens
            longest = min(longest, block_size)
        num_blocks = self.num_blocks
        if num_blocks is None:
            num_blocks = backend.cost.num_blocks(block_size, util=self.util, overhead=self.overhead)
        elif self.memory == "reserved":
            num_blocks = count("num_blocks", num_blocks) * self.block_size // block_size
            if num_blocks < 1:
                raise ValueError(
                    f"num_blocks={self.num_blocks} of {self.block_size} tokens hold no region of {block_size}"
                )
        swaps = self.preemption == "swap"
        swap_blocks = int(amount("swap_bytes", self.swap_bytes)) // (block_size * backend.kv_bytes_per_token)
        for name, blocks in (("num_blocks", num_blocks), ("num_swap_blocks", swap_blocks * swaps)):
            if blocks > MOST_BLOCKS:
                raise ValueError(
                    f"{name}={blocks:,}: a simulation holds at most {MOST_BLOCKS:,}; take a larger block_size"
                )
        budget, seqs = self.max_num_batched_tokens, count("max_num_seqs", self.max_num_seqs)
        if budget is None:
            whole = {"chunked": 2048, "iteration": max(2048, longest), "static": min(longest * seqs, COUNT_LIMIT)}
            budget = whole[self.batching]
        if swaps and backend.cost.pcie_bandwidth is None:
            raise ValueError(f"{backend.cost.gpu.name} has no PCIe bandwidth in the table: give pcie_bandwidth to swap")
        return EngineConfig(
            num_blocks=num_blocks,
            block_size=block_size,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=budget,
            max_model_len=longest,
            enable_prefix_caching=self.prefix_cache and self.memory == "paged",
            prefix_index=self.prefix_index,
            enable_chunked_prefill=self.batching == "chunked",
            admission=self.admission,
            policy=self.policy,
            preemption=self.preemption,
            num_swap_blocks=swap_blocks if swaps else 0,
            watermark=self.watermark,
        )

    @property
    def scheduler(self) -> type[Scheduler]:
        """The scheduler's class: the engine's own, or static batches on top of it."""
        return StaticBatch if self.batching == "static" else Scheduler
