"""Weight matrices as functions of their input, packed where the processor has something better than a plain product.

A decode step reads every weight once and does little with it, so half the bytes is nearly half the time. PyTorch carries a
CPU kernel (fbgemm) that keeps the weights in fp16 and computes in fp32. It changes no result when every weight is an fp16
number to begin with, which holds for checkpoints stored in fp16 and for quantised ones rounded to it at load; other
weights stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

Linear = Callable[[torch.Tensor], torch.Tensor]


def pack_linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
    """x[T, in] -> x @ weight.T + bias [T, out], for weight [out, in]. The packed form holds no reference to `weight`."""
    if is_half_exact(weight) and "fbgemm" in torch.backends.quantized.supported_engines:
        packed = torch.ops.quantized.linear_prepack_fp16(weight, bias)
        return lambda x: torch.ops.quantized.linear_dynamic_fp16(x, packed)
    return lambda x: F.linear(x, weight, bias)


def is_half_exact(weight: torch.Tensor) -> bool:
    """Whether fp16 holds every element of this fp32 CPU tensor exactly."""
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        return False
    return all(torch.equal(rows.half().float(), rows) for rows in weight.split(1024))  # few at a time: no second copy
