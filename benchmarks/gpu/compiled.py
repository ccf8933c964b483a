"""Every kernel of the sweeps, compiled before anything is timed: in several processes, which leave what they made in
Triton's cache, and with what each needs of the processor.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from typing import Any

from gpu.bench import Bench
from mini_engine.kernels.config import MAX_SPLITS


def calls(most_splits: int) -> dict[str, Callable[[], object]]:
    """What the sweeps call, by name, in one part and in 2, 4, ... at most `most_splits`."""
    from mini_engine.kernels.specialisations import gqa, mla

    splits = [2**i for i in range(most_splits.bit_length())]
    found = {f"gqa G={G} in {n}": gqa("bf16", 128, G=G, num_splits=n) for G in (1, 4, 8) for n in splits}
    return found | {f"mla H={H} in {n}": mla("bf16", H, num_splits=n) for H in (16, 128) for n in splits}


def compile_all(bench: Bench, most_splits: int = MAX_SPLITS) -> None:
    """One row for each kernel: registers, spills, shared memory. In a dry run there is nothing to compile."""
    if bench.dry:
        bench.row("compile", skipped="interpreted")
        return
    from mini_engine.kernels.launch import target

    arch = target(bench.device).arch
    names = list(calls(most_splits))
    with ProcessPoolExecutor(min(len(names), os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        for rows in pool.map(compile_call, [arch] * len(names), names, [most_splits] * len(names)):
            for row in rows:
                bench.row("compile", **row)


def compile_call(arch: str, name: str, most_splits: int) -> list[dict[str, Any]]:
    """In a process of its own, which needs no GPU: what a call launches, compiled for `arch`."""
    from mini_engine.kernels._mode import import_triton
    from mini_engine.kernels.compile_report import AbsentGPU
    from mini_engine.kernels.machine_code import needs
    from mini_engine.kernels.specialisations import launches_kept

    import_triton().runtime.driver.set_active(AbsentGPU(arch))
    with launches_kept(arch) as kept:
        calls(most_splits)[name]()
    rows: list[dict[str, Any]] = []
    for launch in kept:
        about = {"kernel": launch.kernel.fn.__name__, "of": name}
        try:
            found = asdict(needs(launch.kernel.warmup(*launch.args, grid=launch.grid, **launch.options)))
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}".splitlines()[-1]}
        rows.append(about | found)
    return rows
