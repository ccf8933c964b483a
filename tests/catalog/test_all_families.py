"""Every language model that transformers knows: its default configuration reads, or the error names the field that is in the way."""

from __future__ import annotations

import json
import re

import pytest

from mini_engine.catalog import ModelSpec
from mini_engine.catalog.hf_layers import FULL, WINDOWED


def families() -> list[str]:
    from transformers.models.auto import modeling_auto as auto

    names = set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) | set(auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
    return sorted(names)


def default_config(family: str):
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    try:
        config = CONFIG_MAPPING[family]()
        text = config.get_text_config().to_dict()
    except Exception:  # some classes have no default or no single text model: nothing to compare with
        return None
    return json.loads(config.to_json_string(use_diff=False)), text


@pytest.fixture(scope="module")
def read():
    """{family: (spec or error, the text configuration as transformers completes it)}"""
    found = {}
    for family in families():
        pair = default_config(family)
        if pair is None:
            continue
        config, text = pair
        try:
            found[family] = ModelSpec.from_hf_config(config), text
        except ValueError as error:
            found[family] = error, text
    return found


def test_almost_all_families_read(read):
    refused = {family: error for family, (error, _) in read.items() if isinstance(error, ValueError)}
    assert len(read) - len(refused) >= 200
    for family, error in refused.items():
        assert re.search(r"lacks \w+|is_encoder_decoder|layer_types\[|head_dim|must be|no KV cache", str(error)), (
            family,
            error,
        )


def test_shapes_are_those_transformers_completes(read):
    for family, (spec, text) in read.items():
        if isinstance(spec, ValueError):
            continue
        for field in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "tie_word_embeddings"):
            if text.get(field) is not None:
                assert getattr(spec, field) == text[field], (family, field)
        if isinstance(text.get("num_key_value_heads"), int):
            assert spec.num_key_value_heads == text["num_key_value_heads"], family
        if text.get("head_dim") and not spec.is_mla:
            assert spec.head_dim == text["head_dim"], family


def test_layers_are_those_transformers_completes(read):
    compared = 0
    for family, (spec, text) in read.items():
        kinds = text.get("layer_types") or text.get("layers_block_type")
        if isinstance(spec, ValueError) or not kinds:
            continue
        own = kinds[: len(kinds) - (text.get("num_kv_shared_layers") or 0)]
        assert spec.num_attention_layers == sum(kind in FULL | WINDOWED for kind in own), family
        assert spec.num_windowed_layers == sum(kind in WINDOWED for kind in own), family
        compared += 1
    assert compared >= 60
