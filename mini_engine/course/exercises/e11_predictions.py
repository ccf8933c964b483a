"""Lesson 11, what to guess: idle processors, weights of parts, what the parts cost, bytes loaded twice, heads on a GPU, query tokens."""

from __future__ import annotations

from fractions import Fraction

from mini_engine.course.exercise import Prediction

IDLE = Prediction(
    "11.idle",
    "DeepSeek-V2-Lite has 16 heads, and a program takes a tile of 16 heads of one sequence. One request is being decoded. How many of an H100's 132 processors have nothing to do?",
    132 - 1,
    "processors",
    mistakes=[
        (116, "Sixteen heads are one tile, and a tile is one program."),
        (16, "That many heads share one program."),
        (0, "A program runs on one processor, however long its context is."),
        (132, "One program runs."),
        (1, "That many have work."),
        (105, "Layers run one after another. Each starts one program."),
    ],
    because="One sequence, one tile of heads: one program, and 131 processors wait.",
    rtol=0,
)

WEIGHT = Prediction(
    "11.weight",
    "Two parts have log-sum-exps of 3 and 5, in base 2. What weight has the first part?",
    float(Fraction(2**3, 2**3 + 2**5)),
    "",
    mistakes=[
        (0.25, "That is how the two compare. Divide by the sum of both."),
        (0.375, "Those are logarithms: 2 to their power is what counts."),
        (0.5, "A part counts by what its powers sum up to."),
        (0.8, "That is the second one's."),
        (0.1192, "That is with powers of e."),
    ],
    because="2^3 / (2^3 + 2^5) = 8 / 40.",
    rtol=0.01,
)

PARTS = Prediction(
    "11.parts_bytes",
    "16 heads have a result of 512 float32 numbers each. The context is cut in 32 parts. How many bytes of results do the programs write?",
    32 * 16 * 512 * 4,
    "B",
    mistakes=[
        (16 * 512 * 4, "That is one part."),
        (32 * 16 * 512 * 2, "The parts are float32: 4 bytes a number."),
        (32 * 16 * 576 * 4, "The rope key is no part of a value."),
        (32 * 512 * 4, "Each of 16 heads has a result of its own."),
        (2 * 32 * 16 * 512 * 4, "That is writing and reading them."),
        (32 * 16 * 512, "Those are the numbers. Each has 4 bytes."),
    ],
    because="32 × 16 × 512 × 4 B, once written and once read.",
    rtol=0.05,
)

TWICE = Prediction(
    "11.twice",
    "A row of the pool has a latent of 512 numbers and a rope key of 64. A kernel made for K and V loads the whole row as key, then only the latent as value. How many rows is that, in all?",
    float(Fraction(576 + 512, 576)),
    "rows",
    mistakes=[
        (2, "As value it loads the latent alone: the rope key is loaded once."),
        (1, "That is what a kernel does that keeps the tile."),
        (1.125, "That is the row against the latent."),
        (1.7778, "The first load takes the rope key too."),
        (3, "One load as key, a second one as value."),
    ],
    because="(576 + 512) / 576 = 17/9.",
    rtol=0.01,
)

REREADS = Prediction(
    "11.rereads",
    "DeepSeek-V2 has 128 heads. Programs take tiles of 32 heads. How often is each latent asked for?",
    128 // 32,
    "times",
    mistakes=[
        (1, "Each program loads what it needs, and four programs need the same latents."),
        (128, "The heads of a tile share one load."),
        (32, "Those share one load."),
        (8, "That is with tiles of 16."),
        (2, "A latent that is key and value is loaded once, not twice."),
    ],
    because="128 / 32 tiles of heads, and each loads every latent.",
    rtol=0,
)

GPUS = Prediction(
    "11.gpus",
    "128 heads bring 241.8 FLOP per byte. Tensor parallelism shares the heads among 8 GPUs. How many FLOP per byte does each GPU bring?",
    float(Fraction(16 * (2 * 512 + 64), 512 + 64)),
    "FLOP/B",
    mistakes=[
        (241.8, "A GPU has fewer heads now, and as many latents to read."),
        (1934.2, "The other way round: fewer heads for the same bytes."),
        (85.5, "Work falls to an eighth."),
        (1.889, "That is one head."),
        (32.0, "The rope key is used once: 1.889 for a head, not 2."),
    ],
    because="Each has 16 heads, and reads every latent: 241.8 / 8.",
    rtol=0.01,
)

BOUND = Prediction(
    "11.bound",
    "A model has 64 heads on one H100, whose ridge is at 295.2 FLOP per byte. With how many query tokens in a step, at least, is its decode compute bound?",
    3,
    "query tokens",
    mistakes=[
        (1, "64 heads bring 120.9 FLOP per byte then."),
        (2, "241.8 FLOP per byte are not yet enough."),
        (4, "Three bring 362.7 FLOP per byte."),
        (5, "A latent serves twice, for score and sum: 1.889 FLOP per byte a head."),
        (157, "Those are the heads that it takes with one query token."),
    ],
    because="64 heads bring 120.9 FLOP per byte with one query token, and 362.7 with three.",
    rtol=0,
)
