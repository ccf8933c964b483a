"""`size --why`: twelve answers, for every kind of model, whose numbers are those of the formulas and of nothing else."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from mini_engine.catalog import get_gpu, get_model
from mini_engine.cli import main
from mini_engine.sizing import size
from mini_engine.sizing.why import QUESTIONS, answers
from tests.cli.size_reports import TP2, report

KINDS = {
    "many heads": ("llama-2-13b", {}),
    "grouped heads": ("llama-3-70b", {"tp": 4, "batch": 16}),
    "one head": ("falcon-7b", {"batch": 2}),
    "latent": ("deepseek-v2-lite", {"tp": 2, "batch": 3}),
    "experts": ("mixtral-8x7b", {"tp": 2, "batch": 4}),
    "windows": ("gemma-3-27b", {"tp": 2, "batch": 5}),
    "layers without K/V": ("qwen3-next-80b-a3b", {"tp": 4, "batch": 8, "num_params": 80e9, "num_active_params": 3e9}),
    "does not fit": ("llama-3-70b", {}),
}
TYPED = {
    "128", "2,000", "125", "512", "576", "254", "0.39", "7.1", "8.125", "4.5", "0.5078", "127", "46,702,792,704", "12,879,925,248", "0.276", "32,302,698,496",
}  # fmt: skip
"""Numbers of three characters and more that answers may share: block sizes, fixed examples, formats, Mixtral and DeepSeek-V3."""


def of(kind: str, **changes):
    name, given = KINDS[kind]
    sizing = size(get_model(name), get_gpu("h100-sxm"), **given | changes)
    return sizing, dict(answers(sizing))


def numbers(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w.,-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w]*-)", text))


@pytest.mark.parametrize("kind", KINDS)
def test_twelve_answers_in_whole_sentences(kind):
    _, found = of(kind)
    assert list(found) == list(QUESTIONS)
    assert len(found) == 12
    for question, answer in found.items():
        assert question.endswith("?")
        assert answer.endswith(".")
        assert len(answer) > 120, question
        assert not re.search(r"\b(nan|inf|None|Fraction|1 sequences|0 of|instead of 0)\b", answer), answer


def test_no_number_is_typed_that_should_be_computed():
    """Another model on another GPU gives other numbers; what stays the same is on the list above."""
    _, one = of("many heads", context=5000, batch=3, util="0.9")
    other_sizing = size(get_model("gemma-3-27b"), get_gpu("l40s"), tp=4, context=7000, batch=11)
    other = dict(answers(other_sizing))
    for question in QUESTIONS:
        same = {number for number in numbers(one[question]) & numbers(other[question]) if len(number) > 2}
        assert same <= TYPED, question


@pytest.mark.parametrize("kind", KINDS)
def test_the_speed_answers_hold_the_numbers_of_the_step(kind):
    s, found = of(kind)
    idle = found["Why is the GPU mostly idle while decoding?"]
    read = (s.step.weights + s.step.kv) * s.gpu.memory_bandwidth
    assert f"{round(read):,} B" in idle
    assert f"{float(s.step.compute / s.step.total):.1%} of the step" in idle
    assert "where this GPU could do 295.2" in idle
    faster = found["Why does quantization make decoding faster?"]
    eight = size(s.model, s.gpu, **KINDS[kind][1], dtype="fp8")
    assert f"{float(s.step.total / eight.step.total):.3g} times as fast" in faster


def test_elements_of_each_kind_by_hand():
    assert (
        "its 204,800 query elements per token need no place, its 409,600 elements"
        in of("many heads")[1]["Why are there no query heads in the formula?"]
    )  # 40 layers of 40 heads of 128
    assert (
        "71 query heads, 71 to each of 1 K/V head: its 145,408"
        in of("one head")[1]["Why are there no query heads in the formula?"]
    )  # 32 × 71 × 64
    latent = of("latent")[1]
    assert "576 elements per token and layer serve all" in latent["Why are there no query heads in the formula?"]
    assert "15,552 elements over 27 layers" in latent["What does MLA store?"]  # 27 × (512 + 64)
    assert (
        "A key of 192 and a value of 128 for every head would be 138,240, 8.89 times as many"
        in latent["What does MLA store?"]
    )  # 27 × 16 × 320
    assert (
        "the 64 rotary elements stay in 16 bits, a layer takes 640 B per token instead of 1,152"
        in latent["Does FP8 halve the KV cache?"]
    )
    assert "8,192 elements per attention layer, 14.2 times" not in of("many heads")[1]["What does MLA store?"]
    assert "10,240 elements per attention layer, 17.8 times as many" in of("many heads")[1]["What does MLA store?"]
    assert (
        "128 elements per attention layer, fewer than such a latent takes" in of("one head")[1]["What does MLA store?"]
    )


def test_bytes_of_the_answers_about_blocks():
    s, found = of("grouped heads")
    per_gpu = 2 * 80 * 2 * 128 * 2  # two of eight KV heads on each of four GPUs
    assert s.kv_per_token_per_gpu == per_gpu
    assert f"{16 * per_gpu:,} B" in found["What does a prefix cache hold?"]
    assert f"fills 125 whole blocks, {2000 * per_gpu:,} B" in found["What does a prefix cache hold?"]
    size_of_block = found["How do I choose the block size?"]
    assert f"block 32: at most 31 idle tokens a request, {31 * per_gpu:,} B per GPU" in size_of_block
    assert f"contiguous pieces of {32 * 2 * 128 * 2:,} B" in size_of_block  # the keys of one layer on one GPU
    pool = s.budget // (16 * per_gpu)
    eviction = found["When does an entry of the prefix cache die?"]
    assert f"The pool has {pool:,} blocks of 16 tokens, so {16 * pool:,} tokens" in eviction
    assert f"the pool has room for {16 * pool:,} of them" in found["Why not limit the number of requests?"]


def test_tensor_parallelism_by_kind():
    question = "Does more tensor parallelism give more concurrency?"
    grouped = of("grouped heads")[1][question]
    assert grouped.startswith("Up to a point.")
    assert (
        "tp 1: 327,680 B per token per GPU, the weights do not fit; tp 2: 163,840 B per token per GPU, 5 sequences"
        in grouped
    )
    assert of("latent")[1][question].startswith("Only through the weights. The latent is not split")
    assert of("one head")[1][question].startswith("Only through the weights. There is one K/V head")
    assert "(every layer counted in full)" in of("windows")[1][question]


def test_experts_by_kind():
    question = "Why do mixtures of experts suit decoding?"
    assert of("grouped heads")[1][question].startswith(
        "llama-3-70b is dense: every step reads 69,503,033,344 of its 70,553,706,496"
    )
    s, found = of("experts")
    assert f"uses 12,879,925,248 of {s.num_params:,} parameters" in found[question]
    table = 32_000 * 4096  # 4 tokens × 2 experts are all 8 at most, 2 at least, 8 × (1 - (6/8)^4) = 5.47 on average
    assert f"reads {12_879_925_248 - table:,} to {46_702_792_704 - table:,}, and" in found[question]
    assert "3,000,000,000 of 80,000,000,000 parameters" in of("layers without K/V")[1][question]
    assert "The 36 layers without K/V need their state" in of("layers without K/V")[1]["What does a prefix cache hold?"]
    given = size(get_model("llama-3-8b"), get_gpu("h100-sxm"), num_params=8e9)
    assert dict(answers(given))[question].startswith(
        "llama-3-8b is dense: every step reads 7,474,663,424 of its 8,000,000,000"
    )


def test_a_model_that_does_not_fit_is_answered_without_zeros():
    s, found = of("does not fit")
    assert (s.weights_fit, s.least_tp) == (False, 2)
    for question in (
        "Does FP8 halve the KV cache?", "Why not limit the number of requests?", "When does an entry of the prefix cache die?",
    ):  # fmt: skip
        assert not re.search(r"(?<![.\d])0(?![.\d])", found[question]), found[question]
    assert "here they do not fit" in found["Does FP8 halve the KV cache?"]
    assert "instead of nothing, as bf16 weights do not even fit" in found["Why does quantization make decoding faster?"]
    assert s.notes[0].startswith("the weights do not fit: 141,107,412,992 B")
    assert "at least 2 such GPUs" in s.notes[0]


@pytest.mark.parametrize(
    ("name", "changes"), [("llama-3-70b", {}), ("deepseek-v3", {"overhead": 40e9}), ("gpt-2", {"overhead": 79.9e9})]
)
def test_the_least_number_of_gpus_is_the_least(name, changes):
    model, gpu = get_model(name), get_gpu("h100-sxm")
    least = size(model, gpu, **changes).least_tp
    assert size(model, gpu, tp=least, **changes).weights_fit
    assert least == 1 or not size(model, gpu, tp=least - 1, **changes).weights_fit
    assert size(model, gpu, overhead=80e9).least_tp is None
    assert "per GPU alone fills a card" in size(model, gpu, overhead=80e9).notes[0]


def test_a_step_that_computes_is_not_called_idle():
    s, found = of("grouped heads", context=16, batch=4096)
    assert s.step.bound == "compute"
    assert found["Why is the GPU mostly idle while decoding?"].startswith("Here it is not")
    assert "Here it waits for arithmetic" in found["Why does quantization make decoding faster?"]


def test_active_parameters_of_a_mixture_set_the_pace():
    model, gpu = get_model("qwen3-next-80b-a3b"), get_gpu("h100-sxm")
    deduced = size(model, gpu, num_params=80e9, tp=4)
    some = size(model, gpu, num_params=80e9, num_active_params=3e9, tp=4)
    idle = 48 * 502 * 3 * 2048 * 512  # layers × experts that a token does not use × their three matrices
    assert deduced.num_active_params == 80 * 10**9 - idle
    assert any("less the experts that a token does not use" in note for note in deduced.notes)
    assert not any("less the experts" in note for note in some.notes)
    assert some.step.weights == Fraction((3 * 10**9 - 151_936 * 2048) * 2, 4 * gpu.memory_bandwidth)
    assert size(model, gpu, num_params=80e9, num_active_params=3e9, batch=100).reads.most == 80 * 10**9 - 151_936 * 2048
    for bad in (0, 81e9, "many", True):
        with pytest.raises(ValueError, match="num_active_params="):
            size(model, gpu, num_params=80e9, num_active_params=bad)
    with pytest.raises(ValueError, match=r"num_active_params=\S+ needs num_params too"):
        size(model, gpu, num_active_params=3e9)


def test_the_floor_of_a_mixture_counts_the_fewest_experts():
    """DeepSeek-V2, 16 tokens: 6 of 160 experts at least, 73.2 if each is as likely as any other, 96 at most."""
    model, gpu = get_model("deepseek-v2"), get_gpu("h100-sxm")
    one, many = size(model, gpu, tp=8), size(model, gpu, tp=8, batch=16)
    assert one.step.weights == many.step.weights == one.expected_step.weights
    expert = 59 * 3 * 5120 * 1536
    assert many.reads.most - many.reads.least == 90 * expert
    drawn = (many.reads.expected - many.reads.least) / expert + 6
    assert drawn == pytest.approx(sum(1 - (1 - 6 / 160) ** 16 for _ in range(160)), abs=1e-6)
    assert any("73.2 on average" in note and "96 at most" in note for note in many.notes)
    everything = size(model, gpu, tp=8, batch=10**9).reads
    assert everything.expected == everything.most == many.num_params - 102_400 * 5120
    dense = size(get_model("llama-3-8b"), gpu, batch=16)
    assert dense.expected_step == dense.step
    assert dense.reads.least == dense.num_params - 128_256 * 4096
    tied = size(get_model("llama-3.2-1b"), gpu)
    assert tied.reads.least == tied.num_params


def test_a_windowed_layer_attends_to_its_window_only():
    """Gemma-2-9B at 8,192 tokens: 21 layers with a window of 4,096 compute half the scores of the other 21."""
    s = size(get_model("gemma-2-9b"), get_gpu("h100-sxm"), batch=3)
    scores = 4 * 16 * 256 * 21 * (8192 + 4096)
    assert s.step.compute == Fraction(3 * (2 * s.reads.least + scores), s.flops)
    assert s.step.kv == Fraction(3 * s.kv_per_sequence_per_gpu, s.gpu.memory_bandwidth)
    text = next(text for text in s.working if text.startswith("decode_step_time"))
    assert "21 layers that attend to 4,096 tokens" in text
    by_hand = sum(min(t, 4096) + t for t in range(1, 8193)) * 21 * 16 * 4 * 256
    head = 256_000 * 3584
    assert s.prefill == Fraction(2 * (s.reads.least - head) * 8192 + 2 * head + by_hand, s.flops)


def test_the_answers_quote_this_models_numbers():
    text = dict(answers(size(get_model("llama-3-70b"), get_gpu("h100-sxm"), tp=2, batch=16)))
    idle = text["Why is the GPU mostly idle while decoding?"]
    assert re.search(r"\d FLOP per byte, where this GPU could do 295\.2", idle)
    assert "64 query heads, 8 to each of 8 K/V heads" in text["Why are there no query heads in the formula?"]
    assert "327,680 B per token become 163,840 B" in text["Does FP8 halve the KV cache?"]
    assert "166,400 B" in text["Does FP8 halve the KV cache?"]
    assert "11 sequences instead of 5" in text["Does FP8 halve the KV cache?"]
    assert "22 of 2,048 tokens, 5 of 8,192 tokens, 1 of 32,768 tokens" in text["Why not limit the number of requests?"]
    assert "tp 8: 40,960 B" in text["Does more tensor parallelism give more concurrency?"]
    assert "tp 16: 40,960 B" in text["Does more tensor parallelism give more concurrency?"]
    assert "512 + 64 = 576" in text["What does MLA store?"]


def test_why_is_printed_and_in_the_json(run):
    result = run("size", *TP2, "--why")
    assert [line for line in result.out.splitlines() if re.match(r"\d+\. ", line)][-1].startswith(
        "12. When does an entry"
    )
    assert len(report(run, *TP2, "--why")["why"]) == 12


@pytest.mark.parametrize("number", [1, 4, 12])
def test_why_answers_one_question_under_its_own_number(run, number):
    whole = run("size", *TP2, "--why").out
    numbered = [line for line in whole.splitlines() if re.match(rf"{number}\. ", line)]
    shown = [line for line in run("size", *TP2, "--why", str(number)).out.splitlines() if re.match(r"\d+\. ", line)]
    assert shown == numbered
    assert len(report(run, *TP2, f"--why={number}")["why"]) == 1


@pytest.mark.parametrize("value", ["0", "13", "-1", "1.5", "fp8", ""])
def test_why_has_twelve_questions(capsys, value):
    with pytest.raises(SystemExit):
        main(["size", *TP2, f"--why={value}"])
    assert "--why" in capsys.readouterr().err


def test_one_question_prints_one_answer(run):
    result = run("size", *TP2, "--why", "7", "2")
    asked = [line for line in result.out.splitlines() if re.match(r"\d+\. ", line)]
    assert asked == ["7. Why does quantization make decoding faster?", "2. What does a prefix cache hold?"]
    assert "Worked arithmetic" not in result.out
    assert [each["question"] for each in report(run, *TP2, "--why", "12")["why"]] == [
        "When does an entry of the prefix cache die?"
    ]
    for bad in ("0", "13", "seven"):
        refused = run("size", *TP2, "--why", bad)
        assert refused.status == 2
        assert "argument --why: " in refused.err
