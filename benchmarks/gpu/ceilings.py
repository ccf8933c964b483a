"""What the machine is, and the two ceilings that everything is held against: copy bandwidth and matmul peak."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime

import numpy as np
import torch

from gpu.bench import Bench

COPY_BYTES, MATMUL_SIZE = 2 << 30, 8192


def environment(bench: Bench) -> None:
    """GPU, versions, driver and clocks, command and date."""
    import triton

    from mini_engine.kernels.launch import target

    found: dict[str, object] = {
        "command": " ".join(["python", "benchmarks/gpu_kernels.py", *sys.argv[1:]]),
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "numpy": np.__version__,
        "cuda": torch.version.cuda or torch.version.hip,
        "cpu cores": os.cpu_count(),
    }
    if not bench.dry:
        gpu = torch.cuda.get_device_properties(0)
        found |= {
            "gpu": gpu.name,
            "arch": target(bench.device).arch,
            "processors": gpu.multi_processor_count,
            "memory GiB": round(gpu.total_memory / 2**30, 1),
            "L2 MiB": round(getattr(gpu, "L2_cache_size", 0) / 2**20, 1),
            **_driver(),
        }
    bench.row("environment", **found)


def _driver() -> dict[str, str]:
    """Driver version and clocks, where nvidia-smi tells them."""
    fields = ("driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "power.limit")
    try:
        command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(fields, map(str.strip, answer.splitlines()[0].split(","))))


def ceilings(bench: Bench) -> None:
    """Copy bandwidth (bytes read and written), a sum that only reads, and the rate of a large bfloat16 product of random
    matrices: of zeros it would be higher, as less power is used.
    """
    size = 1 << 10 if bench.dry else COPY_BYTES // 2
    source, target = (torch.empty(size, dtype=torch.bfloat16, device=bench.device).normal_() for _ in range(2))
    seconds = bench.seconds(lambda: target.copy_(source))
    bench.copy_rate = None if seconds is None else 4 * size / seconds
    bench.row("ceiling", what="copy", bytes=4 * size, **bench.rates(seconds, 4 * size, 0))
    seconds = bench.seconds(lambda: source.view(torch.int32).max())
    bench.row("ceiling", what="read only", bytes=2 * size, **bench.rates(seconds, 2 * size, 0))
    n = 64 if bench.dry else MATMUL_SIZE
    a, b = (torch.randn(n, n, device=bench.device).bfloat16() for _ in range(2))
    seconds = bench.seconds(lambda: a @ b)
    bench.matmul_rate = None if seconds is None else 2 * n**3 / seconds
    bench.row("ceiling", what="matmul bf16", size=n, **bench.rates(seconds, 3 * 2 * n * n, 2 * n**3))
