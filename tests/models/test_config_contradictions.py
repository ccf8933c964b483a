"""Configurations that say one thing twice and differently, or by the name that another family has for it.

Whichever of the two a reader takes, the model loads, every tensor fits, and it may say something else than its authors'.
"""

from __future__ import annotations

import numpy as np
import pytest

from mini_engine.models import UnsupportedModelError, load_weights
from tests.models.damage import edit_json, fails
from tests.oracle import ROW_TOLERANCE, full_logits, row_error, transformers_logits

IDS = np.random.default_rng(5).integers(0, 280, size=40).tolist()
LINEAR = {"type": "linear", "factor": 2.0}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"rope_theta": 1e6, "rope_parameters": {"rope_theta": 500.0}}, ["rope_theta is [1000000.0, 500.0]"]),
        ({"rope_theta": 1e4, "rope_scaling": LINEAR | {"rope_theta": 500.0}}, ["rope_theta is [10000.0, 500.0]"]),
        ({"rope_parameters": {"rope_theta": 0}, "rope_theta": 500.0}, ["rope_theta is [500.0, 0]"]),
        (
            {"rope_parameters": {"rope_type": "linear", "factor": 4.0}, "rope_scaling": LINEAR},
            ["rope_parameters says the same"],
        ),
        (
            {"rope_parameters": {"rope_theta": 500.0}, "rope_scaling": LINEAR},
            ["rope_scaling is", "only one of the two"],
        ),
        ({"rope_parameters": LINEAR, "rope_scaling": {"type": "default"}}, ["rope_scaling is {'type': 'default'}"]),
        ({"rope_scaling": LLAMA3 | {"type": "linear"}}, ["rope_scaling: type is 'linear'", "rope_type, 'llama3'"]),
        ({"rope_scaling": {"type": "mrope", "rope_type": "default"}}, ["type is 'mrope'", "rope_type, 'default'"]),
    ],
    ids=str,
)
def test_two_answers_to_one_question_of_rope(folder, changes, fragments):
    edit_json(folder / "config.json", **({"rope_parameters": None} | changes))
    fails(UnsupportedModelError, folder, "config.json", *fragments)


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_scaling": LINEAR | {"rope_theta": 500.0}},
        {"rope_scaling": LINEAR | {"rope_theta": 500.0}, "rope_theta": 500.0},
        {"rope_parameters": LINEAR | {"rope_theta": 500.0}, "rope_theta": 500},
        {
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
            "rope_scaling": LINEAR | {"rope_type": "linear", "rope_theta": 500.0},
        },
    ],
    ids=str,
)
def test_the_same_answer_wherever_it_stands_is_followed(folder, changes):
    edit_json(folder / "config.json", **({"rope_parameters": None} | changes))
    model = load_weights(folder)
    assert model.spec.rope_theta == 500.0
    assert row_error(full_logits(model, IDS), transformers_logits(folder)(IDS)) < ROW_TOLERANCE


@pytest.mark.parametrize(
    ("ours", "alias", "value"),
    [
        ("rope_theta", "rope_base", 500.0),
        ("rope_theta", "rotary_emb_base", 500.0),
        ("rms_norm_eps", "norm_eps", 1e-2),
        ("rms_norm_eps", "layer_norm_epsilon", 1e-2),
        ("max_position_embeddings", "max_sequence_length", 20),
        ("num_hidden_layers", "n_layer", 2),
        ("num_key_value_heads", "num_kv_heads", 1),
    ],
)
def test_the_name_that_another_family_has_for_a_field_may_only_repeat_it(folder, ours, alias, value):
    """transformers does not look at it: it fills in a default where the usual name is missing."""
    model = load_weights(folder)
    right, before = getattr(model.spec, ours), full_logits(model, IDS)
    edit_json(folder / "config.json", **{ours: right, alias: right})
    assert np.array_equal(full_logits(load_weights(folder), IDS), before)
    edit_json(folder / "config.json", **{alias: value})
    fails(UnsupportedModelError, folder, f"{alias} is {value}", f"{ours}, the name that")
    edit_json(folder / "config.json", **{ours: None, alias: right})
    fails(UnsupportedModelError, folder, f"{alias} is {right}", f"{ours}, the name that")
