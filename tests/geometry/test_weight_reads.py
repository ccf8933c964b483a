"""How many parameters a decode step reads: against counting, for models with and without experts."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest

from mini_engine.catalog import get_model, list_models
from mini_engine.geometry import active_params, params
from mini_engine.geometry.shards import decode_head_dim, in_blocks, one_shard, prefill_head_dim
from mini_engine.geometry.weight_reads import expected_experts, lookup_params, most_experts, reads

DENSE, MIXTURE = get_model("llama-3-8b"), get_model("mixtral-8x7b")
BATCHES = [1, 2, 3, 4, 7, 64, 10_000]


def reads_of(model, batch):
    return reads(model, params(model), active_params(model, 1), batch)


@pytest.mark.parametrize("batch", BATCHES)
def test_a_dense_model_reads_all_but_its_embedding_table(batch):
    found = reads_of(DENSE, batch)
    assert found.least == found.expected == found.most == params(DENSE) - DENSE.vocab_size * DENSE.hidden_size


def test_a_table_that_the_head_reads_is_read():
    tied = next(model for model in map(get_model, list_models()) if model.tie_word_embeddings and not model.num_experts)
    assert lookup_params(tied) == tied.learned_positions * tied.hidden_size
    assert reads_of(tied, 1).least == params(tied) - lookup_params(tied)


def test_one_token_leaves_no_doubt_and_enough_tokens_read_everything():
    one, many = reads_of(MIXTURE, 1), reads_of(MIXTURE, 10_000)
    assert one.least == one.expected == one.most == active_params(MIXTURE, 1) - lookup_params(MIXTURE)
    assert many.least == one.least
    assert many.expected == many.most == params(MIXTURE) - lookup_params(MIXTURE)


@pytest.mark.parametrize("batch", BATCHES)
def test_more_tokens_never_read_less_and_the_three_stay_in_order(batch):
    now, then = reads_of(MIXTURE, batch), reads_of(MIXTURE, batch + 1)
    assert now.least <= now.expected <= now.most <= params(MIXTURE) - lookup_params(MIXTURE)
    assert now.expected <= then.expected
    assert now.most <= then.most


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_experts_by_trying_every_routing(batch):
    """Mixtral: 2 of 8. Every choice of every token, each as likely as any other."""
    one_token = [frozenset(pair) for pair in itertools.combinations(range(MIXTURE.num_experts), 2)]
    assert MIXTURE.num_experts_per_tok == 2
    used = [len(frozenset().union(*routing)) for routing in itertools.product(one_token, repeat=batch)]
    assert expected_experts(MIXTURE, batch) == pytest.approx(float(Fraction(sum(used), len(used))))
    assert most_experts(MIXTURE, batch) == max(used)


def test_parameters_follow_the_experts():
    """Each of Mixtral's experts has the same size, so what is read is a line through the number of experts."""
    one, two = reads_of(MIXTURE, 1), reads_of(MIXTURE, 2)
    expert = (params(MIXTURE) - active_params(MIXTURE, 1)) / (8 - 2)
    assert two.most - one.most == pytest.approx(2 * expert)
    assert two.expected - one.expected == pytest.approx((expected_experts(MIXTURE, 2) - 2) * expert)


@pytest.mark.parametrize("name", ["llama-3-8b", "deepseek-v3"])
def test_head_sizes_count_the_work_of_a_score_and_its_value(name):
    """4 d FLOPs a score: 2 for each number of the key, 2 for each of the value."""
    model = get_model(name)
    decode = (model.head_dim, model.head_dim)
    if model.is_mla:
        decode = (model.kv_lora_rank + model.qk_rope_head_dim, model.kv_lora_rank)  # key, value: both of the latent
        assert 4 * prefill_head_dim(model) == 2 * model.expanded_dim
    assert 4 * decode_head_dim(model) == 2 * sum(decode)


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_shards_hold_the_whole_and_no_head_is_cut(tp):
    shard = one_shard(DENSE, tp)
    assert shard.num_key_value_heads == max(1, DENSE.num_key_value_heads // tp)
    whole = in_blocks(DENSE, 1000, 16, "bf16")
    assert tp * in_blocks(shard, 1000, 16, "bf16") >= whole
    assert (tp * in_blocks(shard, 1000, 16, "bf16") == whole) == (DENSE.num_key_value_heads % tp == 0)
    assert one_shard(get_model("deepseek-v3"), tp) == get_model("deepseek-v3")  # a latent is not split


def test_blocks_are_whole():
    per_token = in_blocks(DENSE, 1, 1, "bf16")
    for context in (0, 1, 15, 16, 17, 1000):
        assert in_blocks(DENSE, context, 16, "bf16") == per_token * -(-context // 16) * 16
