"""What the kernels become on real GPUs, without one: registers, spills, shared memory, wide loads, matrix instructions.

    python -m mini_engine.kernels.compile_report [--targets sm_80,sm_90,gfx942] [--only NAME,...] [--all] [--json]
                                                 [--spoil alignment|tiles] [--save FOLDER]

Kernels are compiled in the specialisations of their launches (see `specialisations`): twelve of them, or with --all every one.
--spoil shows what the report is for: the same kernels when nothing is known of the alignment of addresses and strides, or
with tiles of twice the tokens. --save keeps what the compiler made (PTX, SASS, AMD's assembly) in a folder.

Exit status: 0 all fine; 1 a spill, a stack, more shared memory than the target has, a decode kernel without wide loads, or
one that does not compile; 2 a name that is not there, or no Triton. Runs in a process of its own, as Triton elsewhere may be set for the interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from mini_engine.kernels._mode import VARIABLE, TritonMissingError
from mini_engine.kernels.machine_code import SHARED_LIMIT, Needs, machine_code, needs

TARGETS = tuple(SHARED_LIMIT)
SPOILS = ("alignment", "tiles")
WAVE_AMD = 64  # threads that AMD's data centre GPUs run together, as NVIDIA's run 32
MOST_WORKERS = 8  # each holds torch and Triton


@dataclass(frozen=True)
class Row:
    """One specialisation on one target. `needs` is None where it did not compile."""

    name: str
    kernel: str
    target: str
    num_warps: int
    num_stages: int
    needs: Needs | None
    faults: list[str] = field(default_factory=list)


class AbsentGPU:
    """As much of a GPU's driver as Triton's compiler asks for. Triton keeps what it compiled by device number, so each
    target has its own.
    """

    def __init__(self, target: str) -> None:
        from triton.backends.compiler import GPUTarget

        if target.startswith("sm_"):
            self.target = GPUTarget("cuda", int(target[3:]), 32)
        else:
            self.target = GPUTarget("hip", target, WAVE_AMD)
        self.device = TARGETS.index(target) if target in TARGETS else len(TARGETS)

    def get_current_target(self) -> Any:
        """The target that Triton compiles for."""
        return self.target

    def get_current_device(self) -> int:
        """The number under which Triton keeps what it compiled."""
        return self.device

    def get_current_stream(self, device: int | None = None) -> int:
        """0: nothing is ever launched."""
        return 0


def compile_report(
    targets: Sequence[str], names: Sequence[str], *, spoil: str | None = None, save: Path | None = None
) -> Iterator[Row]:
    """Compile the named specialisations for each target, in processes that inherit TRITON_INTERPRET=0.

    Not in threads: Python 3.11 cannot parse in two of them at once (cpython #106905), and a linker may not be able to either.
    """
    jobs = [(target, name, spoil, save) for target in targets for name in names]
    if len(jobs) == 1:
        yield compile_one(*jobs[0])
        return
    workers = min(len(jobs), os.cpu_count() or 1, MOST_WORKERS)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(compile_one, *zip(*jobs))


def compile_one(target: str, name: str, spoil: str | None = None, save: Path | None = None) -> Row:
    """Compile one specialisation. Only in a process where Triton compiles."""
    from mini_engine.kernels._mode import import_triton

    import_triton().runtime.driver.set_active(AbsentGPU(target))
    from mini_engine.kernels import specialisations

    with specialisations.launches_kept(target) as kept:
        specialisations.every()[name]()
    return compiled(name, kept[0] if spoil is None else spoiled(kept[0], spoil), target, save)


def spoiled(launch: Any, how: str) -> Any:
    """The launch with tiles of twice the tokens, or of a kernel that may assume nothing about alignment."""
    if how == "tiles":
        options = launch.options
        bigger = {name: 2 * options[name] for name in ("BLOCK_N", "BLOCK_ROWS") if name in options}
        return replace(launch, options={**options, **bigger})
    import triton

    names = [each.name for each in launch.kernel.params if not each.is_constexpr]
    return replace(launch, kernel=triton.jit(launch.kernel.fn, do_not_specialize_on_alignment=names))


def compiled(name: str, launch: Any, target: str, save: Path | None) -> Row:
    """Compile one launch and read what came out."""
    options = launch.options
    row = Row(name, launch.kernel.fn.__name__, target, options["num_warps"], options.get("num_stages", 0), None)
    try:
        result = launch.kernel.warmup(*launch.args, grid=launch.grid, **options)
    except Exception as error:
        last = f"{type(error).__name__}: {error}".splitlines()[-1]  # the lines before show where in the kernel
        return replace(row, faults=[f"does not compile: {last}"])
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)
        if "ptx" in result.asm:
            (save / f"{name}.{target}.ptx").write_text(result.asm["ptx"])
        (save / f"{name}.{target}.{'sass' if 'ptx' in result.asm else 'amdgcn'}").write_text(machine_code(result))
    found = needs(result)
    return replace(row, needs=found, faults=found.faults(target, wide=reads_wide(launch, target)))


def reads_wide(launch: Any, target: str) -> bool:
    """Whether a launch is one that reads the cache, in tiles large enough for every thread to load 16 bytes of."""
    given = dict(zip(launch.kernel.arg_names, launch.args)) | launch.options
    pool, width = given.get("k_ptr", given.get("pool_ptr")), given.get("BLOCK_D", given.get("BLOCK_C"))
    if "BLOCK_N" not in given or pool is None:
        return False
    threads = given["num_warps"] * (WAVE_AMD if target.startswith("gfx") else 32)
    return given["BLOCK_N"] * width * pool.element_size() >= 16 * threads


HEADER = "target  warps  registers  spills  stack  shared of    limit  wide loads  matrix"


def line(row: Row) -> str:
    """A row of the table that HEADER stands above, without its name."""
    start = f"{row.target:6}  {row.num_warps:5}"
    if row.needs is None:
        return start
    n, limit = row.needs, SHARED_LIMIT[row.target]
    return (
        f"{start}  {n.registers:9}  {n.spills:6}  {n.stack:5}  {n.shared:9,}  {limit:7,}  {n.wide_loads:10}"
        f"  {n.matrix_instructions:6}"
    )


def faults(rows: list[Row]) -> str:
    """What is at fault, and how many are."""
    found = [f"{row.name} on {row.target}: {fault}" for row in rows for fault in row.faults]
    return "\n".join([*found, f"{len(rows)} compiled, {sum(bool(row.faults) for row in rows)} at fault"])


def chosen(given: str, known: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Names separated by commas; ValueError with the known ones for one that is not among them, or for none."""
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        found = unknown[0] if unknown else given
        raise ValueError(f"{what} {found!r} is not known: choose from {', '.join(known)}")
    return names


def main(arguments: list[str] | None = None) -> int:
    """The report of `python -m mini_engine.kernels.compile_report`. Exit status 1 when a kernel has a fault, such as a spill."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python -m mini_engine.kernels.compile_report", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__,
    )  # fmt: skip
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--only", metavar="NAME,...", help="these specialisations")
    parser.add_argument("--all", action="store_true", help="every specialisation: takes minutes")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--spoil", choices=SPOILS)
    parser.add_argument("--save", type=Path, metavar="FOLDER")
    args = parser.parse_args(arguments)
    os.environ[VARIABLE] = "0"
    try:
        targets = chosen(args.targets, TARGETS, "target")
        from mini_engine.kernels import specialisations

        every = tuple(specialisations.every())
        names = chosen(args.only, every, "specialisation") if args.only is not None else None
    except (ValueError, TritonMissingError) as error:
        parser.error(str(error))
    names = names or (every if args.all else tuple(specialisations.TWELVE))
    rows = []
    width = max(map(len, ("specialisation", *names)))
    if not args.json:
        print(f"{'specialisation':{width}}  {HEADER}")
    for row in compile_report(targets, names, spoil=args.spoil, save=args.save):
        rows.append(row)
        if not args.json:
            print(f"{row.name:{width}}  {line(row)}", flush=True)
    print(json.dumps([asdict(row) for row in rows], indent=1) if args.json else "\n" + faults(rows))
    return int(any(row.faults for row in rows))


if __name__ == "__main__":
    sys.exit(main())
