"""What a kernel reads and writes, in bytes and by tensor, counted while the interpreter runs it.

    with traffic() as launches:
        paged_gqa_decode(...)
    print(launches[0])

A lane that is masked off moves nothing. Counted are the bytes that a kernel asks for: a GPU fetches them in sectors of 32,
and may serve a second request from a cache. Atomic operations are not counted. The distinct bytes of a tensor are what it
would take to read each of them once; `least` says, for this package's kernels, how much of the cache the contexts need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from mini_engine.kernels._mode import import_triton, is_interpreted
from mini_engine.kernels.interpreter_hooks import interpreter_hooks


@dataclass
class Launch:
    """One launch: `loaded`, `stored` and `distinct` (loaded at least once), in bytes by the name of the kernel's argument.

    An argument that is another's tensor too, as scales of a pool without scales are, goes by the first one's name.
    """

    kernel: str
    grid: tuple[int, ...]
    arguments: dict[str, Any]
    loaded: dict[str, int] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    distinct: dict[str, int] = field(default_factory=dict)

    @property
    def bytes_loaded(self) -> int:
        """Bytes loaded from all tensors together."""
        return sum(self.loaded.values())

    @property
    def bytes_stored(self) -> int:
        """Bytes stored to all tensors together."""
        return sum(self.stored.values())

    @property
    def reads(self) -> int:
        """How often a kernel of this package reads the cache by design: once for each tile of heads that shares it."""
        heads = {"gqa_decode_kernel": "GROUP", "mla_decode_kernel": "H"}.get(self.kernel)
        return 1 if heads is None else -(-self.arguments[heads] // self.arguments["BLOCK_H"])

    def least(self) -> dict[str, int]:
        """Bytes of the cache that a decode kernel of this package cannot do without, times `reads`; of others, nothing."""
        given = self.arguments
        pools: tuple[str, ...]
        scales: tuple[str, ...]
        if self.kernel == "gqa_decode_kernel":
            pools, scales = ("k_ptr", "v_ptr"), ("k_scale_ptr", "v_scale_ptr")
        elif self.kernel == "mla_decode_kernel":
            pools, scales = ("pool_ptr",), ("pool_scale_ptr",)
        else:
            return {}
        tokens = given["len_ptr"].clamp_max(given.get("WINDOW") or 2**31 - 1).sum().item() * self.reads
        names = pools + scales if given["HAS_SCALE"] else pools
        return {name: tokens * given[name][0, 0].numel() * given[name].element_size() for name in names}

    @property
    def ratio(self) -> float:
        """All bytes moved, queries, tables and results included, over the least of the cache. NaN where that is nothing."""
        least = sum(self.least().values())
        return (self.bytes_loaded + self.bytes_stored) / least if least else float("nan")

    def __str__(self) -> str:
        least = self.least()
        names = list(dict.fromkeys([*self.loaded, *self.stored]))
        width = max(map(len, [*names, "tensor"]))
        lines = [
            f"{self.kernel}, grid {' x '.join(map(str, self.grid))}: bytes",
            f"  {'tensor':{width}}  {'loaded':>13}  {'distinct':>13}  {'stored':>13}"
            + f"  {'least':>13}" * bool(least),
        ]
        for name in names:
            each = (self.loaded.get(name, 0), self.distinct.get(name, 0), self.stored.get(name, 0))
            line = f"  {name.removesuffix('_ptr'):{width}}" + "".join(f"  {x:13,}" for x in each)
            lines.append(line + (f"  {least[name]:13,}" if name in least else ""))
        if least:
            lines.append(
                f"  moved {self.bytes_loaded + self.bytes_stored:,}, least {sum(least.values()):,} "
                f"(the cache {'once' if self.reads == 1 else f'{self.reads} times'}): {self.ratio:.3f}"
            )
        return "\n".join(lines)


@contextmanager
def traffic() -> Iterator[list[Launch]]:
    """The launches of interpreted kernels that run meanwhile. RuntimeError where kernels are compiled, and where this
    version of the interpreter is not what it was written for.
    """
    if not is_interpreted():
        raise RuntimeError("traffic is counted in the interpreter: set TRITON_INTERPRET=1 before Python starts")
    import_triton()
    if not _tested:
        _test()
    with _counted() as launches:
        yield launches


@contextmanager
def _counted() -> Iterator[list[Launch]]:
    launches: list[Launch] = []
    owners: list[_Owner] = []

    def count_load(ptrs: Any, lanes: np.ndarray) -> None:
        for owner, addresses in _shared_out(owners, lanes):
            owner.loads.append(addresses)

    def count_store(ptrs: Any, lanes: np.ndarray) -> None:
        for owner, addresses in _shared_out(owners, lanes):
            owner.stores += len(addresses)

    def count_launch(executor: Any, arguments: dict[str, Any], run: Callable[[], Any]) -> Any:
        owners[:] = [_Owner(name, x) for name, x in arguments.items() if isinstance(x, torch.Tensor)]
        result = run()
        grid = executor.grid(arguments) if callable(executor.grid) else executor.grid
        launch = Launch(executor.fn.__name__, tuple(grid), arguments)
        for owner in owners:
            if owner.loads:
                loads, size = np.concatenate(owner.loads), owner.size
                launch.loaded[owner.name], launch.distinct[owner.name] = len(loads) * size, len(np.unique(loads)) * size
            if owner.stores:
                launch.stored[owner.name] = owner.stores * owner.size
        launches.append(launch)
        return result

    with interpreter_hooks(count_load, count_store, count_launch):
        yield launches


class _Owner:
    """A tensor among a kernel's arguments, and what was read (addresses) and written (how many) of it."""

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        self.name, self.size = name, tensor.element_size()
        self.begin = tensor.data_ptr()
        axes = sorted((axis for axis in zip(tensor.stride(), tensor.shape) if axis[1] > 1), reverse=True)
        self.axes = [(stride * self.size, length) for stride, length in axes]
        self.loads: list[np.ndarray] = []
        self.stores = 0

    def has(self, addresses: np.ndarray) -> np.ndarray:
        """Which addresses are elements of the tensor: of views into one memory, each has its own."""
        rest = addresses - self.begin
        inside = rest >= 0
        for stride, length in self.axes:
            if stride:
                inside &= rest // stride < length
                rest = rest % stride
        return inside & (rest == 0)


def _shared_out(owners: list[_Owner], addresses: np.ndarray) -> Iterator[tuple[_Owner, np.ndarray]]:
    """Each address to the first tensor that has it. RuntimeError for one that no tensor has."""
    for owner in owners:
        if len(addresses) == 0:
            return
        its = owner.has(addresses)
        if its.any():
            yield owner, addresses[its]
            addresses = addresses[~its]
    if len(addresses):
        raise RuntimeError(f"{len(addresses)} addresses belong to none of the kernel's tensors")


_tested = False


def _test() -> None:
    """Count a kernel whose traffic is known. RuntimeError when the count is another."""
    global _tested
    from mini_engine.kernels import traffic_probe

    x, out = torch.arange(8.0), torch.zeros(8, dtype=torch.float16)
    with _counted() as launches:
        traffic_probe.probe_kernel[(2,)](x, out, 6, BLOCK=4)
    expected = ({"x_ptr": 6 * 4 + 2 * 4}, {"x_ptr": 6 * 4}, {"out_ptr": 6 * 2})
    found = [(each.loaded, each.distinct, each.stored) for each in launches]
    if found != [expected]:
        import triton

        raise RuntimeError(f"Triton {triton.__version__}: its interpreter is counted wrongly: {found}, not {expected}")
    _tested = True
