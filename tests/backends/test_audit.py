"""The audit backend must notice every way in which a history can be wrong; these are the wrong ways."""

from __future__ import annotations

import numpy as np
import pytest

from mini_engine.backends import AuditBackend, BatchInput, KVCorruption
from mini_engine.cache import CacheOp

SIZE = 4


def batch(*rows: tuple[list[int], int, list[int]], slots: list[int] | None = None) -> BatchInput:
    """Rows of (all tokens, how many are computed, block table)."""
    new = [
        (token, at, table[at // SIZE] * SIZE + at % SIZE)
        for ids, done, table in rows
        for at, token in enumerate(ids)
        if at >= done
    ]
    widest = max(len(table) for _, _, table in rows)
    ends = np.cumsum([len(ids) - done for ids, done, _ in rows])
    return BatchInput(
        token_ids=np.array([token for token, _, _ in new], dtype=np.int64),
        positions=np.array([at for _, at, _ in new], dtype=np.int64),
        slot_mapping=np.array([slot for _, _, slot in new] if slots is None else slots, dtype=np.int64),
        block_tables=np.array([table + [0] * (widest - len(table)) for _, _, table in rows], dtype=np.int32),
        context_lens=np.array([len(ids) for ids, _, _ in rows], dtype=np.int32),
        query_start_loc=np.array([0, *ends], dtype=np.int32),
        logits_rows=np.array(ends - 1, dtype=np.int64),
    )


@pytest.fixture
def backend() -> AuditBackend:
    """Blocks 1 and 2 hold tokens 1 to 6, block 3 holds tokens 11 to 14."""
    backend = AuditBackend(64)
    backend.init_kv(6, SIZE, 2)
    backend.execute(batch(([1, 2, 3, 4, 5, 6], 0, [1, 2]), ([11, 12, 13, 14], 0, [3])))
    return backend


def test_the_logits_are_those_of_the_history_however_it_came_in(backend):
    truth = backend.logits_after([1, 2, 3, 4, 5, 6, 7])
    np.testing.assert_array_equal(backend.execute(batch(([1, 2, 3, 4, 5, 6, 7], 6, [1, 2]))).logits(0), truth)
    np.testing.assert_array_equal(backend.execute(batch(([1, 2, 3, 4, 5, 6, 7], 4, [1, 4]))).logits(0), truth)
    other = backend.logits_after([1, 2, 3, 4, 5, 7, 6])
    assert np.abs(truth - other).max() > 1
    assert backend.execute(batch(([9], 0, [5]), ([1, 2, 3, 4, 8], 4, [1, 6]))).argmax().tolist() == [
        backend.logits_after([9]).argmax(),
        backend.logits_after([1, 2, 3, 4, 8]).argmax(),
    ]


def test_another_seed_is_another_model():
    assert not np.array_equal(AuditBackend(64, seed=1).logits_after([1]), AuditBackend(64, seed=2).logits_after([1]))


@pytest.mark.parametrize(
    ("name", "rows", "slots"),
    [
        ("a block never written", [([1, 2, 3, 4, 5], 4, [5, 6])], None),
        ("blocks exchanged", [([1, 2, 3, 4, 5, 6, 7], 6, [2, 1])], None),
        ("a block of another history", [([11, 12, 13, 14, 5, 6, 7], 6, [3, 2])], None),
        ("one block short", [([1, 2, 3, 4, 5, 6, 7, 8, 9], 8, [1, 2, 4])], None),
        ("a slot off by one", [([1, 2, 3, 4, 5, 6, 7], 6, [1, 2])], [2 * SIZE + 3]),
        (
            "a write into someone's block",
            [([1, 2, 3, 4, 5, 6, 7], 6, [1, 2]), ([11, 12, 13, 14, 15], 4, [3, 4])],
            [10, 12],
        ),
        ("a write into the null block", [([1, 2, 3, 4, 5], 4, [1, 0])], None),
        ("two writes to one slot", [([1, 2, 3, 4, 5], 4, [1, 4]), ([11, 12, 13, 14, 5], 4, [3, 4])], None),
        ("nothing written", [([1, 2, 3, 4, 5, 6, 7], 6, [1, 2])], [-1]),
    ],
)
def test_a_wrong_history_is_noticed(backend, name, rows, slots):
    with pytest.raises(KVCorruption):
        backend.execute(batch(*rows, slots=slots))


def test_operations_run_in_order(backend):
    """Out to the host, over the source, and back: what comes back is what left."""
    before = backend.block(1)
    backend.apply_ops([CacheOp("swap_out", 1, 2), CacheOp("copy", 3, 1), CacheOp("swap_in", 2, 5)])
    assert backend.block(5) == before
    assert backend.block(1) == backend.block(3)
    backend.execute(batch(([1, 2, 3, 4, 5, 6, 7], 6, [5, 2])))
    with pytest.raises(KVCorruption):
        backend.execute(batch(([1, 2, 3, 4, 5, 6, 7, 8], 7, [1, 2])))


def test_history_reads_back_what_a_table_leads_to(backend):
    assert backend.history([1, 2], 6) == [1, 2, 3, 4, 5, 6]
    with pytest.raises(KVCorruption, match="block 2"):
        backend.history([1, 2], 7)
