"""Pictures of lesson 00: the life of a request, the map of the course, and what runs in each pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mini_engine.course.figures import BLUE, SKY
from mini_engine.course.panels.drawing import DEEP, PALE, PAPER, WARM, arrow, box, label, sheet

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
        here, word = i == 0, "lessons" if "-" in lessons else "lesson"
        shapes.append(box(x, y, 210, 74, title, why, f"{word} {lessons}{'' if here else ' (to come)'}",
                          fill=DEEP if here else PALE, ink=PAPER if here else "#1F2933"))  # fmt: skip
        if i % 3 < 2:
            shapes.append(arrow((x + 210, y + 37), (x + 242, y + 37)))
    shapes.append(arrow((609, 90), (609, 107), (121, 107), (121, 122)))
    words = "Map of the course, with lesson numbers: " + "; ".join(f"{title} ({why}): {n}" for title, why, n in STEPS)
    return sheet(730, 214, *shapes), words + ". Lessons 00 and 01 are here, the others are to come."


def passes(figure: Figure, prompt: int, output: int) -> str:
    """Which tokens run in each pass, without a cache and with one. Returns the counts in words."""
    figure.set_layout_engine("constrained")
    width = prompt + output - 1
    counts = []
    for axes, cached in zip(figure.subplots(1, 2, sharey=True), (False, True)):
        ran = 0
        for i in range(output):
            for token in range(prompt + i):
                runs = not cached or (token >= prompt + i - 1 if i else True)
                ran += runs
                axes.add_patch(_square(token, i, BLUE if runs else "#D6E6F2"))
        counts.append(ran)
        axes.axvline(prompt - 0.5, color=SKY, linewidth=1, linestyle=":")
        axes.set(xlim=(-0.6, max(width, 8) - 0.4), ylim=(max(output, 6) - 0.4, -0.6), aspect="equal")
        axes.set_title(f"{'with a cache' if cached else 'without'}: {ran} token-forwards")
        axes.set_xlabel("token")
        axes.grid(visible=False)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.yaxis.get_major_locator().set_params(integer=True)
    figure.axes[0].set_ylabel("pass")
    return (
        f"prompt {prompt}, output {output}: {counts[0]} token-forwards without a cache, {counts[1]} with one "
        f"({counts[0] / counts[1]:.1f} times fewer)"
    )


def _square(x: int, y: int, colour: str):
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.42, y - 0.42), 0.84, 0.84, facecolor=colour)
