"""What the engine benchmark computes around its measurements: the machine's limit, and who wrote the same text."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from common.agreement import compare
from common.limit import least_seconds

from mini_engine.models import load_model
from mini_engine.roofline.measure import MachineRates

FAST, SLOW = 1e30, 1.0


@pytest.fixture(scope="module")
def model():
    return load_model("tiny-gqa").model


def linear_weights(spec) -> tuple[int, int]:
    """Elements of all matrices inside the layers, and of the output head."""
    heads = spec.num_attention_heads + spec.num_key_value_heads
    attention = 2 * heads * spec.head_dim * spec.hidden_size
    return spec.num_hidden_layers * (attention + 3 * spec.hidden_size * spec.intermediate_size), (
        spec.vocab_size * spec.hidden_size
    )


def test_limit_of_one_request_is_its_products_or_its_reads(model):
    spec = model.spec
    in_layers, head = linear_weights(spec)
    request = {"prompt": [5, 6, 7], "out": 3}
    scores = 4 * spec.num_hidden_layers * spec.num_attention_heads * spec.head_dim
    prefill = 2 * (3 * in_layers + head) + scores * (1 + 2 + 3)
    decodes = 2 * 2 * (in_layers + head) + scores * (4 + 5)
    assert least_seconds(spec, [request], MachineRates(flops=SLOW, bandwidth=FAST), 2) == pytest.approx(
        prefill + decodes
    )

    kv = 2 * 4 * spec.num_hidden_layers * spec.num_key_value_heads * spec.head_dim
    reads = 3 * 2 * (in_layers + head) + kv * (4 + 5)
    assert least_seconds(spec, [request], MachineRates(flops=FAST, bandwidth=SLOW), 2) == pytest.approx(reads)


def test_limit_counts_a_shared_prefix_once(model):
    rates = MachineRates(flops=SLOW, bandwidth=FAST)
    in_layers, head = linear_weights(model.spec)
    scores = 4 * model.spec.num_hidden_layers * model.spec.num_attention_heads * model.spec.head_dim
    first = {"prompt": [1, 2, 3, 4, 5], "out": 1}
    alone = least_seconds(model.spec, [first], rates, 2)
    twin = least_seconds(model.spec, [first, first], rates, 2) - alone
    assert twin == pytest.approx(2 * (in_layers + head) + scores * 5)  # its last token is computed all the same
    other = least_seconds(model.spec, [first, {"prompt": [1, 2, 9], "out": 1}], rates, 2) - alone
    assert other == pytest.approx(2 * (in_layers + head) + scores * 3)


def test_compare_finds_the_first_difference_and_its_gap(model):
    class Scripted:
        """Logits that depend on the number of tokens alone."""

        spec = dataclasses.replace(model.spec)

        def forward(self, token_ids, positions, attend, rows):
            assert list(positions) == list(range(len(token_ids)))
            assert rows == [len(token_ids) - 1]
            logits = np.zeros((1, 10))
            logits[0, 3], logits[0, 4] = (2.0, 1.9995) if len(token_ids) == 3 else (2.0, 1.5)
            return logits

    requests = [{"prompt": [1, 2], "out": 3}] * 3
    ours = [[7, 3, 8], [3, 7, 7], [5, 5, 5]]
    found = compare(Scripted(), requests, ours, [[7, 4, 0], [4, 7, 7], [5, 5, 5]])
    assert (found["identical"], found["ties"]) == (1, 1)
    assert [(each["request"], each["position"]) for each in found["differing"]] == [(0, 1), (1, 0)]
    assert [each["gap"] for each in found["differing"]] == pytest.approx([0.0005, 0.5])
    with pytest.raises(AssertionError, match="request 0: 3 and 2 tokens of 3"):
        compare(Scripted(), requests, ours, [[7, 3], *ours[1:]])
