"""What absorption is worth: one decode step of a small model with latent attention, absorbed and expanded, by context length.

    python benchmarks/mla_decode.py [--rows 1] [--contexts 128 500 2000 4000] [--repeats 15] [--threads 1] [--output PATH]

A step is a whole forward pass through the paged backend: `--rows` sequences of the same length take one token each. The model
has the shape of tiny-mla (4 layers, 8 heads, latent of 64, rotary key of 16) and random weights, as no figure here depends on
what it says. Both forms read the same pool, in turns; that their logits agree is checked. Milliseconds of CPU time: median
(best). Also shown: what a step reads from the cache, as it is, and what it would be as keys and values of every head.
Written with machine, date and command to benchmarks/results/mla_decode.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from common.report import RESULTS, store, version

from mini_engine.backends import BatchInput, TorchBackend
from mini_engine.catalog import ModelSpec
from mini_engine.geometry import kv_elems_expanded, kv_elems_per_token
from mini_engine.models import random_model

MODES = ("absorbed", "expanded")
BLOCK_SIZE = 16
SPEC = ModelSpec(
    name="the shape of tiny-mla", architecture="DeepseekV2ForCausalLM", model_type="deepseek_v2", num_hidden_layers=4,
    hidden_size=256, num_attention_heads=8, num_key_value_heads=8, head_dim=48, intermediate_size=672, vocab_size=2048,
    max_position_embeddings=4096, kv_lora_rank=64, qk_rope_head_dim=16, qk_nope_head_dim=32, v_head_dim=32,
    rope_interleave=True, tie_word_embeddings=True,
)  # fmt: skip


def decode_batch(rows: int, context: int) -> BatchInput:
    """One new token for each of `rows` sequences of `context` tokens, this one included, in blocks in random order."""
    per_row = -(-context // BLOCK_SIZE)
    tables = np.random.default_rng(0).permutation(rows * per_row).reshape(rows, per_row) + 1
    last = context - 1
    starts = np.arange(rows + 1)
    return BatchInput(
        token_ids=np.arange(rows, dtype=np.int64),
        positions=np.full(rows, last, dtype=np.int64),
        slot_mapping=(tables[:, last // BLOCK_SIZE] * BLOCK_SIZE + last % BLOCK_SIZE).astype(np.int64),
        block_tables=tables.astype(np.int32),
        context_lens=np.full(rows, context, dtype=np.int32),
        query_start_loc=starts.astype(np.int32),
        logits_rows=starts[:-1],
    )


def measure(rows: int, context: int, repeats: int) -> dict[str, list[float]]:
    """CPU seconds of each step, by mode. AssertionError when the two say different things."""
    model, batch = random_model(SPEC), decode_batch(rows, context)
    backends = {mode: TorchBackend(model, mla_decode=mode) for mode in MODES}
    for backend in backends.values():
        backend.init_kv(rows * -(-context // BLOCK_SIZE), BLOCK_SIZE)
        for pool in backend.pools.values():
            pool.copy_(torch.randn(pool.shape, generator=torch.Generator().manual_seed(0)))
    logits = [backend.execute(batch).logits(0) for backend in backends.values()]
    assert np.abs(logits[0] - logits[1]).max() < 1e-4 * np.abs(logits[0]).max()

    seconds: dict[str, list[float]] = {mode: [] for mode in MODES}
    for _ in range(repeats):
        for mode, backend in backends.items():
            began = time.process_time()
            backend.execute(batch)
            seconds[mode].append(time.process_time() - began)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--contexts", type=int, nargs="+", default=[128, 500, 2000, 4000])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS / "mla_decode.json")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    print(f"{args.rows} sequences, {args.threads} threads, ms of CPU time a step: median (best)")
    print(f"{'context':>8}{'absorbed':>18}{'expanded':>18}{'ratio':>8}{'latent MB':>12}{'as K/V MB':>12}")
    steps = {}
    for context in args.contexts:
        times = measure(args.rows, context, args.repeats)
        ms = {
            mode: {
                "median_ms": round(statistics.median(seconds) * 1e3, 3),
                "best_ms": round(min(seconds) * 1e3, 3),
            }
            for mode, seconds in times.items()
        }
        ratio = ms["expanded"]["median_ms"] / ms["absorbed"]["median_ms"]
        read, expanded = (4 * args.rows * context * elems(SPEC) for elems in (kv_elems_per_token, kv_elems_expanded))
        steps[context] = {
            **ms,
            "expanded_over_absorbed": round(ratio, 2),
            "latent_bytes": read,
            "bytes_as_keys_and_values": expanded,
        }
        cells = [f"{ms[mode]['median_ms']:.2f} ({ms[mode]['best_ms']:.2f})" for mode in MODES]
        print(f"{context:>8,}{cells[0]:>18}{cells[1]:>18}{ratio:>8.2f}{read / 1e6:>12.2f}{expanded / 1e6:>12.2f}")

    store(
        args.output,
        {
            "model": SPEC.name,
            "rows": args.rows,
            "threads": args.threads,
            "block_size": BLOCK_SIZE,
            "repeats": args.repeats,
            "versions": {"torch": version("torch"), "numpy": version("numpy")},
            "steps": steps,
        },
    )


if __name__ == "__main__":
    main()
