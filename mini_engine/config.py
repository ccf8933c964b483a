"""`EngineConfig`: every knob of the engine, each checked by name when the config is made."""

from __future__ import annotations

from dataclasses import dataclass

from mini_engine.arguments import choice, count

CHOICES = {
    "prefix_index": ("hash", "radix"),
    "admission": ("whole_prompt", "first_chunk", "worst_case"),
    "policy": ("fcfs", "priority", "shortest_first"),
    "preemption": ("recompute", "swap"),
}


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """How much memory the engine has and how it shares it out. Raises ValueError naming field, value and allowed range.

    num_blocks              usable KV blocks; the null block 0 comes on top, so pools have num_blocks + 1 rows
    block_size              tokens a block holds
    max_num_seqs            sequences that may run at once; each branch of n > 1 counts
    max_num_batched_tokens  tokens one step may compute, prefill chunks and decodes together
    max_model_len           longest sequence, prompt and output together; None takes the backend's limit
    enable_prefix_caching   look up computed blocks by content; `prefix_index` says in which structure
    enable_chunked_prefill  False: a prompt is computed in one step or not at all
    admission               what must fit before a request starts: its whole prompt, its first chunk, or its worst case
    policy                  who starts first, and who makes room when blocks run out
    preemption              what making room means: drop and recompute, or swap to `num_swap_blocks` blocks of host memory
    watermark               share of the blocks kept free when a request starts beside others
    """

    num_blocks: int
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_model_len: int | None = None
    enable_prefix_caching: bool = True
    prefix_index: str = "hash"
    enable_chunked_prefill: bool = True
    admission: str = "whole_prompt"
    policy: str = "fcfs"
    preemption: str = "recompute"
    num_swap_blocks: int = 0
    watermark: float = 0.0

    def __post_init__(self) -> None:
        for name in ("num_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens"):
            self._set(name, count(name, getattr(self, name)))
        if self.max_model_len is not None:
            self._set("max_model_len", count("max_model_len", self.max_model_len))
        self._set("num_swap_blocks", count("num_swap_blocks", self.num_swap_blocks, minimum=0))
        for name in ("enable_prefix_caching", "enable_chunked_prefill"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name}={getattr(self, name)!r} must be True or False")
        for name, allowed in CHOICES.items():
            choice(name, getattr(self, name), allowed)
        if self.preemption == "swap" and self.num_swap_blocks == 0:
            raise ValueError(
                "num_swap_blocks=0 must be at least 1 with preemption='swap', or there is nowhere to swap to"
            )
        is_number = isinstance(self.watermark, int | float) and not isinstance(self.watermark, bool)
        if not (is_number and 0 <= self.watermark < 1):
            raise ValueError(f"watermark={self.watermark!r} must be a number of at least 0 and below 1")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # a NumPy integer becomes a plain one
