"""What fits: the bytes left for the KV cache, how many requests, how long a context."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from mini_engine.arguments import Real, amount, ceil_div, count, number, share
from mini_engine.explain import explained
from mini_engine.units import exact, format_bytes, significant


@explained("fragmentation; the activation peak, which grows with the prefill batch, belongs in overhead")
def kv_budget(hbm: Real, weights: Real, overhead: Real, util: Real = 1) -> int:
    """Bytes left for the KV cache on one GPU: floor(hbm × util) - weights - overhead, never below 0.

    hbm, weights, overhead: bytes. util: the share of the card an engine may use, as a fraction or a string ('0.9').
    Formula F8.
    """
    usable = math.floor(amount("hbm", hbm) * share("util", util))
    left = usable - number("weights", weights) - amount("overhead", overhead)
    return max(0, math.floor(left))


@kv_budget.working
def _(budget: int, hbm: Real, weights: Real, overhead: Real, util: Real) -> Iterator[str]:
    usable = math.floor(amount("hbm", hbm) * share("util", util))
    yield "floor(memory × utilization) - weights - overhead"
    yield f"= {amount('hbm', hbm):,} × {util} - {exact(number('weights', weights))} - {amount('overhead', overhead):,}"
    left = usable - number("weights", weights) - amount("overhead", overhead)
    if left < 0:
        yield f"= {format_bytes(left)}: the weights and the overhead do not fit, so 0"
    yield f"= {format_bytes(budget)}"


@explained("requests of other lengths, shared prefixes, preemption")
def max_concurrency(budget: Real, kv_per_token: Real, S: int, block: int | None = None) -> int:
    """Requests of S tokens each that a budget of bytes holds; in blocks of `block` tokens when given.

    Never rounded up. Formula F8.
    """
    budget_, S = amount("budget", budget), count("S", S)
    per_token = number("kv_per_token", kv_per_token, positive=True)
    if block is None:
        return int(budget_ // (per_token * S))
    block = count("block", block)
    return int(budget_ // (per_token * block)) // ceil_div(S, block)


@max_concurrency.working
def _(requests: int, budget: Real, kv_per_token: Real, S: int, block: int | None) -> Iterator[str]:
    per_token = number("kv_per_token", kv_per_token)
    yield f"budget: {format_bytes(amount('budget', budget))}"
    if block is None:
        yield "budget // (bytes per token × tokens)"
        ratio = amount("budget", budget) / (per_token * S)
        yield f"= {amount('budget', budget):,} // ({exact(per_token)} × {S:,}) = {_requests(requests)} ({significant(ratio)} before rounding down)"
    else:
        blocks = int(amount("budget", budget) // (per_token * block))
        yield "(budget // (bytes per token × block)) // ceil(tokens / block)"
        yield f"= ({amount('budget', budget):,} // ({exact(per_token)} × {block})) // ceil({S:,} / {block})"
        yield f"= {blocks:,} blocks // {ceil_div(S, block):,} blocks = {_requests(requests)}"


@explained("rounding up to whole blocks")
def max_context(budget: Real, kv_per_token: Real, B: int = 1) -> int:
    """Tokens that each of B sequences may have within a budget of bytes. Formula F8."""
    per_token = number("kv_per_token", kv_per_token, positive=True)
    return int(amount("budget", budget) // (per_token * count("B", B)))


@max_context.working
def _(tokens: int, budget: Real, kv_per_token: Real, B: int) -> Iterator[str]:
    yield f"budget: {format_bytes(amount('budget', budget))}"
    yield "budget // (bytes per token × sequences)"
    yield f"= {amount('budget', budget):,} // ({exact(number('kv_per_token', kv_per_token))} × {B:,}) = {tokens:,} tokens"


@explained()
def concurrency_ratio(num_blocks: int, block: int, max_model_len: int) -> Fraction:
    """The pool's tokens over max_model_len, which vLLM prints as "Maximum concurrency for N tokens per request".

    It counts requests of the greatest length the engine accepts; shorter requests fit in greater number. Formula F8.
    """
    return Fraction(count("num_blocks", num_blocks) * count("block", block), count("max_model_len", max_model_len))


@concurrency_ratio.working
def _(ratio: Fraction, num_blocks: int, block: int, max_model_len: int) -> Iterator[str]:
    yield "blocks × tokens per block / max_model_len"
    yield f"= {num_blocks:,} × {block} / {max_model_len:,} = {num_blocks * block:,} tokens / {max_model_len:,} = {float(ratio):.2f}x"
    lengths = dict.fromkeys((max_model_len, max(1, max_model_len // 2)))
    yield f"it holds {' or '.join(f'{num_blocks * block // n:,} of {n:,} tokens' for n in lengths)}"


def _requests(number: int) -> str:
    return f"{number:,} request{'' if number == 1 else 's'}"
