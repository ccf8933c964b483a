"""`mini-engine size` names what is wrong with its options, models and files, in one line."""

from __future__ import annotations

import json

import pytest

from mini_engine.cli import main


def test_a_repository_name_points_to_the_table(run):
    assert "the table has llama-3.1-8b" in run("size", "--model", "meta-llama/Llama-3.1-8B").err
    assert "the table" not in run("size", "--model", "nobody/has-this").err


def test_active_parameters_alone_are_refused_in_the_commands_words(run):
    for model in ("jamba-v0.1", "mixtral-8x7b"):
        result = run("size", "--model", model, "--active-params", "12e9")
        assert result.status == 1
        assert "--active-params 12000000000 needs --params too" in result.err


@pytest.mark.parametrize(("given", "remedy"), [("70B", "70e9"), ("1.5b", "1.5e9"), (" 135M ", "135e6"), ("1t", "1e12")])
def test_a_number_with_a_letter_is_told_how_to_be_written(run, given, remedy):
    result = run("size", "--model", "llama-3-8b", f"--params={given}")
    assert result.status == 2
    assert f"write {remedy}" in result.err


BAD = ["0", "-1", "1.5", "", "many", "nan", "inf", "1" * 30, "1" * 5000, "1e3"]


@pytest.mark.parametrize("option", ["--tp", "--context", "--batch", "--block"])
@pytest.mark.parametrize("value", BAD)
def test_bad_counts_are_refused_by_name(capsys, option, value):
    with pytest.raises(SystemExit) as exit:
        main(["size", "--model", "llama-3-8b", f"{option}={value}"])
    assert exit.value.code == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert f"argument {option}: " in message
    assert len(message) < 6000


@pytest.mark.parametrize(
    "option", ["--util=0", "--util=1.01", "--util=-1", "--util=nan", "--util=lots", "--overhead-gb=-1", "--overhead-gb=inf", "--overhead-gb=1e30",
               "--overhead-gb=1e999999999", "--params=0", "--params=1.5", "--params=-7e9", "--params=1e19", "--kv-dtype=fp4", "--dtype=", "--memory=all"],
)  # fmt: skip
def test_other_bad_options_are_refused_by_name(capsys, option):
    with pytest.raises(SystemExit):
        main(["size", "--model", "llama-3-8b", option])
    assert f"argument {option.split('=')[0]}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--model is missing"),
        (("--model", "llama-9"), "no model named 'llama-9'. Near names: "),
        (("--model", "llama-3-8b", "--gpu", "h100"), "no GPU named 'h100'. Near names: h100-sxm, h100-pcie"),
        (("--model", "llama-3-8b", "--gpu", "l4", "--memory", "reported"), "memory='reported'"),
        (("--model", "nowhere/config.json"), "does not exist"),
    ],
)
def test_what_cannot_be_found_is_named_in_one_line(run, options, message):
    result = run("size", *options)
    assert result.status != 0
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert result.out == ""


def test_a_config_that_lacks_a_field_names_it(run, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mystery", "hidden_size": 8}))
    result = run("size", "--model", str(tmp_path))
    assert result.status == 1
    assert "model_type 'mystery') lacks num_hidden_layers" in result.err


@pytest.mark.parametrize("name", ["", ".", "..", "tiny", "tiny-gqa\0"])
def test_what_is_no_small_model_is_not_taken_for_one(run, name):
    result = run("size", "--model", name)
    assert (result.status, result.out) == (1, "")
    assert repr(name) in result.err or "config.json" in result.err
