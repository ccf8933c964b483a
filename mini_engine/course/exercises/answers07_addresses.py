"""Lesson 07, addresses and writes: right answers written another way, and wrong ones that people write."""

from __future__ import annotations

from typing import Any

import numpy as np

from mini_engine.attention import slot_mapping, write_kv

Array = np.ndarray


def slots_by_a_loop(block_table: Any, positions: Any, block_size: int) -> Array:
    slots = []
    for position in positions:
        if position < 0:
            slots.append(-1)
        else:
            index, offset = divmod(int(position), block_size)
            slots.append(int(block_table[index]) * block_size + offset)
    return np.array(slots, dtype=np.int64)


def slots_of_all_first(block_table: Any, positions: Any, block_size: int) -> Array:
    """The slot of every position that the table has room for; then each is looked up. Padding finds the last one, -1."""
    starts = np.asarray(block_table, dtype=np.int64)[:, None] * block_size
    every = np.append((starts + np.arange(block_size)).ravel(), -1)
    return every[np.asarray(positions, dtype=np.int64)]


def position_is_slot(block_table: Any, positions: Any, block_size: int) -> Array:
    return np.array(positions, dtype=np.int64)


def index_for_block(block_table: Any, positions: Any, block_size: int) -> Array:
    return slot_mapping(range(len(block_table)), positions, block_size)


def no_offset(block_table: Any, positions: Any, block_size: int) -> Array:
    slots = slot_mapping(block_table, positions, block_size)
    return np.where(slots < 0, -1, slots // block_size * block_size)


def swapped_division(block_table: Any, positions: Any, block_size: int) -> Array:
    at = np.asarray(positions, dtype=np.int64)
    table = np.asarray(block_table, dtype=np.int64)
    return np.where(at < 0, -1, table[at % block_size % len(table)] * block_size + at // block_size)


def counts_from_one(block_table: Any, positions: Any, block_size: int) -> Array:
    slots = slot_mapping(np.asarray(block_table, dtype=np.int64) - 1, positions, block_size)
    return np.where(np.asarray(positions) < 0, -1, slots)


def first_block_only(block_table: Any, positions: Any, block_size: int) -> Array:
    at = np.asarray(positions, dtype=np.int64)
    first = int(block_table[0]) if len(block_table) else 0
    return np.where(at < 0, -1, first * block_size + at)


def sorted_positions(block_table: Any, positions: Any, block_size: int) -> Array:
    return slot_mapping(block_table, sorted(positions), block_size)


def last_block_for_padding(block_table: Any, positions: Any, block_size: int) -> Array:
    at = np.asarray(positions, dtype=np.int64)
    return np.asarray(block_table, dtype=np.int64)[at // block_size] * block_size + at % block_size


def zero_for_padding(block_table: Any, positions: Any, block_size: int) -> Array:
    return np.maximum(slot_mapping(block_table, positions, block_size), 0)


def padding_left_out(block_table: Any, positions: Any, block_size: int) -> Array:
    return slot_mapping(block_table, [at for at in positions if at >= 0], block_size)


def int32_slots(block_table: Any, positions: Any, block_size: int) -> Array:
    return slot_mapping(block_table, positions, block_size).astype(np.int32)


def int32_products(block_table: Any, positions: Any, block_size: int) -> Array:
    """The table's own int32 is multiplied, and only the result is made larger."""
    at = np.asarray(positions, dtype=np.int32)
    with np.errstate(over="ignore"):
        slots = np.asarray(block_table)[at // block_size] * np.int32(block_size) + at % block_size
    return np.where(at < 0, -1, slots).astype(np.int64)


def block_0_is_padding(block_table: Any, positions: Any, block_size: int) -> Array:
    """A 0 in the table is taken for the end of a short table."""
    slots = slot_mapping(block_table, positions, block_size)
    return np.where((slots >= 0) & (slots < block_size), -1, slots)


def no_slots_are_floats(block_table: Any, positions: Any, block_size: int) -> Array:
    return np.array(slot_mapping(block_table, positions, block_size).tolist())


def write_by_a_loop(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    block_size, *shape = k_pool.shape[1:]
    if k.shape != (len(slots), *shape) or v.shape != k.shape:
        raise ValueError(f"k {k.shape} and v {v.shape} must be {(len(slots), *shape)}")
    for i, slot in enumerate(slots):
        if slot >= 0:
            k_pool[slot // block_size, slot % block_size] = k[i]
            v_pool[slot // block_size, slot % block_size] = v[i]


def write_flat(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    shape = (len(slots), *k_pool.shape[2:])
    if not k.shape == v.shape == shape:
        raise ValueError("wrong shape")
    for new, pool in ((k, k_pool), (v, v_pool)):
        pool.reshape(-1, *shape[1:])[slots[slots >= 0]] = new[slots >= 0]


def keys_twice(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    write_kv(k, v, k_pool, v_pool, slots)
    write_kv(k, k, k_pool, v_pool, slots)


def in_order(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    """Slots 0, 1, 2 ..., whatever the mapping says."""
    write_kv(k, v, k_pool, v_pool, np.where(slots < 0, -1, np.arange(len(slots))))


def into_a_copy(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    write_kv(k, v, k_pool.copy(), v_pool.copy(), slots)


def first_offset_only(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    write_kv(k, v, k_pool, v_pool, np.where(slots < 0, -1, slots // k_pool.shape[1] * k_pool.shape[1]))


def clears_first(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    write_kv(k, v, k_pool, v_pool, slots)
    kept = slots[slots >= 0]
    for pool in (k_pool, v_pool):
        flat = pool.reshape(-1, *pool.shape[2:])
        others = np.setdiff1d(np.arange(len(flat)), kept)
        flat[others] = 0


def whole_block(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    """The rest of a new block is filled with zeros. It may hold tokens by now."""
    write_kv(k, v, k_pool, v_pool, slots)
    last = int(slots[-1]) if len(slots) and slots[-1] >= 0 else None
    if last is not None:
        for pool in (k_pool, v_pool):
            pool[last // pool.shape[1], last % pool.shape[1] + 1 :] = 0


def through_float32(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    write_kv(k.astype(np.float32), v.astype(np.float32), k_pool, v_pool, slots)


def slot_0_is_padding(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    write_kv(k, v, k_pool, v_pool, np.where(slots == 0, -1, slots))


def padding_into_the_last(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    write_kv(k, v, k_pool, v_pool, slots % (k_pool.shape[0] * k_pool.shape[1]))


def padding_into_the_null_block(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    write_kv(k, v, k_pool, v_pool, np.maximum(slots, 0))


def stops_at_padding(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    end = int(np.argmax(slots < 0)) if (slots < 0).any() else len(slots)
    write_kv(k, v, k_pool, v_pool, np.where(np.arange(len(slots)) < end, slots, -1))


def slots_without_rows(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    """Padding is dropped from the slots and not from the tokens."""
    kept = slots[slots >= 0]
    if not k.shape == v.shape == (len(slots), *k_pool.shape[2:]):
        raise ValueError("wrong shape")
    write_kv(k[: len(kept)], v[: len(kept)], k_pool, v_pool, kept)


def no_check(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    shape = (len(slots), *k_pool.shape[2:])
    write_kv(np.broadcast_to(k, shape), np.broadcast_to(v, shape), k_pool, v_pool, slots)


def checks_k_only(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    write_kv(k, np.broadcast_to(v, k.shape), k_pool, v_pool, slots)


def too_late(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    """The keys are stored by the time that the values are looked at."""
    write_kv(k, k, k_pool, v_pool.copy(), slots)
    write_kv(v, v, k_pool.copy(), v_pool, slots)


def compares_k_with_v(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    """Both may have the same wrong shape."""
    if k.shape != v.shape or k.shape[-1] != k_pool.shape[-1]:
        raise ValueError("wrong shape")
    no_check(k, v, k_pool, v_pool, slots)


def counts_numbers(k: Array, v: Array, k_pool: Array, v_pool: Array, slots: Array) -> None:
    """As many numbers as needed, in whatever order."""
    shape = (len(slots), *k_pool.shape[2:])
    if not k.size == v.size == np.prod(shape):
        raise ValueError("wrong size")
    write_kv(k.reshape(shape), v.reshape(shape), k_pool, v_pool, slots)
