"""The same request alone, in a plain loop: no cache, no blocks, no scheduler. What every engine run must say, exactly."""

from __future__ import annotations

from collections.abc import Sequence

from mini_engine.backends import AuditBackend
from mini_engine.sampling import Sampler, SamplingParams


def cold(
    backend: AuditBackend,
    prompt: Sequence[int],
    params: SamplingParams,
    *,
    index: int = 0,
    prefix: Sequence[int] = (),
    capacity: int | None = None,
    max_model_len: int | None = None,
) -> tuple[list[int], str]:
    """Output tokens and finish reason of one branch, which has already said `prefix`.

    capacity: tokens whose K/V the pool can hold. A sequence that needs one more ends there, its last token sampled.
    """
    sampler = Sampler(params, backend.eos_token_ids, index=index)
    stops = params.all_stop_token_ids(backend.eos_token_ids)
    limit = backend.max_model_len if max_model_len is None else max_model_len
    most = min(params.max_tokens, limit - len(prompt))
    output = list(prefix)
    while len(output) < most:
        if capacity is not None and len(prompt) + len(output) > capacity:
            return output, "capacity"
        output.append(sampler.sample(backend.logits_after([*prompt, *output]), len(output)))
        if output[-1] in stops and len(output) > params.min_tokens:
            return output, "stop"
    return output, "length"
