"""Lesson 01, predictions: what the cache costs, and what it saves."""

from __future__ import annotations

from mini_engine.course.exercise import Prediction

BYTES_PER_TOKEN = Prediction(
    "01.bytes_per_token",
    "SmolLM2-135M: 30 layers, 9 query heads, 3 K/V heads of size 64, 2 bytes a number. Cache bytes for one token?",
    2 * 30 * 3 * 64 * 2,
    "B",
    mistakes=[
        (30 * 3 * 64 * 2, "Half of it. There are two factors of 2: K and V are both kept, and a number takes 2 bytes."),
        (2 * 30 * 9 * 64 * 2, "Queries are not kept. Only the 3 K/V heads count, not the 9 query heads."),
        (30 * 9 * 64 * 2, "Only the 3 K/V heads count, not the 9 query heads. And V is kept as well as K."),
        (2 * 3 * 64 * 2, "That is one layer. Each of the 30 layers keeps its own K and V."),
        (2 * 30 * 64 * 2, "That is one K/V head. There are 3 in each layer."),
        (2 * 30 * 3 * 64 * 8, "That is float64, 8 bytes a number, as in this notebook. The question says 2 bytes."),
        (2 * 30 * 3 * 64 * 4, "That is 4 bytes a number. The question says 2."),
    ],
    because="2 (K and V) x 30 layers x 3 heads x 64 numbers x 2 bytes = 23,040 B = 22.5 KiB.",
    rtol=0,
)

ONE_TOKEN_ANSWER = Prediction(
    "01.one_token",
    "A prompt of 500 tokens, an answer of one token. How many token-forwards does the cache save?",
    0,
    "token-forwards",
    mistakes=[
        (500, "Prompt tokens run once in both cases."),
        (499, "There is one pass in both cases, and it is the same pass."),
        (1, "The one new token is returned and never run, with or without a cache."),
    ],
    because="One pass, 500 tokens, either way. The cache costs memory and saves nothing.",
    rtol=0,
)

TOKENS_IN_A_GIB = Prediction(
    "01.tokens_in_a_gib",
    "At 23,040 B a token, how many tokens of SmolLM2 fit into 1 GiB of cache?",
    2**30 // 23040,
    "tokens",
    mistakes=[
        (10**9 // 23040, "That is 1 GB, 1,000,000,000 bytes. 1 GiB is 1,073,741,824 bytes."),
        (2**30 // 11520, "That is K or V alone. The 23,040 bytes hold both."),
        (2**20 // 23040, "That is 1 MiB. A GiB has 1,024 of them."),
    ],
    because="1,073,741,824 // 23,040 = 46,603. Two answers of 23,000 tokens, or many short ones.",
    rtol=0.0002,
)
