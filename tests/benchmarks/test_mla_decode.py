"""What the benchmark of latent attention measures is what it says, and its stored figures are those that are quoted."""

from __future__ import annotations

import json

from common.report import RESULTS
from mla_decode import MODES, SPEC, decode_batch, measure

from mini_engine.geometry import kv_bytes_per_token, kv_elems_expanded


def test_the_measured_shape_is_that_of_tiny_mla(tiny_mla):
    same = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size", "head_dim", "kv_lora_rank",
            "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "q_lora_rank", "tie_word_embeddings", "rope_interleave")  # fmt: skip
    assert {name: getattr(SPEC, name) for name in same} == {name: getattr(tiny_mla.spec, name) for name in same}


def test_a_step_is_one_token_for_each_row_at_the_end_of_its_context():
    batch = decode_batch(rows=3, context=33)
    assert batch.token_ids.shape == batch.logits_rows.shape == (3,)
    assert set(batch.positions) == {32}
    assert set(batch.context_lens) == {33}
    assert sorted(batch.block_tables.ravel()) == list(range(1, 10))  # three blocks each, none shared
    assert set(batch.slot_mapping % 16) == {0}


def test_both_forms_are_timed():
    times = measure(rows=2, context=20, repeats=3)
    assert {mode: len(seconds) for mode, seconds in times.items()} == dict.fromkeys(MODES, 3)


def test_absorption_pays_three_times_and_more_at_2000_tokens():
    stored = json.loads((RESULTS / "mla_decode.json").read_text())
    step = stored["steps"]["2000"]
    assert stored["rows"] == 1
    assert step["expanded_over_absorbed"] >= 3
    ratio = step["expanded"]["median_ms"] / step["absorbed"]["median_ms"]
    assert abs(step["expanded_over_absorbed"] - ratio) < 0.006
    assert step["latent_bytes"] == 2000 * kv_bytes_per_token(SPEC, "fp32")
    assert step["bytes_as_keys_and_values"] == 2000 * 4 * kv_elems_expanded(SPEC)
