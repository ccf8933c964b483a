"""What is particular to lesson 08: its oracles, a learner's pieces in the engine, and the order in which beam search saves more."""

from __future__ import annotations

import inspect
import random
import xml.etree.ElementTree as ET
from fractions import Fraction

import numpy as np
import pytest

from mini_engine import LLM, EngineConfig, LLMEngine, SamplingParams
from mini_engine.backends import AuditBackend
from mini_engine.cache import KVCacheManager, NoFreeBlocksError
from mini_engine.course import cache_requests
from mini_engine.course.cache_requests import CacheUser
from mini_engine.course.exercises import answers08_blocks as counts
from mini_engine.course.exercises import answers08_cow as answers
from mini_engine.course.exercises import answers08_fork as forks
from mini_engine.course.exercises.bugs08_sharing import SHARING_BUGS, _KeepsTheOldHold
from mini_engine.course.own_sharing import with_fork
from mini_engine.course.panels import p08_copy_on_write as pictures
from mini_engine.course.sharing_counts import branch_blocks, sharing_in, sharing_of_samples, tokens_apart
from mini_engine.geometry import sharing_saving
from tests.lessons.lesson_run import ROOT

QUESTION = "The old lady was not at all pleased with the visit of her nephew, and"
FOUR = SamplingParams(n=4, temperature=0.8, seed=1, max_tokens=16)


def engine_of(prefix, n, out, block=16, manager=KVCacheManager):
    """An engine that has run n branches of `out` stored tokens on one prompt."""
    config = EngineConfig(num_blocks=512, block_size=block, enable_prefix_caching=False)
    engine = LLMEngine(config, AuditBackend(), kv_manager=manager, record=True)
    engine.add_request("r", [5] * prefix, SamplingParams(n=n, max_tokens=out + 1, seed=0, ignore_eos=True))
    while engine.has_unfinished_requests():
        engine.step()
        engine.check_invariants()
    return engine


@pytest.mark.parametrize("prefix", [1, 15, 16, 17, 32, 47])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_formula_counts_what_the_engine_counts(prefix, n):
    for out in (1, 15, 16, 17):
        engine = engine_of(prefix, n, out)
        last = [event for event in engine.film if event["kind"] == "step"][-1]
        blocks = {block for table in last["chunk_tables"] for block in table}
        counted = branch_blocks(prefix, out, n, 16)
        assert (counted.shared + counted.private, counted.copied) == (len(blocks), engine.stats().num_copied_blocks)


def test_formula_and_oracle_agree_and_give_the_saving():
    draw = random.Random(0)
    for _ in range(300):
        prefix, out, n, block = draw.randrange(1, 60), draw.randrange(1, 60), draw.randrange(1, 6), draw.randrange(1, 9)
        counted = branch_blocks(prefix, out, n, block)
        assert counted == counts.by_hand(prefix, out, n, block) == counts.by_rest(prefix, out, n, block)
        alone = -(-(prefix + out) // block)
        assert sharing_saving(prefix, out, n, block) == Fraction(n * alone, counted.shared + counted.private)


@pytest.mark.parametrize("copy_on_write", [answers.CopyOnWrite, answers.InOtherWords])
@pytest.mark.parametrize("own_fork", [forks.fork, forks.fork_in_a_loop])
def test_a_learners_pieces_are_the_ones_that_run(copy_on_write, own_fork):
    calls = {"fork": 0, "cow": 0}

    def counted_fork(*arguments):
        calls["fork"] += 1
        return own_fork(*arguments)

    class Counted(copy_on_write):
        def cow_if_shared(self, request):
            calls["cow"] += 1
            return super().cow_if_shared(request)

    def texts(manager):
        llm = LLM("tiny-gqa", backend="numpy", kv_manager=manager, enable_prefix_caching=False)
        outputs = llm.generate(QUESTION, FOUR, progress=False)[0].outputs
        llm.engine.check_invariants()
        return [output.text for output in outputs], llm.engine.stats().num_copied_blocks

    assert texts(with_fork(counted_fork, Counted)) == texts(KVCacheManager)
    assert calls == {"fork": 3, "cow": 3}  # the engine asks only where somebody else holds the block


def test_a_learners_pieces_run_beam_search_and_the_prefix_cache():
    mine = with_fork(forks.fork, answers.CopyOnWrite)
    for caching in (False, True):
        found = []
        for manager in (KVCacheManager, mine):
            llm = LLM("tiny-gqa", backend="numpy", kv_manager=manager, enable_prefix_caching=caching)
            found.append([output.token_ids for output in llm.beam_search(QUESTION, 3, 20)[0].outputs])
            found.append(llm.engine.stats().num_copied_blocks)
            assert llm.engine.stats().num_free_blocks == llm.engine.config.num_blocks
            llm.engine.check_invariants()
        assert found[:2] == found[2:]


def test_without_the_copy_siblings_read_what_the_last_one_wrote():
    def outputs(manager):
        llm = LLM("tiny-gqa", backend="numpy", kv_manager=manager, enable_prefix_caching=False)
        return [output.text for output in llm.generate(QUESTION, FOUR, progress=False)[0].outputs]

    right, wrong = outputs(KVCacheManager), outputs(answers.NeverCopies)
    assert [a == b for a, b in zip(right, wrong)] == [False, False, False, True]


@pytest.mark.parametrize(("manager", "holders"), [(answers.GivesUpFirst, 1), (answers.CopyOnWrite, 2)])
def test_only_the_wrong_order_loses_a_holder_when_memory_is_full(manager, holders):
    cache = manager(1, 4)
    a = CacheUser("a", [1, 2, 3])
    cache_requests.prefill(cache, a)
    b = cache_requests.fork(cache, a, 1)
    with pytest.raises(NoFreeBlocksError):
        cache.cow_if_shared(b)
    assert cache.pool.ref_count(1) == holders
    assert a.block_table == b.block_table == [1]


def test_copies_leave_the_siblings_arrays_alone():
    llm = LLM("tiny-gqa", backend="numpy", kv_manager=answers.CopyOnWrite, enable_prefix_caching=False)
    engine = llm.engine
    engine.add_request("r", llm.tokenizer.encode(QUESTION), FOUR)
    engine.step()
    branches = [engine.scheduler.requests["r", index] for index in range(4)]
    full, tail = branches[0].block_table
    before = engine.backend.block(full), engine.backend.block(tail)
    engine.step()
    assert {branch.block_table[0] for branch in branches} == {full}
    assert len({branch.block_table[1] for branch in branches}) == 4
    for name, array in before[0].items():
        assert np.array_equal(engine.backend.block(full)[name], array)
    for branch in branches:
        for name, array in before[1].items():
            assert np.array_equal(engine.backend.block(branch.block_table[1])[name][:, :3], array[:, :3])


@pytest.mark.parametrize("prompt", [19, 60])
def test_beam_search_saves_more_than_sampling_and_copies_more(prompt):
    saved = {}
    for n in (2, 4):
        for beam in (False, True):
            llm = LLM("tiny-gqa", backend="numpy", num_blocks=128, enable_prefix_caching=False, record=True)
            tokens = (llm.tokenizer.encode(QUESTION) * 4)[:prompt]
            if beam:
                llm.beam_search([tokens], n, 40)
            else:
                params = SamplingParams(n=n, seed=1, max_tokens=40, ignore_eos=True)
                llm.generate([tokens], params, progress=False)
            saved[n, beam] = sharing_in(llm.engine.film)
            assert saved[n, beam].copied == llm.engine.stats().num_copied_blocks
        assert saved[n, False].saved < saved[n, True].saved
        assert saved[n, False].copied == n - 1 < saved[n, True].copied
    assert saved[2, False].saved < saved[4, False].saved


def test_sharing_by_hand():
    """A prompt of 4 in blocks of 4, two branches of 3 tokens: the prompt's step does not count, then [1, 2] and [1, 3]."""
    film = engine_of(4, 2, 2, block=4).film
    assert sharing_in(film) == (4, 3, 0)
    assert sharing_in(film).saved == pytest.approx(1 / 4)
    assert tokens_apart(film) == pytest.approx(1.5)  # 1 after the prompt, 2 after the next step


@pytest.mark.parametrize(("prefix", "out", "n"), [(19, 58, 2), (19, 58, 6), (16, 3, 3), (5, 40, 1)])
def test_the_formula_of_sampling_counts_what_the_engine_shows(prefix, out, n):
    assert sharing_of_samples([(prefix, out)], n, 16) == sharing_in(engine_of(prefix, n, out - 1).film)


def test_late_requests_of_a_prefix_cache_share_one_block_less_than_a_fork():
    def blocks(cached):
        engine = LLMEngine(EngineConfig(num_blocks=256, block_size=16, enable_prefix_caching=cached), AuditBackend())
        many = SamplingParams(n=1 if cached else 4, max_tokens=8, seed=0, ignore_eos=True)
        engine.add_request("r0", [7 * i % 50 for i in range(512)], many)
        engine.step()
        for index in range(1, 4 if cached else 1):
            params = SamplingParams(max_tokens=8, seed=index, ignore_eos=True)
            engine.add_request(f"r{index}", [7 * i % 50 for i in range(512)], params)
        for _ in range(3):
            engine.step()
        return 256 - engine.stats().num_free_blocks

    assert (blocks(False), blocks(True)) == (36, 39)


def test_a_fork_that_raises_leaves_nothing_behind():
    def broken(pool, table, num_tokens, block_size):
        raise ZeroDivisionError

    cache = with_fork(broken)(8, 4)
    a = CacheUser("a", [1, 2, 3, 4, 5])
    cache_requests.prefill(cache, a)
    b = CacheUser("a", [1, 2, 3, 4, 5], 1, num_computed_tokens=5)
    with pytest.raises(ZeroDivisionError):
        cache.fork(a, b)
    assert b.block_table == []
    assert [cache.pool.ref_count(block) for block in a.block_table] == [1, 1]
    cache.free(a)
    assert cache.pool.num_free == 8


def test_no_prediction_is_answered_before_it_is_asked():
    text = (ROOT / "solutions/08_copy_on_write.py").read_text(encoding="utf-8")
    asked = {name: text.index(f'predict("08.{name}"') for name in ("copies", "full", "saving", "fifty_five", "again")}
    for name, told in (
        ("copies", 'check("08.cow"'),
        ("copies", '"claim-own-cow"'),
        ("full", 'check("08.blocks"'),
        ("full", "claim-boundary"),
        ("saving", '"claim-saving"'),
        ("fifty_five", "2.2 times"),
        ("again", '"claim-production"'),
    ):
        assert asked[name] < text.index(told), (name, told)
    assert text.index("GivesUpFirst") < text.index("MyKVCacheManager")  # the trap stands before the exercise


def test_the_bug_that_the_lesson_shows_is_in_the_bank():
    text = (ROOT / "solutions/08_copy_on_write.py").read_text(encoding="utf-8")
    shown = [line.removeprefix("    ") for line in inspect.getsource(_KeepsTheOldHold._copy).splitlines()]
    shown[0] = "def _copy(self, sequence, i):"
    assert "".join(f"# {line}\n" for line in shown) in text
    assert _KeepsTheOldHold in [bug.implementation for bug in SHARING_BUGS.wrong.values()]
    assert len(SHARING_BUGS.wrong) == 13
    assert "Thirteen broken ones" in text


def test_the_diagram_is_sound():
    source, words = pictures.fork_and_copy()
    ET.fromstring(source)
    assert source.count(">t5</text>") == source.count(">t6</text>") == 3  # block 2 twice, and its copy
    assert source.count(">a7</text>") == source.count(">b7</text>") == 1
    assert source.count("holders: 2<") == 3
    assert "block 2 is copied to block 3" in words
