"""Lesson 09, what to guess: hits of whole blocks, what eviction leaves, a second turn, and when 90% and 2 s are true."""

from __future__ import annotations

from fractions import Fraction

from mini_engine.course.exercise import Prediction
from mini_engine.geometry import prefix_hit_tokens

FULL_HIT = Prediction(
    "09.full_hit",
    "A prompt of 2,000 tokens is asked twice, in blocks of 16. How many tokens does the second request find in the cache?",
    prefix_hit_tokens(2000, 2000, 16),
    "tokens",
    mistakes=[
        (2000, "Then no token is left to compute, and the first answer token comes from the last one's logits."),
        (1999, "A hit is made of whole blocks: 1,999 tokens are 124 blocks and a rest."),
        (0, "All 125 full blocks are published. All but the last may be used."),
        (1968, "Close: one block too few. One token has to be left, and that costs one block."),
        (124, "That is the number of blocks. Each holds 16 tokens."),
        (125, "That is the number of full blocks, and one of them may not be used. The question is for tokens."),
        (16, "That many are computed again."),
    ],
    because="(2,000 - 1) // 16 = 124 blocks of 16 tokens. The last 16 tokens are computed again, for the logits of one.",
    rtol=0,
)

TAILS = Prediction(
    "09.tails",
    "A pool of four blocks of 4. A prompt of 16 tokens fills it and is freed, head first; then one block is reused. Of the same 16 tokens and one more, how many are found?",
    0,
    "tokens",
    mistakes=[
        (12, "Three of four blocks are still there. But the head went first, and a match starts at the head."),
        (16, "One block holds something else by now."),
        (4, "A match starts with the first block, and that one is gone."),
        (8, "A match starts with the first block, and that one is gone."),
        (3, "That is the number of blocks that are left. A match starts at the head, and the question is for tokens."),
    ],
    because="The block freed first is reused first. It is the head, and no match gets past it.",
    rtol=0,
)

SECOND_TURN = Prediction(
    "09.second_turn",
    "Blocks of 16. A prompt of 40 tokens gets 24 tokens for an answer. The next turn sends all of them and 10 more. How many are found?",
    prefix_hit_tokens(40 + 24 - 1, 74, 16),
    "tokens",
    mistakes=[
        (64, "The last sampled token was never fed to the model: 63 tokens have K and V."),
        (63, "63 tokens have K and V. But a hit is made of whole blocks."),
        (32, "That is the prompt alone. Blocks that decoding fills are published too."),
        (40, "That is the prompt. Hits come in whole blocks, and the answer is cached as well."),
        (24, "That is the length of the answer. The prompt is cached as well."),
        (10, "Those are new: nobody has computed them."),
        (74, "The 10 new ones were never seen."),
        (3, "That is the number of blocks. Each holds 16 tokens."),
    ],
    because="64 tokens, of which 63 have K and V: 3 full blocks of 16.",
    rtol=0,
)

LONGEST = Prediction(
    "09.longest_prompt",
    "A prefix of 2,000 tokens is cached. How long can the whole prompt be, if at least 90% of its tokens are to be cached?",
    2000 * 10 // 9,
    "tokens",
    mistakes=[
        (2200, "2,000 of 2,200 is 90.9%. There is room for a few more."),
        (2223, "2,000 of 2,223 is 89.97%, a little too little."),
        (1800, "The prompt contains the prefix, so it is longer."),
        (20000, "Then the prefix is a tenth of it."),
        (222, "That is what may come after the prefix. The question is for the whole prompt."),
    ],
    because="2,000 / 0.9 is 2,222.2: what comes after the prefix may have 222 tokens.",
    rtol=0,
)

SYSTEM_70B_FLOPS = 287_460_327_424_000
"""FLOPs for 2,000 prompt tokens of Llama-3-70B, attention included; a test recomputes it."""

MFU = Prediction(
    "09.mfu",
    "2,000 tokens of Llama-3-70B are 2.875e14 FLOPs. Two H100 peak at 989e12 FLOP/s each. At what share of the peak does that take 2 s, in %?",
    float(Fraction(SYSTEM_70B_FLOPS, 2 * 2 * 989 * 10**12) * 100),
    "%",
    mistakes=[
        (14.5, "That is for one GPU. Two of them have twice the peak."),
        (14.53, "That is for one GPU. Two of them have twice the peak."),
        (0.0727, "That is the fraction. In % it is a hundred times as much."),
        (0.07, "That is about the fraction. In % it is a hundred times as much."),
        (50, "At half the peak it takes 0.29 s."),
        (100, "At the peak it takes 0.145 s."),
        (0.145, "That is the time at the peak, in seconds. The question is for the share at which it takes 2 s."),
    ],
    because="2.875e14 / (2 s x 2 x 989e12). At half the peak it takes 0.29 s, so most of 2 s would be something else, such as a queue.",
    rtol=0.05,
)
