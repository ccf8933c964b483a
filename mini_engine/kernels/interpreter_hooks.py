"""Being told what interpreted kernels do: each load, each store, and each launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

OnAccess = Callable[[Any, np.ndarray], None]
"""Called before a load or a store with its pointers and with the byte addresses of the lanes that are not masked off."""
OnLaunch = Callable[[Any, dict[str, Any], Callable[[], Any]], Any]
"""Called in place of a launch with its executor, the kernel's arguments by name, and what runs it; returns what that does."""


@contextmanager
def interpreter_hooks(on_load: OnAccess, on_store: OnAccess, on_launch: OnLaunch) -> Iterator[None]:
    """Call these for all kernels that are interpreted meanwhile. Hooks may be nested: the inner ones are asked first."""
    from triton.runtime import interpreter

    builder: Any = interpreter.InterpreterBuilder
    executor: Any = interpreter.GridExecutor
    load, store, call = builder.create_masked_load, builder.create_masked_store, executor.__call__

    def lanes(ptrs: Any, mask: Any) -> np.ndarray:
        return np.broadcast_to(ptrs.data, mask.data.shape)[mask.data.astype(bool)].astype(np.int64)

    def hooked_load(self: Any, ptrs: Any, mask: Any, *options: Any) -> Any:
        on_load(ptrs, lanes(ptrs, mask))
        return load(self, ptrs, mask, *options)

    def hooked_store(self: Any, ptrs: Any, value: Any, mask: Any, *options: Any) -> Any:
        on_store(ptrs, lanes(ptrs, mask))
        return store(self, ptrs, value, mask, *options)

    def hooked_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = dict(zip(self.arg_names, args)) | {k: v for k, v in kwargs.items() if k in self.arg_names}
        return on_launch(self, arguments, lambda: call(self, *args, **kwargs))

    builder.create_masked_load, builder.create_masked_store, executor.__call__ = hooked_load, hooked_store, hooked_call
    try:
        yield
    finally:
        builder.create_masked_load, builder.create_masked_store, executor.__call__ = load, store, call
