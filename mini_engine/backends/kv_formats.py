"""How a torch pool keeps what it caches: as the model made it, in 8-bit floats, or in 8-bit integers with scales.

Rows are encoded one token at a time, and every query, those of a prefill chunk too, reads what the cache then holds. So no
output depends on how tokens were cut into chunks, found in the prefix cache, copied or swapped. `mini_engine.attention`
has the same codecs in NumPy (`Fp8Codec`; `IntCodec(8, scale_type="float32")`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mini_engine.arguments import choice
from mini_engine.backends.kv_arrays import KV_CACHE_DTYPES, kv_arrays
from mini_engine.catalog import ModelSpec


class AutoFormat:
    """Kept as it came, in the model's dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def parts(self, heads: int, size: int) -> dict[str, tuple[tuple[int, int], torch.dtype]]:
        """What is stored of one token's x[heads, size]: (shape, dtype) of each part, by the suffix of its pool's name."""
        return {"": ((heads, size), self.dtype)}

    def encode(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """x[T, heads, size] -> its parts, [T, ...] each."""
        return (x,)

    def decode(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Parts, whatever their leading axes -> x in the model's dtype."""
        return parts[0]


class Fp8Format(AutoFormat):
    """float8_e4m3fn without a scale: one byte a number, what is larger than 448 saturates. NaN stays NaN."""

    MAX = 448.0

    def parts(self, heads: int, size: int) -> dict[str, tuple[tuple[int, int], torch.dtype]]:
        """One byte a number, and no scale."""
        return {"": ((heads, size), torch.uint8)}  # as bytes, which every device can gather and fill

    def encode(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """x[T, heads, size] -> one part of the same shape, cut off at +-448."""
        return (x.clamp(-self.MAX, self.MAX).to(torch.float8_e4m3fn).view(torch.uint8),)

    def decode(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """The bytes, whatever their leading axes -> x in the model's dtype."""
        return parts[0].view(torch.float8_e4m3fn).to(self.dtype)


class Int8Format(AutoFormat):
    """int8 with one float32 scale for each token and head. NaN and infinity come back as NaN.

    A latent is one head: its rotary key, where it is the larger part, sets the scale of both.
    """

    def parts(self, heads: int, size: int) -> dict[str, tuple[tuple[int, int], torch.dtype]]:
        """One byte a number, and a float32 scale for each head."""
        return {"": ((heads, size), torch.int8), "_scale": ((heads, 1), torch.float32)}

    def encode(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """x[T, heads, size] -> codes of that shape and scales [T, heads, 1]."""
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        scale = (x.abs().amax(dim=-1, keepdim=True) / 127).float()
        scale = scale.clamp_min(torch.finfo(torch.float32).tiny)  # all zeros: anything but a division by zero
        return (x / scale).round().to(torch.int8), scale

    def decode(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Codes times scales, in the model's dtype."""
        codes, scale = parts
        return codes.to(torch.promote_types(self.dtype, torch.float32)).mul_(scale).to(self.dtype)


FORMATS = dict(zip(KV_CACHE_DTYPES, (AutoFormat, Fp8Format, Int8Format), strict=True))


def kv_format(kv_cache_dtype: str, dtype: torch.dtype) -> AutoFormat:
    """The format of that name for a model of this dtype. ValueError listing the names there are."""
    return FORMATS[choice("kv_cache_dtype", kv_cache_dtype, KV_CACHE_DTYPES)](dtype)


def pool_parts(spec: ModelSpec, form: AutoFormat) -> dict[str, dict[str, tuple[tuple[int, int], torch.dtype]]]:
    """The pools of a model, by cached array and then by pool name: {"k": {"k": ..., "k_scale": ...}, "v": ...}."""
    return {
        name: {name + suffix: part for suffix, part in form.parts(*shape).items()}
        for name, shape in kv_arrays(spec).items()
    }


def bytes_per_token(spec: ModelSpec, form: AutoFormat) -> int:
    """Bytes that one token takes in all pools and layers, scales included."""
    every = [part for parts in pool_parts(spec, form).values() for part in parts.values()]
    return spec.num_hidden_layers * sum(math.prod(shape) * dtype.itemsize for shape, dtype in every)
