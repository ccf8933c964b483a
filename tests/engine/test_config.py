"""Every field of EngineConfig is checked, and the error names field, value and what is allowed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mini_engine import EngineConfig

BAD = [
    *(
        (name, value)
        for name in ("num_blocks", "block_size", "max_num_seqs", "max_num_batched_tokens")
        for value in (0, -1)
    ),
    *((name, value) for name in ("num_blocks", "block_size", "max_num_seqs") for value in (1.5, "8", None, True)),
    ("max_model_len", 0),
    ("max_model_len", 2.0),
    ("num_swap_blocks", -1),
    ("num_swap_blocks", None),
    ("enable_prefix_caching", 1),
    ("enable_chunked_prefill", "yes"),
    ("prefix_index", "trie"),
    ("admission", "greedy"),
    ("policy", "lifo"),
    ("preemption", None),
    ("watermark", -0.1),
    ("watermark", 1.0),
    ("watermark", float("nan")),
    ("watermark", "0.1"),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_value_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"^{name}={value!r}"):
        EngineConfig(**{"num_blocks": 8, name: value})


def test_swapping_needs_somewhere_to_swap_to():
    with pytest.raises(ValueError, match="num_swap_blocks=0"):
        EngineConfig(num_blocks=8, preemption="swap")
    EngineConfig(num_blocks=8, preemption="swap", num_swap_blocks=1)


def test_every_field_has_a_bad_value_here():
    assert {name for name, _ in BAD} == {field.name for field in dataclasses.fields(EngineConfig)}


def test_numpy_integers_become_plain_ones_and_nothing_can_be_changed():
    config = EngineConfig(num_blocks=np.int64(8), block_size=np.int32(2))
    assert type(config.num_blocks) is type(config.block_size) is int
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.num_blocks = 9
