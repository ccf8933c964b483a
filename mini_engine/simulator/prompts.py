"""Tokens for the requests of a trace, made when a request arrives: all the cache needs to know is which of them are equal."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from mini_engine.workload import Trace, TraceRequest

_ROOM = 1 << 40  # more than any prompt is long: prompts of a trace without hash ids get ranges that never meet


def prompt_maker(trace: Trace, *, compared: bool = True) -> Callable[[int, TraceRequest], list[int]]:
    """A function from a request and its number to its prompt: prompts begin with the same tokens where hash ids are equal.

    Without hash ids nobody shares anything. compared=False: no prefix cache will look, so any tokens do.
    """
    if not compared:
        return lambda number, request: [0] * request.num_prompt_tokens
    if trace.block_tokens is None:
        return lambda number, request: list(range(number * _ROOM, number * _ROOM + request.num_prompt_tokens))
    size = trace.block_tokens
    ids = sorted({block for request in trace for block in request.hash_ids})
    first_token = {block: size * rank for rank, block in enumerate(ids)}  # ids may be as large as 64 bits hold

    def prompt(number: int, request: TraceRequest) -> list[int]:
        firsts = (first_token[block] for block in request.hash_ids)
        tokens = list(chain.from_iterable(range(first, first + size) for first in firsts))
        del tokens[request.num_prompt_tokens :]
        return tokens

    return prompt


def output_token(number: int) -> int:
    """What a request is answered with, over and over: a token that no prompt and no other answer holds."""
    return -1 - number
