"""Answers to lesson 08's fork: right ones, written another way, and the wrong ones that people write."""

from __future__ import annotations

from mini_engine.cache import BlockPool

Table = list[int]


def fork(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    """The block table of a new branch that shares the first num_tokens tokens."""
    shared = table[: -(-num_tokens // block_size)]
    pool.touch(shared)
    return shared


def fork_in_a_loop(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    branch = []
    for i, block in enumerate(table):
        if i * block_size < num_tokens:
            pool.touch([block])
            branch.append(block)
    return branch


def same_list(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    pool.touch(table[: -(-num_tokens // block_size)])
    return table


def no_holder(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    return table[: -(-num_tokens // block_size)]


def full_blocks_only(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    shared = table[: num_tokens // block_size]
    pool.touch(shared)
    return shared


def one_block_too_many(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    shared = table[: num_tokens // block_size + 1]
    pool.touch(shared)
    return shared


def the_reserve_too(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    pool.touch(table)
    return list(table)


def holds_the_reserve(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    pool.touch(table)
    return table[: -(-num_tokens // block_size)]


def sorted_blocks(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    shared = sorted(table)[: -(-num_tokens // block_size)]
    pool.touch(shared)
    return shared


def at_least_one_block(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    shared = table[: max(1, -(-num_tokens // block_size))]
    pool.touch(shared)
    return shared


def blocks_of_four(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    shared = table[: -(-num_tokens // 4)]
    pool.touch(shared)
    return shared


def holds_the_first(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    pool.touch(table[:1])
    return table[: -(-num_tokens // block_size)]


def holds_twice(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    shared = table[: -(-num_tokens // block_size)]
    pool.touch(shared)
    pool.touch(shared)
    return shared


def new_blocks(pool: BlockPool, table: Table, num_tokens: int, block_size: int) -> Table:
    return pool.allocate(-(-num_tokens // block_size))
