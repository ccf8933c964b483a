"""What may be asked of the engine: anything else is refused by name, and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from mini_engine import EngineConfig, LLMEngine, SamplingParams
from mini_engine.backends import AuditBackend
from tests.engine.helpers import greedy, make_engine, run


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
