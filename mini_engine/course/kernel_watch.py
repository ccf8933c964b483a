"""Run a learner's kernel as a GPU would punish it: what the interpreter forgives is an error here, at the kernel's line."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from mini_engine.course.exercise import NotDoneYet
from mini_engine.course.expect import expect, expect_close
from mini_engine.kernels import is_interpreted, memory_check
from mini_engine.kernels.interpreter_hooks import interpreter_hooks


class UnneededReadError(IndexError):
    """A kernel was about to load what no right answer needs, and what a GPU would have to fetch."""


class StoredTwiceError(RuntimeError):
    """Two programs of one launch store in one place: on a GPU nobody says which of them comes last."""


@dataclass(frozen=True)
class OffLimits:
    """Numbers of a tensor that no program may load: those where `where`, of its shape, is True. `what` says why."""

    tensor: torch.Tensor
    where: np.ndarray
    what: str

    def addresses(self) -> np.ndarray:
        """Sorted byte addresses."""
        at = np.argwhere(self.where) @ np.array(self.tensor.stride(), np.int64)
        return np.sort(self.tensor.data_ptr() + at * self.tensor.element_size())

    def index(self, address: int) -> list[int]:
        """The place in the tensor, one number a dimension, that lies at this address."""
        size, strides = self.tensor.element_size(), np.array(self.tensor.stride(), np.int64)
        every = np.argwhere(self.where)
        return [int(i) for i in every[np.argmax(self.tensor.data_ptr() + every @ strides * size == address)]]


@contextmanager
def watched(off_limits: Sequence[OffLimits] = (), *, backwards: bool = False) -> Iterator[None]:
    """Kernels that run meanwhile may touch their own tensors only, and what a GPU would not do fails here too.

    - A masked lane without `other` would be 0 in the interpreter. On a GPU nobody says what it is: here it is NaN, or a
      very large number. So is memory that torch.empty gives.
    - A `tl.dot` with a side below 16, and a tile in `and`, `or`, `not` or `if`, are errors.
    - A load of numbers that are off limits is an UnneededReadError, two programs that store in one place are a
      StoredTwiceError. `backwards` runs the programs in the opposite order.

    An error in a kernel comes out as itself, at the kernel's own line.
    """
    if not is_interpreted():
        with _compiled():
            yield
        return
    from triton.runtime import interpreter

    builder: Any = interpreter.InterpreterBuilder
    forbidden = [(each, each.addresses()) for each in off_limits]
    stores: dict[int, tuple[int, ...]] = {}
    arguments: dict[str, Any] = {}

    def on_launch(executor: Any, given: dict[str, Any], run: Callable[[], Any]) -> Any:
        stores.clear()
        arguments.clear()
        arguments.update(given)
        return run()

    def on_load(ptrs: Any, lanes: np.ndarray) -> None:
        for each, addresses in forbidden:
            hit = np.isin(lanes, addresses)
            if hit.any():
                where = f"{_name(arguments, each.tensor)}{each.index(int(lanes[hit][0]))}"
                raise UnneededReadError(f"a load of {where}, {each.what}: mask it, and it costs nothing")

    def on_store(ptrs: Any, lanes: np.ndarray) -> None:
        program = tuple(interpreter.interpreter_builder.grid_idx)
        for address in lanes.tolist():
            other = stores.setdefault(address, program)
            if other != program:
                name = next((n for n, x in arguments.items() if _holds(x, address)), "one tensor")
                raise StoredTwiceError(
                    f"programs {_short(other)} and {_short(program)} store in the same place of {name}: "
                    "on a GPU either may come last"
                )

    options = [patch.object(builder, "create_masked_load", _poisoned(builder.create_masked_load))]
    options.append(patch.object(builder, "create_dot", _sized(builder.create_dot)))
    options.append(patch.object(interpreter, "_patch_lang_tensor", _strict(interpreter._patch_lang_tensor)))
    if backwards:
        options.append(patch.object(builder, "set_grid_idx", _reversed(builder.set_grid_idx)))
    for option in options:
        option.start()
    try:
        with (
            _poisoned_memory(),
            memory_check(),
            interpreter_hooks(on_load, on_store, on_launch),
            np.errstate(all="ignore"),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", RuntimeWarning)  # a tile of NaN is no news here
            yield
    except interpreter.InterpreterError as error:
        raise _root(error) from None
    finally:
        for option in reversed(options):
            option.stop()


def _poisoned(load: Callable[..., Any]) -> Callable[..., Any]:
    def poisoned(self: Any, ptrs: Any, mask: Any, other: Any, *options: Any) -> Any:
        loaded = load(self, ptrs, mask, other, *options)
        if other is None:
            off = ~np.broadcast_to(mask.data, loaded.data.shape).astype(bool)
            kind = loaded.data.dtype
            anything = [np.nan, np.finfo(kind).max] if kind.kind == "f" else [np.iinfo(kind).max]  # max() drops a NaN
            loaded.data = np.where(off, np.resize(np.array(anything, kind), off.shape), loaded.data)
        return loaded

    return poisoned


def _sized(dot: Callable[..., Any]) -> Callable[..., Any]:
    def sized(self: Any, a: Any, b: Any, *options: Any) -> Any:
        sides = (*a.data.shape, b.data.shape[-1])
        if min(sides) < 16:
            raise ValueError(
                f"tl.dot of {list(a.data.shape)} and {list(b.data.shape)}: a GPU wants 16 or more on each side"
            )
        return dot(self, a, b, *options)

    return sized


def _strict(patch_tensor: Callable[..., None]) -> Callable[..., None]:
    def one_number(self: Any) -> bool:
        data = self.handle.data
        if data.size > 1 and not _tritons(sys._getframe(1)):
            raise TypeError("a tile is neither true nor false: join masks with & and |, turn one round with ~")
        return bool(data) if data.size == 1 else True

    def strict(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__bool__", one_number)

    return strict


def _tritons(frame: Any) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "triton"


def _reversed(set_grid_idx: Callable[..., None]) -> Callable[..., None]:
    def set_reversed(self: Any, *at: int) -> None:
        set_grid_idx(self, *(size - 1 - i for i, size in zip(at, self.grid_dim)))

    return set_reversed


@contextmanager
def _poisoned_memory() -> Iterator[None]:
    """torch.empty gives NaN meanwhile."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@contextmanager
def _compiled() -> Iterator[None]:
    """A stub's `raise` does not compile: then the exercise is not done yet. Other errors go through."""
    from mini_engine.kernels import triton

    try:
        yield
    except triton.CompilationError as error:
        if "raise NotImplementedError" in str(error):
            raise NotDoneYet from error
        raise


def _root(error: BaseException) -> BaseException:
    """What a kernel raised, out of the interpreter's wrapping; a called kernel wraps it once more."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    if type(error) is AssertionError:  # one of Triton's own, which is no verdict of a check
        return TypeError(str(error)).with_traceback(error.__traceback__)
    if type(error) is TypeError and "'int' object is not iterable" in str(error):
        words = "a pointer is not indexed: write tl.load(pointer + i)"
        return TypeError(words).with_traceback(error.__traceback__)
    if type(error) is TypeError and "ufunc 'bitwise_" in str(error):
        words = "a tile's mask and the comparison of one float cannot be joined here: put what depends on the float in an `if`"
        return TypeError(words).with_traceback(error.__traceback__)
    return error


def _name(arguments: dict[str, Any], tensor: torch.Tensor) -> str:
    """What the kernel calls this tensor, or another view that begins with it."""
    found = (n for n, x in arguments.items() if isinstance(x, torch.Tensor) and x.data_ptr() == tensor.data_ptr())
    return next(found, "a tensor")


def _holds(value: Any, address: int) -> bool:
    if not isinstance(value, torch.Tensor):
        return False
    begin = value.untyped_storage().data_ptr()
    return begin <= address < begin + value.untyped_storage().nbytes()


def _short(program: tuple[int, ...]) -> str:
    """Of a place in the grid, the axes up to the last one in use."""
    used = max((i for i, at in enumerate(program) if at), default=0)
    return str(program[: max(2, used + 1)]).replace(" ", "").replace(",", ", ")


def launched(
    candidate: Callable[..., Any],
    *args: Any,
    off_limits: Sequence[OffLimits] = (),
    backwards: bool = False,
    **kwargs: Any,
) -> Any:
    """Call it under watch, and see that it leaves alone every tensor that it was given."""
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor) and x.numel() < 1 << 20]
    before = [x.clone() for x in tensors]
    with watched(off_limits, backwards=backwards):
        result = candidate(*args, **kwargs)
    for x, old in zip(tensors, before):
        same = torch.equal(torch.nan_to_num(x.double(), nan=7.5), torch.nan_to_num(old.double(), nan=7.5))
        expect(same, "a call that only reads", expected="inputs as they were", got=f"a changed {_shape(x)}")
    return result


def numbers(result: Any, shape: Sequence[int], case: str) -> np.ndarray:
    """A returned tensor as NumPy; fails for anything else and for another shape."""
    right = isinstance(result, torch.Tensor) and tuple(result.shape) == tuple(shape)
    got = _shape(result) if isinstance(result, torch.Tensor) else type(result).__name__
    expect(right, case, expected=f"a tensor of shape {list(shape)}", got=got)
    return np.asarray(result.detach().double().cpu().numpy())


def expect_numbers(got: np.ndarray, want: np.ndarray, case: str, rtol: float) -> None:
    """As expect_close, in float32, which is what a kernel's numbers are at best."""
    expect_close(got.astype(np.float32), want.astype(np.float32), case, rtol=rtol)


def _shape(tensor: torch.Tensor) -> str:
    return f"tensor of shape {list(tensor.shape)}"
