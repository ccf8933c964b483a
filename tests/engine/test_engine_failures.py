"""What a failure, an interrupt or an abort in the middle of a step leaves behind: the books exact, and an engine that goes on."""

from __future__ import annotations

import signal

import numpy as np
import pytest

from mini_engine import EngineConfig, LLMEngine, SamplingParams
from mini_engine.backends import AuditBackend
from mini_engine.scheduling import Scheduler
from tests.engine.helpers import Alphabet, greedy, is_cold, make_engine, run, steps, tokens
from tests.engine.oracle import cold


class Failing(AuditBackend):
    fails = False

    def execute(self, batch):
        if self.fails:
            raise OSError("no device")
        return super().execute(batch)


def test_a_backend_that_raises_leaves_the_engine_usable_and_the_pool_exact():
    backend = Failing(64)
    engine = make_engine(16, backend=backend)
    engine.add_request("a", tokens(1, 8), greedy(8))
    steps(engine)
    engine.add_request("b", tokens(21, 27), SamplingParams(n=2, seed=1, max_tokens=6))
    before = engine.stats()
    backend.fails = True
    for _ in range(3):
        with pytest.raises(OSError, match="no device"):
            engine.step()
        engine.check_invariants()
        assert engine.stats() == before
    backend.fails = False
    outputs = run(engine)
    assert is_cold(engine, outputs["a"], greedy(8))
    assert is_cold(engine, outputs["b"], SamplingParams(n=2, seed=1, max_tokens=6))


def test_the_tables_of_a_failed_step_leave_no_trace():
    """The failed chunk was longer than the one that comes instead: the table's tail is null again."""
    backend = Failing(64)
    engine = make_engine(64, backend=backend, max_num_batched_tokens=16)
    engine.add_request("long", tokens(1, 60), greedy(20))
    steps(engine, 4)
    engine.add_request("a", tokens(1, 3) * 8, greedy(4))
    steps(engine)
    backend.fails = True
    with pytest.raises(OSError, match="no device"):
        engine.step()  # a would have come to its end, 24 tokens
    backend.fails = False
    for _ in range(10):
        engine.fork("a")
    batches = []
    backend.execute = lambda batch: batches.append(batch) or AuditBackend.execute(backend, batch)
    steps(engine)
    assert batches[0].context_lens.tolist()[:2] == [62, 20]
    for length, table in zip(batches[0].context_lens, batches[0].block_tables):
        assert not table[-(-length // 4) :].any()
    run(engine)


def test_logits_that_are_no_numbers_are_an_error_and_no_token():
    class Broken(AuditBackend):
        broken = True

        def execute(self, batch):
            result = super().execute(batch)
            if self.broken:
                result.array[-1, 5] = np.nan
            return result

    backend = Broken(64)
    engine = make_engine(16, backend=backend)
    params = SamplingParams(seed=1, max_tokens=4)
    for name, first in (("a", 1), ("b", 21)):
        engine.add_request(name, tokens(first, first + 4), params)
    with pytest.raises(ValueError, match="nan"):
        engine.step()
    backend.broken = False
    outputs = run(engine)
    assert all(is_cold(engine, output, params) for output in outputs.values())


def test_a_failing_detokenizer_costs_no_token_and_doubles_none():
    class Stumbling(Alphabet):
        stumbles = True

        def add(self, token_id: int) -> str:
            if self.stumbles:
                type(self).stumbles = False
                raise UnicodeError("oops")
            return super().add(token_id)

    engine = LLMEngine(EngineConfig(num_blocks=16, block_size=4), AuditBackend(64), tokenizer=Stumbling())
    for name, first in (("a", 1), ("b", 21)):
        engine.add_request(name, tokens(first, first + 4), greedy(4))
    with pytest.raises(UnicodeError):
        engine.step()
    outputs = run(engine)
    assert all(is_cold(engine, output, greedy(4)) for output in outputs.values())
    assert all(len(output.outputs[0].text) == 4 for output in outputs.values())


def test_a_scheduler_that_never_plans_anything_is_an_error_not_a_hang():
    class Idle(Scheduler):
        def schedule_waiting(self, draft):
            return

    engine = LLMEngine(EngineConfig(num_blocks=4), AuditBackend(8), scheduler=Idle)
    engine.add_request("a", [1], greedy(1))
    with pytest.raises(RuntimeError, match="no progress"):
        engine.step()


@pytest.mark.parametrize("method", ["schedule", "commit"])
@pytest.mark.parametrize("late", [False, True])
def test_a_scheduler_that_raises_once_leaves_the_engine_usable(method, late):
    engine = make_engine(20)
    engine.add_request("a", tokens(1, 6), greedy(5))
    original, raised = getattr(engine.scheduler, method), []

    def flaky(*arguments):
        result = original(*arguments) if late else None
        if not raised:
            raised.append(method)
            raise KeyboardInterrupt
        return result if late else original(*arguments)

    setattr(engine.scheduler, method, flaky)
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    engine.check_invariants()
    outputs = run(engine)
    assert outputs["a"].outputs[0].token_ids == cold(AuditBackend(64), tokens(1, 6), greedy(5))[0]
    assert engine.stats().num_free_blocks == 20


def test_ctrl_c_waits_until_the_books_are_closed():
    """A signal in the middle of schedule, commit, add_request or abort is delivered when they are done."""
    engine = make_engine(20)
    for name in ("schedule", "commit"):
        original = getattr(engine.scheduler, name)

        def interrupted(*arguments, original=original, name=name):
            signal.raise_signal(signal.SIGINT)
            setattr(engine.scheduler, name, original)
            return original(*arguments)

        engine.add_request(name, tokens(1, 6), greedy(3))
        setattr(engine.scheduler, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.step()
        engine.check_invariants()
        assert len(run(engine)[name].outputs[0].token_ids) == 3
    assert engine.stats().num_free_blocks == 20
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_abort_while_the_backend_computes_leaves_the_others_alone():
    engine = make_engine(20)
    engine.add_request("a", [1, 2, 3], greedy(5))
    engine.add_request("b", [4, 5, 6], greedy(5))
    execute = engine.backend.execute

    def aborting(batch):
        engine.abort("a")
        return execute(batch)

    engine.backend.execute = aborting
    outputs = run(engine)
    assert outputs["a"].outputs[0].finish_reason == "abort"
    assert outputs["b"].outputs[0].token_ids == cold(AuditBackend(64), [4, 5, 6], greedy(5))[0]
