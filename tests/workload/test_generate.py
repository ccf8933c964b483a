"""Synthetic traces have the statistics they were asked for, and are the same for the same seed."""

from __future__ import annotations

import dataclasses
import itertools
import json
from random import Random

import pytest

from mini_engine.arguments import ceil_div
from mini_engine.workload import (
    load_trace,
    multi_turn,
    prefix_reuse,
    profile,
    profiles,
    shared_prefix,
    summarize,
    synthesize,
    trace_path,
)
from mini_engine.workload.__main__ import main
from mini_engine.workload.generate import arrival_times
from mini_engine.workload.profile import from_json, to_json
from mini_engine.workload.summary import variation

NAMES = sorted(profiles())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("num_requests", [200, 1500])
def test_a_synthetic_trace_has_its_profiles_statistics(name, num_requests):
    wanted = profiles()[name]
    found = summarize(synthesize(wanted, num_requests, seed=3))
    assert found.synthetic
    assert found.num_requests == num_requests
    assert found.rate == pytest.approx(wanted.rate, rel=1e-6)
    assert found.gap_cv == pytest.approx(wanted.gap_cv, rel=1e-3)
    for lengths, mean, quantiles in (
        (found.prompt, wanted.prompt_mean, wanted.prompt_quantiles),
        (found.output, wanted.output_mean, wanted.output_quantiles),
    ):
        assert lengths.mean == pytest.approx(mean, rel=0.01)
        assert lengths.p50 == pytest.approx(quantiles[5], rel=0.05, abs=1)
        assert lengths.p90 == pytest.approx(quantiles[7], rel=0.05, abs=1)
        assert lengths.max <= quantiles[-1]
    if wanted.reuse_bound:
        assert float(found.reuse_bound) == pytest.approx(wanted.reuse_bound, abs=0.03)


def test_a_seed_gives_the_same_trace_and_another_a_different_one():
    wanted = profiles()["mooncake_synthetic"]
    assert synthesize(wanted, 50, seed=1).requests == synthesize(wanted, 50, seed=1).requests
    assert synthesize(wanted, 50, seed=1).requests != synthesize(wanted, 50, seed=2).requests


@pytest.mark.parametrize("name", [n for n in NAMES if "mooncake" in n])
def test_hash_ids_form_a_tree_with_one_id_per_block(name):
    trace = synthesize(profiles()[name], 300)
    before: dict[int, tuple[int, ...]] = {}
    for request in trace:
        assert len(request.hash_ids) == ceil_div(request.num_prompt_tokens, 512)
        for k, block in enumerate(request.hash_ids):
            assert before.setdefault(block, request.hash_ids[:k]) == request.hash_ids[:k]
    wanted = profiles()[name].common_blocks
    assert len({request.hash_ids[:wanted] for request in trace}) == 1


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 3.0, 13.0])
def test_arrivals_have_the_rate_and_the_variation(cv):
    arrivals = arrival_times(Random(5), 500, 2.0, cv)
    gaps = [b - a for a, b in itertools.pairwise(arrivals)]
    assert variation(gaps) == pytest.approx(cv, abs=1e-3)
    assert arrivals[-1] == pytest.approx(250)
    assert min(gaps) >= 0


def test_a_profile_survives_json_and_a_measurement():
    wanted = profiles()["azure_conv"]
    assert from_json(json.loads(json.dumps(to_json(wanted)))) == wanted
    measured = profile(synthesize(wanted, 4000), "again")
    assert measured.rate == pytest.approx(wanted.rate, rel=1e-3)
    assert measured.prompt_quantiles[5] == pytest.approx(wanted.prompt_quantiles[5], rel=0.02)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rate": 0}, "rate=0"),
        ({"gap_cv": -1}, "gap_cv=-1"),
        ({"rate": float("nan")}, "rate=nan"),
        ({"prompt_quantiles": (1, 2)}, "prompt_quantiles"),
        ({"output_quantiles": (0,) * 13}, "output_quantiles"),
        ({"reuse_bound": 1.0}, "reuse_bound"),
    ],
)
def test_a_profile_that_makes_no_sense_is_refused(changes, named):
    with pytest.raises(ValueError, match=named):
        dataclasses.replace(profiles()["mooncake_synthetic"], **changes)


@pytest.mark.parametrize("bad", [0, 1, -5, 1.5, None, 10**7])
def test_the_number_of_requests_is_checked(bad):
    with pytest.raises(ValueError, match="num_requests="):
        synthesize(profiles()["azure_conv"], bad)


def test_each_turn_contains_the_one_before():
    trace = multi_turn(4, 3, system_tokens=64, user_tokens=40, output_tokens=30, block_tokens=16, seed=2)
    assert len(trace) == 12
    chats: dict[tuple[int, ...], list] = {}
    for request in trace:
        assert len(request.hash_ids) == ceil_div(request.num_prompt_tokens, 16)
        assert request.hash_ids[:4] == trace.requests[0].hash_ids[:4]  # the system prompt, four blocks
        chats.setdefault(request.hash_ids[4:5], []).append(request)
    assert sorted(len(turns) for turns in chats.values()) == [3, 3, 3, 3]
    for turns in chats.values():
        for earlier, later in itertools.pairwise(turns):
            full = earlier.num_prompt_tokens // 16
            assert later.hash_ids[:full] == earlier.hash_ids[:full]
            assert later.num_prompt_tokens > earlier.num_prompt_tokens + earlier.num_output_tokens


def test_chats_without_a_system_prompt_share_nothing():
    trace = multi_turn(3, 1, system_tokens=0, block_tokens=16)
    assert prefix_reuse(trace).by_blocks == 0


def test_questions_share_the_document_and_nothing_else():
    trace = shared_prefix(10, 100, question_tokens=40, block_tokens=16)
    first = trace.requests[0].hash_ids
    for request in trace.requests[1:]:
        shared = sum(a == b for a, b in zip(request.hash_ids, first))
        assert shared == 6  # 96 of 100 tokens are whole blocks; the seventh block already holds a question


@pytest.mark.parametrize(
    ("function", "arguments", "named"),
    [
        (multi_turn, {"num_sessions": 1, "turns": 1}, "num_sessions=1"),
        (multi_turn, {"num_sessions": 2, "turns": 0}, "turns=0"),
        (multi_turn, {"num_sessions": 2, "turns": 1, "rate": 0}, "rate=0"),
        (multi_turn, {"num_sessions": 2, "turns": 1, "think_time": -1}, "think_time=-1"),
        (shared_prefix, {"num_requests": 2, "prefix_tokens": -1}, "prefix_tokens=-1"),
        (shared_prefix, {"num_requests": 2, "prefix_tokens": 1, "block_tokens": 0}, "block_tokens=0"),
    ],
)
def test_bad_arguments_are_named(function, arguments, named):
    with pytest.raises(ValueError, match=named):
        function(**arguments)


def test_the_committed_traces_are_what_the_command_makes(tmp_path, capsys):
    folder = trace_path("profiles.json").parent
    (tmp_path / "profiles.json").write_bytes((folder / "profiles.json").read_bytes())
    assert main(["synthesize", "--folder", str(tmp_path), "--requests", "1000", "--seed", "0"]) == 0
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "README.md"}
    assert capsys.readouterr().out.count("synthetic trace") == 6


def test_the_command_reports_errors_in_one_line(tmp_path, capsys):
    assert main(["summarize", str(tmp_path / "absent.csv")]) == 1
    assert capsys.readouterr().err.startswith("error: there is no trace")


def test_every_project_trace_says_that_it_is_synthetic():
    for path in trace_path("profiles.json").parent.glob("*.[cj]s*"):
        if path.name != "profiles.json":
            assert path.name.startswith("synthetic_")
            assert load_trace(path).synthetic


def test_the_command_takes_options_by_their_whole_name_only(tmp_path, capsys):
    with pytest.raises(SystemExit) as leave:
        main(["synthesize", "--folder", str(tmp_path), "--req", "5"])
    assert leave.value.code == 2
    assert "unrecognized arguments: --req" in capsys.readouterr().err
