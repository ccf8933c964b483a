"""What the builder keeps from step to step must equal what it would make afresh."""

from __future__ import annotations

import random

import numpy as np

from mini_engine.backends import BatchBuilder
from mini_engine.scheduling import Chunk, Request, StepPlan


def test_a_mixed_batch_in_full():
    decode, prefill = Request("d", [5, 6, 7, 8, 9], 10), Request("p", [1, 2, 3, 4, 5, 6], 10)
    decode.num_starts = prefill.num_starts = 1
    decode.block_table, prefill.block_table = [3, 1, 9], [4, 2]
    requests = {request.key: request for request in (decode, prefill)}
    batch = BatchBuilder(2).build(StepPlan((Chunk("d", 0, 4, 1), Chunk("p", 0, 1, 3))), requests)
    assert batch.token_ids.tolist() == [9, 2, 3, 4]
    assert batch.positions.tolist() == [4, 1, 2, 3]
    assert batch.slot_mapping.tolist() == [18, 9, 4, 5]
    assert batch.block_tables.tolist() == [[3, 1, 9], [4, 2, 0]]
    assert batch.context_lens.tolist() == [5, 4]
    assert batch.query_start_loc.tolist() == [0, 1, 4]
    assert batch.logits_rows.tolist() == [0]  # the prompt is not computed to its end yet
    assert (batch.slot_mapping.dtype, batch.block_tables.dtype) == (np.int64, np.int32)


def test_tables_follow_growth_copies_departures_and_returns():
    rng = random.Random(0)
    size, builder = 2, BatchBuilder(2)
    running: dict[tuple[str, int], Request] = {}
    for step in range(400):
        for key in list(running):
            if rng.random() < 0.1:
                builder.forget(key)
                del running[key]
            elif rng.random() < 0.1:  # preempted and resumed
                running[key].block_table = []
                running[key].num_starts += 1
                running[key].num_computed_tokens = rng.randrange(running[key].num_computed_tokens + 1) // size * size
        while len(running) < rng.randrange(1, 12):
            request = Request(f"r{rng.randrange(30)}", list(range(1 + rng.randrange(9))), 100)
            if request.key not in running:
                request.num_starts = 1
                running[request.key] = request
        for request in running.values():
            start = request.num_computed_tokens
            if start % size and rng.random() < 0.3:
                request.block_table[start // size] = rng.randrange(1, 1000)  # copied on write
            while len(request.block_table) * size < request.num_tokens:
                request.block_table.append(rng.randrange(1, 1000))
        chosen = [r for r in running.values() if rng.random() < 0.8 and r.num_computed_tokens < r.num_tokens]
        plan = StepPlan(
            tuple(Chunk(*r.key, r.num_computed_tokens, r.num_tokens - r.num_computed_tokens) for r in chosen)
        )
        batch = builder.build(plan, running)
        for row, request in enumerate(chosen):
            table = request.block_table
            expected = table + [0] * (batch.block_tables.shape[1] - len(table))
            assert batch.block_tables[row].tolist() == expected, f"step {step}, {request}"
            request.num_computed_tokens = request.num_tokens
            request.token_ids.append(0)
