"""Stop a learner's code that never ends: count its bytecode instructions, with a repeating timer behind that."""

from __future__ import annotations

import functools
import inspect
import signal
import sys
import threading
import types
from typing import Any


class OutOfSteps(BaseException):
    """The learner's code used up its budget. A BaseException, so that `except Exception` does not swallow it."""


class StepBudget:
    """Context manager: at most `steps` steps in frames whose globals are the learner's, at most `seconds` of time.

    A step is an instruction, or a line begun. The count is the same on every machine with the same Python. Threads that
    the code starts count too, and end with the block.

    The timer covers what counting cannot see: a loop in library code, a wait, and code that swallows `OutOfSteps` (the
    interpreter drops a trace function that has raised). It fires again and again until the block is left. It needs the
    main thread and a Unix signal; without them only the count protects. One call into C that never returns, such as
    `sum(itertools.count())`, cannot be stopped from inside Python.

    A learner's Ctrl-C still works: `interrupted` tells it from a KeyboardInterrupt that the code itself raised.
    """

    def __init__(self, candidate: Any, steps: int, seconds: float) -> None:
        self.limit, self.seconds = steps, seconds
        self.steps = 0
        self.exceeded = ""  # why, once it is
        self.interrupted = False
        self._open = False
        self._globals = {id(g) for g in globals_of(candidate)}

    def __enter__(self) -> StepBudget:
        self._open, self._owner = True, threading.get_ident()
        self._previous = sys.gettrace(), threading.gettrace()
        self._handlers: list[tuple[int, Any]] = []
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
            self._handlers = [
                (signal.SIGALRM, signal.signal(signal.SIGALRM, self._on_timer)),
                (signal.SIGINT, signal.signal(signal.SIGINT, self._on_interrupt)),
            ]
            signal.setitimer(signal.ITIMER_REAL, self.seconds, 0.05)
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._open = False
        sys.settrace(self._previous[0])
        threading.settrace(self._previous[1])  # type: ignore[arg-type]
        if self._handlers:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._handlers:
            signal.signal(number, handler)

    def _on_call(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        if id(frame.f_globals) not in self._globals:
            return None
        # Lines stay traced and count too: Python 3.13 reports a function's instructions from its second call on only.
        frame.f_trace_opcodes = True
        return self._on_opcode

    def _on_opcode(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        self.steps += 1
        if self.steps > self.limit:
            self.exceeded = f"used up its budget of {self.limit:,} steps: a loop that never ends?"
        if self.interrupted:
            raise KeyboardInterrupt
        if self.exceeded or not self._open:
            if threading.get_ident() != self._owner:
                raise SystemExit  # ends a thread without a word
            raise OutOfSteps
        return self._on_opcode

    def _on_timer(self, signum: int, frame: types.FrameType | None) -> None:
        if self._open:
            self.exceeded = self.exceeded or f"was still running after {self.seconds:g} seconds"
            if not _is_ours(frame):
                raise OutOfSteps

    def _on_interrupt(self, signum: int, frame: types.FrameType | None) -> None:
        self.interrupted = True
        if not _is_ours(frame):
            raise KeyboardInterrupt


def _is_ours(frame: types.FrameType | None) -> bool:
    """Whether a signal arrived in this file: an error raised there could stop `__exit__` halfway. The tracer raises it instead."""
    return frame is not None and frame.f_code.co_filename == __file__


def globals_of(candidate: Any) -> list[dict[str, Any]]:
    """The module namespaces that a function, method, partial, class or callable object was written in."""
    if isinstance(candidate, functools.partial):
        return globals_of(candidate.func)
    candidate = inspect.unwrap(getattr(candidate, "__func__", candidate))
    if isinstance(candidate, types.FunctionType):
        return [candidate.__globals__]
    members = vars(candidate if isinstance(candidate, type) else type(candidate)).values()
    functions = [getattr(m, "fget", None) or getattr(m, "__func__", m) for m in members]
    return [f.__globals__ for f in functions if isinstance(f, types.FunctionType)]
