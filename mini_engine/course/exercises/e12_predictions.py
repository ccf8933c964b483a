"""Lesson 12, what to guess: padding, steps, a pace and a throughput, what 190 ms meant, and when nothing is gained."""

from __future__ import annotations

from mini_engine.course.exercise import Prediction
from mini_engine.course.exercises.answers12_numbers import static_slots

WASTED = Prediction(
    "12.padding",
    "One static batch: prompts of 10, 4, 7 and 10 tokens, answers of 3, 20, 5 and 8. Of the slots computed, how many are for nobody?",
    static_slots([10, 4, 7, 10], [3, 20, 5, 8], 4)[1],
    "slots",
    mistakes=[
        (44, "Those are the answers alone. The short prompts are filled up too."),
        (9, "Those are the prompts alone. Rows that are done are computed on."),
        (116, "That is all the rectangle: 4 rows of 29. Some of it was needed."),
        (63, "Those are the slots that somebody needed."),
        (29, "That is the length of one row."),
        (40, "That is the first pass, 4 rows of 10, and some of it was needed."),
        (57, "The last token of each answer is never computed, and nobody waits for its slot."),
    ],
    because="4 rows of 10 + 20 - 1 = 29 slots are 116; 12 + 23 + 11 + 17 = 63 of them were needed.",
    rtol=0,
)

STEPS = Prediction(
    "12.steps",
    "The same six requests: answers of 3, 20, 5, 8, 12 and 4 tokens, four seats. If a free seat is taken at once, how many steps do all six need?",
    20,
    "steps",
    mistakes=[
        (32, "Those are the steps of the static batches, 20 and 12."),
        (
            13,
            "That is 52 tokens on four seats, if every seat were taken to the end. The answer of 20 tokens needs 20 steps.",
        ),
        (52, "That is one seat."),
        (15, "The fifth ends after 3 + 12 steps. The second needs longer."),
        (21, "The first token comes out of the step that computes the prompt."),
        (14, "The fifth ends after 3 + 12 steps, the sixth after 5 + 4. The second needs longer."),
        (24, "The fifth need not wait for the second: the first seat is free after 3 steps."),
    ],
    because="The fifth starts after 3 steps and ends after 15, the sixth after 5 and 9. The answer of 20 tokens is the longest.",
    rtol=0,
)

THROUGHPUT = Prediction(
    "12.throughput",
    "32 requests decode in one batch, and each sees an ITL of 25 ms. How many output tokens per second does the server make?",
    32 / 0.025,
    "tok/s",
    mistakes=[
        (40, "That is what one user sees: 1 / 25 ms. Every step makes 32 tokens."),
        (1.25, "That is per millisecond."),
        (25, "That is the latency in ms. More users do not make it a rate."),
        (0.78125, "That is 25 ms over 32: the time in which the server makes one token, in ms."),
        (800, "That is 32 times 25. Divide by the time of a step."),
    ],
    because="32 tokens in every step, 40 steps a second.",
)

ORCA = Prediction(
    "12.orca",
    "Orca's figure: a median of 190 ms, end-to-end time divided by the tokens generated. At that, how long does an answer of 128 tokens take from arrival to its end, in s?",
    0.19 * 128,
    "s",
    mistakes=[
        (0.19, "That is per token. The whole answer takes 128 times as long."),
        (1.48, "That is 190 over 128. The figure was divided by 128 already."),
        (0.00148, "The figure was divided by 128 already."),
        (190, "That is in ms, and per token."),
        (24320, "That is in ms."),
    ],
    because="0.19 s for each of 128 tokens, the queue and the prompt included.",
    rtol=0.015,
)

EQUAL = Prediction(
    "12.equal",
    "32 requests come at once, 8 seats, and every answer has 64 tokens. Static batches need 4 x 64 = 256 steps. How many does continuous batching need?",
    256,
    "steps",
    mistakes=[
        (64, "That is one batch. There are 32 requests for 8 seats."),
        (250, "There is no gap that anybody could fill: all eight seats become free at once."),
        (2048, "That is 32 x 64 tokens, and a step makes eight."),
        (128, "Eight seats are full all the time in both. There is nothing to gain."),
        (255, "The first token comes out of the step that computes the prompt, in both."),
    ],
    because="All seats become free in the same step, so both start the next eight then. Nothing is gained.",
    rtol=0,
)

WHO_WAITS = Prediction(
    "12.who_waits",
    "Two seats; a, b, c and d come at once, with answers of 7, 2, 3 and 4 tokens. After how many steps has d its last token, if free seats are taken at once?",
    9,
    "steps",
    mistakes=[
        (11, "Those are static batches: 7 and then 4."),
        (7, "Then a is done. But b's seat is free after 2 steps, and c's after 5."),
        (4, "That is as if it started at once. There are two seats."),
        (8, "It starts in the step after c's last one. c has steps 3, 4 and 5."),
        (6, "That is b and then d. But c came before d."),
        (5, "After 5 steps c is done, and d starts."),
        (16, "That is one seat."),
    ],
    because="b ends after 2 steps, c takes its seat and ends after 5, d takes the same seat for 4 more.",
    rtol=0,
)
