"""`python -m mini_engine.course.film docs/images/film.svg`: the animation in the README. A whole life of blocks in a pool of 16."""

from __future__ import annotations

import sys

from mini_engine.backends import AuditBackend
from mini_engine.config import EngineConfig
from mini_engine.course.film import movie
from mini_engine.engine import LLMEngine
from mini_engine.sampling import SamplingParams


def example() -> LLMEngine:
    """Two requests share a prompt; one branches and copies on write; a long one evicts what nobody holds."""
    engine = LLMEngine(EngineConfig(num_blocks=16, block_size=4), AuditBackend(64), record=True)
    engine.add_request("a", list(range(1, 11)), SamplingParams(n=2, seed=1, max_tokens=6, ignore_eos=True))
    engine.step()
    engine.step()
    engine.add_request("b", [*range(1, 9), 30, 31, 32], SamplingParams(temperature=0, max_tokens=4, ignore_eos=True))
    while engine.has_unfinished_requests():
        engine.step()
    engine.add_request(
        "c", [20 + i % 44 for i in range(50)], SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
    )
    while engine.has_unfinished_requests():
        engine.step()
    return engine


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m mini_engine.course.film FILE.svg")
    movie(example(), sys.argv[1], seconds=2.5)
