"""The Triton kernels on a GPU, in one command: are they right, how near the machine's ceilings are they, how fast is the engine.

    python benchmarks/gpu_kernels.py [--output FOLDER] [--budget SECONDS] [--dry-run]

Needs torch, Triton and NumPy, nothing else and no network. In this order: environment, copy bandwidth and matmul peak, all
kernels compiled, correctness against float64 with poison wherever nobody may look and a pool beyond 2^31 numbers, GQA over
batches, contexts and groups beside torch's attention on contiguous K/V (and FlashInfer where it is installed), MLA with 16
and 128 heads, the engine on random weights of Llama-3-8B's shape made on the device. Each row is flushed to
gpu_kernels.jsonl as it comes, and at the end gpu_kernels.md holds the tables.

It ends within --budget seconds (450), whatever is left out then: each phase has its share, and a row says what it missed.
--dry-run runs every row once, tiny and in the interpreter, and times nothing: a rehearsal for any machine.

Exit status: 0; 1 where a result is wrong or a row failed; 2 where there is no GPU.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]  # the package beside this folder, installed or not

# Seconds for each phase, of a budget of 450; what one leaves, the next ones may not use, so that the last one has its share.
SHARES = {"correct": 70, "gqa": 150, "mla": 60, "engine": 110}
BUDGET = 450


def main(arguments: list[str] | None = None) -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="benchmarks/results; of a dry run a temporary one"
    )
    parser.add_argument("--budget", type=float, default=BUDGET, metavar="SECONDS")
    parser.add_argument("--dry-run", action="store_true")
    args = parser.parse_args(arguments)
    if args.budget <= 0:
        parser.error(f"--budget must be above 0, found {args.budget}")

    import torch

    if not args.dry_run and not torch.cuda.is_available():
        print("No GPU: torch.cuda.is_available() is False. --dry-run rehearses in the interpreter.", file=sys.stderr)
        return 2
    os.environ["TRITON_INTERPRET"] = str(int(args.dry_run))  # before Triton is imported

    from gpu import ceilings, compiled, correct, engine_speed, sweeps, tables
    from gpu.bench import Bench

    folder = args.output or (
        Path(tempfile.mkdtemp(prefix="gpu_dry_run_")) if args.dry_run else Path(__file__).parent / "results"
    )
    bench = Bench(folder / "gpu_kernels.jsonl", dry=args.dry_run, budget=args.budget)
    share = {phase: seconds * args.budget / BUDGET for phase, seconds in SHARES.items()}
    torch.manual_seed(0)
    ceilings.environment(bench)
    ceilings.ceilings(bench)
    compiled.compile_all(bench)
    correct.correctness(bench, share["correct"])
    sweeps.gqa_sweep(bench, share["gqa"])
    sweeps.mla_sweep(bench, share["mla"])
    engine_speed.engine_speed(bench, share["engine"])
    page = folder / "gpu_kernels.md"
    page.write_text(tables.markdown(bench.rows, dry=args.dry_run), encoding="utf-8")
    bad = [row for row in bench.rows if ("error" in row and isinstance(row["error"], str)) or row.get("right") is False]
    print(f"{len(bench.rows)} rows, {len(bad)} wrong or failed: {page}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
