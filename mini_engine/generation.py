"""The loop every engine grew out of: one request at a time, the prompt in one pass, then token by token.

It counts what it does. A prompt of n tokens and m sampled ones cost n + m - 1 token-forwards with a cache (the last
token is never fed back) and m * n + m * (m - 1) / 2 without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from mini_engine.backends.contiguous import make_attend, to_numpy
from mini_engine.catalog import ModelSpec
from mini_engine.engine.request_checks import checked_tokens
from mini_engine.outputs import CompletionOutput
from mini_engine.sampling import Sampler, SamplingParams, check_peak
from mini_engine.stopping import Detokenizer, StopChecker


@dataclass
class GenerationStats:
    """What generating cost. A forward is one pass through the model; a token-forward is one token in such a pass."""

    num_prompt_tokens: int = 0  # that went through the model; those found in the prefix cache did not
    num_output_tokens: int = 0
    num_forwards: int = 0
    num_forward_tokens: int = 0
    num_decoded_tokens: int = 0  # output tokens but the first of each branch, which comes from the prompt's pass
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0

    def add_step(self, seconds: float, num_prefill_tokens: int, num_decode_tokens: int) -> None:
        """Add a step of the paged engine. One that mixed prefill and decode is shared out by tokens."""
        num_tokens = num_prefill_tokens + num_decode_tokens
        if not num_tokens:
            return
        self.num_forwards += 1
        self.num_forward_tokens += num_tokens
        self.num_prompt_tokens += num_prefill_tokens
        self.num_decoded_tokens += num_decode_tokens
        self.prefill_seconds += seconds * num_prefill_tokens / num_tokens
        self.decode_seconds += seconds * num_decode_tokens / num_tokens

    @property
    def prompt_tokens_per_second(self) -> float:
        """Prompt tokens by the time until the first output token; 0 before there is one."""
        return self.num_prompt_tokens / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def output_tokens_per_second(self) -> float:
        """Output tokens after the first by the time they took; 0 when there are none."""
        return self.num_decoded_tokens / self.decode_seconds if self.decode_seconds else 0.0


def check_request(token_ids: Sequence[int], params: SamplingParams, spec: ModelSpec) -> None:
    """Raise ValueError for a request that the model cannot take, naming the value and the limit."""
    checked_tokens(token_ids, params, spec.vocab_size)
    if len(token_ids) > spec.max_model_len:
        raise ValueError(
            f"the prompt has {len(token_ids)} tokens and the model's context holds {spec.max_model_len}{spec.window_note}: "
            "shorten the prompt"
        )


def generate_tokens(
    model: Any,
    prompt_token_ids: Sequence[int],
    params: SamplingParams,
    *,
    eos_token_ids: Iterable[int] | None = None,
    detokenizer: Detokenizer | None = None,
    index: int = 0,
    cache: str | type = "contiguous",
    attention: Callable | None = None,
    stats: GenerationStats | None = None,
) -> Iterator[CompletionOutput]:
    """Continue a prompt as branch `index`; yields one and the same CompletionOutput, grown by a token each time.

    Prompt and output together never pass the model's context: at its end the branch finishes with "length". cache and
    attention: see `make_attend`. Raises ValueError for a request that the model cannot take (`check_request`).
    """
    check_request(prompt_token_ids, params, model.spec)
    stats = GenerationStats() if stats is None else stats
    eos_token_ids = model.spec.eos_token_ids if eos_token_ids is None else tuple(eos_token_ids)
    room = model.spec.max_model_len - len(prompt_token_ids)
    checker = StopChecker(params, eos_token_ids, detokenizer, max_tokens=room)
    sampler = Sampler(params, eos_token_ids, index=index)
    completion = CompletionOutput(index=index, finish_reason=checker.finish_reason)
    completion.logprobs = None if params.logprobs is None else []
    if completion.finished:  # max_tokens is 0, or the prompt fills the context
        yield completion
        return

    attend = make_attend(model, len(prompt_token_ids) + checker.max_tokens - 1, cache, attention)
    token_ids = list(prompt_token_ids)
    num_computed = 0  # tokens whose keys and values are in the cache
    while not completion.finished:
        began = perf_counter()
        new = token_ids[num_computed:]
        positions = range(num_computed, len(token_ids))
        logits = model.forward(new, positions, attend, [len(new) - 1])[0]
        token_id = _take(logits, sampler, completion)
        elapsed = perf_counter() - began

        stats.num_forwards += 1
        stats.num_forward_tokens += len(new)
        stats.num_output_tokens += 1
        if len(completion.token_ids) == 0:
            stats.num_prompt_tokens += len(new)
            stats.prefill_seconds += elapsed
        else:
            stats.num_decoded_tokens += 1
            stats.decode_seconds += elapsed

        if cache != "none":
            num_computed = len(token_ids)
        token_ids.append(token_id)
        completion.token_ids.append(token_id)
        completion.finish_reason = checker.add(token_id)
        completion.text = checker.text
        yield completion


def _take(logits: Any, sampler: Sampler, completion: CompletionOutput) -> int:
    """The next token from logits[V], which leave their device only when more than their maximum is needed."""
    position = len(completion.token_ids)
    if sampler.is_argmax(position):
        token_id = int(logits.argmax())
        check_peak(float(logits[token_id]), token_id)
        return token_id
    row: np.ndarray = to_numpy(logits)
    token_id = sampler.sample(row, position)
    if completion.logprobs is not None:
        completion.logprobs.append(sampler.logprobs(row, token_id) or {})
    return token_id
