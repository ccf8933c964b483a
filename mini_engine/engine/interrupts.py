"""Ctrl-C may come at any moment; bookkeeping that stops halfway is broken. So it waits until the books are closed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold SIGINT back while the block runs, then let it do what it does. Also a decorator.

    The third one goes through at once: whoever presses Ctrl-C that often is waiting for code that never ends. Signals reach the main thread only, so in other threads there is nothing to hold.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[tuple] = []

    def hold(*arguments: Any) -> None:
        held.append(arguments)
        if len(held) > 2:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if held:
            signal.raise_signal(signal.SIGINT)
