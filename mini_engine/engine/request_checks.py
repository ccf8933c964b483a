"""What makes a request impossible to run, found before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index

from mini_engine.config import EngineConfig
from mini_engine.sampling import SamplingParams


def checked_tokens(prompt_token_ids: Sequence[int], params: SamplingParams, vocab_size: int) -> list[int]:
    """The prompt as plain integers. ValueError if it is empty, or a token or stop token is outside the vocabulary."""
    try:
        token_ids = [index(token_id) for token_id in prompt_token_ids]
    except TypeError as error:
        raise ValueError(f"a prompt is a list of integer token ids: {error}") from None
    if not token_ids:
        raise ValueError("the prompt is empty: give at least one token")
    for name, ids in (("prompt token", token_ids), ("stop_token_ids", params.stop_token_ids)):
        if ids and (min(ids) < 0 or max(ids) >= vocab_size):
            wrong = next(token_id for token_id in ids if not 0 <= token_id < vocab_size)
            raise ValueError(f"{name} {wrong} is outside the vocabulary: ids run from 0 to {vocab_size - 1}")
    return token_ids


def checked_prompt(
    prompt_token_ids: Sequence[int],
    params: SamplingParams,
    config: EngineConfig,
    vocab_size: int,
    window_note: str = "",
) -> list[int]:
    """The prompt as plain integers. ValueError naming the value, the limit and the remedy if it could never run.

    window_note: why max_model_len is what it is, when the model's sliding window sets it.
    """
    token_ids = checked_tokens(prompt_token_ids, params, vocab_size)
    length = len(token_ids)
    if params.n > config.max_num_seqs:
        raise ValueError(f"n={params.n} is more than max_num_seqs={config.max_num_seqs}: each branch takes a seat")
    if config.max_model_len is not None and length > config.max_model_len:
        raise ValueError(
            f"the prompt has {length} tokens, max_model_len is {config.max_model_len}{window_note}: shorten it"
        )
    num_blocks = -(-length // config.block_size)
    if num_blocks > config.num_blocks:
        raise ValueError(
            f"the prompt has {length} tokens and needs {num_blocks} blocks, num_blocks is {config.num_blocks}: it could "
            "never run; shorten it or give the engine more blocks"
        )
    if not config.enable_chunked_prefill and length > config.max_num_batched_tokens:
        raise ValueError(
            f"the prompt has {length} tokens, max_num_batched_tokens is {config.max_num_batched_tokens}: without chunked "
            "prefill it could never run; set enable_chunked_prefill, or raise the budget"
        )
    return token_ids


def check_names(names: Mapping[str, object]) -> None:
    """ValueError for a name (request id, salt, adapter) that is no proper string."""
    for name, value in names.items():
        if value is None and name != "request_id":
            continue
        if not isinstance(value, str):
            raise ValueError(f"{name}={value!r} must be a string")
        value.encode()  # the cache hashes bytes; half a surrogate pair has none, which is a ValueError too
