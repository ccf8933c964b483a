"""What the engine and the simulator are both made of: a cache manager and a scheduler over one backend's pool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from mini_engine.backends.base import Backend
from mini_engine.cache import KVCacheManager
from mini_engine.config import EngineConfig
from mini_engine.scheduling import Scheduler


class Parts(NamedTuple):
    """The config with its `max_model_len` filled in, and the parts made from it."""

    config: EngineConfig
    kv_manager: KVCacheManager
    scheduler: Scheduler


def make_parts(
    config: EngineConfig, backend: Backend, scheduler: type[Scheduler], kv_manager: type[KVCacheManager]
) -> Parts:
    """Makes the parts, and the backend's pool. ValueError for a `max_model_len` beyond the model's."""
    longest = backend.max_model_len
    if config.max_model_len is not None and config.max_model_len > longest:
        note = getattr(backend, "window_note", "")
        raise ValueError(f"max_model_len={config.max_model_len} is more than the model's {longest}{note}")
    config = replace(config, max_model_len=config.max_model_len or longest)
    swap: dict[str, Any] = {"num_swap_blocks": config.num_swap_blocks} if config.num_swap_blocks else {}
    manager = kv_manager(
        config.num_blocks,
        config.block_size,
        enable_prefix_caching=config.enable_prefix_caching,
        prefix_index=config.prefix_index,
        **swap,
    )
    if isinstance(scheduler, type) and not issubclass(scheduler, Scheduler):
        raise ValueError(f"scheduler={scheduler.__name__}: derive it from Scheduler")
    made = scheduler(config, manager)
    if not hasattr(made, "has_plan"):  # which asks for what Scheduler.__init__ sets
        raise ValueError(f"scheduler={type(made).__name__}: its __init__ must call super().__init__(config, kv)")
    parts = Parts(config, manager, made)
    backend.init_kv(config.num_blocks, config.block_size, config.num_swap_blocks)
    return parts
