"""Beam search against a search that knows no engine, in pools of every size; nothing may be left behind."""

from __future__ import annotations

import math
import signal

import numpy as np
import pytest

from mini_engine import LLM, SamplingParams
from mini_engine.backends import AuditBackend
from mini_engine.backends.base import BatchInput
from mini_engine.beam_search import beam_search
from tests.engine.helpers import make_engine


def audit_logprobs(tokens: list[int], vocab_size: int, seed: int) -> np.ndarray:
    """Log-probabilities after a history, by a fresh backend that computes the whole of it."""
    backend = AuditBackend(vocab_size, seed=seed)
    n = len(tokens)
    backend.init_kv(1, n)
    at = np.arange(n)
    batch = BatchInput(
        np.array(tokens),
        at,
        n + at,
        np.array([[1]], np.int32),
        np.array([n], np.int32),
        np.array([0, n]),
        np.array([n - 1]),
    )
    logits = np.asarray(backend.execute(batch).logits(0), dtype=np.float64)
    return logits - logits.max() - math.log(np.exp(logits - logits.max()).sum())


def plain_search(prompt, width, max_tokens, eos, next_logprobs):
    """The same rule, written with full histories and nothing shared."""
    live, done = [([], 0.0)], []
    for _ in range(max_tokens):
        offers = []
        for tokens, score in live:
            row = next_logprobs(prompt + tokens)
            offers += [([*tokens, int(t)], score + float(row[t])) for t in np.argsort(-row, kind="stable")[: 2 * width]]
        offers.sort(key=lambda offer: -offer[1])
        best = offers[: 2 * width]
        done += [offer for offer in best if offer[0][-1] in eos]
        live = [offer for offer in best if offer[0][-1] not in eos][:width]
    done += live
    return sorted(done, key=lambda offer: -offer[1] / len(offer[0]))[:width]


@pytest.mark.parametrize("num_blocks", [7, 9, 14, 200])
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize(("width", "eos"), [(1, ()), (2, (3,)), (4, tuple(range(0, 40, 5)))])
def test_beams_are_those_of_a_plain_search_in_any_pool(width, eos, preemption, num_blocks):
    swap = {"preemption": "swap", "num_swap_blocks": 5} if preemption == "swap" else {}
    engine = make_engine(num_blocks, 2, backend=AuditBackend(40, seed=7), max_num_seqs=width, **swap)
    prompts = [[1, 2, 3], [9]]
    found = beam_search(engine, [(str(i), p) for i, p in enumerate(prompts)], width, 9, eos)
    for prompt, completions in zip(prompts, found):
        expected = plain_search(prompt, width, 9, eos, lambda tokens: audit_logprobs(tokens, 40, 7))
        assert [c.token_ids for c in completions] == [tokens for tokens, _ in expected]
        np.testing.assert_allclose([c.cumulative_logprob for c in completions], [s for _, s in expected], rtol=1e-9)
        assert [c.finish_reason for c in completions] == ["stop" if t[-1] in eos else "length" for t, _ in expected]
    engine.check_invariants()
    assert engine.stats().num_free_blocks == num_blocks


def test_beams_share_their_common_past():
    """Four beams behind a prompt of 8 full blocks hold those blocks once."""
    engine = make_engine(64, 2, backend=AuditBackend(40, seed=7))
    most_used = 0
    step = engine.step

    def watched():
        nonlocal most_used
        outputs = step()
        most_used = max(most_used, 64 - engine.stats().num_free_blocks)
        return outputs

    engine.step = watched
    beam_search(engine, [("a", list(range(16)))], 4, 4)
    assert most_used < 8 + 4 * 3 + 1 < 4 * 10
    assert engine.stats().num_copied_blocks > 0


def test_a_lone_beam_that_outgrows_the_pool_ends_with_what_it_has():
    engine = make_engine(3, 2, backend=AuditBackend(40, seed=7))
    ((completion,),) = beam_search(engine, [("a", [1, 2, 3])], 1, 20)
    assert completion.finish_reason == "capacity"
    assert completion.token_ids == plain_search([1, 2, 3], 1, 4, (), lambda t: audit_logprobs(t, 40, 7))[0][0]
    assert engine.stats().num_free_blocks == 3


def test_llm_beam_search(tiny_gqa):
    llm = LLM(tiny_gqa, kv_cache_bytes=1 << 24)
    prompts = ["Emma was", "The young lady"]
    outputs = llm.beam_search(prompts, 3, max_tokens=8)
    for prompt, output in zip(prompts, outputs):
        assert output.finished
        assert output.prompt == prompt
        assert [c.index for c in output.outputs] == [0, 1, 2]
        assert all(llm.tokenizer.decode(c.token_ids) == c.text for c in output.outputs)
        greedy = llm.generate(prompt, progress=False)[0]
        assert greedy.prompt_token_ids == output.prompt_token_ids
    assert llm.engine.stats().num_free_blocks == llm.engine.config.num_blocks


@pytest.mark.parametrize(
    ("width", "max_tokens", "message"), [(0, 4, "beam_width=0"), (9, 4, "beam_width=9"), (2, 0, "max_tokens=0")]
)
def test_bad_searches_are_refused(tiny_gqa, width, max_tokens, message):
    llm = LLM(tiny_gqa, num_blocks=64, max_num_seqs=8)
    with pytest.raises(ValueError, match=message):
        llm.beam_search("Emma was", width, max_tokens)
    assert not llm.engine.has_unfinished_requests()
    with pytest.raises(ValueError, match="only cache='paged'"):
        LLM(tiny_gqa, cache="contiguous").beam_search("Emma was", 2)


@pytest.mark.parametrize(
    ("options", "prompt", "width", "length"),
    [
        ({"num_blocks": 4, "block_size": 2}, [1, 2], 3, 8),
        ({"num_blocks": 6, "block_size": 1}, [1, 2], 3, 10),
        (
            {"num_blocks": 12, "block_size": 1, "enable_chunked_prefill": False, "max_num_batched_tokens": 6},
            [1, 2, 3, 4],
            4,
            6,
        ),
    ],
)
def test_beams_that_the_pool_is_too_small_for_end_and_leave_nothing(tiny_gqa, options, prompt, width, length):
    llm = LLM(tiny_gqa, **options)
    (output,) = llm.beam_search(prompt, width, length)
    assert {c.finish_reason for c in output.outputs} <= {"capacity", "length", "stop"}
    assert llm.engine.stats().num_free_blocks == options["num_blocks"]
    assert not llm.engine.has_unfinished_requests() or llm.engine.step() is not None


def test_the_end_of_the_context_is_a_length(tiny_gqa):
    llm = LLM(tiny_gqa, num_blocks=64, block_size=4, max_model_len=8)
    (output,) = llm.beam_search([1, 2, 3, 4, 5], 2, 10)
    assert [c.finish_reason for c in output.outputs] == ["length", "length"]


def test_ctrl_c_right_after_queueing_leaves_nothing_behind(tiny_gqa, monkeypatch):
    llm = LLM(tiny_gqa, num_blocks=16, block_size=4)
    add = llm.engine.add_request

    def interrupted(*arguments, **options):
        add(*arguments, **options)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(llm.engine, "add_request", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.beam_search([1, 2, 3, 4, 5], 3, 50)
    assert not llm.engine.scheduler.requests
    assert llm.engine.stats().num_free_blocks == 16


def test_a_stream_goes_on_after_a_beam_search(tiny_gqa):
    llm = LLM(tiny_gqa, num_blocks=64, block_size=4)
    params = SamplingParams(temperature=0, max_tokens=6)
    expected = llm.generate([1, 2, 3], params, progress=False)[0].outputs[0].token_ids
    stream = llm.stream([1, 2, 3], params)
    next(stream)
    llm.beam_search([4, 5, 6], 2, 8)
    assert list(stream)[-1].outputs[0].token_ids == expected
