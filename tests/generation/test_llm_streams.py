"""Streams of an LLM: never a word taken back, several at a time, and what ends them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from mini_engine import LLM, SamplingParams
from tests.generation.helpers import GREEDY, tokens


def test_a_stream_grows_token_by_token_and_ends_as_generate_does(llm):
    snapshots = list(llm.stream("to be", replace(GREEDY, logprobs=1)))
    assert [len(s.outputs[0].token_ids) for s in snapshots] == list(range(1, 9))
    assert [s.finished for s in snapshots] == [False] * 7 + [True]
    assert [len(s.outputs[0].logprobs) for s in snapshots] == list(range(1, 9)), "a snapshot does not grow"
    assert tokens(snapshots[-1:]) == tokens(llm.generate("to be", GREEDY))


def test_stream_checks_at_once(llm):
    with pytest.raises(ValueError, match="the prompt is empty"):
        llm.stream("")
    with pytest.raises(ValueError, match="stream takes one prompt, found 2"):
        llm.stream(["a", "b"])


def test_max_tokens_0_streams_one_finished_output(llm):
    (output,) = llm.stream("a", SamplingParams(max_tokens=0))
    assert output.finished
    assert (output.outputs[0].token_ids, output.outputs[0].finish_reason) == ([], "length")
    assert output.metrics.first_token_time is None


BRANCHES = SamplingParams(n=3, seed=3, temperature=3.0, max_tokens=4, ignore_eos=True)


def test_branches_grow_together_in_the_paged_engine(llm):
    snapshots = list(llm.stream("abc", BRANCHES))
    lengths = [[len(branch.token_ids) for branch in s.outputs] for s in snapshots]
    assert lengths == [[n, n, n] for n in (1, 2, 3, 4)]
    assert [s.finished for s in snapshots] == [False, False, False, True]


def test_branches_run_one_after_another_without_it(history):
    llm = LLM(history.loaded(), cache="contiguous")
    snapshots = list(llm.stream("abc", BRANCHES))
    assert len(snapshots) == 12
    assert [s.finished for s in snapshots] == [False] * 11 + [True]
    assert [[len(branch.token_ids) for branch in s.outputs] for s in snapshots[3:5]] == [[4, 0, 0], [4, 1, 0]]
    assert [branch.finish_reason for branch in snapshots[4].outputs] == ["length", None, None]


@pytest.mark.parametrize("n", [1, 2])
def test_streamed_text_is_never_taken_back(history, n):
    llm = LLM(history.loaded())
    free = SamplingParams(n=n, seed=1, temperature=2.0, max_tokens=50, ignore_eos=True)
    for whole in (branch.text for branch in llm.generate("abc", free)[0].outputs):
        for stop in {whole[i : i + size] for size in (2, 3, 7) for i in range(0, len(whole) - size, 6)}:
            params = SamplingParams(n=n, seed=1, temperature=2.0, max_tokens=50, ignore_eos=True, stop=stop)
            shown = [""] * n
            for snapshot in llm.stream("abc", params):
                for branch in snapshot.outputs:
                    assert branch.text.startswith(shown[branch.index])
                    assert stop not in branch.text
                    shown[branch.index] = branch.text
            assert whole[: whole.index(stop)] in shown


def test_two_streams_in_turns_share_the_engine_and_count_their_own_tokens(llm):
    alone = [tokens(llm.generate(prompt, GREEDY))[0] for prompt in ("abc", "to be")]
    first, second = llm.stream("abc", GREEDY), llm.stream("to be", GREEDY)
    seen = [[], []]
    for _ in range(8):
        seen[0].append(next(first))
        seen[1].append(next(second))
    assert [outputs[-1].outputs[0].token_ids for outputs in seen] == alone
    assert llm.last_stats.num_output_tokens == 8
    assert list(first) == list(second) == []
    assert llm.engine.stats().num_free_blocks == llm.engine.config.num_blocks


def test_a_closed_stream_gives_its_blocks_back(llm):
    stream = llm.stream("abc", GREEDY)
    next(stream), next(stream)
    stream.close()
    assert llm.last_stats.num_output_tokens == 2
    assert llm.engine.stats().num_free_blocks == llm.engine.config.num_blocks
    assert len(tokens(llm.generate("abc", GREEDY))[0]) == 8


def test_requests_of_others_are_left_alone(llm):
    """An own request added to the engine goes on while generate runs, and generate does not hand it out."""
    llm.engine.add_request("0", [1, 2, 3], replace(GREEDY, max_tokens=30))
    assert len(llm.generate(["a", "b"], GREEDY)) == 2
    outputs = []
    while llm.engine.has_unfinished_requests():
        outputs += llm.engine.step()
    assert outputs[-1].request_id == "0"
    assert outputs[-1].outputs[0].finish_reason == "length"


def test_two_threads_take_turns(llm):
    alone = [tokens(llm.generate(prompt, GREEDY))[0] for prompt in ("abc", "to be")]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(5):
            found = pool.map(lambda prompt: tokens(llm.generate(prompt, GREEDY, progress=False))[0], ("abc", "to be"))
            assert list(found) == alone


@pytest.mark.parametrize("cache", ["paged", "contiguous"])
def test_a_stream_whose_request_was_aborted_ends(history, cache):
    llm = LLM(history.loaded(), cache=cache)
    stream = llm.stream("abc", GREEDY)
    llm.engine.abort(next(stream).request_id)
    (last,) = stream
    assert last.finished
    assert last.outputs[0].finish_reason == "abort"


def test_a_stream_whose_outputs_others_took_says_so(llm):
    stream = llm.stream("abc", GREEDY)
    next(stream)
    while llm.engine.has_unfinished_requests():
        llm.engine.step()
    with pytest.raises(RuntimeError, match="somebody who stepped the engine"):
        list(stream)
