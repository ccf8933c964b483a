"""What is wrong with `broken_allocator` and `broken_pool`, for teachers and tests. Learners find it out themselves.

Each defect has, under its name, a scenario in `allocator_scenarios` or `pool_scenarios`, which fails on the broken class and
passes on the engine's own, and a mend in `allocator_mends` or `pool_mends`, with which it passes, too.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Defect(NamedTuple):
    """One bug of a class for learners. Its scenario and its mend are listed under its name."""

    name: str
    lesson: str
    where: Literal["allocator", "pool"]
    symptom: str  # what a user of the class sees
    cause: str


DEFECTS = (
    # Block tables and ownership
    Defect(
        "a second release goes unnoticed",
        "07",
        "allocator",
        "Released twice, a block has the count -1.",
        "`release` takes one off without asking whether anything is left.",
    ),
    Defect(
        "a late release takes a block from its new owner",
        "07",
        "allocator",
        "Release a, start b, release a again: the next request is given b's block.",
        "A sequence is released by its list of blocks, whoever holds them by now.",
    ),
    Defect(
        "a released sequence still has its blocks",
        "07",
        "allocator",
        "Append to a released sequence: the token appears in another's block.",
        "`release` does not empty the table.",
    ),
    Defect(
        "an empty prompt cannot grow",
        "07",
        "allocator",
        "Start with no tokens, then append: IndexError.",
        "`append` takes for granted that there is a last block.",
    ),
    Defect(
        "nobody can ask first",
        "07",
        "allocator",
        "A scheduler that wants to know whether a prompt fits has to try it.",
        "No count of free blocks, no question, no statistics: only MemoryError.",
    ),
    # Sharing
    Defect(
        "nothing can be shared on purpose",
        "08",
        "allocator",
        "No call leads to the copy in `append`: its branch is never run.",
        "There is no fork, and a hit shares full blocks only, which are never written again.",
    ),
    Defect(
        "a copy gives up the shared block first",
        "08",
        "allocator",
        "With no block free, the first append fails; the second writes into the sibling's block.",
        "The count is lowered before the new block is taken, and stays lowered when there is none.",
    ),
    Defect(
        "nobody is told of a copy",
        "08",
        "allocator",
        "The branch's table names a new block whose K/V was never copied.",
        "`append` copies the list of tokens and returns nothing: a backend cannot follow.",
    ),
    # Prefix caching
    Defect(
        "a refused prompt keeps what it took",
        "09",
        "allocator",
        "After one prompt that is too long, fewer blocks are free, for ever; its hits are held, too.",
        "`start` takes blocks one by one, and nothing gives them back when one is lacking.",
    ),
    Defect(
        "blocks filled by decoding are lost to the cache",
        "09",
        "allocator",
        "The second turn of a conversation finds nothing of the first one's answer.",
        "Only `start` gives blocks a name, `append` never does.",
    ),
    Defect(
        "the head of a prompt goes first",
        "09",
        "allocator",
        "One new block, and none of a prompt's other blocks is found any more.",
        "`release` queues blocks from the first to the last; without the first, the rest is out of reach.",
    ),
    Defect(
        "a full hit leaves nothing to compute",
        "09",
        "allocator",
        "The same prompt twice: all of its tokens are cached, and no logits are left to sample from.",
        "Nothing keeps the hit below the length of the prompt.",
    ),
    Defect(
        "a block is found before it is computed",
        "09",
        "allocator",
        "A request that arrives in the same step reads K/V that is not there.",
        "`start` enters the name when it takes the block.",
    ),
    Defect(
        "a token out of range stops halfway",
        "09",
        "allocator",
        "OverflowError for a token below 0 or of 2**32 and more; the blocks before it are lost.",
        "Tokens are packed into 4 bytes while blocks are being taken; nobody looked at them before.",
    ),
    Defect(
        "a name is believed",
        "09",
        "allocator",
        "Two contents whose names collide: the second is given the K/V of the first.",
        "64 bits of a hash, and the tokens are not compared.",
    ),
    Defect(
        "one cache for all tenants",
        "09",
        "allocator",
        "One user can find out by the clock what another has asked; adapters share wrong K/V.",
        "No salt and no adapter in the name.",
    ),
    Defect(
        "an evicted twin takes the name along",
        "09",
        "allocator",
        "Two blocks hold the same; the older is evicted, and the newer is not found any more.",
        "One block a name: the newer overwrites the entry, the older's eviction deletes it.",
    ),
    Defect(
        "blank blocks wait behind cached ones",
        "09",
        "allocator",
        "Cached content is thrown away while a block that holds nothing is free.",
        "One queue in the order of release, whatever the blocks hold.",
    ),
    # The arrays
    Defect(
        "nothing can be read back",
        "07",
        "pool",
        "Keys and values go in; there is no gather and no attention.",
        "Only `write` was written.",
    ),
    Defect(
        "nothing is ever given back",
        "07",
        "pool",
        "The pool is full after its first few sequences.",
        "There is no free: a count goes from 0 to 1 and stays.",
    ),
    Defect(
        "a larger pool is slower",
        "07",
        "pool",
        "Taking one block costs time in proportion to the number of free ones.",
        "`list.pop(0)` moves all the others.",
    ),
    Defect(
        "position -1 writes into the last slot",
        "07",
        "pool",
        "A padding position overwrites a token of the sequence.",
        "Python counts from the end below 0, and nothing checks the bounds.",
    ),
    Defect(
        "a wrong shape is spread over the heads",
        "07",
        "pool",
        "One number, or one head's key, is accepted for all heads.",
        "NumPy broadcasts, and nothing checks the shape.",
    ),
    Defect(
        "a table cannot grow",
        "07",
        "pool",
        "IndexError at the first token after those that were announced.",
        "`add` takes all blocks, `write` takes none.",
    ),
    Defect(
        "numbers come back rounded",
        "07",
        "pool",
        "What is written in float64 is read with 7 digits.",
        "float32, whatever the model computes in; there is no choice.",
    ),
    Defect(
        "one layer for a whole model",
        "07",
        "pool",
        "The second layer's keys overwrite the first's.",
        "The arrays have no axis for the layers.",
    ),
    Defect(
        "the values are the keys",
        "07",
        "pool",
        "Attention returns averages of keys.",
        "Copied line: `values[...] = key`. The pool's own check writes one token, with equal K and V, and reads K alone.",
    ),
    Defect(
        "no branch can be made",
        "08",
        "pool",
        "Two answers to one prompt need the prompt's K/V twice.",
        "There is no fork and no copy on write.",
    ),
    Defect(
        "a write to a shared block changes the sibling",
        "08",
        "pool",
        "With one table copied by hand, what one branch writes appears in the other.",
        "`write` does not look at the count.",
    ),
)
