"""Lesson 08, what to guess: holders, copies, savings, and what sharing without copies computes again."""

from __future__ import annotations

from mini_engine.course.exercise import Prediction

HOLDERS = Prediction(
    "08.holders",
    "One prompt is forked into n = 4 branches. What is the reference count of its first block?",
    4,
    "",
    mistakes=[
        (2, "One more than before would be right for one fork. Here three branches come to the first."),
        (5, "Four tables name it, and nobody else. The prompt itself is no holder."),
        (3, "Three were added to the one that held it already."),
        (1, "That is the number of blocks with this content. The count is of tables that name it."),
    ],
    because="Four tables name the block. The count is n, whatever the order of the forks.",
    rtol=0,
)

COPIES = Prediction(
    "08.copies",
    "A prompt of 19 tokens in blocks of 16 is forked into n = 4 branches. How many blocks are copied until all have ended?",
    3,
    "blocks",
    mistakes=[
        (4, "The last one to write finds itself alone with the block, and writes in place."),
        (8, "The first block is full. Nobody writes into it, so nobody copies it."),
        (6, "The first block is full. Nobody writes into it, so nobody copies it."),
        (1, "One branch keeps the block. Each of the three others needs a copy of its own."),
        (0, "16 tokens fill the first block. The last 3 lie in a second one, which is not full."),
        (2, "One branch keeps the block. Each of the three others needs a copy of its own."),
        (12, "Tokens are not copied one by one, but in whole blocks."),
        (9, "Those are tokens. Blocks are copied whole."),
    ],
    because="Three of the four copy the second block; the last to write owns it alone.",
    rtol=0,
)

FULL = Prediction(
    "08.full",
    "The same with a prompt of 512 tokens in blocks of 16. How many blocks are copied?",
    0,
    "blocks",
    mistakes=[
        (3, "That needs a last block that is not full: 512 is 32 times 16."),
        (4, "That needs a last block that is not full: 512 is 32 times 16."),
        (2, "The last block is full as well: 512 is 32 times 16. Nobody writes into a full block."),
        (32, "Those are the blocks that are shared. Nobody writes into a full block."),
        (
            33,
            "That is the block of the next token. It is new for each branch, and begins empty: nothing is copied into it.",
        ),
        (36, "Those are all blocks once each branch has a new one: 32 shared and 4 private. None of them is a copy."),
        (96, "That is what sharing saves: three times 32 blocks."),
        (128, "That is what four requests without sharing store."),
        (1, "The last block is full as well: 512 is 32 times 16."),
    ],
    because="The prompt fills 32 blocks. Each branch writes its next token into a new block.",
    rtol=0,
)

SAVING = Prediction(
    "08.saving",
    "Prompt of 512, n = 4, blocks of 16, and 256 more tokens for each branch. How many times fewer blocks does sharing take?",
    2,
    "times",
    mistakes=[
        (4, "That is for the prompt alone. The answers are not shared."),
        (3.67, "That is for 16 more tokens. With each token less is shared."),
        (3.5, "The saving is not the middle of anything: count blocks, 4 x 48 against 32 + 4 x 16."),
        (1.6, "That is for 512 more tokens."),
        (2.5, "That is for 128 more tokens."),
        (3, "Without sharing 4 x 48 blocks, with sharing 32 + 4 x 16."),
        (96, "Those are the blocks with sharing. Count how often they fit into the 192 without."),
        (64, "Those are the private blocks, with sharing. Put the 192 without sharing over all blocks with it."),
        (192, "Those are the blocks without sharing. Put them over the blocks with it."),
        (0.5, "That is the share that is left. The question is for how many times fewer."),
    ],
    because="192 blocks without sharing, 32 + 64 = 96 with it.",
    rtol=0.01,
)

FIFTY_FIVE = Prediction(
    "08.fifty_five",
    "Sharing saves 55% of the blocks. How many times as many requests fit into the same memory?",
    1 / (1 - 0.55),
    "times",
    mistakes=[
        (1.55, "Each request takes 45% of what it took. Count how often that fits into the whole."),
        (1.8181818, "That is one over what is saved. What counts is what is left."),
        (0.45, "That is the share of memory that a request still takes. One over it is the answer."),
        (0.55, "That is what is saved. Count how often the rest, 45%, fits into the whole."),
        (1.22, "So many more fit, 122% more. The question is for how many times as many: one more than that."),
        (122, "So many percent more fit. The question is for how many times as many, which is 1 more than 1.22."),
        (222, "That is in percent. Divide it by 100."),
        (2, "Close: that is for 50%."),
        (55, "That is the share in percent. Count how often the rest, 45%, fits into the whole."),
    ],
    because="One over 0.45.",
    rtol=0.02,
)

AGAIN = Prediction(
    "08.again",
    "No fork: three more requests with the same prompt of 512 tokens find it in a prefix cache, in blocks of 16. Each has at least "
    "one token left to compute, and a hit is made of whole blocks. How many tokens do the three compute again?",
    48,
    "tokens",
    mistakes=[
        (0, "A request that finds all of its prompt has nothing to compute, and so no next token."),
        (3, "One token each would do, but a hit is made of whole blocks: 31 of them, 496 tokens."),
        (16, "That is for one request."),
        (1536, "That is without the cache."),
        (64, "The first request computes all 512. It finds nothing."),
        (1488, "Those are the tokens that the three find."),
    ],
    because="Each finds 31 whole blocks, 496 tokens, and computes 16.",
    rtol=0,
)
