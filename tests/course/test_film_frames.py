"""What the film says happened, against what engine, pool and backend counted themselves."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mini_engine import LLM, SamplingParams
from mini_engine.backends import AuditBackend, NumpyBackend
from mini_engine.cache import BlockPool
from mini_engine.course.film import frame, frames
from mini_engine.course.film.frames import short_names
from mini_engine.course.film.text import text
from mini_engine.course.film.words import sentences
from mini_engine.geometry import kv_elems_per_token, paged_utilization, sharing_saving
from mini_engine.models import load_model
from tests.course import film_runs as runs

OPTIONS: list[dict[str, Any]] = [
    {},
    {"preemption": "swap", "num_swap_blocks": 16},
    {"prefix_index": "radix", "max_num_batched_tokens": 16, "admission": "first_chunk"},
    {"enable_prefix_caching": False},
]


class ReadingBackend(AuditBackend):
    """Counts what its attention reads and what its copies move."""

    def __init__(self) -> None:
        super().__init__(64)
        self.read: list[int] = []
        self.ops: Counter[str] = Counter()

    def execute(self, batch: Any) -> Any:
        self.read.append(int(np.sum(batch.context_lens)))
        return super().execute(batch)

    def apply_ops(self, ops: Any) -> None:
        self.ops.update(op.kind for op in ops)
        super().apply_ops(ops)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("seed", range(4))
def test_film_agrees_with_the_counters_of_engine_pool_and_backend(
    seed: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    evicted: list[int] = []
    unpublish = BlockPool._unpublish
    monkeypatch.setattr(BlockPool, "_unpublish", lambda pool, block: (evicted.append(block), unpublish(pool, block)))
    backend = ReadingBackend()
    engine = runs.mixed(seed, backend=backend, **options)
    film, stats = frames(engine), engine.stats()
    steps = [frame for frame in film if frame.label.startswith("step")]

    def blocks_of(kind: str) -> list[int]:
        return [block for frame in film for deed in frame.deeds_of(kind) for block in deed.blocks]

    assert [frame.counters.read for frame in steps if frame.deeds_of("write")] == backend.read
    assert film[-1].counters.total_copied == 4 * stats.num_copied_blocks == 4 * backend.ops["copy"]
    assert sum(deed.number for frame in film for deed in frame.deeds_of("hit")) == stats.num_prefix_hit_tokens
    assert sorted(blocks_of("evict")) == sorted(evicted)
    assert len(blocks_of("copy")) == stats.num_copied_blocks
    assert len(blocks_of("swap in")) == stats.num_swapped_in_blocks
    assert len(blocks_of("swap out")) == stats.num_swapped_out_blocks
    preempted = sum(len(frame.deeds_of(kind)) for frame in film for kind in ("preempt", "swap out"))
    assert preempted == stats.num_preemptions
    written = sum(deed.number for frame in film for deed in frame.deeds_of("write"))
    assert written == stats.num_prefill_tokens + stats.num_decode_tokens


@pytest.mark.parametrize("options", OPTIONS)
def test_every_frame_is_consistent(options: dict[str, Any]) -> None:
    film = frames(runs.mixed(7, **options))
    for shown in film:
        holders = Counter(block for table in shown.tables for block in table.blocks)
        assert [block.refs for block in shown.blocks] == [holders[block.block_id] for block in shown.blocks]
        assert not any(block.is_miscounted for block in shown.blocks)
        assert sorted(shown.free_queue) == [block.block_id for block in shown.blocks if not block.refs]
        slots = [slot for span in shown.spans for slot in range(span.start, span.start + span.size)]
        assert len(slots) == len(set(slots))
        by_state = Counter()
        for span in shown.spans:
            by_state[span.state] += span.size
        counters = shown.counters
        assert (counters.live, counters.wasted) == (by_state["used"], by_state["empty"])
        assert counters.allocated == 4 * len(holders)
        assert counters.shared == 4 * (sum(holders.values()) - len(holders))


def test_counters_are_the_formulas() -> None:
    engine = runs.engine(32, 4)
    lengths = [3, 4, 5, 17]
    for number, length in enumerate(lengths):
        engine.add_request(f"r{number}", [number * 9 + i for i in range(length)], runs.greedy(3))
    engine.step()
    assert frames(engine)[0].counters.utilization == paged_utilization(lengths, 4)
    engine = runs.engine(64, 4)
    engine.add_request("a", list(range(10)), runs.sampled(7, n=4))
    for _ in range(7):
        engine.step()
    shown = frames(engine)[5]
    assert {table.num_computed for table in shown.tables} == {15}
    held = shown.counters.allocated
    assert Fraction(held + shown.counters.shared, held) == sharing_saving(10, 5, 4, 4)


def test_bytes_are_the_backends() -> None:
    model = load_model("tiny-gqa", backend="numpy").model
    backend = NumpyBackend(model)
    engine = runs.engine(8, 4, backend)
    engine.add_request("a", [1, 2, 3, 4, 5], runs.greedy(2))
    engine.step()
    shown = frames(engine)[0]
    blocks = [backend.block(block) for block in shown.tables[0].blocks]
    assert shown.counters.allocated * (shown.memory.bytes_per_token or 0) == sum(
        a.nbytes for b in blocks for a in b.values()
    )
    assert shown.memory.bytes_per_token == 8 * kv_elems_per_token(model.spec)


def test_a_copy_says_which_block_and_why() -> None:
    film = frames(runs.copy_on_write())
    assert sentences(film[1])[:4] == [
        "A0 copies block 3 to block 6 before it writes, because A1 and A2 still need block 3 as it is.",
        "A1 copies block 3 to block 7 before it writes, because A2 still needs block 3 as it is.",
        "A2 is then alone with block 3 and writes into it.",
        "Blocks 1 and 2 stay shared: they are full, so nobody writes there.",
    ]
    assert "A1 and A2 branch off from A0 and share blocks 1 to 3: nothing is copied." in sentences(film[0])
    assert film[1].counters.copied == 8
    assert [deed.name for deed in film[1].deeds_of("copy")] == ["A0", "A1"]  # the last one writes in place


def test_hits_evictions_and_what_they_are_called() -> None:
    engine = runs.engine(4, 4)
    for request_id, start in (("a", 0), ("b", 20), ("c", 0)):
        engine.add_request(request_id, list(range(start, start + 9)), runs.greedy(1))
        runs.finish(engine)
    first, second, third = frames(engine)
    assert "Blocks 1 and 2 are full and published: others can find them now." in sentences(first)
    assert "Block 2 is evicted: no blank block is left, so B takes it, and what was cached there is lost." in sentences(
        second
    )
    assert "C finds block 1 in the cache: 4 tokens need no computing." in sentences(third)
    assert "block 1: 4/4 slots, free, published" in text(third)


def test_between_steps() -> None:
    engine = runs.engine(8, 4)
    engine.add_request("a", list(range(6)), runs.greedy(9))
    engine.step()
    assert engine.fork("a") == 1
    engine.step()
    engine.fork("a")
    engine.fork("a")
    engine.abort("a", 3)
    engine.abort("a")
    engine.reset_prefix_cache()
    film = frames(engine)
    assert [frame.label for frame in film] == ["step 0", "before step 1", "step 1", "after step 1"]
    assert sentences(film[1]) == [
        "A1 branches off from A0 and shares blocks 1 and 2: nothing is copied.",
        "Block 2 is not full: who writes there while others share it copies it first.",
    ]
    assert [block.refs for block in film[1].blocks[:2]] == [2, 2]
    assert [block.marks for block in film[1].blocks[:3]] == [("share",), ("share",), ()]
    assert film[2].deeds_of("copy")[0][1:5] == ("A0", (2,), (3,), ("A1",))
    assert sentences(film[3]) == [
        "A2 and A3 branch off from A0 and share blocks 1 and 3: nothing is copied.",
        "A3, A0, A1 and A2 are aborted and give up their blocks.",
        "The prefix cache is reset: 1 block becomes blank.",
    ]


def test_a_step_that_failed() -> None:
    engine = runs.engine(8, 4)
    engine.add_request("a", [1, 2, 3], runs.greedy(2))
    execute, engine.backend.execute = engine.backend.execute, lambda batch: 1 / 0
    with pytest.raises(ZeroDivisionError):
        engine.step()
    engine.backend.execute = execute
    engine.step()
    film = frames(engine)
    assert [frame.label for frame in film] == ["before step 0", "step 0"]
    assert sentences(film[0]) == ["The step failed (ZeroDivisionError) and was rolled back."]


def test_a_wrong_count_is_shown() -> None:
    events = runs.copy_on_write().film
    events[3]["ref_counts"][0] = 1
    shown = frame(events, 0)
    assert "block 1: 4/4 slots, held by A0, A1, A2, reference count 1, WRONG: 3 tables hold it, published" in shown.text
    assert shown.words.startswith("step 0: WRONG: block 1 has reference count 1, but 3 tables hold it.")
    assert "×1≠3" in shown.svg
    assert 'class="x"' not in frame(runs.copy_on_write(), 0).svg


def test_a_held_block_in_the_free_queue_is_shown() -> None:
    events = runs.copy_on_write().film
    events[3]["free_blocks"].insert(0, 2)
    shown = frame(events, 0)
    assert "block 2: 4/4 slots, held by A0, A1, A2, reference count 3, WRONG: in the free queue as well" in shown.text
    assert "WRONG: block 2 is in the free queue, but A0, A1 and A2 hold it." in shown.words
    assert shown.svg.count('class="x"') == 1


def test_events_from_json_give_the_same_film() -> None:
    engine = runs.mixed(3)
    assert [text(f) for f in frames(json.loads(json.dumps(engine.film)))] == [text(f) for f in frames(engine)]


def test_short_names() -> None:
    assert short_names(["x", "chat-1", "b", "chat-2"]) == {"x": "X", "chat-1": "A", "b": "B", "chat-2": "C"}
    assert list(short_names([f"request-{n}" for n in range(28)]).values())[-3:] == ["Z", "AA", "AB"]
    assert len(set(short_names(["a", "A", "b"]).values())) == 3


def test_nothing_to_show() -> None:
    silent = runs.engine(4)
    silent._film = None
    with pytest.raises(ValueError, match="record=True"):
        frames(silent)
    with pytest.raises(ValueError, match="no step yet"):
        frames(runs.engine(4))
    with pytest.raises(ValueError, match='"pool" or "memory"'):
        frames(runs.copy_on_write().film[1:])
    with pytest.raises(TypeError, match="not from int"):
        frames(3)
    with pytest.raises(ValueError, match=r"step=99: the film has steps 0 to \d+"):
        frame(runs.copy_on_write(), 99)


def test_stopped_requests_and_max_tokens_zero() -> None:
    engine = runs.engine(8, 4)
    engine.add_request("a", [1, 2], SamplingParams(max_tokens=0))
    runs.finish(engine)
    assert sentences(frames(engine)[0]) == ["A arrives with a prompt of 2 tokens.", "A ends and gives up its memory."]


def test_what_many_do_is_told_together() -> None:
    engine = runs.engine(64, 4)
    for request_id in "abcd":
        engine.add_request(request_id, list(range(6)), runs.sampled(3, n=2))
    runs.finish(engine)
    film = frames(engine)
    assert sentences(film[0])[0] == "A0, B0, C0 and D0 arrive with prompts of 6, 6, 6 and 6 tokens."
    assert "A1, B1, C1 and D1 branch off and share all blocks they start with: nothing is copied." in sentences(film[0])
    copies = sentences(film[1])[0]
    assert copies.startswith("A0, B0, C0 and D0 each copy a block before they write, because others still need it")
    assert all(len(sentences(shown)) <= 6 for shown in film)
    for request_id in "efg":
        engine.add_request(request_id, list(range(6)), runs.greedy(1))
    runs.finish(engine)
    assert "E, F and G find 1, 1 and 1 blocks in the cache: 12 tokens need no computing." in sentences(
        frames(engine)[-1]
    )


def test_an_llm_on_film() -> None:
    llm = LLM("tiny-gqa", backend="numpy", num_blocks=300, record=True)
    llm.generate([[1, 2, 3]], runs.greedy(3), progress=False)
    film = frames(llm)
    assert [f.label for f in film] == ["step 0", "step 1", "step 2"]
    assert len(film[0].blocks) == 64, "of a large pool only what is ever used is kept"
    assert "blocks 65 to 300: never used" in frame(llm, 0).svg
