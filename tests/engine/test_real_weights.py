"""The paged torch engine on real weights, under every kind of pressure, says what transformers says without a cache."""

from __future__ import annotations

import random

import pytest

from mini_engine.backends import NumpyBackend, TorchBackend
from mini_engine.config import EngineConfig
from mini_engine.engine import LLMEngine
from mini_engine.models import NumpyDecoder
from mini_engine.sampling import SamplingParams
from tests.oracle import assert_same_greedy, export_hf, transformers_logits

PRESSURE = {
    "ample": {"num_blocks": 400},
    "chunks": {"num_blocks": 400, "max_num_batched_tokens": 11},
    "recompute": {"num_blocks": 14, "max_num_batched_tokens": 40, "admission": "first_chunk"},
    "swap": {"num_blocks": 14, "admission": "first_chunk", "preemption": "swap", "num_swap_blocks": 9},
    "radix": {"num_blocks": 30, "prefix_index": "radix", "policy": "shortest_first", "max_num_batched_tokens": 19},
}


def prompts_of(tokenizer) -> list[list[int]]:
    """Ten prompts, of which half begin alike, and some are longer than a chunk or a block."""
    shared = tokenizer.encode("It was a dark and stormy night, and the captain of the ship said to his men: ")
    ends = ["Come here", "Go away, all of you", "What is that", "I see a whale", "We must turn back before the morning"]
    alone = [
        "Emma was",
        "The",
        "My dear Mr. Bennet, said his lady to him one day",
        "Call me",
        "In the year 1851, 12 men",
    ]
    return [shared + tokenizer.encode(end) for end in ends] + [tokenizer.encode(text) for text in alone]


def run_under_pressure(
    model, prompts: list[list[int]], num_tokens: int, seed: int, options: dict, backend=None, **backend_options: str
) -> list[list[int]]:
    """Greedy tokens of all prompts, which arrive at random steps; nothing is left behind in the pool."""
    rng = random.Random(seed)
    backend = backend or (NumpyBackend if isinstance(model, NumpyDecoder) else TorchBackend)
    engine = LLMEngine(EngineConfig(block_size=4, **options), backend(model, **backend_options))
    waiting, answers = list(enumerate(prompts)), {}
    params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
    while waiting or engine.has_unfinished_requests():
        while waiting and rng.random() < 0.6:
            number, prompt = waiting.pop(rng.randrange(len(waiting)))
            engine.add_request(str(number), prompt, params)
        for output in engine.step():
            if output.finished:
                assert output.outputs[0].finish_reason == "length"
                answers[int(output.request_id)] = output.outputs[0].token_ids
        engine.check_invariants()
    stats = engine.stats()
    assert stats.num_free_blocks == options["num_blocks"]
    if options.get("admission") == "first_chunk":  # to a small pool
        assert stats.num_preemptions > 0
    if options.get("preemption") == "swap":
        assert stats.num_swapped_in_blocks > 0
    assert stats.num_prefix_hit_tokens > 0
    return [answers[number] for number in range(len(prompts))]


def check(loaded, folder, seed: int, pressures: list[str], num_tokens: int) -> None:
    oracle, prompts = transformers_logits(folder), prompts_of(loaded.tokenizer)
    for options in (PRESSURE[name] for name in pressures):
        answers = run_under_pressure(loaded.model, prompts, num_tokens, seed, options)
        for prompt, answer in zip(prompts, answers):

            def generate(ids: list[int], n: int, prompt=prompt, answer=answer, options=options) -> list[int]:
                if ids == prompt:
                    return answer
                return run_under_pressure(loaded.model, [ids, *prompts[:6]], n, seed, options)[0]  # after a near-tie

            assert_same_greedy(generate, oracle, prompt, num_tokens)


def test_tiny_gqa(tiny_gqa):
    from mini_engine.models import data_dir

    check(tiny_gqa, data_dir() / "models" / "tiny-gqa", 0, list(PRESSURE), 12)


@pytest.mark.model
def test_smollm2(smollm2, tmp_path):
    from mini_engine.models import open_checkpoint

    check(
        smollm2, export_hf(open_checkpoint("smollm2-135m"), tmp_path / "smollm2"), 2, ["chunks", "recompute", "swap"], 8
    )
