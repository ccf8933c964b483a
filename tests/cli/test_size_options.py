"""`mini-engine size` under every option's worst values: one line that names the option, never a traceback, nan or inf."""

from __future__ import annotations

import argparse
import json
import re

import pytest

from mini_engine.sizing import command

BAD = [
    "0", "-1", "-0", "1.5", "", " ", "many", "nan", "-nan", "inf", "-inf", "Infinity", "1e400", "1e999999999", "-1e400", "1" * 30, "1" * 5000,
    "1e-400", "0x10", "1,000", "True", "None", "[]", "1/0", "nan/1", "½", "\x00", "a\nb", "../..", "/", "\ud800",
]  # fmt: skip


def options() -> list[argparse.Action]:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return [action for action in parser._actions if action.nargs is None and action.dest != "help"]


@pytest.mark.parametrize("option", [action.option_strings[0] for action in options()])
def test_an_option_takes_its_value_or_names_itself(run, option):
    """Each value of the list: either figures without nan and inf, as text and as JSON, or one line about this option."""
    model = () if option == "--model" else ("--model", "llama-3-8b")
    params = ("--params", "8e9") if option == "--active-params" else ()
    for value in BAD:
        given = ("size", *model, *params, f"{option}={value}")
        result = run(*given)
        assert "Traceback" not in result.err
        if result.status == 0:
            assert not re.search(r"\b(nan|inf|None)\b", result.out), (option, value)
            json.loads(run(*given, "--json", "--why").out, parse_constant=lambda word: pytest.fail(word))
        else:
            message = result.err.strip().splitlines()[-1]
            assert result.out == ""
            assert re.search(re.escape(option.lstrip("-")).replace(r"\-", "."), message) or option in (
                "--model",
                "--gpu",
            ), message
            assert len(message) < 600, (option, len(message))


def test_the_walk_meets_every_option_of_the_command():
    names = {action.option_strings[0] for action in options()}
    assert names == {
        "--model", "--gpu", "--tp", "--context", "--batch", "--kv-dtype", "--dtype", "--util", "--overhead-gb", "--block",
        "--memory", "--params", "--active-params",
    }  # fmt: skip


@pytest.mark.parametrize("value", ["", "nan", "1" * 5000, "\x00", "\ud800", "llama\nguard", "/", "../.."])
@pytest.mark.parametrize("option", ["--model", "--gpu"])
def test_a_name_that_means_nothing_is_refused_in_one_short_line(run, option, value):
    result = run("size", *(() if option == "--model" else ("--model", "llama-3-8b")), f"{option}={value}")
    assert result.status == 1
    assert len(result.err.strip().splitlines()) == 1
    assert len(result.err) < 600
    assert result.out == ""


@pytest.mark.parametrize("path", ["config.json", ""])
@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "null",
        "NaN",
        '{"hidden_size": NaN}',
        '{"num_hidden_layers": 1e400}',
        '{"num_hidden_layers": ' + "1" * 5000 + "}",
        "\x00",
        "[" * 100_000,
    ],
    ids=lambda text: text[:24],
)
def test_a_broken_config_is_refused_in_one_line(run, tmp_path, path, content):
    (tmp_path / "config.json").write_text(content)
    result = run("size", "--model", str(tmp_path / path))
    assert result.status == 1
    assert len(result.err.strip().splitlines()) == 1
    assert result.out == ""


FIELDS = {
    "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 512, "sliding_window": None, "rope_theta": 1e4,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "kv_lora_rank": None, "layer_types": None, "rope_scaling": None, "eos_token_id": 1, "architectures": ["LlamaForCausalLM"],
}  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_of_a_config_is_read_or_named(run, tmp_path, field):
    for value in (
        0,
        -1,
        1.5,
        10**30,
        "x",
        "",
        True,
        False,
        [],
        [1],
        {},
        {"a": 1},
        None,
        float("nan"),
        float("inf"),
        -float("inf"),
        [None, "x"],
    ):
        (tmp_path / "config.json").write_text(json.dumps(FIELDS | {field: value}))
        result = run("size", "--model", str(tmp_path / "config.json"))
        assert "Traceback" not in result.err
        if result.status == 0:
            assert not re.search(r"\b(nan|inf)\b", result.out), (field, value)
        else:
            assert len(result.err.strip().splitlines()) == 1, (field, value, result.err)


REQUIRED = [
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "num_experts_per_tok",
]


@pytest.mark.parametrize("field", REQUIRED)
@pytest.mark.parametrize("family", ["llama", "a-family-nobody-knows"])
def test_a_field_that_is_missing_is_named(run, tmp_path, family, field):
    fields = FIELDS | {"model_type": family, "head_dim": 16 if field != "hidden_size" else None}
    if field == "intermediate_size":
        fields |= {"num_experts": 0, "moe_intermediate_size": None}
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in fields.items() if k != field}))
    result = run("size", "--model", str(tmp_path))
    assert result.status == 1
    assert f"(model_type {family!r}) lacks {field}" in result.err
