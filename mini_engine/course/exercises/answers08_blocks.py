"""Answers to lesson 08's count of blocks: right ones, written another way, and the wrong ones that people write."""

from __future__ import annotations


def by_hand(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    """Tables filled token by token, copy by copy: the oracle."""
    tables, copies = [], 0
    holders: dict[int, int] = {}
    shared = list(range(-(-prefix // block)))
    for number in shared:
        holders[number] = n
    fresh = len(shared)
    for _ in range(n):
        table = list(shared)
        for position in range(prefix, prefix + out):
            i = position // block
            if i == len(table):
                table.append(fresh)
                holders[fresh] = 1
                fresh += 1
            elif holders[table[i]] > 1:
                holders[table[i]] -= 1
                table[i] = fresh
                holders[fresh] = 1
                fresh += 1
                copies += 1
        tables.append(table)
    filled = [b for i, b in enumerate(shared) if (i + 1) * block <= prefix and all(b in table for table in tables)]
    return len(filled), len({b for table in tables for b in table} - set(filled)), copies


def by_rest(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    full, rest = divmod(prefix, block)
    return full, n * -(-(rest + out) // block), (n - 1) * (rest > 0)


def tail_stays_shared(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    full = -(-prefix // block)
    return full, n * (-(-(prefix + out) // block) - full), 0


def copies_always(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    shared, private, _ = by_rest(prefix, out, n, block)
    return shared, private, n - 1


def all_copy(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    shared, private, copied = by_rest(prefix, out, n, block)
    return shared, private, n if copied else 0


def never_copies(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    shared, private, _ = by_rest(prefix, out, n, block)
    return shared, private, 0


def outputs_apart(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    """Blocks for the outputs alone: the tail of the prompt is forgotten."""
    shared, _, copied = by_rest(prefix, out, n, block)
    return shared, n * -(-out // block), copied


def one_branch(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    shared, _, copied = by_rest(prefix, out, n, block)
    return shared, -(-(prefix + out) // block) - shared, copied


def tail_counted_once(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    """All outputs in a row, as if they could lie in one another's blocks."""
    shared, _, copied = by_rest(prefix, out, n, block)
    return shared, -(-(n * (prefix % block + out)) // block), copied


def rounded_down(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    shared, _, copied = by_rest(prefix, out, n, block)
    return shared, n * ((prefix % block + out) // block), copied


def copies_are_extra(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    shared, private, copied = by_rest(prefix, out, n, block)
    return shared, private + copied, copied


def one_alone_copies(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    shared, private, copied = by_rest(prefix, out, n, block)
    return shared, private, max(1, copied) if prefix % block else 0


def shares_nothing_alone(prefix: int, out: int, n: int, block: int) -> tuple[int, int, int]:
    shared, private, copied = by_rest(prefix, out, n, block)
    return (0, shared + private, 0) if n == 1 else (shared, private, copied)
