"""Greedy text of every family through the paged engine, under chunking, prefix hits and preemption, against transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mini_engine.models import load_weights
from tests.engine.test_real_weights import prompts_of, run_under_pressure
from tests.oracle import FAMILIES, LATENT_FAMILIES, assert_same_greedy, save_random_model, transformers_logits

NUM_TOKENS = 64
PRESSURE = {
    "chunks": {"num_blocks": 400, "max_num_batched_tokens": 11},
    "recompute": {"num_blocks": 40, "max_num_batched_tokens": 40, "admission": "first_chunk"},
    "swap": {"num_blocks": 40, "admission": "first_chunk", "preemption": "swap", "num_swap_blocks": 24},
}
RANDOM = np.random.default_rng(7)
SHARED = RANDOM.integers(1, 131, size=22).tolist()
PROMPTS = [SHARED + RANDOM.integers(1, 131, size=n).tolist() for n in (1, 2, 5, 9, 14)]
PROMPTS += [RANDOM.integers(1, 131, size=n).tolist() for n in (1, 2, 7, 16, 33)]


@pytest.fixture(scope="module", params=[*FAMILIES, *LATENT_FAMILIES])
def folder(request, tmp_path_factory):
    return save_random_model(tmp_path_factory.mktemp("served"), request.param, initializer_range=0.3)


def check(
    folder: Path, prompts: list[list[int]], options: dict, num_tokens: int = NUM_TOKENS, backend: str = "torch"
) -> list[list[int]]:
    """The answers to all prompts, when they are those of transformers."""
    model, oracle = load_weights(folder, backend=backend), transformers_logits(folder)
    answers = run_under_pressure(model, prompts, num_tokens, 3, options)
    for prompt, answer in zip(prompts, answers):

        def generate(ids: list[int], n: int, prompt=prompt, answer=answer) -> list[int]:
            if ids == prompt:
                return answer
            return run_under_pressure(model, [ids, *prompts[:6]], n, 3, options)[0]  # after a near-tie

        assert_same_greedy(generate, oracle, prompt, num_tokens)
    return answers


@pytest.mark.parametrize("pressure", PRESSURE)
def test_ten_prompts_continue_as_in_transformers(folder, pressure):
    answers = check(folder, PROMPTS, PRESSURE[pressure])
    assert all(len(set(answer)) > 15 for answer in answers), "a text that repeats one token proves little"


def test_ten_prompts_continue_so_in_numpy_too(folder):
    check(folder, PROMPTS, PRESSURE["recompute"] | {"num_blocks": 20}, 16, "numpy")


@pytest.mark.parametrize("pressure", PRESSURE)
def test_ten_prompts_of_real_text_continue_as_in_transformers(tiny_mla, pressure):
    check(tiny_mla.path, prompts_of(tiny_mla.tokenizer), PRESSURE[pressure])
