"""Launches of the kernels, by name, to compile without running: what the wrappers pass for tensors that have no memory.

A kernel is compiled once for each specialisation: dtypes, sizes that are constants, which strides are multiples of 16,
which arguments are 1. To compile just what a launch would, the wrappers are called as they are, on meta tensors, and their
launches are kept instead of carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch

from mini_engine.kernels import cache_write, gqa_decode, mla_decode, split_combine
from mini_engine.kernels.launch import Target

KERNELS = {
    gqa_decode: "gqa_decode_kernel",
    mla_decode: "mla_decode_kernel",
    split_combine: "combine_kernel",
    cache_write: "write_kv_kernel",
}
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
B, M, N = 4, 64, 128  # sequences, table entries, blocks: no kernel depends on how many


@dataclass(frozen=True)
class Launch:
    """One call of a kernel: kernel[grid](*args, **options)."""

    kernel: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    options: dict[str, Any]


@contextmanager
def launches_kept(arch: str, num_processors: int = 132) -> Iterator[list[Launch]]:
    """The wrappers' launches on `arch`, kept and not carried out."""
    kept: list[Launch] = []

    class Keep:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            return lambda *args, **options: kept.append(Launch(self.kernel, grid, args, options))

    with ExitStack() as stack:
        for module, name in KERNELS.items():
            stack.enter_context(patch.object(module, name, Keep(getattr(module, name))))
            stack.enter_context(patch.object(module, "target", lambda device: Target(arch, num_processors)))
        yield kept


def meta(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor with shape and dtype but no memory: enough to compile for."""
    return torch.empty(shape, dtype=dtype, device="meta")


def tables() -> tuple[torch.Tensor, torch.Tensor]:
    """Block tables [B, M] and context lengths [B]."""
    return meta(B, M, dtype=torch.int32), meta(B, dtype=torch.int32)


def gqa(
    dtype: str, D: int, G: int = 4, K: int = 8, P: int = 16, *, int8: bool = False, num_splits: int = 8,
    window: int | None = None,
) -> Callable[[], object]:  # fmt: skip
    """A launch of GQA decode: head size D, G query heads for each of K KV heads, P tokens a block."""
    q = meta(B, K * G, D, dtype=DTYPES[dtype])
    pool = meta(N, P, K, D, dtype=torch.int8 if int8 else DTYPES[dtype])
    scales = meta(N, P, K, dtype=torch.float32) if int8 else None
    options: dict[str, Any] = {"num_splits": num_splits, "window": window, "k_scale": scales, "v_scale": scales}
    return lambda: gqa_decode.paged_gqa_decode(q, pool, pool, *tables(), D**-0.5, **options)


def mla(
    dtype: str, H: int, Dc: int = 512, Dr: int = 64, P: int = 64, *, int8: bool = False, num_splits: int = 8
) -> Callable[[], object]:
    """A launch of MLA decode: H heads, latents of Dc and rotary keys of Dr numbers, P tokens a block."""
    q_latent, q_rope = (meta(B, H, size, dtype=DTYPES[dtype]) for size in (Dc, Dr))
    pool = meta(N, P, Dc + Dr, dtype=torch.int8 if int8 else DTYPES[dtype])
    scale = meta(N, P, dtype=torch.float32) if int8 else None
    options: dict[str, Any] = {"num_splits": num_splits, "latent_scale": scale}
    return lambda: mla_decode.paged_mla_decode(q_latent, q_rope, pool, *tables(), 1.0, **options)


def combine(dtype: str, D: int, H: int = 32, num_splits: int = 8) -> Callable[[], object]:
    """A launch that joins the parts of H heads of size D."""
    parts, lse = meta(num_splits, B, H, D, dtype=torch.float32), meta(num_splits, B, H, dtype=torch.float32)
    out = meta(B, H, D, dtype=DTYPES[dtype])
    return lambda: split_combine.combine(parts, lse, out)


def write(
    dtype: str, D: int = 128, K: int = 8, P: int = 16, *, int8: bool = False, latent: bool = False
) -> Callable[[], object]:
    """A launch that writes 64 tokens: K and V, or one latent."""
    new = meta(64, K, D, dtype=DTYPES[dtype])
    pool = meta(N, P, K, D, dtype=torch.int8 if int8 else DTYPES[dtype])
    scales = meta(N, P, K, dtype=torch.float32) if int8 else None
    v, v_pool, v_scale = (None, None, None) if latent else (new, pool, scales)
    slots = meta(64, dtype=torch.int64)
    return lambda: cache_write.write_kv(new, v, pool, v_pool, slots, k_scale=scales, v_scale=v_scale)


# name -> a call of the kernel whose name it starts with. What a call launches besides (combine) has a name of its own.
TWELVE: dict[str, Callable[[], object]] = {
    "gqa-bf16-d128": gqa("bf16", 128),
    "gqa-fp16-d64": gqa("fp16", 64, G=8, num_splits=1),
    "gqa-bf16-d80": gqa("bf16", 80, G=7, num_splits=1),
    "gqa-bf16-d256": gqa("bf16", 256, G=16),
    "gqa-bf16-d128-window": gqa("bf16", 128, window=4096),
    "gqa-fp32-d128": gqa("fp32", 128),
    "gqa-int8-d128": gqa("bf16", 128, int8=True),
    "mla-bf16-h16": mla("bf16", 16),
    "mla-bf16-h128": mla("bf16", 128, num_splits=1),
    "combine-bf16-d128": combine("bf16", 128),
    "write-bf16-d128": write("bf16"),
    "write-int8-d128": write("bf16", int8=True),
}


def every() -> dict[str, Callable[[], object]]:
    """The twelve and the rest: head sizes by dtypes, one part and several, page sizes, wide groups, small latents."""
    named = dict(TWELVE)
    for dtype in DTYPES:
        for D in (32, 64, 80, 96, 128, 256):
            named.setdefault(f"gqa-{dtype}-d{D}", gqa(dtype, D))
            named[f"gqa-{dtype}-d{D}-int8"] = gqa(dtype, D, int8=True)
        for H in (16, 128):
            named.setdefault(f"mla-{dtype}-h{H}", mla(dtype, H))
            named[f"mla-{dtype}-h{H}-int8"] = mla(dtype, H, int8=True)
        named[f"mla-{dtype}-h8-small"] = mla(dtype, 8, Dc=64, Dr=16, P=16)
        for D in (64, 512):
            named[f"combine-{dtype}-d{D}"] = combine(dtype, D)
        named.setdefault(f"write-{dtype}-d128", write(dtype))
        named[f"write-{dtype}-latent"] = write(dtype, D=576, K=1, P=64, latent=True)
        named[f"write-{dtype}-latent-int8"] = write(dtype, D=576, K=1, P=64, latent=True, int8=True)
    named["gqa-bf16-d128-one-part"] = gqa("bf16", 128, num_splits=1)
    named["gqa-bf16-d128-page1"] = gqa("bf16", 128, P=1)
    named["gqa-bf16-d128-page256"] = gqa("bf16", 128, P=256)
    named["gqa-bf16-d128-mha"] = gqa("bf16", 128, G=1, K=32)
    named["gqa-bf16-d128-group20"] = gqa("bf16", 128, G=20, K=1)
    named["mla-bf16-h16-page1"] = mla("bf16", 16, P=1)
    named["mla-bf16-h128-parts"] = mla("bf16", 128)
    return named
