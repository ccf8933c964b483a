"""Lesson 10, what to guess: bytes moved for nothing, lanes masked off, keys read again, where 32 bits end."""

from __future__ import annotations

from mini_engine.course.exercise import Prediction

MOVED = Prediction(
    "10.moved",
    "K and V of a context are X bytes. One call copies them out of their blocks, a second one attends to the copy. How many times X do the two move, reads and writes together?",
    3,
    "times",
    mistakes=[
        (1, "A kernel that follows the table itself would get by with that."),
        (1.5, "Nearly: X is K and V together, and each of the three moves has all of it."),
        (2, "The copy is read once more, by the attention."),
        (4, "The attention writes one row for each query head. That is next to nothing."),
        (6, "X has K and V in it already."),
    ],
    because="Read the blocks, write the copy, read the copy.",
    rtol=0,
)

MASKED = Prediction(
    "10.masked",
    "A context has 70 tokens, and tiles have 64 lanes. How many lanes of the last tile are masked off?",
    2 * 64 - 70,
    "lanes",
    mistakes=[
        (6, "Those are the lanes that hold a token. The others are off."),
        (57, "Close. 70 - 64 = 6 lanes are on, and 64 - 6 are off."),
        (70, "That is the whole context."),
        (10, "80 would be the next multiple of 16, but a tile has 64 lanes."),
        (0, "70 is no multiple of 64."),
        (2 * (2 * 64 - 70), "A lane is a token. K and V of a token are under one mask."),
        (128, "Those are all lanes of both tiles."),
        (64, "Six tokens are left for the last tile."),
    ],
    because="Two tiles have 128 lanes, for 70 tokens.",
    rtol=0,
)

AGAIN = Prediction(
    "10.again",
    "Llama-3-8B has 32 query heads and 8 K/V heads. A program takes one query head. To generate one token, how often does the grid load each number of the cache?",
    32 // 8,
    "times",
    mistakes=[
        (1, "Programs share nothing. Each loads what it needs."),
        (32, "A query head reads its own K/V head only."),
        (8, "There are 8 K/V heads, and each number belongs to one of them."),
        (2, "K once and V once, but each of them by every query head of the group."),
        (3, "All four load it, the first one too."),
        (0.25, "The other way round: 4 query heads read one K/V head."),
    ],
    because="Four query heads share a K/V head, and each of their programs loads it.",
    rtol=0,
)

OVERFLOW = Prediction(
    "10.overflow",
    "In one layer's pool of Llama-3-8B a block of 16 has 16 × 8 × 128 numbers of K. An int32 ends at 2,147,483,647. Which is the first block whose offset, counted in numbers, does not fit?",
    2**31 // (16 * 8 * 128),
    "",
    mistakes=[
        (131_071, "Its offset is 131,071 times 16,384, and that still fits."),
        (131_070, "Its offset, and that of the next block, still fit. Blocks count from 0."),
        (4_096, "That is where all 32 layers lie in one pool. Here a layer has its own."),
        (2**31 - 1, "That is the largest offset. Divide what comes after it by the numbers of a block."),
        (65_536, "Offsets are counted in numbers here, not in bytes."),
        (262_144, "That is where an unsigned one would end. An int32 has a sign."),
        (16_384, "Those are the numbers of a block. Divide 2^31 by them."),
        (2_097_152, "That is without heads: a block has 16 times 8 times 128 numbers."),
        (2**31, "That is the offset. Divide it by the numbers of a block."),
    ],
    because="2^31 / 16,384 = 2^17.",
    rtol=0,
)

PROGRAMS = Prediction(
    "10.programs",
    "A model has 8 K/V heads. A program takes one K/V head of one sequence. How many programs does a batch of 3 sequences start?",
    8 * 3,
    "programs",
    mistakes=[
        (3, "Each sequence has 8 K/V heads."),
        (8, "Each of the 3 sequences has those."),
        (32, "That is a program for each query head of one sequence."),
        (132, "Those are an H100's processors. The grid does not ask how many there are."),
        (96, "That would be a program for each of 32 query heads."),
        (11, "Every pair of a head and a sequence has a program."),
        (1, "The grid has 8 × 3 places, and a program runs at each."),
    ],
    because="The grid is 8 × 3.",
    rtol=0,
)
