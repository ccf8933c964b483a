"""LLM: prompts in every form, one output each, and errors that change nothing."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest

import mini_engine
from mini_engine import LLM, SamplingParams
from mini_engine.generation import GenerationStats
from tests.generation.helpers import GREEDY, tokens

# -- prompts --------------------------------------------------------------------------------------------------------------


def test_prompts_in_every_form(llm, history):
    ids = history.tokenizer.encode("to be")
    expected = history.continuation(ids, 8)
    for one in ("to be", ["to be"], ids, [ids], tuple(ids), np.array(ids), np.array([ids]), [np.array(ids)]):
        (output,) = llm.generate(one, GREEDY)
        assert output.prompt_token_ids == ids
        assert output.outputs[0].token_ids == expected
        assert output.prompt == ("to be" if isinstance(one, str) or isinstance(one[0], str) else None)
        assert all(type(token) is int for token in output.prompt_token_ids)


def test_several_prompts_keep_their_order_and_get_their_own_parameters(llm, history):
    prompts = ["a", [1, 2, 3], "or not"]
    params = [SamplingParams(temperature=0, max_tokens=m, ignore_eos=True) for m in (3, 0, 5)]
    outputs = llm.generate(prompts, params)
    assert [len(t) for t in tokens(outputs)] == [3, 0, 5]
    assert tokens(outputs)[2] == history.continuation(history.tokenizer.encode("or not"), 5)
    assert len({output.request_id for output in outputs}) == 3
    assert all(output.finished for output in outputs)
    assert tokens(llm.generate(prompts, params)) == tokens(outputs)


def test_no_prompts_give_no_outputs(llm):
    assert llm.generate([]) == []


def test_default_parameters_are_those_of_sampling_params(llm):
    (output,) = llm.generate("a")
    assert 1 <= len(output.outputs[0].token_ids) <= SamplingParams().max_tokens


@pytest.mark.parametrize(
    ("prompts", "params", "message"),
    [
        ("", None, "the prompt is empty"),
        (["a", ""], None, "prompt 1: the prompt is empty"),
        ([[]], None, "the prompt is empty"),
        ([[1], [99]], None, "prompt 1: prompt token 99 is outside the vocabulary"),
        ([[0] * 65], None, "the prompt has 65 tokens"),
        ([[1.5]], None, "list of integer token ids"),
        (7, None, "found 7"),
        (None, None, "found None"),
        (b"bytes", None, "found b'bytes'"),
        ([b"bytes"], None, "found b'bytes'"),
        ([[1], None], None, "list of integer token ids"),
        (["a", "b"], [GREEDY], "1 sampling_params for 2 prompts"),
        ("a", [], "0 sampling_params for 1 prompts"),
        ("a", {"temperature": 0}, "sampling_params are SamplingParams, found"),
        ("a", SamplingParams(stop_token_ids=(32,)), "stop_token_ids 32 is outside"),
    ],
)
def test_bad_requests_are_refused_before_anything_is_generated(llm, prompts, params, message):
    llm.generate("a", GREEDY)
    stats, calls = llm.last_stats, len(llm.model.calls)
    with pytest.raises(ValueError, match=message):
        llm.generate(prompts, params)
    assert len(llm.model.calls) == calls
    assert llm.last_stats is stats
    assert llm.generate("a", GREEDY)[0].outputs[0].token_ids


def test_without_a_tokenizer_token_ids_still_work(history):
    llm = LLM(history.loaded(tokenizer=False))
    (output,) = llm.generate([1, 2], GREEDY)
    assert output.outputs[0].token_ids == history.continuation([1, 2], 8)
    assert output.outputs[0].text == ""
    with pytest.raises(ValueError, match="a text prompt needs a tokenizer"):
        llm.generate("a")
    with pytest.raises(ValueError, match="stop strings need a tokenizer"):
        llm.generate([1], SamplingParams(stop="x"))
    with pytest.raises(ValueError, match="chat needs a tokenizer"):
        llm.chat([{"role": "user", "content": "a"}])


# -- options --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "jax"}, "backend='jax': must be one of torch, numpy, triton"),
        ({"cache": "ring"}, "cache='ring': must be one of paged, contiguous, none"),
        ({"attention": 3}, "attention=3: must be a function"),
        ({"device": "cpu"}, "give them to load_model"),
    ],
)
def test_unknown_options_name_the_known_ones(history, options, message):
    with pytest.raises(ValueError, match=message):
        LLM(history.loaded(), **options)


def test_every_cache_gives_the_same_tokens_at_its_own_price(history):
    cached, uncached = LLM(history.loaded()), LLM(history.loaded(), cache="none")
    assert tokens(cached.generate("abc", GREEDY)) == tokens(uncached.generate("abc", GREEDY))
    assert cached.last_stats.num_forward_tokens == 3 + 8 - 1
    assert uncached.last_stats.num_forward_tokens == 8 * 3 + 8 * 7 // 2


def test_stats_add_up_over_the_prompts_of_one_call(llm):
    llm.generate(["a", "abcd"], GREEDY)
    assert (llm.last_stats.num_prompt_tokens, llm.last_stats.num_output_tokens) == (5, 16)
    llm.generate("a", SamplingParams(max_tokens=0))
    assert llm.last_stats == GenerationStats()


# -- branches -------------------------------------------------------------------------------------------------------------


def test_branches_differ_and_the_first_is_that_of_n_1(llm):
    def run(n):
        params = SamplingParams(n=n, seed=3, temperature=3.0, max_tokens=12, ignore_eos=True)
        (output,) = llm.generate("abc", params)
        assert [branch.index for branch in output.outputs] == list(range(n))
        return [branch.token_ids for branch in output.outputs]

    three = run(3)
    assert len({tuple(branch) for branch in three}) == 3
    assert run(1) == three[:1]
    assert run(3) == three


def test_without_a_seed_two_runs_differ(llm):
    params = SamplingParams(temperature=3.0, max_tokens=30, ignore_eos=True)
    assert tokens(llm.generate("abc", params)) != tokens(llm.generate("abc", params))


# -- streams --------------------------------------------------------------------------------------------------------------


def test_a_stop_string_ends_the_text_and_the_tokens(llm, history):
    (free,) = llm.generate("abc", SamplingParams(temperature=0, max_tokens=40, ignore_eos=True))
    whole = free.outputs[0]
    stop = whole.text[4:7]
    (output,) = llm.generate("abc", SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, stop=(stop,)))
    cut = output.outputs[0]
    assert (cut.text, cut.finish_reason) == (whole.text[: whole.text.index(stop)], "stop")
    assert cut.token_ids == whole.token_ids[: len(cut.token_ids)]
    assert stop in history.tokenizer.decode(cut.token_ids)
    assert stop not in history.tokenizer.decode(cut.token_ids[:-1])


def test_a_stop_token_is_in_the_tokens_and_not_in_the_text(llm, history):
    expected = history.continuation(history.tokenizer.encode("abc"), 8)
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, stop_token_ids=(expected[3],))
    branch = llm.generate("abc", params)[0].outputs[0]
    at = expected.index(expected[3])
    assert branch.token_ids == expected[: at + 1]
    assert branch.text == history.tokenizer.decode(expected[:at])


@pytest.mark.parametrize("cache", ["paged", "contiguous"])
def test_times_are_in_order(history, cache):
    llm = LLM(history.loaded(), cache=cache)
    params = SamplingParams(n=2, temperature=0, max_tokens=8, ignore_eos=True)
    first, second = (output.metrics for output in llm.generate(["abc", "d"], params))
    for metrics in (first, second):
        assert metrics.arrival_time <= metrics.scheduled_time <= metrics.first_token_time <= metrics.finish_time
        assert len(metrics.token_times) == 8, "those of the first branch"
        assert metrics.token_times == sorted(metrics.token_times)
        assert metrics.first_token_time == metrics.token_times[0]
    if cache == "paged":
        assert second.scheduled_time < first.first_token_time, "both prompts are computed in the same step"
    else:
        assert first.finish_time <= second.scheduled_time, "the second waits in the queue for the first"


def test_progress_shows_on_a_terminal_only(llm, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for screen, progress, shown in ((Terminal(), True, True), (Terminal(), False, False), (io.StringIO(), True, False)):
        monkeypatch.setattr(sys, "stderr", screen)
        llm.generate(["a", "b"], GREEDY, progress=progress)
        assert ("2/2" in screen.getvalue()) == shown
        assert ("output tok/s" in screen.getvalue()) == shown


# -- chat -----------------------------------------------------------------------------------------------------------------


def test_chat_goes_through_the_template(llm, history):
    (output,) = llm.chat([{"role": "user", "content": "hi"}], GREEDY)
    assert output.prompt_token_ids == history.tokenizer.encode("u hi.")


def test_a_first_token_is_added_to_plain_text_and_not_to_a_template(llm):
    llm.tokenizer.bos = (30,)
    assert llm.generate("hi", GREEDY)[0].prompt_token_ids[0] == 30
    assert 30 not in llm.chat([{"role": "user", "content": "hi"}], GREEDY)[0].prompt_token_ids


# -- the package ------------------------------------------------------------------------------------------------------------


def test_public_names_are_where_the_package_says():
    for name in mini_engine.__all__:
        assert getattr(mini_engine, name) is not None
    assert set(mini_engine.__all__) <= set(dir(mini_engine))
    with pytest.raises(AttributeError, match="no attribute 'LLMM'"):
        _ = mini_engine.LLMM


@pytest.mark.parametrize("cache", ["paged", "contiguous", "none"])
def test_generating_on_numpy_never_imports_torch(cache):
    code = (
        "import sys; from mini_engine import LLM, SamplingParams; "
        f"llm = LLM('tiny-gqa', backend='numpy', cache={cache!r}); "
        "llm.generate(['Emma'], SamplingParams(temperature=0, max_tokens=2), progress=False); print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


# -- one engine, several callers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cache", ["paged", "contiguous"])
def test_more_branches_than_anybody_waits_for_are_refused(history, cache):
    with pytest.raises(ValueError, match=r"n=1000000000.*256"):
        LLM(history.loaded(), cache=cache).generate("a", SamplingParams(n=10**9))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"num_swap_blocks": 10**9, "preemption": "swap"},
            r"num_swap_blocks=1000000000: .* bytes of K/V, and this machine has .* at most",
        ),
        ({"num_blocks": 10**12}, r"num_blocks=1000000000000: .* bytes of K/V, and this machine has .* at most"),
        ({"num_blocks": 10, "kv_cache_bytes": 10**6}, "give one of them"),
        ({"kv_cache_bytes": 10}, "kv_cache_bytes=10: one block of 16 tokens takes"),
        ({"cache": "none", "num_blocks": 0}, "num_blocks: only cache='paged'"),
        ({"scheduler": 5}, "scheduler=5: must be a class"),
        ({"record": "x"}, "record='x': must be True or False"),
        ({"pages": 3}, "pages"),
    ],
)
def test_bad_engine_options_are_named(history, options, message):
    with pytest.raises(ValueError, match=message):
        LLM(history.loaded(), **options)


def test_something_that_is_no_model_is_refused():
    with pytest.raises(ValueError, match="model=5: must be a name, a path"):
        LLM(5)
