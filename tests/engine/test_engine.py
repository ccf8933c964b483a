"""The engine's face: what comes back, to whom, and what can be looked at."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mini_engine import EngineConfig, LLMEngine, SamplingParams
from mini_engine.backends import AuditBackend
from tests.engine.helpers import Alphabet, greedy, is_cold, make_engine, run, steps, tokens
from tests.engine.oracle import cold

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
