"""Pictures of lesson 14: the life of a request that has to go, swap against recompute, and both on a simulated machine."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from mini_engine.catalog import get_gpu, get_model
from mini_engine.course.figures import BLUE, GREEN, GREY, ORANGE
from mini_engine.course.panels.drawing import PALE, arrow, box, label, sheet
from mini_engine.course.panels.p03_intensity import logarithmic
from mini_engine.geometry import active_params, kv_bytes_per_token
from mini_engine.roofline import block_copy_bytes, effective_pcie, recompute_vs_swap
from mini_engine.simulator import SimulationResult, simulate
from mini_engine.workload import Trace, TraceRequest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GB = 10**9
MACHINES = {
    "Llama-3-8B, one H100": ("llama-3-8b", "h100-sxm", 1),
    "Llama-3-70B, eight H100": ("llama-3-70b", "h100-sxm", 8),
    "Llama-2-13B, one A100": ("llama-2-13b", "a100-80gb-sxm", 1),
}
RATES = (1, 2, 4, 8, 12, 16, 32, 64)


class Times(NamedTuple):
    """Seconds to bring a request back."""

    swap: float
    recompute: float


def times(machine: str, context: int, rate: Fraction | float, mfu: int = 50) -> Times:
    """For `context` tokens, at `rate` bytes/s over each link and `mfu` percent of the peak."""
    name, gpu_name, gpus = MACHINES[machine]
    spec, gpu = get_model(name), get_gpu(gpu_name)
    both = recompute_vs_swap(
        kv_bytes_per_token(spec), context, rate, gpu.bf16_flops * gpus, Fraction(mfu, 100), active_params(spec),
        spec.num_hidden_layers, spec.num_attention_heads, spec.head_dim, gpus,
    )  # fmt: skip
    return Times(float(both.swap), float(both.recompute))


def effective(machine: str, pcie: float, block: int, overhead: int) -> float:
    """Bytes/s of a link of `pcie` GB/s when K and V of each layer and block are a copy that costs `overhead` us more."""
    name, _, gpus = MACHINES[machine]
    size = Fraction(block_copy_bytes(get_model(name), block), gpus)
    return float(effective_pcie(Fraction(pcie) * GB, size, Fraction(overhead, 10**6)))


def which(figure: Figure, machine: str, context: int, pcie: int, block: int, overhead: int) -> str:
    """The time of both against the effective rate of the link; the dot is where this link and block size end up."""
    rate = effective(machine, pcie, block, overhead)
    here = times(machine, context, rate)
    even = times(machine, context, GB).swap / here.recompute * GB
    axes = figure.subplots(gridspec_kw={"bottom": 0.2})
    grid = [GB * 2 ** (i / 4) for i in range(-24, 25)]
    axes.plot([x / GB for x in grid], [1000 * times(machine, context, x).swap for x in grid], color=BLUE, label="swap")
    axes.axhline(1000 * here.recompute, color=ORANGE, label="recompute")
    axes.axvline(
        even / GB, ymax=0.82, color=GREY, linewidth=1, linestyle="--", label=f"as long at {even / GB:.2f} GB/s"
    )
    axes.plot([rate / GB], [1000 * here.swap], "o", color=BLUE, markersize=8, label=f"this link, {rate / GB:.2f} GB/s")
    logarithmic(axes)
    axes.set(xlabel="GB/s that a link really moves", ylabel="ms to bring it back", ylim=(0.5, 4e8))
    axes.set(title=f"{machine}, {context:,} tokens, blocks of {block}", xlim=(0.015, 80))
    ticks = (0.02, 0.1, 0.5, 2, 8, 32)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.legend(loc="upper right", fontsize=8, ncols=2)
    return (
        f"{machine}, {context:,} tokens, blocks of {block}, {pcie} GB/s and {overhead} us a copy: {rate / GB:.2f} GB/s, "
        f"swap {_ms(here.swap)}, recompute {_ms(here.recompute)} at 50% of the peak; as long at {even / GB:.2f} GB/s"
    )


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.1f} ms"


def burst(requests: int = 60) -> Trace:
    """As many prompts of 1,000 tokens, 20 a second, each answered with 500."""
    return Trace("burst", tuple(TraceRequest(number / 20, 1000, 500) for number in range(requests)))


@cache
def simulated(blocks: int, rate: float | None, **options: Any) -> SimulationResult:
    """The burst on Llama-3-8B and one H100 with `blocks` blocks of 16. rate: GB/s to swap over; None recomputes."""
    swap: dict[str, Any] = {} if rate is None else {"preemption": "swap", "pcie_bandwidth": rate * GB}
    return simulate(burst(), num_blocks=blocks, prefix_cache=False, **swap, **options)


def burst_seconds(figure: Figure, blocks: int, pcie: int) -> str:
    """How long the burst takes by swap, for all rates; by recompute; and when nobody starts who could have to go."""
    axes = figure.subplots(gridspec_kw={"bottom": 0.2})
    axes.plot(RATES, [simulated(blocks, rate).end for rate in RATES], "o-", color=BLUE, markersize=4, label="swap")
    recompute, never = simulated(blocks, None), simulated(blocks, None, admission="worst_case")
    swap = simulated(blocks, pcie)
    axes.axhline(recompute.end, color=ORANGE, label="recompute")
    axes.axhline(never.end, color=GREEN, linestyle="--", label="worst-case admission")
    axes.plot([pcie], [swap.end], "o", color=BLUE, markersize=9, label="this link")
    axes.set(xscale="log", xlabel="GB/s of the link", ylabel="seconds for all 60", title=f"{blocks:,} blocks")
    axes.set_xticks(RATES, [str(rate) for rate in RATES])
    axes.minorticks_off()
    axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
    axes.legend(loc="lower left", fontsize=8)
    return (
        f"{blocks:,} blocks: {recompute.counters.num_preemptions} preemptions; swap at {pcie} GB/s {swap.end:.2f} s, "
        f"recompute {recompute.end:.2f} s, worst-case admission {never.end:.2f} s"
    )


def life() -> tuple[str, str]:
    """SVG and its text: where a request is, and what a preemption makes of it."""
    shapes = [
        box(20, 20, 170, 200, fill="#F6F6F4"),
        label(105, 42, "the queue, by arrival", size=11),
        box(30, 52, 150, 46, "swapped", "K/V in host memory", fill="#FCEFD9"),
        box(30, 106, 150, 46, "preempted", "tokens kept", fill="#FCEFD9"),
        box(30, 160, 150, 46, "waiting", "never started"),
        arrow((190, 190), (308, 150)), label(272, 184, "fits"),
        box(310, 104, 120, 50, "running", "takes blocks", fill="#DCEBFA"),
        arrow((310, 112), (182, 78)), label(258, 84, "swap"),
        arrow((310, 129), (182, 129)), label(246, 123, "recompute"),
        arrow((430, 129), (528, 170)), label(500, 143, "last token"),
        box(530, 150, 120, 46, "finished", "blocks free"),
        arrow((430, 120), (528, 80)), label(456, 82, "outgrew the pool"),
        box(530, 52, 120, 46, "capacity", "answer so far kept", fill=PALE),
        label(335, 246, "A victim comes before everybody who has not started."),
    ]  # fmt: skip
    words = (
        "Diagram: a request waits in the queue without blocks, runs when it fits, and is finished after its last token. When "
        "blocks run out, a running request goes back to the front of the queue: by recompute only its tokens are kept, by swap "
        "its K/V waits in host memory. One that has the whole pool and needs more ends with capacity."
    )
    return sheet(670, 262, *shapes), words
