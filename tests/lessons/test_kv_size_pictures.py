"""The pictures of lesson 02 say in words what they show, and the capacity panel says what `mini-engine size` says."""

from __future__ import annotations

import contextlib
import io
import json
import re
import xml.etree.ElementTree as ET

import pytest

from mini_engine.cli import main
from mini_engine.course import panel, picture
from mini_engine.course.panels import p02_capacity, p02_kv_size

CASES = [
    {"model": "llama-3-70b", "gpu": "h100-sxm", "tp": 2, "context": 8192, "batch": 4},
    {"model": "deepseek-v3", "gpu": "h200-sxm", "tp": 8, "context": 131072, "batch": 64, "kv_dtype": "fp8", "dtype": "fp8"},
    {"model": "gemma-3-1b", "gpu": "a100-40gb-sxm", "tp": 1, "context": 32768, "batch": 256},
    {"model": "qwen3-next-80b-a3b", "gpu": "h100-sxm", "tp": 4, "context": 1024, "batch": 1, "params": "80e9"},
]  # fmt: skip


def keep(draw, **values):
    """The picture, and the figure that it was drawn on."""
    figures = []
    return picture(lambda figure, **v: figures.append(figure) or draw(figure, **v), **values), figures[0]


def sized(case):
    """What the command says about the same case, as plain values."""
    options = [part for name, value in case.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["size", *options, "--json"]) == 0
    return json.loads(out.getvalue())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["model"])
def test_the_panel_and_the_command_give_the_same_numbers(case):
    shown, figure = keep(p02_capacity.capacity, **case)
    command = sized(case)
    for name in ("kv_bytes_per_token", "kv_bytes_on_all_gpus", "max_concurrency", "kv_budget_bytes", "num_params"):
        assert f"{command[name]:,}" in shown.text, name
    assert (": fits;" in shown.text) == command["fits"]
    assert f"bound by {'compute' if command['bound'] == 'compute' else 'memory bandwidth'}" in shown.text
    memory, time = figure.axes
    widths = [patch.get_width() for patch in memory.patches]
    assert widths[0] == pytest.approx(command["weight_bytes_per_gpu"] / 1e9)
    assert widths[2] == pytest.approx(command["kv_reserved_bytes_per_sequence_per_gpu"] * case["batch"] / 1e9)
    seconds = [patch.get_width() / 1e3 for patch in time.patches]
    assert seconds == pytest.approx([command["step_seconds"][part] for part in ("weights", "kv", "compute")])
    assert memory.get_xlim()[1] >= max(sum(widths), command["memory_bytes"] / 1e9)


CONFIGS = [
    {"model_type": "llama", "num_hidden_layers": 22, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 5632, "vocab_size": 32000},
    {"model_type": "qwen3", "num_hidden_layers": 36, "hidden_size": 2560, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9728, "vocab_size": 151936},
    {"model_type": "deepseek_v3", "num_hidden_layers": 12, "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 4096, "vocab_size": 32000, "kv_lora_rank": 256, "qk_rope_head_dim": 32, "qk_nope_head_dim": 64, "v_head_dim": 64, "q_lora_rank": None, "n_routed_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 512, "n_shared_experts": 1, "first_k_dense_replace": 1},
]  # fmt: skip


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config["model_type"])
def test_models_that_are_in_no_table_come_out_the_same_in_panel_and_command(config, tmp_path):
    path = tmp_path / "new-model" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"max_position_embeddings": 4096, **config}))
    live = panel(p02_capacity.capacity, **p02_capacity.controls())
    live.controls["model"].value = str(path)
    command = sized({"model": path, "gpu": "h100-sxm", "tp": 2, "context": 8192, "batch": 4})
    assert live.readout.startswith("new-model on 2 x h100-sxm")
    for name in ("kv_bytes_per_token", "kv_bytes_on_all_gpus", "max_concurrency", "kv_budget_bytes", "num_params"):
        assert f"{command[name]:,}" in live.readout, name
    assert "<br>" in live.view.value, "the arithmetic stands in lines"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "nonsense"}, "no model named 'nonsense'"),
        ({"model": ""}, "the path is empty"),
        ({"model": "no/such/config.json"}, "config.json"),
        ({"params": "many"}, "params='many'"),
        ({"params": "70B"}, "params='70B' has a unit: write 70e9"),
        ({"params": "8e9, 9e9"}, "params, behind the comma, '9e9' is more than params='8e9'"),
        ({"params": "8e9, 70B"}, "write 70e9"),
        ({"params": ", 3e9"}, "params, behind the comma, '3e9' needs all of them before it"),
        ({"model": "jamba-v0.1", "params": ", 3e9"}, "needs all of them before it"),
    ],
)
def test_what_cannot_be_sized_is_said_in_words(changes, words):
    live = panel(p02_capacity.capacity, **p02_capacity.controls())
    for name, value in changes.items():
        live.controls[name].value = value
    assert words in live.readout
    assert "--" not in live.readout
    assert "Error" not in live.view.value
    live.controls["model"].value, live.controls["params"].value = "llama-3-8b", ""
    assert "llama-3-8b on 2 x h100-sxm" in live.readout


def test_a_model_whose_weights_are_unknown_still_shows_its_cache():
    case = {"model": "jamba-v0.1", "gpu": "h100-sxm", "tp": 2, "context": 8192, "batch": 4}
    shown, figure = keep(p02_capacity.capacity, **case)
    assert "write them into the field params, such as 80e9" in shown.text
    assert "16,384 B" in shown.text
    assert "--" not in shown.text
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([sized(case)["kv_total_bytes"] / 2 / 1e9])
    both, _ = keep(p02_capacity.capacity, **case, params="52e9, 12e9")
    assert ": fits;" in both.text
    given = sized(case | {"params": "52e9", "active_params": "12e9"})
    assert f"{given['num_read_params']['least']:,}" in both.text


def test_a_cache_larger_than_the_card_fits_beside_no_weights():
    case = {"model": "jamba-v0.1", "gpu": "h100-sxm", "tp": 1, "context": 131_072, "batch": 64}
    shown, _ = keep(p02_capacity.capacity, **case)
    assert "does not fit, whatever the weights" in shown.text
    assert any("more than a card holds" in note for note in sized(case)["notes"])
    case["batch"] = 36  # 36 × 131,072 × 16,384 B = 77.3 GB; 78 are left beside the overhead
    assert "K/V only" in keep(p02_capacity.capacity, **case)[0].text
    case["batch"] = 37
    assert "does not fit" in keep(p02_capacity.capacity, **case)[0].text


def test_what_fits_is_said_as_it_is_counted():
    case = {"model": "gemma-3-27b", "gpu": "h100-sxm", "tp": 1, "context": 32768, "batch": 4}
    shown, figure = keep(p02_capacity.capacity, **case)
    assert ": fits only if windows are given back; room for 1 such sequence (7 if windows are given back)" in shown.text
    assert "fits only if windows are given back" in figure.axes[0].get_title(loc="left")
    copied, _ = keep(p02_capacity.capacity, model="llama-3-8b", gpu="h100-sxm", tp=16, context=8192, batch=4)
    assert f"on 16 GPUs together {65_536 * 2 * 2 * 8192 * 4:,} B, copies included" in copied.text
    mixture, _ = keep(p02_capacity.capacity, model="deepseek-v2", gpu="h100-sxm", tp=8, context=8192, batch=16)
    assert "with experts drawn at random" in mixture.text


def test_the_grid_has_the_twelve_sizes():
    shown, figure = keep(
        p02_kv_size.grid, bytes_per_token=327_680, contexts=[2048, 4096, 8192, 32768], batches=[1, 4, 16], weights=140 * 10**9
    )  # fmt: skip
    cells = [text.get_text() for text in figure.axes[0].texts]
    sizes = ["0.625", "1.25", "2.5", "10", "2.5", "5", "10", "40", "10", "20", "40", "160"]
    assert cells == [f"{size} GiB" for size in sizes]
    assert "batch 16: 10, 20, 40, 160" in shown.text
    assert shown.text.endswith("more than the weights, 140 GB = 130.4 GiB: 32,768 x 16")
    assert len(figure.axes[0].patches) == 1, "one cell is framed"


def test_levers_are_bars_from_the_one_before():
    shown, figure = keep(p02_kv_size.levers, steps=[("none", 0.5), ("first", 4.0), ("second", 6.0)], context=100)
    bars = figure.axes[0].patches
    assert [(bar.get_y(), bar.get_y() + bar.get_height()) for bar in bars[1:]] == [(0.5, 4.0), (4.0, 6.0)]
    assert shown.text == "requests of 100 tokens: none 0, then first 4 (x 8.00), then second 6 (x 1.50)"


def test_the_formula_card_is_a_small_drawing_with_words():
    source, words = p02_kv_size.formula_card()
    root = ET.fromstring(source)
    assert len(source) < 6000
    assert len(words) > 60
    width, height = int(root.get("width")), int(root.get("height"))
    for shape in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert int(shape.get("x", 0)) + int(shape.get("width")) <= width
        assert int(shape.get("y", 0)) + int(shape.get("height")) <= height
    assert re.search(r"key and a value", words)
