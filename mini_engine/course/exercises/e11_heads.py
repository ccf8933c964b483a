"""Lesson 11, decode over latents for any number of heads, in parts."""

from __future__ import annotations

from typing import Any

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises.answers11_heads import mla_decode
from mini_engine.course.exercises.answers11_heads_dealt import tiles_dealt_out
from mini_engine.course.exercises.answers11_mla import latent_decode
from mini_engine.course.exercises.e11_mla import FAR_BELOW, HALVES, LARGE_SCORES, STEPS, UNLIKE_HEADS
from mini_engine.course.latent_cases import (
    Latents,
    attends_to_latents,
    compiles_latents,
    finds_far_latents,
    reads_latents_once,
    shares_the_context,
)
from mini_engine.course.planted import planted
from mini_engine.kernels import paged_mla_decode

TILES, COUNTS, PARTS, EMPTY, APART, LARGE, UNLIKE, BELOW, ONCE, SHARED, HALF, FAR, COMPILES = (
    "a tile of heads each, two tiles and more",
    "any number of heads",
    "any number of parts gives the same",
    "contexts too short for all parts, and of 0 tokens",
    "q_latent, q_rope, blocks and rows have strides of their own",
    "large scores, rising and falling from tile to tile",
    "each head has its own maximum",
    "scores far below 0",
    "a tile of heads loads each number of the pool once, over all parts",
    "the parts share the context: no program loads more than its part",
    "float16 pools: sums are float32",
    "a block more than 2^31 numbers away is found",
    "compiles for a GPU",
)
TOP = "new_top = tl.maximum(top, tl.max(s, 1))"
BEGIN = "begin = split * tokens"
PAGE = "page = tl.load(table_ptr + row * table_stride + n // PAGE, mask=live, other=0).to(tl.int64)"
TOKENS = "tokens = tl.cdiv(tl.cdiv(length, BLOCK_N), NUM_SPLITS) * BLOCK_N"
END = "end = tl.minimum(begin + tokens, length)"
NONE = 'top = tl.full([BLOCK_H], float("-inf"), tl.float32)'
PRODUCT = 's = tl.dot(q_latent, tl.trans(latent), input_precision="ieee")'
ROPE_SCORE = 's += tl.dot(q_rope, tl.trans(rope), input_precision="ieee")'
SUM = 'tl.dot(weights.to(latent.dtype), latent, input_precision="ieee")'
LSE = "tl.store(lse_at + tl.arange(0, BLOCK_H), top + tl.log2(some), mask=first + tl.arange(0, BLOCK_H) < H)"


def _instead(*changes: tuple[str, str]) -> Any:
    return planted(mla_decode, *changes)


def _sixteen(
    q_latent: Any, q_rope: Any, pool: Any, tables: Any, lengths: Any, scale: float, *, num_splits: int = 1
) -> Any:
    return latent_decode(q_latent, q_rope, pool, tables, lengths, scale)


HEADS = Exercise(
    id="11.heads",
    title="Tiles of heads, parts of a context",
    reference=paged_mla_decode,
    seconds=60.0,
    properties=[
        Property(TILES, attends_to_latents(Latents((64,), page=16), Latents((64,), heads=32, page=16), splits=[1])),
        Property(COUNTS, attends_to_latents(Latents((66, 5), heads=20), Latents((7,), heads=1), Latents((7, 2), heads=33), splits=[1])),
        Property(PARTS, attends_to_latents(Latents((192,), page=16, loud=0.5), Latents((131, 259), heads=5), splits=[1, 2, 3])),
        Property(EMPTY, attends_to_latents(Latents((3, 0, 70), heads=20), splits=[1, 2, 5])),
        Property(APART, attends_to_latents(*STEPS, splits=[2])),
        Property(LARGE, attends_to_latents(*LARGE_SCORES, splits=[2])),
        Property(UNLIKE, attends_to_latents(*UNLIKE_HEADS, splits=[2])),
        Property(BELOW, attends_to_latents(FAR_BELOW, splits=[1])),
        Property(ONCE, reads_latents_once(Latents((130, 5), heads=20), splits=[3])),
        Property(SHARED, shares_the_context(Latents((128,), page=16), Latents((300,)), splits=[2, 3])),
        Property(HALF, attends_to_latents(*HALVES, splits=[1])),
        Property(FAR, finds_far_latents),
        Property(COMPILES, compiles_latents),
    ],
    mutants=[
        Mutant("16 heads and no more", _sixteen, TILES, "Heads from 16 on belong to the next program."),
        Mutant("the first tile again", _instead(("h = (first + tl.arange(0, BLOCK_H))[:, None]", "h = (first * 0 + tl.arange(0, BLOCK_H))[:, None]")), TILES, "Program i has heads i * BLOCK_H onwards."),
        Mutant("tiles side by side", _instead(("first, row, split = tl.program_id(0) * BLOCK_H", "first, row, split = tl.program_id(0)")), TILES, "The next tile begins BLOCK_H heads further."),
        Mutant("not divided", _instead(("out / some[:, None]", "out")), TILES, "combine wants each part as attention in its own right."),
        Mutant("whole tiles of heads", _instead(("triton.cdiv(H, 16)", "max(1, H // 16)")), COUNTS, "The last heads want a program too."),
        Mutant("padded heads are stored", _instead(("out / some[:, None], mask=heads", "out / some[:, None], mask=(h < BLOCK_H + first) & (c < DC)")), COUNTS, "Rows from H on are no heads."),
        Mutant("padded log-sum-exps are stored", _instead((LSE, LSE.replace(", mask=first + tl.arange(0, BLOCK_H) < H", ""))), COUNTS, "They land on the next sequence's."),
        Mutant("padded heads are loaded", _instead(("h * ql_stride_h + c, mask=heads", "h * ql_stride_h + c, mask=(h >= 0) & (c < DC)")), COUNTS, "Behind the last head lies something else."),
        Mutant("the last part is rounded off", _instead((TOKENS, "tokens = length // NUM_SPLITS")), PARTS, "What is left over belongs to a part as well."),
        Mutant("parts overlap", _instead((END, "end = tl.minimum(begin + tokens + 1, length)")), PARTS, "A token in two parts counts twice."),
        Mutant("a natural logarithm", _instead((LSE, LSE.replace("log2", "log"))), PARTS, "combine takes powers of 2."),
        Mutant("the maximum alone", _instead((LSE, LSE.replace("top + tl.log2(some)", "top"))), PARTS, "How much a part sums up to counts as well."),
        Mutant("one place for all parts", _instead(("split * part_stride_s + row", "0 * part_stride_s + row")), PARTS, "Each part has a place of its own."),
        Mutant("an empty part weighs like a score of 0", _instead((LSE, LSE.replace("top + tl.log2(some)", "tl.where(total == 0.0, 0.0, top + tl.log2(some))"))), EMPTY, "2^0 is 1, and not nothing."),
        Mutant("one stride from sequence to sequence", _instead(("row * qr_stride_b", "row * ql_stride_b")), APART, "q_latent and q_rope are two tensors."),
        Mutant("one stride from head to head", _instead(("h * qr_stride_h", "h * ql_stride_h")), APART, "q_latent and q_rope are two tensors."),
        Mutant("blocks side by side", _instead(("page * stride_n", "page * PAGE * stride_p")), APART, "Something else lies between two blocks."),
        Mutant("no maximum", _instead((TOP, "new_top = tl.zeros([BLOCK_H], tl.float32)"), (LSE, LSE.replace("top + tl.log2(some)", "tl.where(total == 0.0, float('-inf'), tl.log2(some))"))), LARGE, "2 to the 200 is more than a float32 holds."),
        Mutant("one maximum for all heads", _instead((TOP, "new_top = tl.maximum(top, tl.max(tl.max(s, 1), 0))")), UNLIKE, "Beside a head with large scores, those of another vanish."),
        Mutant("the maximum starts at 0", _instead((NONE, "top = tl.zeros([BLOCK_H], tl.float32)"), (LSE, LSE.replace("top + tl.log2(some)", "tl.where(total == 0.0, float('-inf'), top + tl.log2(some))"))), BELOW, "If all scores are far below, all weights vanish."),
        Mutant("the first part takes it all", _instead((BEGIN, "begin = 0"), (END, "end = tl.where(split == 0, length, 0)")), SHARED, "The result is right, and the other programs have nothing to do: that is the pain of this lesson."),
        Mutant("the last part takes what is left over", _instead((TOKENS, "tokens = length // BLOCK_N // NUM_SPLITS * BLOCK_N"), (END, "end = tl.where(split == NUM_SPLITS - 1, length, begin + tokens)")), SHARED, "Rounded down, the last part is the longest, and all wait for it."),
        Mutant("weights as they are", _instead(("weights.to(latent.dtype)", "weights")), HALF, "tl.dot wants two tiles of one type."),
        Mutant("the sum in float16", _instead(("        top = new_top\n", "        top = new_top\n        out = out.to(latent.dtype).to(tl.float32)\n")), HALF, "A float16 ends at 65,504, and keeps 11 bits."),
        Mutant("the scale into the query", _instead((PRODUCT, PRODUCT.replace("q_latent", "q_latent * scale_log2")), (ROPE_SCORE, ROPE_SCORE.replace("q_rope", "q_rope * scale_log2")), ("s * scale_log2, float", "s, float")), COMPILES, "q times a float32 is a float32, and the latent is a float16."),
        Mutant("every part reads everything", _instead(("begin = split * tokens", "begin = 0"), (END, "end = length")), ONCE, "Equal parts make the same result, and nothing is gained."),
        Mutant("loaded again for the values", _instead((SUM, SUM.replace(" latent,", " tl.load(pool_ptr + at + c, mask=live[:, None] & (c < DC), other=0.0),"))), ONCE, "The tile that was the key is the value."),
        Mutant("32-bit offsets", _instead((PAGE, PAGE.replace(".to(tl.int64)", ""))), FAR, "Block times stride overflows, and points before the pool."),
    ],
    alternatives=[mla_decode, tiles_dealt_out],
)  # fmt: skip
