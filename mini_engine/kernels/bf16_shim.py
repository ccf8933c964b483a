"""bfloat16 in Triton's interpreter, which gets it wrong without a word (3.6 to 3.9; triton issue 11584).

The interpreter keeps bfloat16 as the bits of 16-bit integers. `tl.dot` multiplies those integers, a cast from float32
cuts bits off where a GPU rounds to the nearest, and a cast from an integer takes its bits for the number's. Two of its private methods are replaced here, so that the same kernel
gives the same numbers interpreted as compiled. Should a new version of Triton change or mend them, `install` says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def install() -> None:
    """Replace the two methods, once. RuntimeError when they are not, or do not do, what this was written for."""
    import triton
    import triton.language as tl
    from triton.runtime import interpreter

    builder: Any = interpreter.InterpreterBuilder
    if getattr(builder, "_bf16_is_mended", False):
        return
    try:
        before = _probe(builder, interpreter, tl)
        old_dot, old_cast = builder.create_dot, builder.cast_impl
    except (AttributeError, TypeError, ValueError) as error:
        raise RuntimeError(_changed(triton.__version__, f"{type(error).__name__}: {error}")) from error
    if before == EXPECTED:
        raise RuntimeError(_changed(triton.__version__, "its own bfloat16 is right now, and the replacement can go"))

    def create_dot(self: Any, a: Any, b: Any, d: Any, *options: Any) -> Any:
        return old_dot(self, *(_widened(x, interpreter, tl) for x in (a, b)), d, *options)

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        if src.dtype.scalar != tl.bfloat16 and dst_type.scalar == tl.bfloat16:
            return interpreter.TensorHandle(to_bf16(src.data), tl.bfloat16)
        return old_cast(self, src if dst_type.scalar == tl.bfloat16 else _widened(src, interpreter, tl), dst_type)

    builder.create_dot, builder.cast_impl, builder._bf16_is_mended = create_dot, cast_impl, True
    after = _probe(builder, interpreter, tl)
    if after != EXPECTED:
        builder.create_dot, builder.cast_impl, builder._bf16_is_mended = old_dot, old_cast, False
        raise RuntimeError(_changed(triton.__version__, f"{after} instead of {EXPECTED}"))


def to_bf16(x: np.ndarray) -> np.ndarray:
    """Numbers that float32 can hold -> the bits of bfloat16, as uint16: to the nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """The bits of bfloat16 -> float32, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _widened(x: Any, interpreter: Any, tl: Any) -> Any:
    return interpreter.TensorHandle(from_bf16(x.data), tl.float32) if x.dtype.scalar == tl.bfloat16 else x


# A tie that goes down, one that goes up, NaN; the integer -3; the product 1.5 * 2 + 0.25.
PROBED = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, np.nan], dtype=np.float32)
EXPECTED = (["0x3f80", "0x3f82"], True, -3.0, 3.25)


def _probe(builder: Any, interpreter: Any, tl: Any) -> tuple[list[str], bool, float, float]:
    """What the interpreter's methods make of bfloat16 now; EXPECTED is right."""
    self, handle = builder(), interpreter.TensorHandle
    cast = self.create_fp_trunc(handle(PROBED, tl.float32), tl.bfloat16).data
    integer = self.create_si_to_fp(handle(np.array([-3], dtype=np.int8), tl.int8), tl.bfloat16).data
    a, b = (handle(np.array([[bits]], dtype=np.uint16), tl.bfloat16) for bits in (0x3FC0, 0x4000))
    product = self.create_dot(a, b, handle(np.array([[0.25]], dtype=np.float32), tl.float32), None, 0)
    is_nan = bool(np.isnan(from_bf16(cast[2:]))[0])
    return [hex(x) for x in cast[:2]], is_nan, float(from_bf16(integer)[0]), float(product.data[0, 0])


def _changed(version: str, what: str) -> str:
    return (
        f"Triton {version}: the interpreter does not treat bfloat16 as mini_engine.kernels.bf16_shim expects ({what})"
    )
