"""Small recorded runs that the tests of the film share."""

from __future__ import annotations

import random
from typing import Any

from mini_engine import EngineConfig, LLMEngine, SamplingParams
from mini_engine.backends import AuditBackend


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)


def sampled(max_tokens: int, n: int) -> SamplingParams:
    return SamplingParams(n=n, seed=1, max_tokens=max_tokens, ignore_eos=True)


def engine(num_blocks: int, block_size: int = 4, backend: Any = None, **options: Any) -> LLMEngine:
    config = EngineConfig(num_blocks=num_blocks, block_size=block_size, **options)
    return LLMEngine(config, backend or AuditBackend(64), record=True)


def finish(run: LLMEngine) -> LLMEngine:
    while run.has_unfinished_requests():
        run.step()
    return run


def copy_on_write() -> LLMEngine:
    """Three branches share a prompt whose last block is half full; another request runs beside them."""
    run = engine(24)
    run.add_request("a", list(range(1, 11)), sampled(6, n=3))
    run.add_request("b", list(range(21, 28)), greedy(4))
    return finish(run)


def mixed(seed: int = 0, steps: int = 60, num_blocks: int = 24, **options: Any) -> LLMEngine:
    """Arrivals at random: shared prefixes, branches, aborts and forks by hand, in a pool that is too small."""
    chance = random.Random(seed)
    run = engine(num_blocks, **options)
    for number in range(steps):
        if chance.random() < 0.35:
            prompt = list(range(1, 9)) * chance.randrange(2) + [
                chance.randrange(64) for _ in range(chance.randrange(1, 12))
            ]
            run.add_request(
                f"request-{number}", prompt, sampled(chance.randrange(1, 14), n=chance.choice((1, 1, 1, 3)))
            )
        live = sorted(run.scheduler.requests)
        if live and chance.random() < 0.1:
            run.abort(chance.choice(live)[0])
        elif live and chance.random() < 0.1:
            request = run.scheduler.requests[chance.choice(live)]
            if not request.num_pending_branches and request.num_output_tokens:
                run.fork(*request.key)
        run.step()
    return finish(run)


def long_film() -> LLMEngine:
    """200 steps in 256 blocks of 16, with a shared system prompt, branches, hits and evictions: nearly all blocks in use."""
    chance = random.Random(0)
    run = engine(256, 16)
    for step in range(200):
        if step % 6 == 0 and step < 170:
            prompt = [7 * i % 64 for i in range(64)] + [chance.randrange(64) for _ in range(chance.randrange(10, 400))]
            length = chance.randrange(20, 120)
            run.add_request(f"chat-{step}", prompt, sampled(length, n=4) if step % 24 == 0 else greedy(length))
        run.step()
    return run
