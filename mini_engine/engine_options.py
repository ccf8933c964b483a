"""What a caller of `LLM` may ask of the engine, checked; and the paged engine made from it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from mini_engine.arguments import count
from mini_engine.backends.contiguous import CACHES, is_torch
from mini_engine.config import EngineConfig
from mini_engine.engine import LLMEngine

# Of the paged cache, unless the caller says otherwise.
KV_CACHE_BYTES = {"torch": 1 << 30, "triton": 1 << 30, "numpy": 1 << 26}
PARTS = ("scheduler", "kv_manager", "record")  # options of LLMEngine itself
KERNELS = ("decode", "write")  # of TritonBackend; all others are EngineConfig's


def checked_cache(cache: str | type | None, attention: Callable | None, paged_options: Mapping[str, Any]) -> str | type:
    """Which cache to use. ValueError for an unknown one, and for options that do not go with it."""
    if attention is not None and not callable(attention):
        raise ValueError(f"attention={attention!r}: must be a function attention(q, k, v, scale, offset)")
    if cache is None:
        cache = "paged" if attention is None else "contiguous"
    if cache not in ("paged", *CACHES) and not callable(cache):
        raise ValueError(f"cache={cache!r}: must be one of paged, {', '.join(CACHES)}, or a class of your own")
    if cache == "paged" and attention is not None:
        raise ValueError("attention: the paged cache brings its own; use cache='contiguous' with yours")
    given = [name for name, value in paged_options.items() if value is not None]
    if cache != "paged" and given:
        raise ValueError(f"{', '.join(given)}: only cache='paged' has such options")
    return cache


def paged_engine(
    model: Any,
    tokenizer: Any,
    eos_token_ids: tuple[int, ...],
    num_blocks: int | None,
    kv_cache_bytes: int | None,
    kv_cache_dtype: str | None,
    options: Mapping[str, Any],
    kind: str | None = None,
) -> LLMEngine:
    """An LLMEngine over this model, with a cache of num_blocks blocks or kv_cache_bytes bytes. ValueError for bad options.

    kind: "torch", "numpy" or "triton"; by default the library that the model is of.
    """
    from mini_engine import backends  # each backend imports its library only when it is asked for

    kind = kind or ("torch" if is_torch(model) else "numpy")
    kernels = {name: options[name] for name in KERNELS if name in options}
    for name, kernel in kernels.items():
        if kind != "triton" or not callable(kernel):
            raise ValueError(f"{name}={kernel!r}: must be a function, and goes with backend='triton'")
    backend: Any
    if kind == "triton":
        backend = backends.TritonBackend(model, kv_cache_dtype=kv_cache_dtype or "auto", **kernels)
    elif kind == "torch":
        backend = backends.TorchBackend(model, kv_cache_dtype="auto" if kv_cache_dtype is None else kv_cache_dtype)
    elif kv_cache_dtype in (None, "auto"):
        backend = backends.NumpyBackend(model)
    else:
        raise ValueError(
            f"kv_cache_dtype={kv_cache_dtype!r}: only backend='torch' keeps K/V in another type than the model's"
        )
    backend.eos_token_ids = eos_token_ids
    block_size = count("block_size", options.get("block_size", EngineConfig.block_size))
    block_bytes = backend.kv_bytes_per_token * block_size
    if num_blocks is None:
        size = count("kv_cache_bytes", KV_CACHE_BYTES[kind] if kv_cache_bytes is None else kv_cache_bytes)
        num_blocks = size // block_bytes
        if num_blocks < 1:
            raise ValueError(f"kv_cache_bytes={size}: one block of {block_size} tokens takes {block_bytes}")
    elif kv_cache_bytes is not None:
        raise ValueError("num_blocks and kv_cache_bytes both say how large the cache is: give one of them")
    parts = {name: options[name] for name in PARTS if name in options}
    for name, part in parts.items():
        if not (isinstance(part, bool) if name == "record" else isinstance(part, type)):
            raise ValueError(f"{name}={part!r}: must be {'True or False' if name == 'record' else 'a class'}")
    try:
        config = EngineConfig(num_blocks=num_blocks, **{k: v for k, v in options.items() if k not in PARTS + KERNELS})
    except TypeError as error:
        raise ValueError(f"{error}: see EngineConfig for the options there are") from None
    there = memory_bytes()
    for name, blocks in (("num_blocks", config.num_blocks), ("num_swap_blocks", config.num_swap_blocks)):
        if blocks * block_bytes > there:
            raise ValueError(
                f"{name}={blocks}: {blocks * block_bytes:,} bytes of K/V, and this machine has {there:,} bytes of memory; "
                f"at most {there // block_bytes} blocks could fit"
            )
    return LLMEngine(config, backend, tokenizer=tokenizer, **parts)


def memory_bytes() -> int:
    """Physical memory of this machine; where the system does not tell, more than anybody has."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 62
