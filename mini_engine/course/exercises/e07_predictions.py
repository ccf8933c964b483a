"""Lesson 07, what to guess: a slot, how many blocks, how large a table, when little is lost, what a slow kernel costs."""

from __future__ import annotations

from mini_engine.course.exercise import Prediction

TABLE, SIZE, POSITION = [7, 3, 9], 16, 37

SLOT = Prediction(
    "07.slot",
    f"Blocks have {SIZE} slots, and a request's block table is {TABLE}. In which slot does the token at position {POSITION} lie?",
    TABLE[POSITION // SIZE] * SIZE + POSITION % SIZE,
    "",
    mistakes=[
        (POSITION, "That is the position. In one run it would be the slot."),
        (TABLE[POSITION // SIZE] * SIZE, "That is the first slot of the right block. The offset is missing."),
        (TABLE[1] * SIZE + POSITION % SIZE, "37 // 16 is 2, and entries count from 0: it is the third one."),
        (TABLE[POSITION // SIZE] * SIZE + 6, "Close. Positions count from 0, so the offset is 37 % 16 = 5."),
        (TABLE[POSITION // SIZE] + POSITION % SIZE, "Block 9 starts at slot 9 times 16."),
        (TABLE[POSITION // SIZE], "That is the block. In it comes the offset."),
        (TABLE[0] * SIZE + POSITION % SIZE, "That is in block 7, the first one. 37 // 16 is 2: the third entry."),
        (SIZE + POSITION % SIZE, "Times 16 comes the block, which is 9, and not 1."),
        ((TABLE[POSITION // SIZE] - 1) * SIZE + POSITION % SIZE, "Block 0 exists as well, with slots 0 to 15."),
    ],
    because="37 // 16 = 2, and table[2] is 9. 9 times 16, plus 37 % 16 = 5.",
    rtol=0,
)

BLOCKS = Prediction(
    "07.blocks",
    "A prompt has 30 tokens and its answer 35, in blocks of 16. How many blocks does the request hold at its end?",
    -(-(30 + 35 - 1) // 16),
    "blocks",
    mistakes=[
        (5, "The last token was never fed back, so it has no K and V. 64 tokens are stored, not 65."),
        (3, "48 slots are too few for 64 tokens."),
        (64, "Those are the tokens. Divide by 16."),
        (65, "Those are the tokens, with the last one. It has no K and V."),
        (2, "Those are the blocks of the prompt. The answer is stored too."),
        (6, "Prompt and answer share a block: they are one sequence."),
    ],
    because="30 + 35 - 1 = 64 tokens are stored, and 64 / 16 is 4.",
    rtol=0,
)

TABLE_BYTES = Prediction(
    "07.table_bytes",
    "Entries of a block table are int32. How large is the table of a request of 8,192 tokens, in blocks of 16?",
    4 * 8192 // 16,
    "B",
    mistakes=[
        (512, "Those are its entries. An int32 takes 4 bytes."),
        (4096, "Entries of int64 would take that."),
        (4 * 8192, "That is an entry for each token. There is one for each block."),
        (8192, "There are 512 entries of 4 bytes."),
        (16384, "512 entries are 512 int32 numbers, of 4 bytes each. Those are bits."),
    ],
    because="8,192 / 16 = 512 entries of 4 bytes.",
    rtol=0,
)

TOKENS_96 = Prediction(
    "07.tokens_96",
    "The last block of 32 slots has 15.5 empty ones on average. How many tokens must a request have until these are 4% of its slots?",
    round(15.5 * 24),
    "tokens",
    mistakes=[
        (388, "Those are the slots, tokens and empty ones together."),
        (387.5, "Those are the slots, tokens and empty ones together."),
        (387, "Those are the slots, tokens and empty ones together: 387.5, rounded down."),
        (775, "That is 31 times 25: the worst case, and slots instead of tokens."),
        (400, "16 times 25 is near. But a block has 15.5 empty slots on average, and tokens are 24 parts of 25."),
        (180, "That is for blocks of 16, with 7.5 empty slots."),
        (744, "That is for the worst case, 31 empty slots."),
        (360, "That is the worst case for blocks of 16."),
        (62, "15.5 / 4 is not it: 4% is one part in 25."),
        (496, "That is 16 empty slots at 32 tokens each. 4% is one part in 25."),
    ],
    because="If 15.5 slots are 4%, the other 96% are 24 times as many.",
    rtol=0,
)

SLOWER_STEP = Prediction(
    "07.slower_step",
    "Attention takes a fifth of a step. A new kernel needs 26% more time for attention. How much longer is the step, in %?",
    100 * 0.2 * 0.26,
    "%",
    mistakes=[
        (26, "That is the kernel alone. Four fifths of the step stay as they are."),
        (20, "That is attention's share of the old step. Only the 26% on top of it are new."),
        (25.2, "That is what attention takes now, in % of the old step. A fifth was there before."),
        (1.26, "That is the factor for attention alone, and not for the step."),
        (1.052, "That is the new step over the old one. The question asks for what is on top, in %."),
        (0.26, "That is the kernel alone, as a fraction. Four fifths of the step stay as they are."),
        (20.8, "Four fifths of 26: that is the part of the step that stays as it was."),
        (0.052, "That is the fraction. In % it is a hundred times as much."),
        (46, "Shares and slowdowns multiply. They do not add up."),
        (130, "A fifth of 26, not five times 26."),
        (6, "Close. A fifth of 26 is less."),
        (6.5, "That is a quarter of 26. Attention is a fifth of the whole step."),
        (105.2, "That is the new step in % of the old one."),
    ],
    because="A fifth of the step grows by 26%: 0.2 times 26%.",
    rtol=0.001,
)

FIT = Prediction(
    "07.fit",
    "A pool has 100 usable blocks of 16. How many requests run at once if each stores 100 tokens?",
    100 // -(-100 // 16),
    "requests",
    mistakes=[
        (16, "1,600 slots over 100 tokens. But a request takes whole blocks: 7 of them, 112 slots."),
        (15, "Close. 100 / 7 is 14 and a rest of 2 blocks."),
        (12, "That would be 8 blocks each. 7 blocks have 112 slots."),
        (7, "Those are the blocks of one request."),
        *((number, "A request runs or it waits.") for number in (14.28, 14.29, 14.3, 14.286, 14.2857)),
        (1, "100 tokens do not take 100 blocks. A block has 16 slots."),
    ],
    because="100 tokens take 7 blocks, and 100 // 7 is 14.",
    rtol=0,
)
