"""`mini-engine simulate`: one run, sweeps on every kind of executor, and a clear line for everything that cannot be."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
import types

import pytest

from mini_engine import simulate_command
from mini_engine.config import CHOICES
from mini_engine.simulator import simulate, summarize
from mini_engine.simulator.options import BATCHING, MEMORY
from mini_engine.simulator.sweep import Here, Point, grid, local_executor, run_point, sweep
from mini_engine.workload import load_trace
from tests.cli.test_size_options import BAD

SMALL = ("simulate", "--requests", "5")


def actions() -> dict[str, argparse.Action]:
    parser = argparse.ArgumentParser()
    simulate_command.add_arguments(parser)
    return {action.option_strings[0]: action for action in parser._actions if action.dest != "help"}


def test_the_figures_are_those_of_the_function(command):
    result = command(*SMALL, "--slo-ttft", "1", "--json", "--batching", "static", "--tp", "2")
    assert result.status == 0
    told = json.loads(result.out)
    expected = summarize(simulate(load_trace("synthetic_azure_conv.csv").head(5), batching="static", tp=2), ttft=1)
    assert told.pop("options")["batching"] == "static"
    assert told == json.loads(json.dumps(expected.to_json()))
    text = command(*SMALL, "--slo-ttft", "1", "--batching", "static", "--tp", "2")
    assert text.out.strip() == str(expected)
    assert text.err == ""


def test_every_option_reaches_the_simulation(command):
    """Each option, given another value than its default, changes something of the outcome or is named as impossible."""
    changes = {
        "--trace": "synthetic_azure_code.csv", "--requests": "4", "--rate": "20", "--model": "llama-2-7b", "--gpu": "l40s", "--tp": "2",
        "--dtype": "fp8", "--kv-dtype": "fp8", "--util": "0.5", "--overhead-gb": "20", "--params": "7e9", "--active-params": "3e9",
        "--batching": "static", "--memory": "reserved", "--reserve": "1800", "--block": "64", "--num-blocks": "300", "--max-num-seqs": "1",
        "--max-num-batched-tokens": "256", "--max-model-len": "1500", "--prefix-cache": "off", "--admission": "worst_case",
        "--prefix-index": "radix", "--policy": "shortest_first", "--preemption": "swap", "--swap-gb": "1", "--pcie-gb": "1",
        "--watermark": "0.5", "--flops-efficiency": "0.3", "--bandwidth-efficiency": "0.3", "--step-overhead-ms": "9",
        "--sequence-overhead-ms": "1", "--slo-ttft": "1", "--slo-tpot": "1", "--slo-e2e": "1",
    }  # fmt: skip
    besides = {
        "--active-params": (*FEW, "--params", "8e9"), "--reserve": (*FEW, "--memory", "reserved"), "--prefix-cache": SHARED, "--prefix-index": SHARED,
        "--admission": TIGHT, "--policy": TIGHT, "--preemption": TIGHT, "--swap-gb": (*TIGHT, "--preemption", "swap"),
        "--pcie-gb": (*TIGHT, "--preemption", "swap"), "--watermark": TIGHT,
    }  # fmt: skip
    assert set(changes) == set(actions()) - {"--sweep", "--workers", "--dask", "--json"}
    plain: dict[tuple, str] = {}
    for name, value in changes.items():
        common = ("simulate", *besides.get(name, FEW), "--json")
        plain[common] = plain.get(common) or command(*common).out
        before, after = json.loads(plain[common]), json.loads(command(*common, name, value).out)
        assert before.pop("options") != after.pop("options")
        if name in ("--prefix-index", "--swap-gb"):  # another structure or a larger host, the same answers
            assert before == after, name
        else:
            assert before != after, name


FEW = ("--requests", "5")
SHARED = ("--trace", "synthetic_shared_prefix_block16.jsonl", "--requests", "5")
TIGHT = ("--requests", "12", "--rate", "200", "--num-blocks", "200", "--trace", "synthetic_azure_conv.csv")


@pytest.mark.parametrize(
    "name", [name for name, action in actions().items() if action.nargs is None and name not in ("--dask", "--sweep")]
)
def test_an_option_takes_its_value_or_names_itself(command, name):
    """Every worst value: figures without nan and inf, or one line about this option; never a traceback or a hang."""
    more = {
        "--active-params": ("--params", "8e9"),
        "--reserve": ("--memory", "reserved"),
        "--workers": ("--sweep", "tp=1"),
    }
    for value in BAD:
        result = command("simulate", "--requests", "2", *more.get(name, ()), f"{name}={value}")
        assert "Traceback" not in result.err
        if result.status == 0:
            assert not re.search(r"\b(nan|inf|None)\b", result.out), (name, value)
        else:
            assert result.out == ""
            message = result.err.strip().splitlines()[-1]
            assert len(message) < 700, (name, len(message))
            if name not in ("--model", "--gpu", "--trace"):
                assert name.lstrip("-").split("-")[0] in message, (name, value, message)


def test_choices_are_those_of_the_engine():
    told = actions()
    for name, allowed in CHOICES.items():
        action = told[f"--{name.replace('_', '-')}"]
        assert [action.type(value) for value in allowed] == list(allowed)
    assert [told["--batching"].type(value) for value in BATCHING] == list(BATCHING)
    assert [told["--memory"].type(value) for value in MEMORY] == list(MEMORY)


# -- sweeps ----------------------------------------------------------------------------------------------------------------


def test_a_sweep_is_a_row_for_each_combination(command):
    given = (*SMALL, "--sweep", "rate=1,50", "--sweep=--max-num-seqs=1,2", "--workers", "1")
    result = command(*given, "--json")
    told = json.loads(result.out)
    assert told["sweep"] == {"rate": ["1", "50"], "max_num_seqs": ["1", "2"]}
    assert [run["values"] for run in told["runs"]] == [
        {"rate": rate, "max_num_seqs": seqs} for rate in ("1", "50") for seqs in ("1", "2")
    ]
    alone = json.loads(command(*SMALL, "--rate", "50", "--max-num-seqs", "2", "--json").out)
    del alone["options"], told["runs"][3]["values"]
    assert told["runs"][3] == alone
    table = command(*given).out.splitlines()
    assert table[0].split()[:2] == ["rate", "max-num-seqs"]
    assert len(table) == 6


def test_any_option_can_be_swept(command):
    values = {"--model": "llama-3-8b,llama-2-7b", "--trace": "synthetic_azure_conv.csv,synthetic_azure_code.csv", "--util": "1,0.9",
              "--batching": "static,chunked", "--prefix-cache": "on,off", "--slo-ttft": "0.1,1", "--overhead-gb": "1,2"}  # fmt: skip
    for name, listed in values.items():
        result = command(*SMALL, "--sweep", f"{name.lstrip('-')}={listed}", "--workers", "1")
        assert result.status == 0, result.err
        assert len(result.out.splitlines()) == 4


def test_all_cores_give_what_one_gives():
    points = [Point(trace="synthetic_azure_conv.csv", requests=20, rate=rate) for rate in (2.0, 8.0, 32.0)]
    done: list[int] = []
    with local_executor(2) as pool:
        many = sweep(points, pool, done.append)
    assert many == sweep(points, Here()) == [run_point(point) for point in points]
    assert done == [1, 1, 1]


def test_a_point_that_cannot_be_does_not_take_the_others_along(command):
    result = command(*SMALL, "--model", "llama-3-70b", "--sweep", "tp=1,2", "--workers", "1")
    assert result.status == 0
    assert "error: llama-3-70b takes 141.1 GB" in result.out.splitlines()[1]
    assert command(*SMALL, "--model", "llama-3-70b", "--sweep", "tp=1", "--workers", "1").status == 1


def test_a_grid_is_every_combination():
    assert grid({"a": [1, 2], "b": [3]}) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("speed=1,2", "must be OPTION=V1,V2,... with one of trace, requests, rate"),
        ("tp", "must be OPTION=V1"),
        ("json=1", "must be OPTION=V1"),
        ("workers=1,2", "must be OPTION=V1"),
        ("tp=1,", "--sweep tp: a value is missing"),
        ("tp=1,two", "--sweep tp: 'two' must be an integer"),
        ("rate=0,1", "--sweep rate: '0' must be above 0"),
        ("batching=static,magic", "--sweep batching: 'magic' must be one of"),
        ("gpu=h100-sxm,abacus", "no GPU named 'abacus'"),
    ],
)
def test_a_sweep_that_makes_no_sense(command, given, message):
    result = command(*SMALL, "--sweep", given)
    assert result.status == 1
    assert message in result.err
    assert result.out == ""


def test_a_sweep_without_end_is_refused_at_once(command):
    values = ",".join(map(str, range(1, 301)))
    result = command(*SMALL, "--sweep", f"rate={values}", "--sweep", f"block={values}")
    assert result.status == 1
    assert "a sweep of 90,000 runs, at most 10,000" in result.err


@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_ends_a_sweep_at_once_and_says_so_once(workers):
    sweep = [sys.executable, "-m", "mini_engine", "simulate", "--sweep", "rate=1,2,3,4,5,6,7,8", "--workers", workers]
    process = subprocess.Popen(sweep, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    time.sleep(2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (130, "")
    assert err == "mini-engine: interrupted\n"


@pytest.mark.parametrize("option", ["--model", "--gpu"])
def test_a_name_that_is_in_no_table_says_which_command_lists_them(command, option):
    assert "All: mini-engine size --list" in command(*SMALL, option, "nope").err


def test_a_pool_that_would_fill_the_memory_is_refused(command):
    result = command(*SMALL, "--num-blocks", "1000000000")
    assert result.status == 1
    assert "num_blocks=1,000,000,000: a simulation holds at most 10,000,000" in result.err


def test_an_option_swept_twice_is_refused(command):
    assert "given twice" in command(*SMALL, "--sweep", "tp=1", "--sweep", "tp=2").err


def test_dask_runs_a_sweep_when_it_is_there(command, monkeypatch):
    """The interface is the client's own: submit, result, and leaving it closes it."""
    seen: list = []

    class Client(Here):
        def __init__(self, address):
            seen.append(address)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            seen.append("closed")

    module = types.ModuleType("dask.distributed")
    module.Client = Client
    monkeypatch.setitem(sys.modules, "dask", types.ModuleType("dask"))
    monkeypatch.setitem(sys.modules, "dask.distributed", module)
    given = (*SMALL, "--sweep", "tp=1,2")
    assert command(*given, "--dask", "tcp://there:8786").out == command(*given, "--workers", "1").out
    assert seen == ["tcp://there:8786", "closed"]


def test_dask_that_is_not_there_is_said_in_one_line(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "dask", None)
    result = command(*SMALL, "--sweep", "tp=1,2", "--dask", "tcp://there:8786")
    assert result.status == 1
    assert "pip install distributed" in result.err
    assert len(result.err.splitlines()) == 1


# -- what cannot be --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", "", "the header is missing"),
        ("header.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "no requests below the header"),
        ("zero.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,0,5\n", "zero.csv:2: ContextTokens='0'"),
        ("time.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,4,5\n", "time.csv:2: TIMESTAMP"),
        ("bad.jsonl", "{}\n", "bad.jsonl:1: timestamp is missing"),
        ("trace.txt", "1 2 3\n", "suffix '.txt' is not known"),
    ],
)  # fmt: skip
def test_a_bad_trace_is_named_with_its_line(command, tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    result = command("simulate", "--trace", str(tmp_path / name))
    assert result.status == 1
    assert message in result.err
    assert len(result.err.splitlines()) == 1


def test_a_trace_that_is_not_there(command):
    result = command("simulate", "--trace", "nowhere.csv")
    assert result.status == 1
    assert "there is no trace 'nowhere.csv'" in result.err


def test_a_rate_for_requests_that_all_come_at_once(command, tmp_path):
    row = "2023-11-16 18:15:46.6805900,4,5\n"
    (tmp_path / "burst.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + 2 * row)
    assert command("simulate", "--trace", str(tmp_path / "burst.csv")).status == 0
    result = command("simulate", "--trace", str(tmp_path / "burst.csv"), "--rate", "3")
    assert result.status == 1
    assert "arrive at once" in result.err


def test_requests_larger_than_the_pool_and_limits_nobody_can_meet_are_counted(command):
    result = command(*SMALL, "--num-blocks", "10", "--slo-ttft", "0.0001")
    assert result.status == 0
    assert re.search(
        r"turned away: larger than the pool, which has [\d,]+ blocks of 16 tokens: give it more", result.out
    )
    assert "no request can meet TTFT <= 0.0001 s" in result.out


def test_at_rate_keeps_everything_but_the_pace():
    trace = load_trace("synthetic_azure_conv.csv").head(50)
    faster = trace.at_rate(100)
    assert faster.requests[-1].arrival == pytest.approx(0.5)
    assert [r.num_prompt_tokens for r in faster] == [r.num_prompt_tokens for r in trace]
    scale = trace.requests[-1].arrival / faster.requests[-1].arrival
    assert [r.arrival * scale for r in faster] == pytest.approx([r.arrival for r in trace])
    with pytest.raises(ValueError, match="rate=0 must be above 0"):
        trace.at_rate(0)
