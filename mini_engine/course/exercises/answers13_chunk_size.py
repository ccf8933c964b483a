"""Answers to lesson 13's chunk_size: right ones, written in several ways, and the wrong ones that people write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mini_engine.scheduling import Scheduler

ChunkSize = Callable[[int, int, int], Any]


def scheduler_with(chunk_size: ChunkSize) -> type[Scheduler]:
    """The engine's scheduler with another chunk_size(num_missing, budget, num_behind)."""

    class Chunker(Scheduler):
        def chunk_size(self, num_missing: int, budget: int, num_behind: int) -> int:
            return chunk_size(num_missing, budget, num_behind)

    return Chunker


def by_cases(num_missing: int, budget: int, num_behind: int) -> int:
    left = budget - num_behind
    if left < 1:
        return 1
    return left if num_missing > left else num_missing


def by_sorting(num_missing: int, budget: int, num_behind: int) -> int:
    return sorted((1, num_missing, budget - num_behind))[1]


def takes_all(num_missing: int, budget: int, num_behind: int) -> int:
    return num_missing


def greedy(num_missing: int, budget: int, num_behind: int) -> int:
    return min(num_missing, budget)


def may_be_nothing(num_missing: int, budget: int, num_behind: int) -> int:
    return max(0, min(num_missing, budget - num_behind))


def may_be_negative(num_missing: int, budget: int, num_behind: int) -> int:
    return min(num_missing, budget - num_behind)


def counts_itself(num_missing: int, budget: int, num_behind: int) -> int:
    return min(num_missing, max(1, budget - num_behind - 1))


def one_owed(num_missing: int, budget: int, num_behind: int) -> int:
    return min(num_missing, max(1, budget - (num_behind > 0)))


def fair_share(num_missing: int, budget: int, num_behind: int) -> int:
    return min(num_missing, max(1, budget // (num_behind + 1)))


def at_most_512(num_missing: int, budget: int, num_behind: int) -> int:
    return min(num_missing, 512, max(1, budget - num_behind))


def a_float(num_missing: int, budget: int, num_behind: int) -> float:
    return min(float(num_missing), max(1.0, budget - num_behind))
