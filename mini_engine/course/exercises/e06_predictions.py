"""Lesson 06, what to guess: how much of a reservation is used, what a buddy adds, how many requests fit."""

from __future__ import annotations

from mini_engine.course.exercise import Prediction


def rounded(number: float, why: str, digits: tuple[int, ...]) -> list[tuple[float, str]]:
    """The same mistake for every way to round a number. For counts, whose mistakes are matched exactly."""
    return [(wrong, why) for wrong in dict.fromkeys(round(number, places) for places in digits)]


def in_percent(share: float, why: str) -> list[tuple[float, str]]:
    """A share in percent where a count was asked for: rounded to any digit, and as a fraction."""
    return rounded(share, why, (6, 2, 1, 0)) + rounded(share / 100, why, (8, 4, 3, 2))


IDLE = Prediction(
    "06.idle",
    "A request reserves 2,048 slots and ends with 200 tokens. How many of its slots are never used?",
    2048 - 200,
    "slots",
    mistakes=[
        (200, "Those are used. The others never are."),
        (2048, "The 200 tokens do lie in it."),
        (1847, "Close. Counting from 200 to 2,047, both ends belong to it: 1,848."),
        (1849, "Close. 2,048 less 200 is 1,848."),
        *in_percent(90.234375, "That is the idle share in percent. The question is for slots."),
        *in_percent(9.765625, "That is the used share in percent. The question is for idle slots."),
        (824, "1,024 less 200: the reservation is 2,048."),
    ],
    because="2,048 less 200: slots that nobody else could use meanwhile.",
    rtol=0,
)

SHARE = Prediction(
    "06.share",
    "A server reserves 8,192 slots for each request, and requests end with 1,024 tokens. What share of the slots is used, in %?",
    100 * 1024 / 8192,
    "%",
    mistakes=[
        (87.5, "That is the share that is wasted."),
        (0.125, "That is the share as a fraction. In % it is a hundred times as much."),
        (8, "That is how many times larger the reservation is. The share is one over it."),
        (12, "Rounded down. Keep the decimals: the share is exact with one of them."),
        (13, "Rounded up. Keep the decimals: the share is exact with one of them."),
        (0.875, "That is the wasted share, as a fraction."),
        (14.2857, "That compares what is used with what is not. The share is used over all."),
    ],
    because="1,024 / 8,192 is one eighth.",
    rtol=0.001,
)

BUDDY = Prediction(
    "06.buddy_run",
    "A buddy allocator hands out runs of 1, 2, 4, 8 ... slots only. How many slots does a request of 1,100 lose by that?",
    2048 - 1100,
    "slots",
    mistakes=[
        (2048, "That is the run. The request holds 1,100 of its slots."),
        (76, "1,024 is too small for 1,100 tokens. The next power of two is 2,048."),
        (0, "1,100 is no power of two, so there is a rest."),
        (947, "One too few. Slots 1,100 to 2,047 are 948."),
        (1024, "That is the next smaller power of two, which is too small."),
        *in_percent(100 * 948 / 2048, "That is the lost share of the run in percent. The question is for slots."),
        *in_percent(100 * 1100 / 2048, "That is the used share of the run in percent. The question is for lost slots."),
    ],
    because="The run has 2,048 slots. Nearly half of it is rounding.",
    rtol=0,
)

TRACE = Prediction(
    "06.trace_share",
    "Prompts of 1,154.7 tokens and answers of 211.1 on average, each with 8,192 slots. What share holds a token at the end, in %?",
    100 * (1154.681 + 211.099 - 1) / 8192,
    "%",
    mistakes=[
        (100 * 1154.681 / 8192, "That is the prompt alone. The answer's tokens are cached too."),
        (100 * 211.099 / 8192, "That is the answer alone. The prompt is cached too."),
        (100 * (1 - (1154.681 + 211.099 - 1) / 8192), "That is the share that stays empty."),
        ((1154.681 + 211.099 - 1) / 8192, "That is the fraction. In % it is a hundred times as much."),
        (
            8192 / (1154.681 + 211.099 - 1),
            "That is how many times larger the reservation is. The share is one over it.",
        ),
    ],
    because="(1,154.7 + 211.1 - 1) / 8,192: the last token is not stored. The mean is all that matters, as every reservation is equally long.",
    rtol=0.02,
)

SLOTS = 12 * 2**30 // (2 * 40 * 40 * 128 * 2)
"""12 GiB of cache for a model of 13e9 parameters: 40 layers, 40 heads of 128, 2 bytes a number."""

RESERVED_FIT = Prediction(
    "06.reserved_fit",
    "15,728 slots. How many requests run at once when each reserves 2,048?",
    SLOTS // 2048,
    "requests",
    mistakes=[
        (8, "Close: 8 need 16,384 slots. The quotient is 7.68, and a request fits whole or not at all."),
        *rounded(SLOTS / 2048, "A request fits whole or not at all.", (2, 1)),
        (31, "That is how many would fit without the reservation."),
        (78, "That is 15,728 over 200, without any reservation."),
        (16, "With 1,000 or 1,024 slots each it would be about that. Each takes 2,048."),
        (983, "That is the number of blocks of 16."),
    ],
    because="15,728 over 2,048 is 7.68: seven whole ones, and 1,392 slots in which nobody fits.",
    rtol=0,
)

PAGED_FIT = Prediction(
    "06.paged_fit",
    "The same 15,728 slots in blocks of 16. How many requests of 500 tokens are held at once?",
    SLOTS // 16 // -(-500 // 16),
    "requests",
    mistakes=[
        (31, "That is 15,728 over 500. Blocks are whole: 500 tokens take 32 of them, which is 512 slots."),
        *rounded(SLOTS / 500, "That is 15,728 over 500. Blocks are whole: 500 tokens take 32 of them.", (3, 2, 1)),
        (7, "That is with 2,048 slots each. A paged request holds what it has."),
        (983, "That is the number of blocks. A request takes 32."),
        (32, "That is the number of blocks that one request takes."),
        (30.72, "Requests are whole: 30."),
    ],
    because="983 blocks, and 500 tokens take 32 of them: 30 requests, and 23 blocks are left.",
    rtol=0,
)
