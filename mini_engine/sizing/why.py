"""`mini-engine size --why`: twelve questions that learners ask, each answered with the numbers of the model at hand."""

from __future__ import annotations

from collections.abc import Iterable

from mini_engine.sizing import why_memory as memory
from mini_engine.sizing import why_speed as speed
from mini_engine.sizing.result import Sizing

QUESTIONS = {
    "Why is the GPU mostly idle while decoding?": speed.idle,
    "What does a prefix cache hold?": memory.prefix_holds,
    "Why are there no query heads in the formula?": memory.no_query_heads,
    "Does FP8 halve the KV cache?": memory.fp8,
    "Why not limit the number of requests?": memory.requests,
    "Does more tensor parallelism give more concurrency?": memory.tensor_parallel,
    "Why does quantization make decoding faster?": speed.quantization,
    "Why do mixtures of experts suit decoding?": speed.experts,
    "Does quantizing the KV cache cost accuracy?": speed.accuracy,
    "What does MLA store?": memory.mla,
    "How do I choose the block size?": memory.block_size,
    "When does an entry of the prefix cache die?": memory.eviction,
}


def answers(s: Sizing, numbers: Iterable[int] = range(1, 13)) -> list[tuple[str, str]]:
    """(question, answer) for each of `numbers`, from 1; all twelve unless told. Every figure is computed from `s`."""
    questions = list(QUESTIONS.items())
    return [(question, answer(s)) for question, answer in (questions[number - 1] for number in numbers)]
