"""Lesson 02, numbers to guess before they are computed: bytes per token, bytes in all, dense against experts."""

from __future__ import annotations

from fractions import Fraction

from mini_engine.catalog import get_model
from mini_engine.course.exercise import Prediction
from mini_engine.geometry import kv_bytes_per_token, kv_total_bytes

LLAMA = get_model("llama-3-70b")

PER_TOKEN = Prediction(
    "02.per_token",
    "Llama-3-70B: 80 layers, 64 query heads, 8 K/V heads of size 128, 2 bytes a number. Cache bytes for one token?",
    kv_bytes_per_token(LLAMA),
    "B",
    mistakes=[
        (80 * 8 * 128 * 2, "Half of it. There are two factors of 2: K and V are both kept, and a number takes 2 bytes."),
        (2 * 80 * 64 * 128 * 2, "That is with 64 K/V heads. Queries are not kept: 8 heads of 128 count, not the hidden size of 8,192."),
        (80 * 64 * 128 * 2, "Only the 8 K/V heads count, not the 64 query heads. And V is kept as well as K."),
        (2 * 8 * 128 * 2, "That is one layer. Each of the 80 layers keeps its own K and V."),
        (2 * 80 * 128 * 2, "That is one K/V head. There are 8 in each layer."),
        (2 * 80 * 8 * 128 * 4, "That is 4 bytes a number. bf16 takes 2."),
    ],
    because="2 (K and V) x 80 layers x 8 heads x 128 numbers x 2 bytes = 327,680 B = 320 KiB.",
    rtol=0.01,  # 328 kB and 0.33 MB are right
)  # fmt: skip

BATCH_GB = Prediction(
    "02.batch_gb",
    "The same model, 16 sequences of 8,192 tokens. How many GB does the cache take?",
    float(Fraction(kv_total_bytes(LLAMA, 8192, 16), 10**9)),
    "GB",
    mistakes=[
        (40, "That is the number of GiB. In GB, which are 7% smaller, it is 42.95."),
        (2.684, "That is one sequence of the 16."),
        (2.5, "That is one sequence of the 16, in GiB."),
        (41.94, "That is with 8,000 tokens. 8K are 8,192."),
        (343.6, "That is with all 64 heads as K/V heads. There are 8."),
        (21.47, "That is K or V alone."),
    ],
    because="327,680 B x 8,192 x 16 = 42,949,672,960 B = 42.95 GB, which is exactly 40 GiB.",
    rtol=0.002,
)  # fmt: skip

EXPERTS = Prediction(
    "02.experts",
    "Mixtral-8x7B has 46.7 billion parameters, Mistral-7B 7.2 billion. Both: 32 layers, 8 K/V heads of 128. Mixtral's cache is how many times larger?",
    1,
    "times",
    mistakes=[
        (6.45, "That is the ratio of the parameters. None of them is in the formula: experts sit in the MLP, which keeps nothing."),
        (46.7, "Those are Mixtral's parameters, in billions. None of them is in the formula: experts sit in the MLP, which keeps nothing."),
        (7.2, "Those are Mistral's parameters, in billions. Compare layers, K/V heads and head size."),
        (39.5, "That is the difference of the parameters, in billions. Compare layers, K/V heads and head size."),
        (8, "There are 8 experts, in the MLP. K and V come from attention, of which each layer has one."),
        (2, "Two experts run per token, in the MLP. K and V come from attention, of which each layer has one."),
        (0, "It has a cache like any other: 32 layers of 8 heads."),
    ],
    because="Equal layers, K/V heads and head size: equal bytes, 131,072 B a token. Experts keep nothing between tokens.",
    rtol=0.02,
)  # fmt: skip
