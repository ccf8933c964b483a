"""How much of the reserved KV memory holds tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from mini_engine.arguments import Real, ceil_div, count, listed, number, shown
from mini_engine.explain import explained
from mini_engine.units import significant


@explained()
def paged_utilization(lengths: Sequence[int], block: int) -> Fraction:
    """Tokens over slots when every request takes whole blocks: sum L / sum (block × ceil(L / block)). Formula F9."""
    lengths, block = _lengths(lengths), count("block", block)
    return Fraction(sum(lengths), sum(block * ceil_div(length, block) for length in lengths))


@paged_utilization.working
def _(share: Fraction, lengths: Sequence[int], block: int) -> Iterator[str]:
    lengths = list(lengths)
    blocks = [ceil_div(length, block) for length in lengths]
    yield "sum of lengths / (block × sum of ceil(length / block))"
    if len(lengths) <= 8:
        yield f"= ({' + '.join(map(str, lengths))}) / ({block} × ({' + '.join(map(str, blocks))}))"
    yield f"= {sum(lengths):,} / {block * sum(blocks):,} = {significant(share)}"
    yield f"{block * sum(blocks) - sum(lengths):,} slots are idle, at most {block - 1} per request"


@explained()
def reservation_utilization(used: Real, reserved: Real) -> Fraction:
    """Used over reserved, when a request reserves its greatest possible length up front. Formula F9."""
    used_, reserved_ = number("used", used), number("reserved", reserved, positive=True)
    if used_ > reserved_:
        raise ValueError(f"used={shown(used)} is more than reserved={shown(reserved)}")
    return used_ / reserved_


@reservation_utilization.working
def _(share: Fraction, used: Real, reserved: Real) -> Iterator[str]:
    yield f"used / reserved = {used} / {reserved} = {significant(share)}"


@explained()
def reservation_waste(used: Real, reserved: Real) -> Fraction:
    """1 - used / reserved. Formula F9."""
    return 1 - reservation_utilization(used, reserved)


@reservation_waste.working
def _(share: Fraction, used: Real, reserved: Real) -> Iterator[str]:
    yield f"1 - used / reserved = 1 - {used} / {reserved} = {significant(share)}"


@dataclass(frozen=True)
class FragBreakdown:
    """Shares of the memory set aside for the KV cache; they sum to 1."""

    token: Fraction
    """Holds a token's K/V."""
    reserved: Fraction
    """Will be used by the same request later."""
    internal: Fraction
    """Was reserved for a length the request never reaches."""
    external: Fraction
    """Lies between reservations, too small to use."""

    @property
    def total(self) -> Fraction:
        """The sum of the four: 1."""
        return self.token + self.reserved + self.internal + self.external


@explained()
def frag_breakdown(token: Real, reserved: Real, internal: Real, external: Real) -> FragBreakdown:
    """Slots (or percentages) of each kind as shares that sum to exactly 1. Kinds: vLLM paper, Figure 2. Formula F9."""
    parts = {
        name: number(name, value)
        for name, value in (("token", token), ("reserved", reserved), ("internal", internal), ("external", external))
    }
    total = sum(parts.values())
    if not total:
        raise ValueError("token, reserved, internal and external are all 0: there is nothing to share out")
    return FragBreakdown(**{name: value / total for name, value in parts.items()})


@frag_breakdown.working
def _(shares: FragBreakdown, token: Real, reserved: Real, internal: Real, external: Real) -> Iterator[str]:
    total = sum(number("part", part) for part in (token, reserved, internal, external))
    yield f"total = {token} + {reserved} + {internal} + {external} = {significant(total)}"
    for name, value in (("token", token), ("reserved", reserved), ("internal", internal), ("external", external)):
        yield f"{name}: {value} / {significant(total)} = {float(getattr(shares, name)):.4f}"


def _lengths(lengths: Sequence[int]) -> list[int]:
    if isinstance(lengths, Iterator):  # it can be read only once, and the working reads it again
        raise ValueError(f"lengths={shown(lengths)} must be a list")
    checked = [count(f"lengths[{i}]", length, minimum=0) for i, length in enumerate(listed("lengths", lengths))]
    if not sum(checked):
        raise ValueError(f"lengths={shown(lengths)} must hold at least one request of at least 1 token")
    return checked
