"""mini-engine generate: the text on standard output, everything else on standard error, one message per failure."""

from __future__ import annotations

import json
import re

import pytest
import torch

from mini_engine import cli
from mini_engine.backends.kv_formats import FORMATS
from mini_engine.backends.torch_backend import TorchBackend
from mini_engine.models.paths import KNOWN_MODELS
from tests.generation.history_model import ByteTokenizer, continuation

TOKENIZER = ByteTokenizer()


def text(prompt: str, count: int) -> str:
    return TOKENIZER.decode(continuation(TOKENIZER.encode(prompt), count))


def test_the_continuation_is_greedy_and_the_speeds_are_reported(run, asked):
    result = run("generate", "to be", "--max-tokens", "9")
    assert (result.status, result.out) == (0, text("to be", 9) + "\n")
    assert re.search(r"prompt: 5 tokens, \d+\.\d tok/s · output: 9 tokens, \d+\.\d tok/s · smollm2-135m\n", result.err)
    assert asked == [("smollm2-135m", "torch")]


@pytest.mark.parametrize(
    "options",
    [(), ("--cache", "none"), ("--cache", "contiguous"), ("--cache", "paged"), ("--backend", "numpy")],
    ids=str,
)
def test_cache_and_backend_do_not_change_the_text(run, asked, options):
    assert run("generate", "to be", "--max-tokens", "9", *options).out == text("to be", 9) + "\n"


@pytest.mark.parametrize(
    ("option", "kept"), [((), "auto"), (("auto",), "auto"), (("fp8",), "fp8"), (("int8",), "int8")], ids=str
)
def test_the_cache_keeps_what_was_asked_for(run, asked, monkeypatch, option, kept):
    made = []

    class Backend(TorchBackend):
        def __init__(self, model, **options):
            super().__init__(model, **options)
            made.append(self)

    monkeypatch.setattr("mini_engine.backends.TorchBackend", Backend)
    result = run(
        "generate", "to be", "--max-tokens", "2", *(part for name in option for part in ("--kv-cache-dtype", name))
    )
    assert result.status == 0
    (backend,) = made
    assert backend.kv_cache_dtype == kept
    assert backend.pools["k"].dtype == {"auto": torch.float64, "fp8": torch.uint8, "int8": torch.int8}[kept]


def test_the_names_of_cache_types_are_those_of_the_backend():
    assert tuple(FORMATS) == cli.KV_CACHE_DTYPES


def test_auto_is_no_option_that_a_cache_could_lack(run, asked):
    for options in (("--cache", "none"), ("--backend", "numpy"), ("--backend", "numpy", "--cache", "contiguous")):
        result = run("generate", "to be", "--max-tokens", "9", "--kv-cache-dtype", "auto", *options)
        assert result.out == text("to be", 9) + "\n"


def test_the_small_models_are_those_that_come_along():
    assert {"smollm2-135m", *cli.SMALL_MODELS} == KNOWN_MODELS.keys()


@pytest.mark.parametrize(("stdin", "prompt"), [(b"abc", "abc"), (b"abc\n", "abc"), (b"abc\r\n", "abc"), (b"\n", None)])
@pytest.mark.parametrize("argument", [(), ("-",)], ids=["none", "dash"])
def test_the_prompt_may_come_from_standard_input(run, asked, stdin, prompt, argument):
    result = run("generate", *argument, "--max-tokens", "5", stdin=stdin)
    if prompt is None:
        assert result.status == 2
        assert "standard input is empty" in result.err
    else:
        assert (result.status, result.out) == (0, text(prompt, 5) + "\n")


def test_json(run, asked):
    result = run("generate", "abc", "--max-tokens", "6", "--json", "--cache", "none", "--model", "m")
    answer = json.loads(result.out)
    assert (result.status, result.err) == (0, "")
    assert answer.pop("prompt_tokens_per_second") > 0
    assert answer.pop("output_tokens_per_second") > 0
    assert answer == {
        "model": "m",
        "prompt": "abc",
        "text": text("abc", 6),
        "token_ids": continuation(TOKENIZER.encode("abc"), 6),
        "finish_reason": "length",
        "num_prompt_tokens": 3,
        "num_output_tokens": 6,
        "num_forwards": 6,
        "num_forward_tokens": 6 * 3 + 15,
    }


def test_stop_and_sampling_options_reach_the_sampler(run, asked):
    whole = run("generate", "abc", "--max-tokens", "12").out
    stop = whole[5:7]
    assert run("generate", "abc", "--max-tokens", "12", "--stop", "no such", "--stop", stop).out == whole[:5] + "\n"
    hot = ("generate", "abc", "--max-tokens", "12", "--temperature", "3")
    assert run(*hot, "--seed", "1").out == run(*hot, "--seed", "1").out
    assert run(*hot, "--seed", "1").out != run(*hot, "--seed", "2").out
    assert run(*hot, "--top-k", "1").out == run(*hot, "--top-p", "0.001").out == whole


def test_max_tokens_0_prints_an_empty_line(run, asked):
    result = run("generate", "abc", "--max-tokens", "0")
    assert (result.status, result.out) == (0, "\n")
    assert "output: 0 tokens · " in result.err


def test_chat_goes_through_the_template(run, asked):
    assert run("generate", "hi", "--chat", "--max-tokens", "2").out == text("u hi.", 2) + "\n"


def test_without_the_real_model_the_small_one_answers_and_the_remedy_is_named(run, asked, monkeypatch):
    monkeypatch.setattr("mini_engine.models.available_models", lambda: ["tiny-gqa"])
    result = run("generate", "abc", "--max-tokens", "3")
    assert (result.status, result.out) == (0, text("abc", 3) + "\n")
    assert asked == [("tiny-gqa", "torch")]
    assert "not installed" in result.err
    assert "`mini-engine download smollm2-135m`" in result.err


def test_the_default_cache_is_that_of_the_library(run, asked, monkeypatch):
    made = []
    monkeypatch.setattr("mini_engine.llm.paged_engine", lambda *_: made.append("paged") or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("generate", "abc")
    assert made == ["paged"]


def test_an_empty_model_name_is_not_the_default(run):
    result = run("generate", "abc", "--model", "")
    assert (result.status, result.out) == (1, "")
    assert "model='' is empty" in result.err
    assert "smollm2-135m, tiny-gqa" in result.err


def test_a_model_that_was_asked_for_and_is_not_there_is_an_error(run, tmp_path):
    result = run("generate", "abc", "--model", str(tmp_path / "nothing"))
    assert (result.status, result.out) == (1, "")
    assert "nothing" in result.err
    assert "smollm2-135m" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("generate", ""), "the prompt is empty"),
        (("generate", "abc", "--temperature", "-1"), "temperature=-1.0: must be a finite number >= 0"),
        (("generate", "abc", "--temperature", "warm"), "invalid float value: 'warm'"),
        (("generate", "abc", "--top-p", "0"), "top_p=0.0: must be a number in (0, 1]"),
        (("generate", "abc", "--top-k", "-2"), "top_k=-2: must be an integer >= 0"),
        (("generate", "abc", "--max-tokens", "-1"), "max_tokens=-1: must be an integer >= 0"),
        (("generate", "abc", "--seed", "-1"), "seed=-1: must be an integer in [0, "),
        (("generate", "abc", "--stop", ""), "must be non-empty strings"),
        (("generate", "abc", "--cache", "ring"), "invalid choice: 'ring' (choose from"),
        (("generate", "abc", "--backend", "jax"), "invalid choice: 'jax' (choose from"),
        (("generate", "abc", "--kv-cache-dtype", "int4"), "invalid choice: 'int4' (choose from"),
        (
            ("generate", "abc", "--kv-cache-dtype", "int8", "--cache", "none"),
            "--kv-cache-dtype int8 is for --backend torch with --cache paged",
        ),
        (
            ("generate", "abc", "--kv-cache-dtype", "fp8", "--backend", "numpy"),
            "--kv-cache-dtype fp8 is for --backend torch with --cache paged",
        ),
        (("generate", "a" * 65), "the prompt has 65 tokens, max_model_len is 64: shorten it"),
        (("generate", "\udcff"), "the prompt is not UTF-8: byte 0xff at offset 0"),
        (("generate", "abc", "--temp", "0"), "unrecognized arguments: --temp"),
        (("size", "--mod", "llama-3-8b"), "unrecognized arguments: --mod"),
        (("doctor", "--js"), "unrecognized arguments: --js"),
        (("--vers",), "required: COMMAND"),
        (("download", "gpt-5"), "invalid choice: 'gpt-5' (choose from"),
        (("compile",), "invalid choice: 'compile' (choose from"),
        ((), "required: COMMAND"),
    ],
    ids=str,
)
def test_wrong_use_is_one_message_and_status_2(run, asked, arguments, message):
    result = run(*arguments)
    assert (result.status, result.out) == (2, "")
    assert message in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    "error", [ValueError("logit 3 is nan"), RuntimeError("no memory left"), OSError("disk"), MemoryError()]
)
def test_a_failure_on_the_way_is_one_message_and_status_1(run, asked, monkeypatch, error):
    def forward(*_):
        raise error

    monkeypatch.setattr("tests.generation.history_model.HistoryModel.forward", forward)
    result = run("generate", "abc")
    assert result.status == 1
    assert result.err == f"mini-engine: {str(error) or 'MemoryError'}\n"


def test_a_package_that_cannot_be_imported_points_to_the_doctor(run, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mini_engine.llm", None)
    result = run("generate", "abc")
    assert result.status == 1
    assert "`mini-engine doctor`" in result.err


@pytest.mark.model
def test_the_real_model_knows_the_capital_of_france(run, smollm2, monkeypatch):
    monkeypatch.setattr("mini_engine.models.load_model", lambda *_, **__: smollm2)
    result = run("generate", "The capital of France is", "--max-tokens", "12")
    assert result.status == 0
    assert "Paris" in result.out
