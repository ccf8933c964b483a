"""Answers to lesson 06's counters: right ones, written another way, and the wrong ones that people write."""

from __future__ import annotations

from mini_engine.cache.contiguous import Run, count_waste

Runs = list[Run]
Holes = list[tuple[int, int]]
Counts = tuple[int, int, int, int]


def slot_by_slot(runs: Runs, holes: Holes, next_size: int) -> Counts:
    """The state of every slot, one after the other: the oracle."""
    states = []
    for run in runs:
        for slot in range(run.size):
            states.append("used" if slot < run.used else "reserved" if slot < run.final else "internal")
    for _, size in holes:
        states += ["external" if size < next_size else "free"] * size
    return states.count("used"), states.count("reserved"), states.count("internal"), states.count("external")


def by_sums(runs: Runs, holes: Holes, next_size: int) -> Counts:
    used, final, size = (sum(getattr(run, name) for run in runs) for name in ("used", "final", "size"))
    too_small = [hole for hole in holes if hole[1] < next_size]
    return used, final - used, size - final, sum(hole[1] for hole in too_small)


def sizes_for_used(runs: Runs, holes: Holes, next_size: int) -> Counts:
    return sum(run.size for run in runs), *count_waste(runs, holes, next_size)[1:]


def all_idle_is_reserved(runs: Runs, holes: Holes, next_size: int) -> Counts:
    used, reserved, internal, external = count_waste(runs, holes, next_size)
    return used, reserved + internal, internal, external


def final_for_reserved(runs: Runs, holes: Holes, next_size: int) -> Counts:
    used, reserved, internal, external = count_waste(runs, holes, next_size)
    return used, used + reserved, internal, external


def all_idle_is_internal(runs: Runs, holes: Holes, next_size: int) -> Counts:
    used, reserved, internal, external = count_waste(runs, holes, next_size)
    return used, reserved, reserved + internal, external


def last_run_only(runs: Runs, holes: Holes, next_size: int) -> Counts:
    used, reserved, _, external = count_waste(runs, holes, next_size)
    return used, reserved, (runs[-1].size - runs[-1].final if runs else 0), external


def each_used_once(runs: Runs, holes: Holes, next_size: int) -> Counts:
    return sum({run.used for run in runs}), *count_waste(runs, holes, next_size)[1:]


def each_reserved_once(runs: Runs, holes: Holes, next_size: int) -> Counts:
    used, _, internal, external = count_waste(runs, holes, next_size)
    return used, sum({run.final - run.used for run in runs}), internal, external


def each_internal_once(runs: Runs, holes: Holes, next_size: int) -> Counts:
    used, reserved, _, external = count_waste(runs, holes, next_size)
    return used, reserved, sum({run.size - run.final for run in runs}), external


def each_hole_once(runs: Runs, holes: Holes, next_size: int) -> Counts:
    return *count_waste(runs, holes, next_size)[:3], sum({size for _, size in holes if size < next_size})


def first_four_runs(runs: Runs, holes: Holes, next_size: int) -> Counts:
    return count_waste(runs[:4], holes, next_size)


def first_four_holes(runs: Runs, holes: Holes, next_size: int) -> Counts:
    return count_waste(runs, holes[:4], next_size)


def all_free(runs: Runs, holes: Holes, next_size: int) -> Counts:
    return *count_waste(runs, holes, next_size)[:3], sum(size for _, size in holes)


def number_of_holes(runs: Runs, holes: Holes, next_size: int) -> Counts:
    return *count_waste(runs, holes, next_size)[:3], sum(size < next_size for _, size in holes)


def by_the_sum(runs: Runs, holes: Holes, next_size: int) -> Counts:
    free = sum(size for _, size in holes)
    return *count_waste(runs, holes, next_size)[:3], free if free < next_size else 0


def by_the_largest(runs: Runs, holes: Holes, next_size: int) -> Counts:
    free, largest = sum(size for _, size in holes), max((size for _, size in holes), default=0)
    return *count_waste(runs, holes, next_size)[:3], free if largest < next_size else 0


def by_the_start(runs: Runs, holes: Holes, next_size: int) -> Counts:
    return *count_waste(runs, holes, next_size)[:3], sum(size for start, size in holes if start < next_size)


def exact_counts_too(runs: Runs, holes: Holes, next_size: int) -> Counts:
    return *count_waste(runs, holes, next_size)[:3], sum(size for _, size in holes if size <= next_size)
