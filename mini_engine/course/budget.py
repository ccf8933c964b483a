"""Stop a learner's code that never ends: count its bytecode instructions, with a repeating timer behind that."""

from __future__ import annotations

import functools
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

    The timer covers what counting cannot see: a loop in library code, and a wait. It fires again and again until the
    block is left. It needs the main thread and a Unix signal; without them only the count protects. One call into C that
    never returns, such as `sum(itertools.count())`, cannot be stopped from inside Python.

    Code that swallows `OutOfSteps` meets it again at its next instruction, in its own `except` block too, where nothing
    is left to catch it. The interpreter drops a trace function that has raised, so a profile function, which it keeps,
    puts it back at each call and return. Where one frame catches all on several levels, the next error comes some
    instructions later, so that sooner or later it hits a place outside of every `try`.

    A learner's Ctrl-C still works: `interrupted` tells it from a KeyboardInterrupt that the code itself raised.
    """

    def __init__(self, candidate: Any, steps: int, seconds: float) -> None:
        self.limit, self.seconds = steps, seconds
        self.steps = 0
        self.exceeded = ""  # why, once it is
        self.interrupted = False
        self._open = False
        self._raised = 0  # how often OutOfSteps has been raised
        self._wait = 0  # instructions until the next one
        self._globals = {id(g) for g in globals_of(candidate)}

    def __enter__(self) -> StepBudget:
        self._open, self._owner, self._depth = True, threading.get_ident(), min(sys.getrecursionlimit(), 2000) // 2
        self._previous = sys.gettrace(), threading.gettrace(), sys.getprofile()
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
        sys.setprofile(self._previous[2])
        sys.settrace(self._previous[0])
        threading.settrace(self._previous[1])  # type: ignore[arg-type]
        if self._handlers:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._handlers:
            signal.signal(number, handler)

    def _on_call(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        if id(frame.f_globals) not in self._globals:
            return None
        if not self.exceeded and _depth_is_above(self._depth):
            # Stopped while there is room: at the interpreter's limit neither this tracer nor the timer could run.
            self.exceeded = f"called itself down to a depth of {self._depth} frames: a recursion that never ends?"
        # Lines stay traced and count too: Python 3.13 reports a function's instructions from its second call on only.
        frame.f_trace_opcodes = True
        return self._on_opcode(frame, event, arg) if self.exceeded else self._on_opcode

    def _on_opcode(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        self.steps += 1
        if self.steps > self.limit and not self.exceeded:
            self.exceeded = f"used up its budget of {self.limit:,} steps: a loop that never ends, or inputs too large?"
        if event in ("exception", "return"):
            return self._on_opcode  # the frame is on its way out already, or to the handler where the next step raises
        if self.interrupted:
            raise KeyboardInterrupt
        if self.exceeded or not self._open:
            if threading.get_ident() != self._owner:
                raise SystemExit  # ends a thread without a word
            if self._wait and self._open:
                self._wait -= 1
            else:
                self._stop()
        return self._on_opcode

    def _stop(self) -> None:
        """Raise OutOfSteps, and see to it that swallowing it does not help."""
        if self._open:
            sys.setprofile(self._on_profile)
            self._raised += 1
            self._wait = self._raised // 600 % 50  # 600 in a row unwind any stack of half the usual limit
        raise OutOfSteps

    def _on_profile(self, frame: types.FrameType, event: str, arg: Any) -> None:
        """Called at every call and return, once the budget is exceeded: trace again."""
        if self._open:
            self._trace(frame.f_back if event == "return" else frame)

    def _trace(self, frame: types.FrameType | None) -> None:
        sys.settrace(self._on_call)
        if frame is not None and id(frame.f_globals) in self._globals:
            frame.f_trace_opcodes = True
            frame.f_trace = self._on_opcode

    def _on_timer(self, signum: int, frame: types.FrameType | None) -> None:
        if not self._open:
            return
        self.exceeded = self.exceeded or f"was still running after {self.seconds:g} seconds"
        if not _is_ours(frame):
            signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)  # whoever swallows this meets the next one soon
            theirs = frame
            while theirs is not None and id(theirs.f_globals) not in self._globals:
                theirs = theirs.f_back
            self._trace(theirs)
            self._stop()

    def _on_interrupt(self, signum: int, frame: types.FrameType | None) -> None:
        self.interrupted = True
        if not _is_ours(frame):
            raise KeyboardInterrupt


def _depth_is_above(frames: int) -> bool:
    try:
        sys._getframe(frames)
    except ValueError:
        return False
    return True


def _is_ours(frame: types.FrameType | None) -> bool:
    """Whether a signal arrived in this file: an error raised there could stop `__exit__` halfway. The tracer raises it instead."""
    return frame is not None and frame.f_code.co_filename == __file__


def globals_of(candidate: Any) -> list[dict[str, Any]]:
    """The module namespaces that a function, method, partial, class or callable object was written in.

    It runs none of the candidate's own code, such as a `__getattr__`.
    """
    kind = type(candidate)
    if kind is types.MethodType:
        return globals_of(candidate.__func__)
    if kind is functools.partial:
        return globals_of(candidate.func)
    if kind is types.FunctionType:
        found: dict[int, dict[str, Any]] = {}
        wrapped, seen = candidate, set()
        while type(wrapped) is types.FunctionType and id(wrapped) not in seen:
            seen.add(id(wrapped))
            found[id(wrapped.__globals__)] = wrapped.__globals__
            wrapped = wrapped.__dict__.get("__wrapped__")
        return list(found.values())
    members = type.__dict__["__dict__"].__get__(candidate if issubclass(kind, type) else kind).values()
    functions = [_function_of(member) for member in members]
    return [f.__globals__ for f in functions if type(f) is types.FunctionType]


def _function_of(member: Any) -> Any:
    if type(member) is property:
        return member.fget
    return member.__func__ if type(member) in (classmethod, staticmethod) else member
