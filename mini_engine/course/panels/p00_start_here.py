"""Pictures of lesson 00: the life of a request, the map of the course, and what runs in each pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mini_engine.course.figures import BLUE, ORANGE
from mini_engine.course.panels.drawing import DEEP, PAPER, WARM, arrow, box, label, sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def life_of_a_request() -> tuple[str, str]:
    """SVG and its text: from a prompt through prefill and decode to an answer."""
    shapes = [
        box(16, 84, 96, 46, "prompt", "text"),
        arrow((112, 107), (138, 107)),
        box(140, 84, 96, 46, "tokenizer", "n tokens"),
        arrow((236, 107), (268, 107)),
        box(270, 70, 132, 74, "prefill", "1 pass", "n tokens", fill=DEEP, ink=PAPER),
        arrow((402, 107), (466, 107)),
        label(433, 98, "token 1", size=11),
        box(468, 70, 132, 74, "decode", "m - 1 passes", "1 token each", fill=DEEP, ink=PAPER),
        arrow((600, 107), (632, 107)),
        box(634, 84, 96, 46, "answer", "m tokens"),
        arrow((576, 70), (576, 42), (496, 42), (496, 68)),
        label(536, 34, "each new token goes back in", size=11),
        box(270, 186, 330, 44, "KV cache", "one K and one V per token, layer and K/V head", fill=WARM),
        arrow((336, 144), (336, 184)),
        label(330, 170, "writes n", anchor="end", size=11),
        arrow((510, 186), (510, 146)),
        label(504, 170, "reads all", anchor="end", size=11),
        arrow((558, 144), (558, 184)),
        label(564, 170, "writes 1", anchor="start", size=11),
    ]
    words = (
        "Diagram: a prompt becomes n tokens. Prefill runs them in one pass and writes n entries to the KV cache; out comes "
        "token 1. Decode then takes m - 1 passes of one token each; each reads the whole cache and writes one entry. "
        "Every new token goes back in. The answer has m tokens."
    )
    return sheet(746, 246, *shapes), words


STEPS = [
    ("1  keep K and V", "they never change", "00 - 01"),
    ("2  count bytes", "every token takes some", "02"),
    ("3  find the bound", "memory, not arithmetic", "03"),
    ("4  shrink a token", "GQA, MLA, fewer bits", "04 - 05"),
    ("5  waste none", "pages, sharing, kernels", "06 - 11"),
    ("6  fill the machine", "schedule many requests", "12 - 15"),
]


def course_map() -> tuple[str, str]:
    """SVG and its text: the six steps of the course."""
    shapes = []
    for i, (title, why, lessons) in enumerate(STEPS):
        x, y = 16 + 244 * (i % 3), 16 + 108 * (i // 3)
        word = "lessons" if "-" in lessons else "lesson"
        shapes.append(box(x, y, 210, 74, title, why, f"{word} {lessons}", fill=DEEP, ink=PAPER))
        if i % 3 < 2:
            shapes.append(arrow((x + 210, y + 37), (x + 242, y + 37)))
    shapes.append(arrow((609, 90), (609, 107), (121, 107), (121, 122)))
    words = "Map of the course, with lesson numbers: " + "; ".join(f"{title} ({why}): {n}" for title, why, n in STEPS)
    return sheet(730, 214, *shapes), words + "."


def tokens_of_passes(prompt: int, output: int, cached: bool) -> list[range]:
    """The places of the tokens that run, pass by pass: all that exist before the pass, or with a cache only the new ones."""
    passes, kept = [], 0
    for length in range(prompt, prompt + output):
        passes.append(range(kept, length))
        kept = length if cached else 0
    return passes


def count_both(prompt: int, output: int) -> tuple[int, int]:
    """Token-forwards without a cache and with one, by going through every pass."""
    without, cached = (sum(map(len, tokens_of_passes(prompt, output, cached))) for cached in (False, True))
    return without, cached


def passes(figure: Figure, prompt: int, output: int) -> str:
    """Which tokens run in each pass, without a cache and with one. Returns the counts in words."""
    figure.set_layout_engine("constrained")
    width = prompt + output - 1
    counts = count_both(prompt, output)
    for axes, cached in zip(figure.subplots(1, 2, sharey=True), (False, True)):
        for i, ran in enumerate(tokens_of_passes(prompt, output, cached)):
            for token in range(prompt + i):
                axes.add_patch(_square(token + 1, i + 1, BLUE if token in ran else "#D6E6F2"))
        if output > 1:
            axes.axvline(prompt + 0.5, color=ORANGE, linewidth=1.5, linestyle=":")
        axes.set(xlim=(0.4, max(width, 8) + 0.6), ylim=(max(output, 6) + 0.6, 0.4), aspect="equal")
        axes.set(xticks=_some(width), yticks=_some(output))
        axes.set_title(f"{'with a cache' if cached else 'without'}: {_forwards(counts[cached])}")
        axes.set_xlabel("token (dotted: end of the prompt)" if output > 1 else "token")
        axes.grid(visible=False)
    figure.axes[0].set_ylabel("pass")
    saved = f"{counts[0] / counts[1]:.1f} times fewer" if output > 1 else "nothing to save: there is one pass"
    return f"prompt {prompt}, output {output}: {_forwards(counts[0])} without a cache, {counts[1]} with one ({saved})"


def _forwards(count: int) -> str:
    return f"{count:,} token-forward{'' if count == 1 else 's'}"


def _some(last: int) -> list[int]:
    """Numbers for an axis that counts from 1 to `last`: all of a few, some of many, both ends among them."""
    step = -(-last // 6)
    return [*range(1, last - step // 2, step), last]


def _square(x: int, y: int, colour: str):
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.42, y - 0.42), 0.84, 0.84, facecolor=colour)
