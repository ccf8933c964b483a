"""Every field of every family's config.json, changed and left out: it is followed as transformers follows it, or refused.

A model that loads and then says something else than its authors' is the worst of all errors, because nothing shows it.
"""

from __future__ import annotations

import json
import shutil
from typing import Any

import numpy as np
import pytest

from mini_engine.models import CorruptModelError, UnsupportedModelError, load_weights
from mini_engine.models.latent_layout import LATENT_FIELDS
from mini_engine.models.supported import HARMLESS
from tests.models.damage import VOCAB_SIZE, edit_json, make_folder
from tests.oracle import FAMILIES, LATENT_FAMILIES, ROW_TOLERANCE, full_logits, row_error, transformers_logits

IDS = np.random.default_rng(4).integers(0, VOCAB_SIZE, size=40).tolist()
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 32}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
CHANGES: dict[str, list[Any]] = {
    "architectures": [["GPT2LMHeadModel"], ["LlamaForCausalLM", "Qwen2ForCausalLM"]],
    "model_type": ["gpt2", "phi3"],
    "num_hidden_layers": [2, 4],
    "hidden_size": [96],
    "num_attention_heads": [3, 12],
    "num_key_value_heads": [1, 6],
    "head_dim": [4, 16],
    "intermediate_size": [40],
    "vocab_size": [VOCAB_SIZE - 1, VOCAB_SIZE + 8],
    "max_position_embeddings": [39],
    "rms_norm_eps": [1e-2],
    "rope_theta": [500.0],
    "rope_parameters": [
        {"rope_type": "default", "rope_theta": 500.0}, {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}, YARN,
        YARN | {"attention_factor": 0.5}, YARN | {"beta_fast": 4}, YARN | {"factor": 2.0}, LLAMA3,
        LLAMA3 | {"factor": 2.0}, LLAMA3 | {"high_freq_factor": 2.0}, LLAMA3 | {"low_freq_factor": 2.0},
        LLAMA3 | {"original_max_position_embeddings": 16}, {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
        {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    ],
    "rope_scaling": [{"type": "linear", "factor": 2.0}, {"type": "dynamic", "factor": 2.0}],
    "tie_word_embeddings": [True],
    "bos_token_id": [1],
    "eos_token_id": [[0, 2]],
    "hidden_act": ["gelu", "relu"],
    "attention_bias": [True],
    "mlp_bias": [True],
    "sliding_window": [8],
    "use_sliding_window": [True],
    "max_window_layers": [0],
    "layer_types": [["sliding_attention"] * 3, ["linear_attention"] * 3, ["full_attention"] * 2],
    # Fields of other families, and of ones not thought of yet.
    "partial_rotary_factor": [0.5],
    "quantization_config": [{"quant_method": "gptq"}],
    "attn_logit_softcapping": [30.0],
    "final_logit_softcapping": [30.0],
    "query_pre_attn_scalar": [64],
    "logit_scale": [0.5],
    "logits_scaling": [2.0],
    "residual_multiplier": [0.5],
    "embedding_multiplier": [12.0],
    "attention_multiplier": [0.1],
    "clip_qkv": [8.0],
    "use_qk_norm": [True],
    "no_rope_layers": [[1, 0, 1]],
    "num_experts": [8],
    "num_local_experts": [8],
    "kv_lora_rank": [16],
    "layers_block_type": [["attention", "mamba", "attention"]],
    "brand_new_idea": [3],
}  # fmt: skip
DEPEND_ON_OTHERS = {"rope_theta", "sliding_window", "use_sliding_window", "max_window_layers"}
"""In the files of transformers 5 these alone change nothing in some families: another field is asked first."""


@pytest.fixture(scope="module", params=[*FAMILIES, *LATENT_FAMILIES])
def sound(request, tmp_path_factory):
    """A folder, its logits, and its end tokens."""
    folder = make_folder(tmp_path_factory.mktemp("sound"), request.param)
    model = load_weights(folder)
    return folder, full_logits(model, IDS), (model.spec.bos_token_id, model.spec.eos_token_ids)


@pytest.fixture
def folder(sound, tmp_path):
    (sound[0] / "generation_config.json").unlink(missing_ok=True)  # it would name the end tokens once more
    return shutil.copytree(sound[0], tmp_path / "model")


def logits_or_refusal(folder) -> np.ndarray | None:
    """Logits that transformers computes as well, or None when the folder is refused."""
    try:
        ours = full_logits(load_weights(folder), IDS)
    except (CorruptModelError, UnsupportedModelError):
        return None
    except ValueError as error:
        if "position 8 is outside" in str(error) or "position 39 is outside" in str(error):
            return None
        raise
    assert row_error(ours, transformers_logits(folder)(IDS)) < ROW_TOLERANCE
    return ours


@pytest.mark.parametrize(("field", "value"), [(field, value) for field in CHANGES for value in CHANGES[field]], ids=str)
def test_a_changed_field_is_followed_or_refused(sound, folder, field, value):
    _, before, tokens = sound
    edit_json(folder / "config.json", **{field: value})
    after = logits_or_refusal(folder)
    if after is None or field in DEPEND_ON_OTHERS:
        return
    spec = load_weights(folder).spec
    changed = row_error(after, before) > 10 * ROW_TOLERANCE or (spec.bos_token_id, spec.eos_token_ids) != tokens
    assert changed, f"{field}={value!r} was neither refused nor did it change anything"


def test_heads_cut_another_way_are_followed(sound, folder):
    """The shapes of the tensors stay the same, so the configuration alone says where one head ends."""
    edit_json(folder / "config.json", num_attention_heads=3, num_key_value_heads=1, head_dim=16)
    after = logits_or_refusal(folder)
    assert after is None or row_error(after, sound[1]) > 10 * ROW_TOLERANCE


@pytest.mark.parametrize(
    "scaling", [{"rope_theta": 500.0}, {"rope_scaling": {"type": "linear", "factor": 2.0}}], ids=str
)
def test_files_of_older_transformers_are_followed(sound, folder, scaling):
    edit_json(folder / "config.json", rope_parameters=None, **scaling)
    after = logits_or_refusal(folder)
    assert after is not None
    assert row_error(after, sound[1]) > 10 * ROW_TOLERANCE


def test_a_field_left_out_has_the_default_of_its_class(sound, folder):
    config = json.loads((folder / "config.json").read_text())
    loaded = 0
    # Without the first transformers loads nothing, without the second it makes up matrices that the file does not hold.
    for field in sorted(config.keys() - HARMLESS - {"model_type", "q_lora_rank"}):
        (folder / "config.json").write_text(json.dumps({key: config[key] for key in config if key != field}))
        loaded += logits_or_refusal(folder) is not None
    assert loaded > 5


def test_every_field_of_the_file_is_changed_by_one_of_these_tests(sound):
    config = json.loads((sound[0] / "config.json").read_text())
    elsewhere = LATENT_FIELDS | {"rope_interleave"}  # test_latent_folder_errors.py
    assert config.keys() <= CHANGES.keys() | HARMLESS | elsewhere


def test_harmless_fields_change_nothing_here_or_in_transformers(sound, folder):
    """All of them at once: with values that no configuration has by default."""
    config = json.loads((folder / "config.json").read_text())
    values = {bool: True, int: 7, float: 0.25}
    changed = {name: values[type(config[name])] for name in HARMLESS & config.keys() if type(config[name]) in values}
    assert {"use_cache", "initializer_range", "attention_dropout"} <= changed.keys()
    edit_json(folder / "config.json", **(changed | {"pretraining_tp": 2, "temperature": 0.5, "unsloth_version": "1"}))
    assert np.array_equal(logits_or_refusal(folder), sound[1])
