"""Pictures of lesson 13: the gaps between a reader's tokens, what a budget buys and costs, what chunks read again."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from mini_engine.course.figures import BLUE, GREY, ORANGE
from mini_engine.course.long_prompt import ANSWER, LONG, READERS, serve_readers, waits
from mini_engine.course.panels.p03_intensity import logarithmic
from mini_engine.simulator import SimulationResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUDGETS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)


@cache
def served(budget: int | None, long: int = LONG) -> SimulationResult:
    """Readers whose answers are long enough that they still read when the prompt is through."""
    num_steps = long // (budget - READERS) if budget else 0
    return serve_readers(budget, long, answer=max(ANSWER, 150 + long // 256 + num_steps))


def gaps(result: SimulationResult) -> tuple[list[float], list[float]]:
    """When a reader's tokens came, and the seconds before each."""
    times = min(result.times(), key=lambda each: each.num_prompt_tokens).token_times
    return [float(time) for time in times[1:]], [float(after - before) for before, after in pairwise(times)]


def stall(figure: Figure) -> str:
    """The gaps between one reader's tokens when the long prompt runs whole."""
    axes = figure.subplots(gridspec_kw={"bottom": 0.2})
    moments, seconds = gaps(served(None))
    axes.step(moments, [1000 * gap for gap in seconds], color=ORANGE)
    axes.set(xlabel="seconds", ylabel="ms since the token before", title="one reader of eight", ylim=(0, 1600))
    longest = max(range(len(seconds)), key=seconds.__getitem__)
    others = sorted(seconds[:longest] + seconds[longest + 1 :])
    return (
        f"{len(seconds)} gaps; {1000 * others[0]:.1f} to {1000 * others[-1]:.1f} ms, and one of "
        f"{1000 * seconds[longest]:,.0f} ms that ends at {moments[longest]:.2f} s"
    )


def trade_off(figure: Figure, budget: int, prompt: int) -> str:
    """What a token budget does to the readers' gaps and to the long prompt's first token."""
    result, whole = served(budget, prompt), served(None, prompt)
    left, right = figure.subplots(1, 2, width_ratios=[1.5, 1], gridspec_kw={"wspace": 0.3, "bottom": 0.3})
    for each, colour, line, words in ((whole, GREY, "--", "whole"), (result, BLUE, "-", f"budget {budget:,}")):
        moments, seconds = gaps(each)
        left.plot(
            [moment - 1 for moment in moments],
            [1000 * gap for gap in seconds],
            color=colour,
            linestyle=line,
            linewidth=1.5,
            drawstyle="steps-pre",
            label=words,
        )
    (gap, ttft), (stalled, alone) = waits(result), waits(whole)
    logarithmic(left, "y")
    left.set(xlabel="seconds after the prompt came", ylabel="ms between two tokens")
    left.set(title=f"readers, and a prompt of {prompt:,}", ylim=(4, 10_000), xlim=(-0.2 * alone, 1.9 * alone))
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=2, fontsize=8)
    points = [waits(served(each, prompt)) for each in BUDGETS]
    right.plot([1000 * gap for gap, _ in points], [ttft for _, ttft in points], "o-", color=GREY, markersize=4)
    right.plot([1000 * gap], [ttft], "o", color=BLUE, markersize=9)
    logarithmic(right, "x")
    right.set(xlabel="longest gap, ms", ylabel="the prompt's TTFT, s", title="budgets of 64 to 16,384")
    right.set_xlim(5, 10_000)
    right.set_ylim(0, 1.15 * max(ttft, *(seconds for _, seconds in points)))
    return (
        f"budget {budget:,}, a prompt of {prompt:,} tokens: longest gap {1000 * gap:,.1f} ms (whole {1000 * stalled:,.0f} ms), "
        f"its first token after {ttft:.2f} s (whole {alone:.2f} s)"
    )


def rereads(figure: Figure, starts: list[int], kv_bytes: int) -> str:
    """What each chunk of a recorded plan reads of the chunks before it; kv_bytes: bytes of one token's K and V."""
    axes = figure.subplots(gridspec_kw={"bottom": 0.2, "left": 0.14})
    chunks = range(1, len(starts) + 1)
    axes.bar(chunks, starts, color=ORANGE, width=0.8)
    axes.set(xlabel="chunk", ylabel="tokens read again", title="every chunk reads all K and V before it")
    axes.set_xticks(chunks)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    total = sum(starts)
    return f"{len(starts)} chunks read {total:,} tokens again: {total * kv_bytes / 1e9:.1f} GB"
