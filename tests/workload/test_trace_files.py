"""Reading and writing the two public formats; malformed rows are named by line."""

from __future__ import annotations

import json

import pytest

from mini_engine.workload import (
    Trace,
    TraceError,
    TraceRequest,
    load_azure,
    load_mooncake,
    load_trace,
    save_azure,
    save_mooncake,
)

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = "2023-11-16 18:15:46.6805900,374,44\n"
GOOD = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}


def azure(tmp_path, text):
    path = tmp_path / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return load_azure(path)


def mooncake(tmp_path, *rows):
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return load_mooncake(path)


def test_azure(tmp_path):
    trace = azure(tmp_path, HEADER + ROW + "2023-11-16 18:15:50.9951690,396,109\n")
    assert trace.requests == (TraceRequest(0.0, 374, 44), TraceRequest(4.314579, 396, 109))  # the seventh digit is cut
    assert trace.block_tokens is None
    assert not trace.synthetic


def test_azure_rows_out_of_order_are_sorted(tmp_path):
    trace = azure(tmp_path, HEADER + "2023-11-16 18:00:02.0,1,1\n2023-11-16 18:00:00.0,2,2\n")
    assert [(r.arrival, r.num_prompt_tokens) for r in trace] == [(0.0, 2), (2.0, 1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"trace\.csv:1: the header is missing, expected TIMESTAMP"),
        ("a,b\n", r"trace\.csv:1: the header is 'a,b'"),
        (HEADER, "no requests below the header"),
        (HEADER + ROW + "2023-11-16 18:15:46.0,374\n", r"trace\.csv:3: 2 columns, expected 3"),
        (HEADER + "yesterday,374,44\n", r"trace\.csv:2: TIMESTAMP 'yesterday' is not like 2023"),
        (
            HEADER + ROW + ROW + "2023-11-16 18:15:46.0,many,44\n",
            r"trace\.csv:4: ContextTokens='many' must be an integer of at least 1",
        ),
        (HEADER + "2023-11-16 18:15:46.0,374,4.5\n", r"trace\.csv:2: GeneratedTokens='4\.5' must be an integer"),
        (HEADER + "2023-11-16 18:15:46.0,0,44\n", r"trace\.csv:2: ContextTokens='0' must be an integer of at least 1"),
        (
            HEADER + "2023-11-16 18:15:46.0,374,-1\n",
            r"trace\.csv:2: GeneratedTokens='-1' must be an integer of at least 1",
        ),
    ],
)
def test_malformed_azure(tmp_path, text, message):
    with pytest.raises(TraceError, match=message):
        azure(tmp_path, text)


def test_mooncake(tmp_path):
    trace = mooncake(tmp_path, GOOD | {"timestamp": 3000}, "", GOOD | {"timestamp": 4500, "hash_ids": [0, 2]})
    assert trace.requests == (TraceRequest(0.0, 600, 5, (0, 1)), TraceRequest(1.5, 600, 5, (0, 2)))
    assert trace.block_tokens == 512
    assert mooncake(tmp_path, {"timestamp": 7, "input_length": 1, "output_length": 1, "hash_ids": [0]}).requests == (
        TraceRequest(0.0, 1, 1, (0,)),
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", r"trace\.jsonl:2: not JSON"),
        ("[1]", r"trace\.jsonl:2: a list, expected an object"),
        ({"timestamp": 0}, r"trace\.jsonl:2: input_length is missing"),
        (GOOD | {"timestamp": "0"}, r"trace\.jsonl:2: timestamp='0' must be an integer"),
        (GOOD | {"timestamp": -1}, r"trace\.jsonl:2: timestamp=-1 must be at least 0"),
        (GOOD | {"output_length": 0}, r"trace\.jsonl:2: output_length=0 must be at least 1"),
        (GOOD | {"input_length": 1.5}, r"trace\.jsonl:2: input_length=1\.5 must be an integer"),
        (GOOD | {"input_length": True}, r"trace\.jsonl:2: input_length=True must be an integer"),
        (GOOD | {"hash_ids": [0]}, r"trace\.jsonl:2: 1 hash_ids for 600 tokens, expected 2 of 512 tokens each"),
        (GOOD | {"hash_ids": [0, 1, 2]}, r"trace\.jsonl:2: 3 hash_ids for 600 tokens"),
        (GOOD | {"hash_ids": [0, -1]}, r"trace\.jsonl:2: hash_ids must be a list of integers of at least 0"),
        (GOOD | {"hash_ids": None}, r"trace\.jsonl:2: hash_ids must be a list"),
    ],
)
def test_malformed_mooncake(tmp_path, row, message):
    with pytest.raises(TraceError, match=message):
        mooncake(tmp_path, GOOD, row)


def test_an_empty_mooncake_file(tmp_path):
    with pytest.raises(TraceError, match="there are no requests"):
        mooncake(tmp_path, "")


def test_what_is_written_reads_back(tmp_path):
    requests = (TraceRequest(0.0, 600, 5, (0, 1)), TraceRequest(0.25, 100, 7, (2,)))
    save_azure(Trace("t", requests), tmp_path / "t.csv")
    save_mooncake(Trace("t", requests, 512), tmp_path / "t.jsonl")
    assert load_trace(tmp_path / "t.jsonl").requests == requests
    plain = tuple(TraceRequest(r.arrival, r.num_prompt_tokens, r.num_output_tokens) for r in requests)
    assert load_trace(tmp_path / "t.csv").requests == plain


def test_a_trace_is_known_by_its_suffix_or_its_name(tmp_path):
    assert load_trace("synthetic_azure_conv.csv").synthetic
    assert load_trace("synthetic_multi_turn_block16.jsonl").block_tokens == 16
    (tmp_path / "t.txt").write_text("")
    with pytest.raises(TraceError, match=r"suffix '\.txt' is not known"):
        load_trace(tmp_path / "t.txt")
    with pytest.raises(FileNotFoundError, match=r"there is no trace 'azure\.csv'.*synthetic_azure_conv\.csv"):
        load_trace("azure.csv")


def test_a_trace_needs_requests_in_order():
    with pytest.raises(ValueError, match="has no requests"):
        Trace("t", ())
    with pytest.raises(ValueError, match="request 1 arrives before request 0"):
        Trace("t", (TraceRequest(1.0, 1, 1), TraceRequest(0.5, 1, 1)))
    assert len(Trace("t", (TraceRequest(0.0, 1, 1),) * 3).head(2)) == 2
