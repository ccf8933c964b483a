"""The engine's face: what may be asked, what comes back, and what a failure leaves behind."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest

from mini_engine import EngineConfig, LLMEngine, SamplingParams
from mini_engine.backends import AuditBackend
from mini_engine.scheduling import Scheduler
from tests.engine.helpers import greedy, is_cold, make_engine, run, steps, tokens
from tests.engine.oracle import cold


class Alphabet:
    """A tokenizer: token 0 is "a", 1 is "b" and so on, over and over."""

    def detokenizer(self):
        return self

    def add(self, token_id: int) -> str:
        return chr(97 + token_id % 26)

    def finish(self) -> str:
        return ""


class Failing(AuditBackend):
    fails = False

    def execute(self, batch):
        if self.fails:
            raise OSError("no device")
        return super().execute(batch)


# -- requests in -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "prompt is empty"),
        ([1, 64], "prompt token 64 is outside the vocabulary: ids run from 0 to 63"),
        ([-1], "prompt token -1 is outside"),
        ([1.5], "list of integer token ids"),
        (["a"], "list of integer token ids"),
        (list(range(17)), "17 tokens and needs 5 blocks, num_blocks is 4"),
        (list(range(10)), "10 tokens, max_num_batched_tokens is 9"),
    ],
)
def test_an_impossible_prompt_is_refused_and_changes_nothing(prompt, message):
    engine = make_engine(4, max_num_batched_tokens=9, enable_chunked_prefill=False)
    before = engine.stats()
    with pytest.raises(ValueError, match=message):
        engine.add_request("a", prompt, greedy(1))
    assert engine.stats() == before
    assert not engine.has_unfinished_requests()
    assert not engine.abort("a")


def test_more_branches_than_seats_are_refused():
    engine = make_engine(4, max_num_seqs=2)
    with pytest.raises(ValueError, match="n=3 is more than max_num_seqs=2"):
        engine.add_request("a", [1], SamplingParams(n=3))
    assert not engine.has_unfinished_requests()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache_salt": 5}, "cache_salt=5 must be a string"),
        ({"adapter": b"x"}, "must be a string"),
        ({"cache_salt": "\ud800"}, "surrogates"),
        ({"priority": "high"}, "priority='high' must be an integer"),
        ({"priority": 0.5}, "priority=0.5 must be an integer"),
    ],
)
def test_a_bad_option_is_refused_and_changes_nothing(options, message):
    engine = make_engine(4)
    with pytest.raises(ValueError, match=message):
        engine.add_request("a", [1], greedy(1), **options)
    assert not engine.has_unfinished_requests()
    engine.add_request("a", [1], greedy(1), priority=-3, cache_salt="s", adapter="v1")
    run(engine)


def test_stop_strings_need_a_tokenizer():
    engine = make_engine(4)
    with pytest.raises(ValueError, match="tokenizer"):
        engine.add_request("a", [1], SamplingParams(stop="x"))
    assert not engine.has_unfinished_requests()


def test_a_context_longer_than_the_models_is_refused():
    with pytest.raises(ValueError, match="max_model_len=65 is more than the model's 64"):
        LLMEngine(EngineConfig(num_blocks=4, max_model_len=65), AuditBackend(8, max_model_len=64))


def test_numpy_token_ids_are_taken():
    engine = make_engine(8)
    engine.add_request("a", np.arange(1, 6, dtype=np.int32), greedy(2))
    output = run(engine)["a"]
    assert output.prompt_token_ids == [1, 2, 3, 4, 5]
    assert type(output.prompt_token_ids[0]) is int


def test_an_unseeded_request_draws_a_seed_of_its_own():
    engine = make_engine(64)
    for name in "ab":
        engine.add_request(name, [1, 2, 3], SamplingParams(max_tokens=20))
    outputs = run(engine)
    assert outputs["a"].outputs[0].token_ids != outputs["b"].outputs[0].token_ids


# -- answers out -------------------------------------------------------------------------------------------------------


def test_an_idle_engine_has_nothing_to_say():
    engine = make_engine(4)
    assert engine.step() == []
    assert not engine.has_unfinished_requests()


def test_outputs_are_cumulative_copies():
    engine = make_engine(8)
    engine.add_request("a", tokens(1, 3), greedy(4), prompt="one two three")
    seen = []
    while engine.has_unfinished_requests():
        seen += steps(engine)
    truth, _ = cold(engine.backend, tokens(1, 3), greedy(4))
    assert [output.outputs[0].token_ids for output in seen] == [truth[:length] for length in (1, 2, 3, 4)]
    assert [output.finished for output in seen] == [False, False, False, True]
    assert [output.outputs[0].finish_reason for output in seen] == [None, None, None, "length"]
    assert seen[0].prompt == "one two three"


def test_a_prompt_that_is_still_being_computed_gives_no_output():
    engine = make_engine(8, max_num_batched_tokens=4)
    engine.add_request("a", tokens(1, 9), greedy(1))
    assert steps(engine) == []
    assert steps(engine) == []
    assert [output.request_id for output in steps(engine)] == ["a"]


def test_the_text_stops_before_a_stop_string_wherever_the_batch_puts_it():
    params = greedy(30)
    backend = AuditBackend(64)
    said, _ = cold(backend, tokens(1, 5), params)
    text = "".join(Alphabet().add(token) for token in said)
    stop = text[7:10]
    cut = text.index(stop)
    engine = LLMEngine(EngineConfig(num_blocks=16, block_size=4), backend, tokenizer=Alphabet())
    engine.add_request("a", tokens(1, 5), greedy(30, stop=(stop,)))
    engine.add_request("b", tokens(21, 25), greedy(9))
    outputs = run(engine)
    completion = outputs["a"].outputs[0]
    assert completion.text == text[:cut]
    assert completion.token_ids == said[: cut + 3]
    assert completion.finish_reason == "stop"
    assert len(outputs["b"].outputs[0].text) == 9


def test_logprobs_come_with_every_token():
    params = SamplingParams(temperature=0.7, seed=3, max_tokens=6, logprobs=2, n=2)
    engine = make_engine(16)
    engine.add_request("a", tokens(1, 5), params)
    for completion in run(engine)["a"].outputs:
        assert len(completion.logprobs) == 6
        for at, (token, logprobs) in enumerate(zip(completion.token_ids, completion.logprobs)):
            logits = engine.backend.logits_after([*tokens(1, 5), *completion.token_ids[:at]])
            assert token in logprobs
            assert logprobs[token] == pytest.approx(logits[token] - np.log(np.exp(logits).sum()), abs=1e-12)


def test_metrics_follow_a_request():
    clock = iter(range(1000))
    engine = LLMEngine(
        EngineConfig(num_blocks=8, block_size=4, max_num_batched_tokens=4, max_num_seqs=1),
        AuditBackend(64),
        clock=lambda: float(next(clock)),
    )
    engine.add_request("a", tokens(1, 6), greedy(3))
    engine.add_request("b", tokens(1, 2), greedy(1))
    outputs = run(engine)
    a, b = outputs["a"].metrics, outputs["b"].metrics
    assert a.arrival_time < a.scheduled_time < a.first_token_time < a.finish_time < b.scheduled_time
    assert a.token_times[0] == a.first_token_time
    assert len(a.token_times) == 3
    assert a.token_times == sorted(set(a.token_times))


@pytest.mark.parametrize(("max_tokens", "cached"), [(1, 0), (2, 4), (5, 4), (6, 8), (7, 8)])
def test_the_next_turn_hits_what_decoding_computed(max_tokens, cached):
    """The last sampled token has no K/V: three and five tokens make one full block that can be hit, not two."""
    engine = make_engine(8)
    engine.add_request("a", tokens(1, 3), greedy(max_tokens))
    said = run(engine)["a"].outputs[0].token_ids
    assert engine.stats().num_cached_blocks == cached // 4
    params = greedy(2)
    engine.add_request("b", [*tokens(1, 3), *said, 50, 51, 52], params)
    output = run(engine)["b"]
    assert output.num_cached_tokens == cached
    assert is_cold(engine, output, params)


def test_cached_tokens_are_those_of_the_first_start():
    """What a preempted request finds of itself when it returns is counted as a hit, but is not the caller's saving."""
    engine = make_engine(6)
    for name, first in (("a", 1), ("b", 31)):
        engine.add_request(name, tokens(first, first + 7), greedy(10))
    outputs = run(engine)
    assert engine.stats().num_preemptions > 0
    assert engine.stats().num_prefix_hit_tokens > 0
    assert [outputs[name].num_cached_tokens for name in "ab"] == [0, 0]


# -- branches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [3, 4, 5])
def test_every_branch_says_what_it_would_say_alone(length):
    params = SamplingParams(n=4, seed=9, max_tokens=7)
    engine = make_engine(32)
    engine.add_request("a", tokens(1, length), params)
    output = run(engine)["a"]
    assert is_cold(engine, output, params)
    assert len({tuple(completion.token_ids) for completion in output.outputs}) == 4
    assert engine.stats().num_prefill_tokens == length  # once for all


def test_a_fork_goes_its_own_way():
    params = SamplingParams(seed=9, max_tokens=8)
    engine = make_engine(32)
    engine.add_request("a", tokens(1, 5), params)
    steps(engine, 3)
    free = engine.stats().num_free_blocks
    assert engine.fork("a", 0) == 1
    assert engine.stats().num_free_blocks == free  # every block is shared
    first, second = run(engine)["a"].outputs
    assert first.token_ids[:3] == second.token_ids[:3]
    assert first.token_ids != second.token_ids
    assert second.token_ids == cold(engine.backend, tokens(1, 5), params, index=1, prefix=first.token_ids[:3])[0]


def test_branches_that_outgrew_the_pool_together_end_whoever_had_to_go():
    """Sharing lets two sequences be as long as the pool. Neither can grow, and the one that is preempted never could."""
    engine = make_engine(3)
    engine.add_request("a", tokens(1, 8), greedy(20))
    steps(engine, 5)  # twelve tokens have K/V, the thirteenth has none
    engine.fork("a")
    completions = run(engine, most=5)["a"].outputs
    assert [completion.finish_reason for completion in completions] == ["capacity", "capacity"]
    assert [len(completion.token_ids) for completion in completions] == [5, 5]


def test_only_a_live_branch_can_be_forked():
    engine = make_engine(8)
    engine.add_request("a", [1], greedy(1))
    for request_id, index in (("a", 1), ("b", 0), ("a", -1)):
        with pytest.raises(ValueError, match="no live branch"):
            engine.fork(request_id, index)
    run(engine)
    with pytest.raises(ValueError, match="no live branch"):
        engine.fork("a")


def test_one_branch_can_be_aborted():
    engine = make_engine(16)
    engine.add_request("a", tokens(1, 5), SamplingParams(n=2, seed=1, max_tokens=6))
    with pytest.raises(ValueError, match="before the prompt is computed"):
        engine.abort("a", 1)
    steps(engine, 2)
    assert engine.abort("a", 0) is True
    assert engine.abort("a", 0) is False
    output = run(engine)["a"]
    assert [completion.finish_reason for completion in output.outputs] == ["abort", "length"]


# -- abort -------------------------------------------------------------------------------------------------------------


def test_an_abort_frees_at_once_and_is_reported_by_the_next_step():
    engine = make_engine(8)
    engine.add_request("a", tokens(1, 9), greedy(20))
    steps(engine, 2)
    assert engine.abort("a") is True
    assert engine.stats().num_free_blocks == 8
    assert engine.has_unfinished_requests()
    with pytest.raises(ValueError, match="in use"):
        engine.add_request("a", [1], greedy(1))
    (output,) = engine.step()
    assert output.finished
    assert output.outputs[0].finish_reason == "abort"
    assert len(output.outputs[0].token_ids) == 2
    assert not engine.has_unfinished_requests()
    engine.add_request("a", [1], greedy(1))
    assert run(engine)["a"].outputs[0].finish_reason == "length"


def test_an_unknown_id_cannot_be_aborted():
    assert make_engine(4).abort("nobody") is False


# -- failures ----------------------------------------------------------------------------------------------------------


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


# -- looking in --------------------------------------------------------------------------------------------------------


def test_stats_count_what_was_done():
    engine = make_engine(8, max_num_seqs=2)
    engine.add_request("a", tokens(1, 9), greedy(3))
    engine.add_request("b", tokens(21, 24), SamplingParams(n=2, seed=0, max_tokens=3))
    steps(engine)
    stats = engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_swapped) == (1, 1, 0)
    assert (stats.num_free_blocks, stats.num_cached_blocks) == (5, 2)
    assert (stats.num_prefill_tokens, stats.num_decode_tokens) == (9, 0)
    run(engine)
    engine.add_request("c", tokens(1, 9), greedy(1))
    run(engine)
    stats = engine.stats()
    assert stats.num_prefill_tokens == 9 + 4 + 1
    assert stats.num_decode_tokens == 2 + 2 * 2
    assert stats.num_prefix_hit_tokens == 8
    assert (stats.num_running, stats.num_waiting, stats.num_free_blocks) == (0, 0, 8)


def test_a_film_is_plain_data_that_tells_the_whole_story():
    engine = LLMEngine(EngineConfig(num_blocks=4, block_size=4), AuditBackend(64), record=True)
    engine.add_request("a", tokens(1, 8), greedy(4))
    engine.add_request("b", tokens(21, 28), greedy(4))
    engine.step()
    engine.step()
    engine.fork("a")
    engine.abort("a")
    engine.step()
    engine.reset_prefix_cache()
    film = json.loads(json.dumps(engine.film))
    assert film.pop(0) == {
        "kind": "pool", "step": 0, "num_blocks": 4, "block_size": 4, "num_swap_blocks": 0, "kv_bytes_per_token": None,
    }  # fmt: skip
    assert [event["kind"] for event in film] == ["add", "add", "step", "step", "fork", "abort", "step", "reset"]
    assert [event["step"] for event in film] == [0, 0, 0, 1, 2, 2, 2, 3]
    assert film[3]["preempted"] == [["b", 0]]
    assert film[3]["chunks"] == [{"request_id": "a", "index": 0, "start": 8, "num_tokens": 1}]
    assert film[3]["chunk_tables"] == [[1, 2, 4]]
    assert [sequence["block_table"] for sequence in film[2]["sequences"]] == [[1, 2], [3, 4]]
    assert [event["ref_counts"] for event in film[2:]] == [
        [1, 1, 1, 1], [1, 1, 0, 1], [2, 2, 0, 2], [0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 1, 1],
    ]  # fmt: skip
    assert make_engine(4).film == []


def test_check_invariants_names_what_is_wrong():
    engine = make_engine(8)
    engine.add_request("a", tokens(1, 5), greedy(4))
    steps(engine)
    request = engine.scheduler.requests["a", 0]
    engine.kv_manager.pool.touch(request.block_table[:1])
    with pytest.raises(AssertionError, match=r"block 1 has count 2, it is held by .*'a'"):
        engine.check_invariants()
    engine.kv_manager.pool.release(request.block_table[:1])
    engine.check_invariants()
    request.num_computed_tokens += 1
    with pytest.raises(AssertionError, match="none left to compute"):
        engine.check_invariants()
    request.num_computed_tokens -= 1
    engine.scheduler.waiting.add(request)
    with pytest.raises(AssertionError, match=r"one queue.*'a'.* is in 2"):
        engine.check_invariants()


def test_the_oracle_is_the_engine_alone_in_a_huge_pool_without_caching():
    for params in (greedy(9), SamplingParams(n=3, seed=4, max_tokens=9, stop_token_ids=(5,), min_tokens=2)):
        engine = make_engine(1000, enable_prefix_caching=False, max_num_batched_tokens=10_000)
        engine.add_request("a", tokens(1, 11), params)
        assert is_cold(engine, run(engine)["a"], params)


# -- interrupts -----------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("name", ["cache_salt", "adapter"])
@pytest.mark.parametrize("value", [0, b"", [], False])
def test_names_of_another_type_are_refused(name, value):
    engine = make_engine(20)
    with pytest.raises(ValueError, match=f"{name}=.* must be a string"):
        engine.add_request("a", [1] * 9, greedy(3), **{name: value})
    assert not engine.has_unfinished_requests()


@pytest.mark.parametrize("token", [1.0, np.float64(3), True, 64, -1])
def test_a_fork_takes_a_token_of_the_vocabulary(token):
    engine = make_engine(20)
    engine.add_request("a", [1, 2, 3], greedy(5))
    engine.step()
    with pytest.raises(ValueError, match="last_token_id"):
        engine.fork("a", 0, last_token_id=token)
    assert len(run(engine)["a"].outputs) == 1


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
