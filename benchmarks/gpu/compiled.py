"""Every kernel of the sweeps, compiled before anything is timed: in threads, and with what each needs of the processor."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpu.bench import Bench
from mini_engine.kernels.config import MAX_SPLITS
from mini_engine.kernels.specialisations import gqa, launches_kept, mla


def compile_all(bench: Bench) -> None:
    """One row for each specialisation: registers, spills, shared memory. In a dry run there is nothing to compile."""
    import torch

    from mini_engine.kernels.launch import target

    if bench.dry:
        bench.row("compile", skipped="interpreted")
        return
    splits = [2**i for i in range(MAX_SPLITS.bit_length())]
    calls = {f"gqa G={G} in {n}": gqa("bf16", 128, G=G, num_splits=n) for G in (1, 4, 8) for n in splits}
    calls |= {f"mla H={H} in {n}": mla("bf16", H, num_splits=n) for H in (16, 128) for n in splits}
    launches = []
    for name, call in calls.items():
        with launches_kept(*target(torch.device("cuda", 0))) as kept:
            call()
        launches += [(name if each is kept[0] else f"combine of {name}", each) for each in kept]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for (name, _), found in zip(launches, pool.map(lambda each: compiled(each[1]), launches)):
            bench.row("compile", kernel=name, **found)


def compiled(launch: Any) -> dict[str, Any]:
    """What the compiler made of a launch; an error is what it said."""
    from dataclasses import asdict

    from mini_engine.kernels.machine_code import needs

    try:
        return asdict(needs(launch.kernel.warmup(*launch.args, grid=launch.grid, **launch.options)))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}".splitlines()[-1]}
