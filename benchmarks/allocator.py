"""What the cache's bookkeeping costs: nanoseconds per token of a long prompt, and per block in pools of every size.

    python benchmarks/allocator.py [--tokens 131072] [--block-size 16] [--repeats 15] [--output PATH]

Prints three tables and writes them, with machine, date and command, to benchmarks/results/allocator.json.
Times are CPU time of the one thread, so that other work on the machine does not count as ours; medians over the
repeats, the best in brackets. Everything compared is measured in the same run, in turns.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import time
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

from common.report import RESULTS, store

from mini_engine.cache import BlockHasher, BlockPool, KVCacheManager, ShortHasher, TokenChain

PHASES = ("match", "allocate", "publish", "free")
POOL_SIZES = (1_000, 10_000, 100_000, 1_000_000)
Times = dict[str, list[float]]


def new_request(token_ids: list[int]) -> SimpleNamespace:
    return SimpleNamespace(
        request_id="a",
        index=0,
        token_ids=token_ids,
        num_computed_tokens=0,
        block_table=[],
        cache_salt=None,
        adapter=None,
    )


def serve(manager: KVCacheManager, token_ids: list[int]) -> tuple[int, dict[str, float]]:
    """A prompt's whole life in the cache; tokens hit, and seconds by phase. Hashing is part of match."""
    request = new_request(token_ids)
    marks = [time.thread_time()]
    manager.match(request)
    marks.append(time.thread_time())
    hit = manager.allocate(request, len(token_ids))  # it matches again, a match may be stale
    marks.append(time.thread_time())
    request.num_computed_tokens = len(token_ids)
    manager.publish(request)
    marks.append(time.thread_time())
    manager.free(request)
    marks.append(time.thread_time())
    return hit, {phase: end - start for phase, start, end in zip(PHASES, marks, marks[1:])}


def time_prompt(num_tokens: int, block_size: int, repeats: int) -> dict[str, Times]:
    """Seconds by index, situation and phase. Every prompt is made of new integer objects, as a tokenizer would."""
    num_blocks = -(-num_tokens // block_size)
    results: dict[str, Times] = {}
    for repeat in range(repeats):
        for prefix_index in ("hash", "radix"):
            manager = KVCacheManager(num_blocks, block_size, prefix_index=prefix_index)
            situations = (
                ("no hit, blank pool", 0),
                ("all hit", 0),
                ("no hit, every block evicts", 1),
            )
            for situation, content in situations:
                first = 1_000 + 2 * repeat + content
                hit, seconds = serve(manager, list(range(first, first + num_tokens)))
                assert hit == ((num_tokens - 1) // block_size * block_size if situation == "all hit" else 0)
                times = results.setdefault(f"{prefix_index}, {situation}", {phase: [] for phase in PHASES})
                for phase in PHASES:
                    times[phase].append(seconds[phase])
    return results


def pool_cycle(pool: BlockPool) -> None:
    """All blocks: taken, published, freed in order, taken again (each one evicted) and freed."""
    blocks = pool.allocate(pool.num_blocks)
    pool.publish(blocks)
    pool.release(blocks)
    pool.release(pool.allocate(pool.num_blocks))


def time_pools(repeats: int) -> dict[int, list[float]]:
    """Seconds of one cycle per block, by pool size. Small pools do more cycles, so that all touch as many blocks."""
    results: dict[int, list[float]] = {size: [] for size in POOL_SIZES}
    pools = {size: BlockPool(size) for size in POOL_SIZES}
    for _ in range(repeats):
        for size, pool in pools.items():
            cycles = POOL_SIZES[-1] // size // 4 or 1
            start = time.thread_time()
            for _ in range(cycles):
                pool_cycle(pool)
            results[size].append((time.thread_time() - start) / cycles / size)
    return results


def time_hashes(num_tokens: int, block_size: int, repeats: int) -> Times:
    """Seconds for the names of all blocks of a prompt: ours, and two other ways to make them."""

    def ours(token_ids: list[int]) -> None:
        chain = TokenChain(BlockHasher("m"), block_size)
        chain.extend(token_ids)
        chain.digests(len(chain.tokens))

    def pickled(token_ids: list[int]) -> None:
        parent = None
        for start in range(0, num_tokens, block_size):
            key = (parent, tuple(token_ids[start : start + block_size]), None)
            parent = sha256(pickle.dumps(key, protocol=pickle.HIGHEST_PROTOCOL)).digest()

    def token_by_token(token_ids: list[int]) -> None:
        parent, hasher = None, ShortHasher()
        for start in range(0, num_tokens, block_size):
            parent = hasher.hash_block(parent, token_ids[start : start + block_size])

    ways = {
        "SHA-256 of packed tokens (ours)": ours,
        "SHA-256 of a pickled tuple (as vLLM)": pickled,
        "64-bit BLAKE2b, token by token": token_by_token,
    }
    results: Times = {name: [] for name in ways}
    for repeat in range(repeats):
        token_ids = list(range(1_000 + repeat, 1_000 + repeat + num_tokens))
        for name, make_names in ways.items():
            start = time.thread_time()
            make_names(token_ids)
            results[name].append(time.thread_time() - start)
    return results


def nanoseconds(seconds: list[float], per: int) -> dict[str, float]:
    return {
        "median_ns": round(statistics.median(seconds) / per * 1e9, 1),
        "best_ns": round(min(seconds) / per * 1e9, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tokens", type=int, default=131_072)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--output", type=Path, default=RESULTS / "allocator.json")
    args = parser.parse_args()

    print(f"A prompt of {args.tokens:,} tokens, blocks of {args.block_size}, ns per token: median (best)")
    print(f"{'':36}" + "".join(f"{phase:>18}" for phase in (*PHASES, "all")))
    prompts = {}
    for situation, times in time_prompt(args.tokens, args.block_size, args.repeats).items():
        times["all"] = [sum(phases) for phases in zip(*times.values())]
        prompts[situation] = {phase: nanoseconds(seconds, args.tokens) for phase, seconds in times.items()}
        cells = [f"{cell['median_ns']:.1f} ({cell['best_ns']:.1f})" for cell in prompts[situation].values()]
        print(f"{situation:36}" + "".join(f"{cell:>18}" for cell in cells))

    print("\nThe names alone, ns per token: median (best)")
    hashes = {}
    for name, seconds in time_hashes(args.tokens, args.block_size, args.repeats).items():
        hashes[name] = nanoseconds(seconds, args.tokens)
        print(f"{name:44}{hashes[name]['median_ns']:.1f} ({hashes[name]['best_ns']:.1f})")

    print("\nPool alone: take, publish, free in order, take again, free; ns per block and cycle: median (best)")
    pools = {}
    for size, seconds in time_pools(args.repeats).items():
        pools[size] = nanoseconds(seconds, 1)
        print(f"{size:>12,} blocks{pools[size]['median_ns']:>12.1f} ({pools[size]['best_ns']:.1f})")
    slowdown = pools[POOL_SIZES[-1]]["median_ns"] / pools[POOL_SIZES[0]]["median_ns"]
    print(f"a block costs {slowdown:.2f} times as much in the largest pool as in the smallest")

    report = {
        "tokens": args.tokens,
        "block_size": args.block_size,
        "repeats": args.repeats,
        "prompt_ns_per_token": prompts,
        "names_ns_per_token": hashes,
        "pool_ns_per_block": pools,
        "largest_pool_over_smallest": round(slowdown, 2),
    }
    store(args.output, report)


if __name__ == "__main__":
    main()
