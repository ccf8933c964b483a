"""`mini-engine size`: the figures are those of the formulas, for models of the table and for any config.json."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mini_engine.catalog import ModelSpec, get_gpu, get_model, list_gpus, list_models
from mini_engine.data_files import data_dir
from mini_engine.geometry import kv_budget, kv_total_bytes, max_concurrency, weight_bytes
from mini_engine.roofline import decode_step_time
from mini_engine.sizing import size
from mini_engine.sizing.report import as_json, as_text
from mini_engine.sizing.why import answers
from tests.cli.size_reports import TP2, report

ROOT = Path(__file__).resolve().parents[2]


def test_the_figures_of_llama_3_70b_on_two_h100(run):
    found = report(run, *TP2, "--context", "8192", "--batch", "16", "--kv-dtype", "fp8")
    assert found["kv_bytes_per_token"] == 163_840
    assert found["kv_bytes_per_token_per_gpu"] == 81_920
    assert found["kv_total_bytes"] == 163_840 * 8192 * 16
    assert found["weight_bytes_per_gpu"] == 70_553_706_496
    assert found["kv_budget_bytes"] == 80 * 10**9 - 70_553_706_496 - 2 * 10**9
    assert found["max_concurrency"] == 11
    assert found["max_context"] == found["kv_budget_bytes"] // (81_920 * 16)
    assert found["fits"] is False
    assert found["bound"] == "memory"
    read = 70_553_706_496 - 128_256 * 8192  # the input embedding table is looked up, not read
    step = decode_step_time(read, 81_920, 8192, 16, 3.35e12, read, 989e12, 80, 64, 128, 2)
    assert found["step_seconds"]["total"] == pytest.approx(float(step.total), rel=1e-12)
    assert found["tokens_per_s"] == pytest.approx(16 / float(step.total), rel=1e-12)
    assert found["batch_for_ridge"] is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), [22, 11, 5, 1]),  # exact weights, nominal card, 2 GB overhead
        (("--memory", "reported", "--util", "0.9"), [13, 6, 3, 0]),
        (("--params", "70e9"), [23, 11, 5, 1]),
        (("--params", "70e9", "--overhead-gb", "5"), [14, 7, 3, 0]),
        (("--params", "70e9", "--memory", "reported"), [40, 20, 10, 2]),
    ],
)
def test_concurrency_depends_on_what_is_assumed(run, options, expected):
    contexts = ("2048", "4096", "8192", "32768")
    assert [report(run, *TP2, "--context", c, *options)["max_concurrency"] for c in contexts] == expected


def test_the_text_holds_figures_assumptions_and_arithmetic(run):
    result = run("size", *TP2, "--batch", "4")
    assert result.status == 0
    for part in (
        "2 × h100-sxm: 4 sequences of 8,192 tokens",
        "327,680 B = 0.0003277 GB = 0.0003052 GiB (320 KiB)",
        "concurrency                  5 sequences",
        "bound by                     memory bandwidth, most of it for weights",
        "Assumed",
        "overhead 2,000,000,000 B",
        "Worked arithmetic",
        "= 2 × 80 × 8 × 128 = 163,840 elements",
        "not included:",
        "tok/s",
    ):
        assert part in result.out, part


# Three configurations as published files write them, none of them in the table.
UNLISTED = {
    "grouped heads, head_dim given": {
        "model_type": "qwen3", "num_hidden_layers": 36, "hidden_size": 2560, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 9728, "vocab_size": 151936, "max_position_embeddings": 40960, "tie_word_embeddings": True,
    },
    "nested, with windows": {
        "model_type": "gemma3",
        "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024},
    },
    "latent, with experts": {
        "model_type": "deepseek_v3", "num_hidden_layers": 10, "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 16,
        "intermediate_size": 4096, "vocab_size": 32000, "max_position_embeddings": 8192, "kv_lora_rank": 256, "qk_rope_head_dim": 32,
        "qk_nope_head_dim": 64, "v_head_dim": 64, "q_lora_rank": None, "n_routed_experts": 32, "num_experts_per_tok": 4, "n_shared_experts": 1,
        "moe_intermediate_size": 512, "first_k_dense_replace": 1,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", UNLISTED)
def test_a_newcomer_sizes_a_model_from_its_config(run, tmp_path, name):
    """The command, the function that panels call and the formulas give the same numbers."""
    (tmp_path / "config.json").write_text(json.dumps(UNLISTED[name]))
    found = report(run, "--model", str(tmp_path / "config.json"), "--gpu", "l4", "--context", "4096", "--batch", "3")
    spec, gpu = ModelSpec.from_hf_config(tmp_path), get_gpu("l4")
    assert found == json.loads(json.dumps(as_json(size(spec, gpu, context=4096, batch=3))))
    assert found["kv_total_bytes"] == kv_total_bytes(spec, 4096, 3)
    assert found["weight_bytes_per_gpu"] == weight_bytes(spec)
    budget = kv_budget(gpu.memory_bytes, weight_bytes(spec), 2e9)
    assert found["max_concurrency"] == max_concurrency(budget, found["kv_bytes_per_token_per_gpu"], 4096, 16)
    assert run("size", "--model", str(tmp_path)).status == 0  # the folder works as well as the file


def test_windows_are_counted_twice_and_said(run):
    found = report(run, "--model", "gemma-3-27b", "--gpu", "l4", "--tp", "4", "--context", "8192")
    assert found["max_concurrency_windowed"] > found["max_concurrency"]
    assert found["kv_bytes_per_sequence_per_gpu"] * 4 < found["kv_total_bytes"]
    assert any("52 of 62 attention layers keep a window" in note for note in found["notes"])


def test_blocks_are_counted_whole(run):
    """17 tokens take two blocks of 16, in full layers and in windows."""
    found = report(run, "--model", "gemma-2-9b", "--context", "17")
    assert found["kv_reserved_bytes_per_sequence_per_gpu"] == 32 * found["kv_bytes_per_token"]
    assert found["max_concurrency"] == found["kv_budget_bytes"] // (32 * found["kv_bytes_per_token"])
    phi = report(run, "--model", "phi-3-mini-4k", "--context", "4096")  # a window of 2,047 takes 2,048 slots
    assert phi["kv_reserved_bytes_per_sequence_per_gpu"] == 2048 * phi["kv_bytes_per_token"]


@pytest.mark.parametrize(
    "changes",
    [
        {"context": 1},
        {"context": 10**9, "batch": 10**9},
        {"tp": 10**6},
        {"block": 10**6},
        {"context": 3, "block": 7, "tp": 3, "num_params": 1},
        {"util": "1/3", "overhead": 0},
        {"overhead": 10**18},
    ],
)
def test_extreme_deployments_still_print(changes):
    for name in ("llama-3-8b", "gemma-3-1b", "deepseek-v3"):
        sizing = size(get_model(name), get_gpu("h100-sxm"), **changes)
        text = as_text(sizing, answers(sizing))
        assert not re.search(r"\b(nan|inf|None)\b", text)
        json.dumps(as_json(sizing), allow_nan=False)


@pytest.mark.parametrize("name", ["tp", "context", "batch", "block", "util", "overhead", "num_params"])
@pytest.mark.parametrize("bad", [0, -1, 10**400, float("nan"), float("inf"), "many", True, [1]])
def test_the_function_behind_the_command_names_its_arguments(name, bad):
    if (name, bad) == ("overhead", 0):
        return  # no overhead is a valid assumption
    with pytest.raises(ValueError, match=rf"\b{name}="):
        size(get_model("llama-3-8b"), get_gpu("h100-sxm"), **{name: bad})


def test_copied_heads_and_unsplit_latents_are_said(run):
    assert any(
        "16 GPUs do not divide 8 K/V heads" in note
        for note in report(run, "--model", "llama-3-8b", "--tp", "16")["notes"]
    )
    assert any(
        "not split by heads" in note for note in report(run, "--model", "deepseek-v2-lite", "--tp", "2")["notes"]
    )


def test_a_context_beyond_the_models_positions_is_said(run):
    assert any(
        "more than the 8,192 positions" in n for n in report(run, "--model", "llama-3-8b", "--context", "8193")["notes"]
    )
    assert not report(run, "--model", "llama-3-8b", "--context", "8192")["notes"]


def test_the_cache_of_a_hybrid_is_sized_without_its_number_of_parameters(run):
    """4 of Jamba's 32 layers attend: 2 × 4 × 8 × 128 elements a token, whatever its Mamba layers weigh."""
    result = run("size", "--model", "jamba-v0.1", "--tp", "2", "--batch", "3")
    assert result.status == 0
    assert "16,384 B" in result.out
    assert "--params 80e9" in result.out
    for absent in ("the weights ", "decode step", "concurrency", "weights in"):
        assert not any(line.strip().startswith(absent) for line in result.out.splitlines()), absent
    found = report(run, "--model", "jamba-v0.1", "--tp", "2", "--batch", "3")
    assert found["kv_total_bytes"] == 16_384 * 8192 * 3
    assert found["num_params"] is None
    assert "step_seconds" not in found
    assert report(run, "--model", "qwen3-next-80b-a3b", "--params", "80e9", "--tp", "4")["num_params"] == 80 * 10**9
    refused = run("size", "--model", "jamba-v0.1", "--why", "7")
    assert refused.status == 1
    assert "--params" in refused.err


@pytest.mark.parametrize("name", list_models())
def test_every_model_of_the_table_is_sized_and_answered(name):
    spec = get_model(name)
    given = {"num_params": 10**9} if spec.layers_without_kv else {}
    for gpu in ("h100-sxm", "apple-m1"):
        for tp, batch in ((1, 1), (8, 64)):
            sizing = size(spec, get_gpu(gpu), tp=tp, batch=batch, context=2048, **given)
            twelve = answers(sizing)
            assert len(twelve) == 12
            text = as_text(sizing, twelve)
            assert not re.search(r"\b(nan|inf|None|Fraction|Decimal)\b", text), text
            json.dumps(as_json(sizing, twelve), allow_nan=False)


@pytest.mark.parametrize("gpu", list_gpus())
def test_every_gpu_of_the_table_is_sized(gpu):
    sizing = size(get_model("llama-3-8b"), get_gpu(gpu), dtype="fp8", kv_dtype="fp8")
    assert sizing.step.total > 0
    assert sizing.fits == (sizing.concurrency >= 1)


def test_quantized_weights_and_unknown_positions_are_said(run, tmp_path):
    config = UNLISTED["grouped heads, head_dim given"] | {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    config.pop("max_position_embeddings")
    (tmp_path / "config.json").write_text(json.dumps(config))
    notes = report(run, "--model", str(tmp_path))["notes"]
    assert any("quantized (gptq, 4 bits)" in note and "bf16" in note and "--dtype" in note for note in notes)
    assert any("no max_position_embeddings" in note for note in notes)


def test_too_much_overhead_is_not_blamed_on_the_weights(run):
    result = run("size", "--model", "llama-3-8b", "--overhead-gb", "100", "--why")
    assert "the overhead of 100,000,000,000 B" in result.out
    assert "weights do not fit" not in result.out
    assert "they do not fit" not in result.out


def test_eight_bits_counted_as_eight_bits_need_no_note(run, tmp_path):
    config = UNLISTED["grouped heads, head_dim given"] | {"quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "config.json").write_text("\ufeff" + json.dumps(config), encoding="utf-8")  # some editors mark UTF-8
    assert "quantized (fp8, 8 bits)" in str(report(run, "--model", str(tmp_path))["notes"])
    assert "quantized" not in str(report(run, "--model", str(tmp_path), "--dtype", "fp8")["notes"])


def test_layers_that_read_anothers_cache_have_no_state(run, tmp_path):
    config = UNLISTED["grouped heads, head_dim given"] | {"num_kv_shared_layers": 6}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (note,) = [n for n in report(run, "--model", str(tmp_path))["notes"] if "of 36 layers" in n]
    assert note == "6 of 36 layers have no K/V of their own (shared K/V)"
    assert any("(mamba); their fixed state" in n for n in report(run, "--model", "jamba-v0.1")["notes"])


def test_copies_are_counted_on_all_gpus(run):
    """16 GPUs share 8 KV heads, so each head is held twice; a latent is held by every GPU."""
    for model, copies in (("llama-3-8b", 2), ("deepseek-v2-lite", 16)):
        found = report(run, "--model", model, "--tp", "16", "--batch", "4")
        assert found["kv_bytes_on_all_gpus"] == copies * found["kv_total_bytes"]
        assert "copies included" in run("size", "--model", model, "--tp", "16", "--batch", "4").out
    assert "copies included" not in run("size", "--model", "llama-3-8b", "--tp", "8").out


def test_what_fits_and_how_many_fit_are_one_assumption(run):
    """Gemma-3-27B: 1 sequence with every layer in full, 7 when windows are given back."""
    given = ("--model", "gemma-3-27b", "--context", "32768", "--batch")
    for batch, verdict in (
        (1, "fits: "),
        (2, "fits only if windows are given back: "),
        (7, "fits only if"),
        (8, "does not fit: "),
    ):
        found = report(run, *given, str(batch))
        assert (found["max_concurrency"], found["max_concurrency_windowed"]) == (1, 7)
        assert found["fits"] == (batch <= 1)
        assert found["fits_windowed"] == (batch <= 7)
        line = next(row for row in run("size", *given, str(batch)).out.splitlines() if row.startswith("  the batch"))
        assert line.split(maxsplit=2)[2].startswith(verdict)


@pytest.mark.parametrize("name", ["tiny-gqa", "tiny-mla"])
def test_the_small_models_are_sized_by_the_name_they_are_loaded_by(run, name):
    by_name, by_path = (run("size", "--model", model) for model in (name, str(data_dir() / "models" / name)))
    assert (by_name.status, by_name.err) == (0, "")
    assert by_name.out == by_path.out
    assert by_name.out.startswith(f"{name} on ")


def test_the_names_are_listed(run):
    result = run("size", "--list")
    assert result.status == 0
    assert "llama-3-70b" in result.out
    assert "h100-sxm" in result.out


HEAVY = {
    "torch", "numpy", "transformers", "tokenizers", "safetensors", "triton", "matplotlib", "PIL", "ipywidgets", "IPython",
    "asyncio", "multiprocessing", "urllib.request", "mini_engine.models", "mini_engine.llm", "mini_engine.course",
}  # fmt: skip


def test_nothing_heavy_is_imported():
    """The answer must come in a moment: no array library, no torch, nothing of Jupyter. (Its time is a benchmark.)"""
    script = (
        "import sys; from mini_engine.cli import main; "
        "main(['size', '--model', 'llama-3-8b', '--why']); main(['size', '--model', 'data/models/tiny-gqa', '--json']); "
        f"heavy = {HEAVY} & set(sys.modules); sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
