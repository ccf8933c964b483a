"""Diagrams of lesson 03: a machine as a pipe and a mill, and what is read once for whom."""

from __future__ import annotations

from mini_engine.course.panels.drawing import DEEP, INK, PALE, PAPER, WARM, arrow, box, label, sheet


def two_clocks() -> tuple[str, str]:
    """SVG and its text: bytes come through a pipe, FLOPs are done behind it, and the slower of the two sets the time."""
    shapes = [
        label(24, 28, "Two clocks run side by side", bold=True, anchor="start", size=15),
        box(24, 52, 150, 92, "memory", "weights, K/V", "80 GB"),
        arrow((174, 98), (306, 98)),
        label(240, 86, "3.35e12 B/s", bold=True),
        label(240, 120, "bandwidth", size=12),
        box(308, 52, 170, 92, "arithmetic units", "989e12 FLOP/s", "peak", fill=DEEP, ink=PAPER),
        label(24, 186, "A decode step of one sequence, one GPU of two:", bold=True, anchor="start"),
        label(24, 216, "read 70e9 B", anchor="start"),
        f'<rect x="150" y="202" width="440" height="20" rx="3" fill="{WARM}"/>',
        label(598, 217, "20.9 ms", anchor="start", bold=True),
        label(24, 246, "do 70e9 FLOPs", anchor="start"),
        f'<rect x="150" y="232" width="3" height="20" fill="{DEEP}"/>',
        label(160, 247, "0.07 ms", anchor="start", bold=True),
    ]
    words = (
        "Diagram: memory is joined to the arithmetic units by a pipe of 3.35e12 bytes a second; they can do 989e12 FLOPs a "
        "second. A decode step of one sequence reads 70e9 bytes in 20.9 ms and does 70e9 FLOPs in 0.07 ms at the same time, "
        "so it takes 20.9 ms."
    )
    return sheet(680, 262, *shapes), words


def who_reads_what(batch: int = 3) -> tuple[str, str]:
    """SVG and its text: a batch shares one reading of the weights, but each sequence reads a cache of its own."""
    shapes = [
        label(24, 28, "weights: one reading for all", bold=True, anchor="start"),
        box(24, 44, 140, 150, "weights", fill=DEEP, ink=PAPER),
        label(372, 28, "K/V: one reading each", bold=True, anchor="start"),
    ]
    for i in range(batch):
        y = 44 + 54 * i
        shapes += [
            arrow((164, y + 21), (226, y + 21)),
            box(228, y, 116, 42, f"sequence {i + 1}", fill=PALE, ink=INK),
            arrow((500, y + 21), (346, y + 21)),
            box(502, y, 140, 42, f"K/V of {i + 1}", fill=WARM),
        ]
    words = (
        f"Diagram: {batch} sequences of a batch. One reading of the weights serves all of them. The K/V of each sequence is "
        "read for that sequence alone."
    )
    return sheet(666, 212, *shapes), words
