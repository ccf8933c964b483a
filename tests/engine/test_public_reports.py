"""Bugs that were reported against other engines, as small scenarios for a whole engine over the audit backend.

Unless a test says otherwise: block size 4, greedy, [1..9] means tokens 1 to 9, "cold" is the same request alone without
any cache. Every plan and every step is checked against the invariants. Reports that lie in the cache alone are in
tests/cache. Long because it is a list: each report is a story of its own.

Not here, because the feature is not in the engine: prompt log-probabilities (vllm #3251, #8268, #13105), requests that
wait for K/V to be loaded from elsewhere (vllm #53130), sliding-window block tables (vllm #1556), eager copies at fork
(transformers #46117), echo of the prompt (vllm #6521).
"""

from __future__ import annotations

import pytest

from mini_engine.backends import AuditBackend
from mini_engine.sampling import SamplingParams
from mini_engine.scheduling import Request, RequestStatus, SampledToken
from tests.engine.helpers import chunks, greedy, is_cold, make_engine, run, steps, tokens

# -- publish, match, evict ---------------------------------------------------------------------------------------------


def test_a_prompt_is_hit_as_soon_as_its_prefill_is_done_vllm_7619():
    """vllm #7619/#7822: blocks were marked computed too late to be of use."""
    engine = make_engine(8)
    engine.add_request("a", tokens(1, 9), greedy(8))
    steps(engine)  # a has its first token and goes on
    engine.add_request("b", tokens(1, 9), greedy(3))
    outputs = run(engine)
    assert outputs["b"].num_cached_tokens == 8
    assert chunks(engine, "b")[0] == (8, 1)
    assert is_cold(engine, outputs["b"], greedy(3))


def test_a_prompt_is_not_hit_while_its_prefill_is_planned():
    """The same prompt twice in one step: neither may read what the other is about to write."""
    engine = make_engine(8)
    for name in ("a", "b"):
        engine.add_request(name, tokens(1, 9), greedy(3))
    outputs = run(engine)
    assert [outputs[name].num_cached_tokens for name in ("a", "b")] == [0, 0]
    assert all(is_cold(engine, output, greedy(3)) for output in outputs.values())


def test_evicted_blocks_are_recomputed_vllm_5364():
    """vllm #4761/#4764, #5364: blocks taken by the evictor stayed findable, or were taken for computed."""
    engine = make_engine(2)
    for first in (1, 11, 1):
        engine.add_request("r", tokens(first, first + 7), greedy(1))
        assert run(engine)["r"].num_cached_tokens == 0
    assert engine.stats().num_prefill_tokens == 24


def test_never_used_blocks_go_first_vllm_42948():
    """vllm #42948/#43447: cached blocks were consumed while never-used ones existed."""
    engine = make_engine(4)
    for name, first in (("a", 1), ("b", 11)):
        engine.add_request(name, tokens(first, first + 7), greedy(1))
        run(engine)
    engine.add_request("c", tokens(1, 9), greedy(1))
    assert run(engine)["c"].num_cached_tokens == 8


def test_the_match_is_made_at_admission_vllm_17305():
    """vllm #17305: the number of cached tokens noted while waiting was stale at admission."""
    engine = make_engine(4, max_num_seqs=1)
    engine.add_request("a", tokens(1, 8), greedy(1))
    run(engine)
    engine.add_request("other", tokens(21, 36), greedy(1))  # takes the whole pool before w starts
    engine.add_request("w", tokens(1, 9), greedy(2))
    outputs = run(engine)
    assert outputs["w"].num_cached_tokens == 0
    assert chunks(engine, "w")[0] == (0, 9)
    assert is_cold(engine, outputs["w"], greedy(2))


def test_a_resumed_chunk_is_sized_after_the_match_nano_vllm_211():
    """nano-vllm #211: after a preemption the chunk was sized before the hits were known."""
    engine = make_engine(6)
    engine.add_request("a", tokens(1, 8), greedy(10))
    engine.add_request("b", tokens(31, 38), greedy(10))
    outputs = run(engine)
    assert engine.stats().num_preemptions >= 1
    resumed = [start for start, num_tokens in chunks(engine, "b") if num_tokens > 1 or start == 8]
    assert len(resumed) > 1
    assert resumed[1] >= 8  # the prompt's blocks were still cached
    assert all(is_cold(engine, output, greedy(10)) for output in outputs.values())


def test_nothing_counts_after_the_first_miss_inference_sim_705():
    """llm-d-inference-sim #705: hits were counted beyond a miss."""
    engine = make_engine(4)
    engine.add_request("a", tokens(1, 12), greedy(1))
    run(engine)
    kv = engine.kv_manager
    kv.pool.evict(next(block for block in kv.index.blocks() if kv.index.history(block) == tokens(1, 4)))
    engine.add_request("b", tokens(1, 13), greedy(1))
    assert run(engine)["b"].num_cached_tokens == 0


@pytest.mark.parametrize("length", [4, 5, 7, 8, 9])
def test_a_full_hit_leaves_a_token_to_compute_vllm_9972(length):
    """vllm #9972, #53706, nano-vllm #144: a fully cached prompt left no query token."""
    engine = make_engine(8)
    for name in ("a", "b"):
        engine.add_request(name, tokens(1, length), greedy(3))
        output = run(engine)[name]
        assert is_cold(engine, output, greedy(3))
    cached = (length - 1) // 4 * 4
    assert output.num_cached_tokens == cached
    assert chunks(engine, "b")[0] == (cached, length - cached)


def test_hits_and_misses_share_a_step_vllm_7018():
    """vllm #7018, #7003, #6833: rows without a hit used an empty block table; ferrox #37: hits restarted at position 0."""
    engine = make_engine(16)
    engine.add_request("warm", tokens(1, 8), greedy(1))
    run(engine)
    engine.add_request("hit", tokens(1, 10), greedy(4))
    engine.add_request("miss", tokens(21, 27), greedy(4))
    outputs = run(engine)
    assert outputs["hit"].num_cached_tokens == 8
    assert chunks(engine, "hit")[0] == (8, 2)
    assert chunks(engine, "miss")[0] == (0, 7)
    assert all(is_cold(engine, output, greedy(4)) for output in outputs.values())


def test_a_shorter_prefix_of_a_longer_entry_is_not_read_past_its_end_vllm_mlx_385():
    """vllm-mlx #385: an entry trimmed by offset only left a stale tail behind the reused prefix."""
    engine = make_engine(8)
    engine.add_request("long", tokens(1, 16), greedy(4))
    run(engine)
    prompt = [*tokens(1, 8), 40, 41]
    engine.add_request("short", prompt, greedy(8))
    output = run(engine)["short"]
    assert output.num_cached_tokens == 8
    assert is_cold(engine, output, greedy(8))


def test_reset_waits_until_nothing_is_in_use_vllm_9744():
    """vllm #9744, PR #12284, lmdeploy #4917: K/V of old weights was reused."""
    engine = make_engine(8)
    engine.add_request("a", tokens(1, 9), greedy(4))
    steps(engine)
    assert engine.reset_prefix_cache() is False
    run(engine)
    assert engine.reset_prefix_cache() is True
    engine.add_request("b", tokens(1, 9), greedy(1))
    assert run(engine)["b"].num_cached_tokens == 0


def test_the_index_does_not_outgrow_the_pool_nanovllm_voxcpm_62():
    """nanovllm-voxcpm #62: the hash map grew without bound."""
    engine = make_engine(3)
    for first in range(200):
        engine.add_request("r", [first % 64, first // 64, 1, 2, 3], greedy(1))
        run(engine)
        assert len(engine.kv_manager.index.blocks()) <= 3


# -- ownership ---------------------------------------------------------------------------------------------------------


STATES = ["waiting", "mid-prefill", "decoding", "preempted", "swapped"]


@pytest.mark.parametrize("state", STATES)
def test_an_abort_in_any_state_frees_everything_vllm_46283(state):
    """vllm #46283, vllm-ascend #16662: blocks leaked for ever when a request was aborted at the wrong moment."""
    swap = {"preemption": "swap", "num_swap_blocks": 8} if state == "swapped" else {}
    engine = make_engine(6, max_num_batched_tokens=8, **swap)
    engine.add_request("a", tokens(1, 8), greedy(12))
    if state in ("preempted", "swapped"):
        engine.add_request("victim", tokens(31, 38), greedy(12))
        wanted = RequestStatus.SWAPPED if state == "swapped" else RequestStatus.PREEMPTED
        while engine.scheduler.requests["victim", 0].status is not wanted:
            steps(engine)
    else:
        engine.add_request("victim", tokens(31, 42), greedy(12))
        steps(engine, {"waiting": 0, "mid-prefill": 2, "decoding": 5}[state])
    assert engine.abort("victim") is True
    assert engine.abort("victim") is False
    engine.check_invariants()
    outputs = run(engine)
    assert outputs["victim"].outputs[0].finish_reason == "abort"
    assert is_cold(engine, outputs["a"], greedy(12))


def test_an_abort_mid_prefill_lets_the_next_run_sglang_38981():
    """sglang #38981, #36926: an abort during a chunked prefill killed the scheduler or leaked."""
    engine = make_engine(4, max_num_batched_tokens=4)
    engine.add_request("a", tokens(1, 12), greedy(4))
    engine.add_request("b", tokens(21, 29), greedy(4))
    steps(engine)
    assert chunks(engine, "a") == [(0, 4)]
    engine.abort("a")
    assert is_cold(engine, run(engine)["b"], greedy(4))


def test_unaligned_chunks_leave_no_page_behind_sglang_jax_1000():
    """sglang-jax #1000, sglang #140, #6888, #11970: a partly filled page leaked with the next chunk."""
    engine = make_engine(8, max_num_batched_tokens=6)
    engine.add_request("a", tokens(1, 16), greedy(3))
    for computed in (6, 12, 16, 17, 18):
        steps(engine)
        if ("a", 0) in engine.scheduler.requests:
            assert engine.stats().num_free_blocks == 8 - -(-computed // 4)
    assert engine.stats().num_free_blocks == 8


def test_twins_stay_while_tables_name_them_mini_sglang_142():
    """mini-sglang #142, #149: the second copy of a prefix was freed while its page table still pointed at it."""
    for index in ("hash", "radix"):
        engine = make_engine(12, prefix_index=index)
        for name in ("a", "b"):
            engine.add_request(name, tokens(1, 8), greedy(6))
        steps(engine)
        engine.add_request("c", tokens(31, 44), greedy(6))
        outputs = run(engine)
        assert all(is_cold(engine, output, greedy(6)) for output in outputs.values())


def test_a_second_request_under_a_live_id_is_refused_vllm_10583():
    """vllm #10583/#15041: a duplicate request id broke the first request's state."""
    engine = make_engine(8)
    engine.add_request("r", tokens(1, 5), greedy(4))
    steps(engine)
    with pytest.raises(ValueError, match="'r' is in use"):
        engine.add_request("r", tokens(11, 15), greedy(4))
    assert is_cold(engine, run(engine)["r"], greedy(4))
    engine.add_request("r", tokens(11, 15), greedy(4))  # finished: the id is free again
    assert is_cold(engine, run(engine)["r"], greedy(4))


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_a_resumed_table_holds_only_its_own_blocks_vllm_rbln_676(preemption):
    """vllm-rbln #676, vllm #46595: freed block ids were emitted again after a resume; runner and manager disagreed."""
    swap = {"preemption": "swap", "num_swap_blocks": 8} if preemption == "swap" else {}
    engine = make_engine(6, **swap)
    seen = []
    build = engine._batches.build

    def record(plan, requests):
        batch = build(plan, requests)
        for row, chunk in enumerate(plan.chunks):
            table = requests[chunk.request_id, chunk.index].block_table
            assert batch.block_tables[row, : len(table)].tolist() == table
            assert not batch.block_tables[row, len(table) :].any()
            seen.append(chunk.request_id)
        return batch

    engine._batches.build = record
    for name, first in (("a", 1), ("b", 21), ("c", 41)):
        engine.add_request(name, tokens(first, first + 6), greedy(12))
    outputs = run(engine)
    assert engine.stats().num_preemptions > 0
    assert set(seen) == {"a", "b", "c"}
    assert all(is_cold(engine, output, greedy(12)) for output in outputs.values())


def test_a_late_result_of_an_aborted_request_is_ignored_vllm_42157():
    """vllm #42157: KeyError when a request was aborted between schedule and update."""
    engine = make_engine(8)
    for name, first in (("a", 1), ("b", 21)):
        engine.add_request(name, tokens(first, first + 4), greedy(4))
    scheduler = engine.scheduler
    plan = scheduler.schedule()
    scheduler.finish(scheduler.requests["a", 0], "abort")
    changed = scheduler.commit(plan, {("a", 0): SampledToken(7), ("b", 0): SampledToken(8)})
    assert [request.request_id for request in changed] == ["b"]
    assert scheduler.requests["b", 0].token_ids[-1] == 8


def test_a_late_result_does_not_reach_a_new_request_of_the_same_name():
    engine = make_engine(8)
    engine.add_request("a", tokens(1, 5), greedy(4))
    scheduler = engine.scheduler
    plan = scheduler.schedule()
    scheduler.finish(scheduler.requests["a", 0], "abort")
    scheduler.add_request(Request("a", tokens(11, 15), 4))
    assert scheduler.commit(plan, {("a", 0): SampledToken(7)}) == []
    assert scheduler.requests["a", 0].token_ids == tokens(11, 15)
    assert scheduler.requests["a", 0].num_computed_tokens == 0


# -- scheduling --------------------------------------------------------------------------------------------------------


def test_a_prompt_that_can_never_fit_is_refused_vllm_39734():
    """vllm #39734, #35541, #2163, vllm-rbln #957: a prompt longer than the pool waited for ever and blocked all."""
    engine = make_engine(2)
    before = engine.stats()
    with pytest.raises(ValueError, match="20 tokens and needs 5 blocks, num_blocks is 2"):
        engine.add_request("long", tokens(1, 20), greedy(1))
    assert engine.stats() == before
    engine.add_request("short", tokens(1, 2), greedy(2))
    assert is_cold(engine, run(engine)["short"], greedy(2))


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_a_lone_sequence_that_outgrows_the_pool_ends_with_capacity_nano_vllm_274(preemption):
    """nano-vllm #274/#277: a lone sequence that outgrew the pool crashed the engine, or hung it."""
    swap = {"preemption": "swap", "num_swap_blocks": 1} if preemption == "swap" else {}
    engine = make_engine(2, **swap)
    engine.add_request("big", tokens(1, 8), greedy(4))
    engine.add_request("next", tokens(21, 24), greedy(4))
    outputs = run(engine)
    assert outputs["big"].outputs[0].finish_reason == "capacity"
    assert len(outputs["big"].outputs[0].token_ids) == 1  # kept: it was computed from a full pool
    assert is_cold(engine, outputs["next"], greedy(4))


def test_the_head_of_the_line_is_not_overtaken_vllm_31731():
    """vllm #31731/#35852: head-of-line blocking. It is the policy here: a request that fits waits behind one that does not."""
    engine = make_engine(4)
    engine.add_request("running", tokens(1, 8), greedy(6))
    steps(engine)
    engine.add_request("head", tokens(21, 32), greedy(1))
    engine.add_request("follower", tokens(41, 44), greedy(1))
    steps(engine)
    assert [request.request_id for request in engine.scheduler.running] == ["running"]
    outputs = run(engine)
    first = {name: next(i for i, plan in enumerate(engine.scheduler.plans) if name in str(plan)) for name in outputs}
    assert first["running"] < first["head"] <= first["follower"]


@pytest.mark.parametrize("policy", ["fcfs", "priority", "shortest_first"])
@pytest.mark.parametrize("admission", ["first_chunk", "whole_prompt"])
def test_two_that_fit_only_alone_both_get_through_inference_sim_1087(policy, admission):
    """inference-sim #1087/#1090, #963: two requests preempted each other for ever."""
    engine = make_engine(5, policy=policy, admission=admission)
    engine.add_request("a", tokens(1, 8), greedy(11))
    engine.add_request("b", tokens(21, 28), greedy(11))
    outputs = run(engine, most=100)
    assert all(is_cold(engine, output, greedy(11)) for output in outputs.values())


def test_the_preempted_resume_before_the_unstarted_vllm_41951():
    """vllm #41951: a preempted request was overtaken by one of the same priority that had never started."""
    for policy in ("fcfs", "priority", "shortest_first"):
        engine = make_engine(5, policy=policy)
        engine.add_request("x", tokens(1, 8), greedy(12))
        engine.add_request("a", tokens(21, 29), greedy(8))
        while engine.stats().num_preemptions == 0:
            steps(engine)
        engine.add_request("b", tokens(41, 44), greedy(4))
        plans = engine.scheduler.plans
        since = len(plans)
        run(engine)
        order = [chunk.request_id for plan in plans[since:] for chunk in plan.chunks]
        assert order.index("a") < order.index("b")


def test_a_preempted_request_leaves_the_running_vllm_fork_2247():
    """HabanaAI vllm-fork #2247: preempted sequences stayed in the running list, and the engine hung."""
    engine = make_engine(5)
    engine.add_request("x", tokens(1, 8), greedy(12))
    engine.add_request("a", tokens(21, 28), greedy(8))
    while not (preempted := engine.scheduler.plans and engine.scheduler.plans[-1].preempted):
        steps(engine)
    assert preempted == (("a", 0),)
    assert [request.request_id for request in engine.scheduler.running] == ["x"]
    assert [request.request_id for request in engine.scheduler.waiting] == ["a"]
    run(engine)


def test_lengths_alone_preempt_nobody_mistral_rs_2031():
    """mistral.rs #2031: sequences were preempted only because their lengths differed."""
    engine = make_engine(64)
    for length in (1, 3, 9, 14, 22):
        engine.add_request(f"r{length}", tokens(1, length), greedy(length))
    run(engine)
    assert engine.stats().num_preemptions == 0


def test_a_stream_of_prompts_never_holds_up_a_decode_sglang_32549():
    """sglang #32549: prefill-first scheduling starved decodes."""
    engine = make_engine(256, max_num_batched_tokens=16)
    engine.add_request("decode", tokens(1, 4), greedy(30))
    steps(engine)
    for number in range(29):
        engine.add_request(f"prompt{number}", tokens(1, 40)[:: 1 + number % 2], greedy(2))
        steps(engine)
        assert ("decode", 0) in {chunk[:2] for chunk in engine.scheduler.plans[-1].chunks}
    run(engine)


def test_a_long_prompt_in_front_never_holds_up_a_decode():
    """The same with priorities: the more important prompt is served first, and leaves a token for everybody."""
    engine = make_engine(256, max_num_batched_tokens=8, policy="priority")
    engine.add_request("decode", tokens(1, 4), greedy(12), priority=1)
    steps(engine)
    engine.add_request("urgent", tokens(1, 60), greedy(2), priority=0)
    for _ in range(8):
        steps(engine)
        assert [chunk[0] for chunk in engine.scheduler.plans[-1].chunks][-1:] != []
        assert ("decode", 0) in {chunk[:2] for chunk in engine.scheduler.plans[-1].chunks}
    run(engine)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_token_is_lost_or_doubled_by_a_preemption_vllm_38624(temperature):
    """vllm #38624, #42117: a token in flight was duplicated or lost across a preemption."""
    params = SamplingParams(temperature=temperature, seed=7, max_tokens=10)
    outputs = []
    for num_blocks in (6, 100):
        engine = make_engine(num_blocks)
        for name, first in (("a", 1), ("b", 21), ("c", 41)):
            engine.add_request(name, tokens(first, first + 6), params)
        done = run(engine)
        outputs.append({name: done[name].outputs[0].token_ids for name in done})
        assert (engine.stats().num_preemptions > 0) == (num_blocks == 6)
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("length", [7, 8, 9, 11, 12, 13])
@pytest.mark.parametrize("caching", [True, False])
def test_a_preemption_at_a_block_edge_changes_nothing_nano_vllm_217(length, caching):
    """nano-vllm #217: a re-prefill of one token more than a block dropped that token."""
    engine = make_engine(8, enable_prefix_caching=caching)
    engine.add_request("a", tokens(1, length), greedy(8))
    steps(engine)
    for _ in range(5):
        scheduler = engine.scheduler
        scheduler._requeue(scheduler.requests["a", 0], RequestStatus.PREEMPTED)
        steps(engine)
    assert is_cold(engine, run(engine)["a"], greedy(8))


def test_a_full_swap_space_falls_back_to_recompute_vllm_5578():
    """vllm #5578, #546: requests with n >= 2 filled the swap space, and the engine stalled."""
    params = SamplingParams(n=3, seed=1, max_tokens=12)
    engine = make_engine(8, preemption="swap", num_swap_blocks=3)
    for name, first in (("a", 1), ("b", 31)):
        engine.add_request(name, tokens(first, first + 8), params)
    outputs = run(engine)
    stats = engine.stats()
    assert 0 < stats.num_swapped_out_blocks < stats.num_preemptions * 3  # some were swapped, some were not
    assert all(is_cold(engine, output, params) for output in outputs.values())


def test_swapped_blocks_come_back_as_they_left_vllm_45704():
    """vllm #45704, #31210, #29781: the source blocks were overwritten before the copy to the host had read them."""
    engine = make_engine(6, preemption="swap", num_swap_blocks=8)
    engine.add_request("a", tokens(1, 8), greedy(12))
    engine.add_request("b", tokens(31, 38), greedy(12))
    outputs = run(engine)
    reused = [
        plan
        for plan in engine.scheduler.plans
        if any(op.kind == "swap_out" for op in plan.cache_ops) and any(chunk.request_id == "a" for chunk in plan.chunks)
    ]
    assert reused  # a wrote in the step in which b left
    stats = engine.stats()
    assert stats.num_swapped_in_blocks == stats.num_swapped_out_blocks > 0
    assert all(is_cold(engine, output, greedy(12)) for output in outputs.values())


def test_a_chunked_prefill_advances_without_a_cache_sglang_36855():
    """sglang #36855: with caching off the progress of a chunked prefill was lost: livelock, then out of memory."""
    engine = make_engine(4, enable_prefix_caching=False, max_num_batched_tokens=4)
    engine.add_request("a", tokens(1, 12), greedy(2))
    for computed in (4, 8, 12):
        steps(engine)
        assert engine.scheduler.requests["a", 0].num_computed_tokens == computed
    run(engine)


def test_losing_the_last_running_request_is_no_crash_sglang_19881():
    """sglang #19881: retracting the only running request raised."""
    engine = make_engine(1, block_size=2, enable_prefix_caching=False, max_num_batched_tokens=1)
    engine.add_request("a", [1, 2], greedy(5))
    output = run(engine)["a"].outputs[0]
    assert (len(output.token_ids), output.finish_reason) == (1, "capacity")


# -- edge parameters ---------------------------------------------------------------------------------------------------


def test_an_empty_prompt_is_refused_vllm_7283():
    """vllm #7283, #7632: an empty prompt killed the engine."""
    engine = make_engine(4)
    with pytest.raises(ValueError, match="prompt is empty"):
        engine.add_request("a", [], greedy(1))
    assert engine.step() == []


@pytest.mark.parametrize("n", [1, 3])
def test_no_tokens_asked_none_given_nano_vllm(n):
    """nano-vllm compares with ==, so max_tokens=0 never ends."""
    engine = make_engine(1, max_num_seqs=3)
    engine.add_request("blocker", tokens(1, 4), greedy(1))
    engine.add_request("a", tokens(1, 4), SamplingParams(n=n, max_tokens=0))
    (output,) = [output for output in steps(engine) if output.request_id == "a"]  # in the next step, past who waits
    assert output.finished
    assert [(completion.token_ids, completion.finish_reason) for completion in output.outputs] == [([], "length")] * n
    assert chunks(engine, "a") == []
    run(engine)


def test_a_prompt_of_the_full_context_gives_nothing_and_a_longer_one_is_refused_vllm_16445():
    """vllm #16445: a prompt as long as the context."""
    engine = make_engine(8, max_model_len=8)
    with pytest.raises(ValueError, match="9 tokens, max_model_len is 8"):
        engine.add_request("a", tokens(1, 9), greedy(1))
    engine.add_request("a", tokens(1, 8), greedy(5))
    engine.add_request("b", tokens(1, 7), greedy(5))
    outputs = run(engine)
    assert (outputs["a"].outputs[0].token_ids, outputs["a"].outputs[0].finish_reason) == ([], "length")
    assert (len(outputs["b"].outputs[0].token_ids), outputs["b"].outputs[0].finish_reason) == (1, "length")


@pytest.mark.parametrize("min_tokens", range(6))
def test_min_tokens_is_exact_vllm_5849(min_tokens):
    """vllm #5849, #46243: min_tokens was off by one."""
    prompt = tokens(1, 5)
    free = make_engine(8)
    free.add_request("a", prompt, greedy(8))
    said = run(free)["a"].outputs[0].token_ids
    stop = said[3]  # the fourth token, and nowhere before
    assert said.index(stop) == 3
    engine = make_engine(8)
    params = greedy(8, stop_token_ids=(stop,), min_tokens=min_tokens)
    engine.add_request("a", prompt, params)
    output = run(engine)["a"]
    assert is_cold(engine, output, params)
    completion = output.outputs[0]
    if min_tokens <= 3:
        assert (completion.token_ids, completion.finish_reason) == (said[:4], "stop")
    else:
        assert completion.token_ids[:3] == said[:3]
        assert stop not in completion.token_ids[:min_tokens]


def test_ignore_eos_keeps_stop_ids_tenstorrent_349():
    """vllm #4589, tenstorrent/vllm #349: ignore_eos and stop_token_ids are different things."""
    prompt = tokens(1, 5)
    free = make_engine(8)
    free.add_request("a", prompt, greedy(8))
    said = run(free)["a"].outputs[0].token_ids
    eos, stop = said[1], said[4]
    assert said.index(stop) == 4
    for ignore, ids, length in ((False, (stop,), 2), (True, (stop,), 5), (True, (), 8), (False, (), 2)):
        engine = make_engine(8, backend=AuditBackend(64, eos_token_ids=(eos,)))
        engine.add_request("a", prompt, greedy(8, ignore_eos=ignore, stop_token_ids=ids))
        assert run(engine)["a"].outputs[0].token_ids == said[:length]


def test_every_branch_ends_once_vllm_10980():
    """vllm #10980: with n > 1, branches that had finished were emitted again."""
    params = SamplingParams(n=3, seed=5, max_tokens=12, stop_token_ids=tuple(range(0, 64, 6)))
    engine = make_engine(32)
    engine.add_request("a", tokens(1, 6), params)
    finals, ends = 0, {}
    for step in range(100):
        if not engine.has_unfinished_requests():
            break
        for output in steps(engine):
            finals += output.finished
            for completion in output.outputs:
                if completion.finished:
                    assert ends.setdefault(completion.index, (step, completion.token_ids)) == (
                        ends[completion.index][0],
                        completion.token_ids,
                    )
    assert finals == 1
    assert len({step for step, _ in ends.values()}) > 1  # they did end at different steps
    assert is_cold(engine, output, params)
