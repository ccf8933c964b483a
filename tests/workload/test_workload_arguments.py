"""Traces, profiles and generators refuse bad arguments by name, and odd files by file and line."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from mini_engine import workload
from mini_engine.workload import Profile, Trace, TraceError, TraceRequest, load_azure, load_mooncake, profiles
from mini_engine.workload.profile import from_json, to_json
from tests.bad_values import NEVER, SOMETIMES, is_refused, is_refused_or_computed

TRACE = workload.multi_turn(2, 2)
PROFILE = next(iter(profiles().values()))
REQUEST = TraceRequest(0.0, 3, 2, (1,))
SIZES = {"output_tokens": 3, "rate": 1.0, "block_tokens": 4, "seed": 0}
CALLS = {
    TraceRequest: {"arrival": 0.0, "num_prompt_tokens": 3, "num_output_tokens": 2, "hash_ids": (1,)},
    Trace: {"requests": (REQUEST,), "block_tokens": 16, "synthetic": True},
    Profile: {f.name: getattr(PROFILE, f.name) for f in dataclasses.fields(PROFILE)},
    workload.prefix_reuse: {"trace": TRACE, "capacity": 3},
    workload.summarize: {"trace": TRACE},
    workload.profile: {"trace": TRACE},
    workload.synthesize: {"profile": PROFILE, "num_requests": 3, "seed": 0},
    workload.multi_turn: SIZES
    | {"num_sessions": 2, "turns": 2, "system_tokens": 3, "user_tokens": 4, "think_time": 1.0},
    workload.shared_prefix: SIZES | {"num_requests": 2, "prefix_tokens": 4, "question_tokens": 4},
    TRACE.head: {"num_requests": 1},
    REQUEST.prompt_token_ids: {"block_tokens": 4, "vocab_size": 10},
}
FIXED = {Trace: {"name": "t"}}
ARGUMENTS = [pytest.param(f, name, id=f"{f.__name__}-{name}") for f, given in CALLS.items() for name in given]


def arguments(function):
    return FIXED.get(function, {}) | CALLS[function]


def test_every_number_of_every_function_is_on_the_list():
    for function in (workload.synthesize, workload.multi_turn, workload.shared_prefix, workload.prefix_reuse):
        assert set(CALLS[function]) == set(inspect.signature(function).parameters)


@pytest.mark.parametrize(("function", "name"), ARGUMENTS)
def test_no_workload_takes_what_is_no_number(function, name):
    texts = ("name", "attribution")
    for bad in NEVER:
        if not (name in texts and isinstance(bad, str)):
            is_refused(function, arguments(function), name, bad)


@pytest.mark.parametrize(("function", "name"), ARGUMENTS)
def test_odd_values_are_refused_or_taken(function, name):
    for value in SOMETIMES:
        is_refused_or_computed(function, arguments(function), name, value)


def test_hash_ids_must_cover_the_prompt():
    with pytest.raises(
        ValueError, match=r"requests\[0\] has 0 hash_ids for 17 prompt tokens, expected 2 of block_tokens=16"
    ):
        Trace("t", (TraceRequest(0.0, 17, 1),), 16)


def test_a_profile_names_the_field_that_is_missing_or_unknown():
    fields = to_json(PROFILE)
    assert from_json(fields) == PROFILE
    with pytest.raises(ValueError, match="rate is missing"):
        from_json({name: value for name, value in fields.items() if name != "rate"})
    with pytest.raises(ValueError, match="speed is unknown"):
        from_json(fields | {"speed": 1})


HEADER = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.mark.parametrize(
    ("load", "content", "message"),
    [
        (load_azure, HEADER + b"\xff\xfe", "not a text in UTF-8"),
        (load_azure, b"a,b\0\n", "trace:1: "),
        (load_azure, HEADER + b"2023-11-16 18:15:46.0,1\0,1\n", "trace:2: "),
        (load_azure, HEADER + b'"' + b"x" * 200_000 + b'",1,1\n', "not CSV"),
        (
            load_azure,
            HEADER + b"2023-11-16 18:15:46,1,1\n2023-11-16 18:15:46+01:00,1,1\n",
            "trace:3: .*has a time zone",
        ),
        (load_azure, HEADER + b"2023-11-16 18:15:46.0," + b"1" * 5000 + b",1\n", "trace:2: ContextTokens='1+"),
        (load_azure, HEADER + b"2023-11-16 18:15:46.0,10000000000000,1\n", "trace:2: ContextTokens="),
        (load_mooncake, b"\xff\n", "not a text in UTF-8"),
        (load_mooncake, b'{"timestamp": ' + b"1" * 5000 + b"}\n", "trace:1: not JSON"),
        (load_mooncake, b'{"timestamp": 1e999}\n', "trace:1: timestamp=inf must be an integer"),
        (load_mooncake, b'{"timestamp": NaN}\n', "trace:1: timestamp=nan must be an integer"),
        (load_mooncake, b"[" * 100_000, "trace:1: not JSON"),
        (load_mooncake, b'{"timestamp": 0, "input_length": 10000000000000}\n', "trace:1: input_length="),
    ],
    ids=lambda value: None if callable(value) else str(value)[:30],
)
def test_odd_files_are_named_with_their_line(tmp_path, load, content, message):
    (tmp_path / "trace").write_bytes(content)
    with pytest.raises(TraceError, match=message) as caught:
        load(tmp_path / "trace")
    assert len(str(caught.value).replace(str(tmp_path), "")) < 300


def test_a_trace_beyond_the_calendar_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="its year is beyond 9999"):
        workload.save_azure(Trace("t", (TraceRequest(9e11, 1, 1),)), tmp_path / "t.csv")
