"""What every launch needs: where it runs, and checks on what it is given."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch

from mini_engine.kernels._mode import is_interpreted

FLOATS = (torch.float16, torch.bfloat16, torch.float32)


class Target(NamedTuple):
    """What kernels run on: "interpreter", "sm_90", "gfx942", ..., and how many processors it has."""

    arch: str
    num_processors: int


def kernel_device() -> torch.device:
    """Where tensors for the kernels belong: on the GPU where they are compiled, on the CPU where they are interpreted."""
    return torch.device("cpu" if is_interpreted() else "cuda")


@cache
def target(device: torch.device) -> Target:
    """The target of tensors on this device. ValueError for CPU tensors where kernels are compiled."""
    if is_interpreted():
        return Target("interpreter", 1)
    if device.type != "cuda":
        raise ValueError(
            f"the kernels are compiled for a GPU, and these tensors are on {device}: move them to 'cuda', or set "
            "TRITON_INTERPRET=1 before Python starts"
        )
    found = torch.cuda.get_device_properties(device)
    return Target(arch_of(found, is_amd=torch.version.hip is not None), found.multi_processor_count)


def arch_of(properties: Any, *, is_amd: bool) -> str:
    """Such as "sm_90" or "gfx942", from a device's properties, of which torch for NVIDIA fills gcnArchName with the GPU's name."""
    return properties.gcnArchName.partition(":")[0] if is_amd else f"sm_{properties.major}{properties.minor}"


def check_shape(name: str, tensor: torch.Tensor, *shape: int | None, contiguous: bool = True) -> None:
    """ValueError unless `tensor` has this shape (None: any size) and, as a rule, its last axis side by side in memory."""
    fits = tensor.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, tensor.shape))
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} must have shape [{wanted}], found {list(tensor.shape)}")
    if contiguous and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        raise ValueError(f"{name}: the last axis must be contiguous, found strides {tensor.stride()}")


def check_devices(*tensors: torch.Tensor | None) -> None:
    """ValueError unless all of them lie on one device: a kernel follows addresses, wherever they lead."""
    devices = {str(tensor.device) for tensor in tensors if tensor is not None}
    if len(devices) > 1:
        raise ValueError(f"all tensors must lie on one device, found {' and '.join(sorted(devices))}")


def check_dtypes(q: torch.Tensor, pool: torch.Tensor, scale: torch.Tensor | None) -> None:
    """ValueError unless kernels can read such a pool for such queries."""
    if q.dtype not in FLOATS:
        raise ValueError(f"q must be float16, bfloat16 or float32, found {q.dtype}")
    if scale is None and pool.dtype != q.dtype:
        raise ValueError(f"a pool of {pool.dtype} cannot be read by queries of {q.dtype}: they must be equal")
    if scale is not None and (pool.dtype != torch.int8 or scale.dtype != torch.float32):
        raise ValueError(f"scales are float32 and belong to pools of int8, found {scale.dtype} and {pool.dtype}")


def check_tables(
    block_tables: torch.Tensor, context_lens: torch.Tensor, num_seqs: int, num_blocks: int, block_size: int,
    window: int | None = None,
) -> None:  # fmt: skip
    """ValueError for tables and lengths that a kernel must not follow.

    On a GPU only shapes and types: looking at the numbers would make the host wait. The interpreter reads the memory of
    this very process, where a block that is not there would end it: there, each is looked at.
    """
    check_shape("block_tables", block_tables, num_seqs, None)
    check_shape("context_lens", context_lens, num_seqs)
    for name, tensor in (("block_tables", block_tables), ("context_lens", context_lens)):
        if tensor.dtype != torch.int32:
            raise ValueError(f"{name} must be int32, found {tensor.dtype}")
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1):
        raise ValueError(f"window={window!r} must be an integer of at least 1, or None")
    if block_tables.device.type != "cpu":
        return
    room = block_tables.shape[1] * block_size
    wrong = (context_lens < 0) | (context_lens > room)
    if wrong.any():
        raise ValueError(f"a context of {context_lens[wrong][0]} tokens, and its block table has room for {room}")
    block = torch.arange(block_tables.shape[1])
    lengths = context_lens[:, None]
    first = 0 if window is None else (lengths - window).clamp_min(0)
    needed = (block * block_size < lengths) & ((block + 1) * block_size > first)
    wrong = needed & ((block_tables < 0) | (block_tables >= num_blocks))
    if wrong.any():
        raise ValueError(f"a table names block {block_tables[wrong][0]}, and the pool has blocks 0 to {num_blocks - 1}")


def checked_out(out: torch.Tensor | None, q: torch.Tensor, size: int) -> torch.Tensor:
    """`out`, or a new tensor where it is None: [B, H, size] in the dtype of q[B, H, ...]. ValueError for any other `out`."""
    B, H = q.shape[:2]
    if out is None:
        return torch.empty((B, H, size), dtype=q.dtype, device=q.device)
    check_shape("out", out, B, H, size)
    if out.dtype != q.dtype:
        raise ValueError(f"out must have q's dtype {q.dtype}, found {out.dtype}")
    return out


def checked_splits(num_splits: int) -> int:
    """`num_splits` when it is a number of splits; ValueError otherwise."""
    if isinstance(num_splits, bool) or not isinstance(num_splits, int) or not 1 <= num_splits <= 1024:
        raise ValueError(f"num_splits={num_splits!r} must be an integer from 1 to 1024, or None")
    return num_splits
