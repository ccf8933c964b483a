"""Lesson 14, what to guess: when the pool is full, what a recompute computes, what a swap moves, and who may start."""

from __future__ import annotations

from mini_engine.course.exercise import Prediction
from mini_engine.course.panels.p14_preemption import GB, times

FULL = Prediction(
    "14.full",
    "Two prompts of 100 tokens, which share nothing, start together in a pool of 20 blocks of 16. How many tokens of its answer has each got when a block is lacking?",
    20 // 2 * 16 - 100 + 1,
    "tokens",
    mistakes=[
        (60, "160 slots hold 100 + 60 tokens. But the newest token is known before it is computed: one more is out."),
        (220, "There are two of them: each gets 10 blocks."),
        (48, "A prompt fills 6 blocks and 4 slots of a seventh. 12 slots are left in it, and 3 blocks more."),
        (80, "20 blocks of 16 are 320 slots: 160 for each, not for both."),
        (160, "That is the room of each. The prompt takes 100 of it."),
        (3, "That is how many blocks each can still take. Each holds 16 tokens."),
    ],
    because="Each has 10 blocks, 160 slots: 100 for the prompt, 60 for the answer. Token 61 has been sampled, and needs slot 161.",
    rtol=0,
)

AGAIN = Prediction(
    "14.again",
    "A request with a prompt of 100 and 61 tokens of its answer is preempted by recompute, without a prefix cache. How many tokens does it compute when it returns, before it says anything new?",
    161,
    "tokens",
    mistakes=[
        (160, "Those had K and V. The newest token had none yet, and is computed in the same pass."),
        (100, "The answer so far is part of what it has to attend to."),
        (61, "The K and V of the prompt are gone as well."),
        (60, "The K and V of the prompt are gone as well."),
        (0, "Its K and V are gone: they were dropped."),
        (1, "That is what it would have computed if it had stayed."),
    ],
    because="The 100 of the prompt and the 61 of the answer: all that is known, in one pass like a prompt.",
    rtol=0,
)

SWAP = Prediction(
    "14.swap",
    "Llama-3-8B keeps 131,072 bytes a token. A request of 8,192 tokens is swapped out, and in again, over a link of 32 GB/s each way. How many ms does that take?",
    1000 * times("Llama-3-8B, one H100", 8192, 32 * GB).swap,
    "ms",
    mistakes=[
        (33.55, "That is one way. It has to come back."),
        (33.6, "That is one way. It has to come back."),
        (0.0671, "That is in seconds."),
        (62.5, "Close: 1 GiB is 1.074 GB, and a link is counted in GB."),
        (134.2, "Twice too much: once out and once in."),
        (301.6, "That is the time to compute it again, at half the peak."),
    ],
    because="131,072 x 8,192 is 1.074 GB. Out and in, 2.147 GB over 32 GB/s.",
    rtol=0.02,
)

COPIES = Prediction(
    "14.copies",
    "Those 8,192 tokens lie in blocks of 16. The model has 32 layers, and K and V of each layer lie apart. How many pieces are copied to swap it out?",
    8192 // 16 * 32 * 2,
    "pieces",
    mistakes=[
        (512, "That is the number of blocks. Each has a piece for every layer, of K and of V."),
        (16384, "K and V are two pieces."),
        (1024, "That is for one layer."),
        (65536, "That is out and in. The question is for one way."),
        (524288, "A block holds 16 tokens, and they lie together."),
        (8192, "Tokens of a block lie together, layers do not."),
    ],
    because="512 blocks x 32 layers x 2. Each is 32 KiB.",
    rtol=0,
)

WORST = Prediction(
    "14.worst_case",
    "A pool of 40 blocks of 16. Prompts of 100 tokens may be answered with up to 200. How many start together when nobody may ever have to go?",
    40 // -(-(100 + 200 - 1) // 16),
    "requests",
    mistakes=[
        (5, "That many prompts fit. Each may grow to 19 blocks."),
        (3, "200 tokens are 13 blocks. But prompt and answer together are 299."),
        (1, "One takes 19 blocks at most, so two fit into 40."),
        (19, "That is how many blocks one may need."),
    ],
    because="100 + 200 - 1 tokens get K and V: 19 blocks. Two of them fit into 40.",
    rtol=0,
)
