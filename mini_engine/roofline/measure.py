"""Measure a machine's own roofline: the rate of its best product, and that of its best read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mini_engine.arguments import count

Run = Callable[[], Any]


@dataclass(frozen=True)
class MachineRates:
    """What this machine reaches, as measured: FLOP/s of a large product, bytes/s of one long read."""

    flops: float
    bandwidth: float

    @property
    def ridge(self) -> float:
        """FLOP per byte at which computing takes as long as reading."""
        return self.flops / self.bandwidth


@dataclass(frozen=True)
class Measured:
    """Work that was timed. `bytes` is the least that it moves: each operand read once, the result written once."""

    name: str
    flops: int
    bytes: int
    seconds: float

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes

    @property
    def rate(self) -> float:
        """FLOP/s."""
        return self.flops / self.seconds


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch on one CPU thread for the length of a `with` block."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure_rates(
    device: str = "cpu", *, size: int = 1024, read_bytes: int = 1 << 28, repeats: int = 5
) -> MachineRates:
    """The best of `repeats` tries each: one thread in fp32 on a CPU, bf16 on a GPU.

    size: rows and columns of the product. read_bytes: length of the read, to be chosen well above the caches.
    """
    import torch

    size, read_bytes, repeats = (
        count("size", size),
        count("read_bytes", read_bytes, minimum=4),
        count("repeats", repeats),
    )
    with one_thread(), torch.inference_mode():
        product = min(best_seconds(run, device, repeats) for run in _products(size, device))
        long = torch.ones(read_bytes // 4, dtype=torch.float32, device=device)
        return MachineRates(2 * size**3 / product, long.nbytes / best_seconds(long.sum, device, repeats))


def _products(size: int, device: str) -> Iterator[Run]:
    """A [size, size] product, by every library that PyTorch carries: which is fastest depends on the processor."""
    import torch

    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    a, b = torch.ones(2, size, size, dtype=dtype, device=device)
    yield lambda: torch.mm(a, b)
    if device != "cpu":
        return
    if "fbgemm" in torch.backends.quantized.supported_engines:
        half = torch.ops.quantized.linear_prepack_fp16(b, None)
        yield lambda: torch.ops.quantized.linear_dynamic_fp16(a, half)
    if torch.backends.mkldnn.is_available():
        packed = torch.ops.mkldnn._reorder_linear_weight(b, size)
        yield lambda: torch.ops.mkldnn._linear_pointwise(a, packed, None, "none", [], "")


def best_seconds(run: Run, device: str = "cpu", repeats: int = 3) -> float:
    """The shortest of `repeats` calls after one to warm up.

    On a CPU it is the thread's own time, so that whatever else the machine does counts less.
    """
    if device == "cpu":
        clock, wait = time.thread_time, _nothing
    else:
        import torch

        clock, wait = time.perf_counter, torch.cuda.synchronize
    seconds = []
    for _ in range(repeats + 1):
        wait()
        start = clock()
        run()
        wait()
        seconds.append(clock() - start)
    return max(min(seconds[1:]), 1e-9)  # a coarse clock may show 0


def _nothing() -> None:
    pass
