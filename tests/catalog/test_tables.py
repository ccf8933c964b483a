"""data/models.csv and data/gpus.csv: complete, sourced, and readable by name."""

from __future__ import annotations

import dataclasses

import pytest

from mini_engine.catalog.specs import GPUSpec, ModelSpec
from mini_engine.catalog.tables import get_gpu, get_model, list_gpus, list_models, model_from_row, model_row, read_table

FLAGS = {"yes", "third-party", "partial", "no"}


@pytest.mark.parametrize(("table", "least"), [("models.csv", 40), ("gpus.csv", 20)])
def test_every_row_has_a_source_and_a_verified_flag(table, least):
    rows = read_table(table)
    assert len(rows) >= least
    assert len({row["name"] for row in rows}) == len(rows)
    for row in rows:
        assert row["source"], row["name"]
        assert row["verified"] in FLAGS, row["name"]
        if row["source"] == "from memory":
            assert row["verified"] == "no", row["name"]


def test_names_are_found_whatever_their_case_and_punctuation():
    assert get_model("llama-3-70b") == get_model("Llama 3 70B") == get_model("llama3_70b")
    assert get_gpu("H100 SXM") == get_gpu("h100-sxm")
    assert [get_model(name).name for name in list_models()] == list_models()
    assert [get_gpu(name).name for name in list_gpus()] == list_gpus()


def test_an_unknown_name_lists_the_near_ones():
    with pytest.raises(KeyError, match="llama-3-70b"):
        get_model("llama-3-80b")
    with pytest.raises(KeyError, match=r"h100-sxm.*h100-pcie"):
        get_gpu("h100")
    for nonsense in ("", "zzz", "?"):
        with pytest.raises(KeyError, match="Near names: "):
            get_model(nonsense)


def test_the_shape_of_llama_3_70b():
    spec = get_model("llama-3-70b")
    assert (spec.num_hidden_layers, spec.num_attention_heads, spec.num_key_value_heads, spec.head_dim) == (
        80,
        64,
        8,
        128,
    )
    assert (spec.hidden_size, spec.intermediate_size, spec.vocab_size, spec.tie_word_embeddings) == (
        8192,
        28672,
        128256,
        False,
    )


def test_h100_is_the_dense_figure_and_the_nominal_size():
    h100 = get_gpu("h100-sxm")
    assert (h100.memory_bytes, h100.memory_bandwidth, h100.bf16_flops) == (80 * 10**9, 3350 * 10**9, 989 * 10**12)
    assert h100.reported_memory_bytes == 81559 * 2**20
    assert get_gpu("h100-pcie").bf16_flops == 756_500 * 10**9  # a fraction of a TFLOPS stays exact


def test_latent_rows_have_no_kv_heads_of_their_own():
    row = model_row("deepseek-v3")
    assert row["num_key_value_heads"] == row["head_dim"] == ""
    spec = get_model("deepseek-v3")
    assert spec.is_mla
    assert (spec.num_key_value_heads, spec.head_dim) == (128, 192)


@pytest.mark.parametrize(
    ("name", "full", "windowed", "window"),
    [
        ("gemma-3-1b", 4, 22, 512),
        ("gemma-3-27b", 10, 52, 1024),
        ("gemma-2-9b", 21, 21, 4096),
        ("gpt-oss-120b", 18, 18, 128),
        ("mistral-7b-v0.1", 0, 32, 4096),
        ("phi-3-mini-4k", 0, 32, 2047),
        ("llama-3-8b", 32, 0, None),
    ],
)
def test_windows(name, full, windowed, window):
    spec = get_model(name)
    assert spec.layer_windows.count(None) == full
    assert spec.num_windowed_layers == windowed
    assert {w for w in spec.layer_windows if w} == ({window} if window else set())


def test_hybrid_models_list_only_the_layers_that_attend():
    qwen = get_model("qwen3-next-80b-a3b")
    assert (qwen.num_hidden_layers, qwen.num_attention_layers) == (48, 12)
    assert set(qwen.layers_without_kv) == {"linear_attention"}
    assert get_model("jamba-v0.1").num_attention_layers == 4


def test_a_wrong_cell_is_named():
    row = model_row("llama-3-8b") | {"hidden_size": "4k"}
    with pytest.raises(ValueError, match="hidden_size='4k'"):
        model_from_row(row)


@pytest.mark.parametrize("field", ["num_hidden_layers", "hidden_size", "num_key_value_heads", "head_dim", "vocab_size"])
@pytest.mark.parametrize("value", [0, -1, 1.5, None, "8", 10**13, True])
def test_a_spec_refuses_what_is_not_a_count(field, value):
    with pytest.raises(ValueError, match=field):
        dataclasses.replace(get_model("llama-3-8b"), **{field: value})


def test_a_spec_refuses_fields_that_contradict_each_other():
    spec = get_model("gemma-3-1b")
    with pytest.raises(ValueError, match="layer_windows has 3 entries for 26"):
        dataclasses.replace(spec, layer_windows=(None, 512, None))
    with pytest.raises(ValueError, match="layer_windows"):
        dataclasses.replace(spec, layer_windows=(None, 0) * 13)
    with pytest.raises(ValueError, match="num_experts_per_tok=9"):
        dataclasses.replace(get_model("mixtral-8x7b"), num_experts_per_tok=9)
    with pytest.raises(ValueError, match="v_head_dim"):
        dataclasses.replace(get_model("deepseek-v2"), v_head_dim=None)
    with pytest.raises(ValueError, match="num_moe_layers"):
        dataclasses.replace(get_model("mixtral-8x7b"), num_moe_layers=33)


def test_uniform_layers_follow_the_number_of_layers():
    spec = dataclasses.replace(get_model("mistral-7b-v0.1"), num_hidden_layers=3)
    assert spec.layer_windows == (4096,) * 3
    assert dataclasses.replace(spec, num_key_value_heads=4).kv_shapes == ((4, 128),) * 3


@pytest.mark.parametrize("value", [0, -1, 1.5, None, float("nan"), float("inf")])
def test_a_gpu_refuses_what_is_not_a_size(value):
    with pytest.raises(ValueError, match="memory_bandwidth"):
        GPUSpec(name="x", memory_bytes=1, memory_bandwidth=value, bf16_flops=1)


def test_specs_can_be_keys():
    assert len({get_model(name) for name in list_models()}) == len(list_models())
    assert isinstance(get_model("gpt-2"), ModelSpec)
