"""Lesson 11, decode over latents for one tile of heads: each latent is loaded once, as key and as value."""

from __future__ import annotations

from typing import Any

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises.answers11_mla import latent_decode
from mini_engine.course.exercises.answers11_mla_wide import rows_as_tiles
from mini_engine.course.latent_cases import (
    Latents,
    attends_to_latents,
    compiles_latents,
    finds_far_latents,
    reads_latents_once,
)
from mini_engine.course.planted import planted
from mini_engine.kernels import paged_mla_decode

LATENT, ROPE, SEVERAL, APART, RAGGED, LARGE, UNLIKE, BELOW, ONCE, HALF, FAR, EMPTY, COMPILES = (
    "the latent is key and value",
    "each head's rope query meets the one rope key of a token",
    "several sequences, each with its own table and length",
    "q_latent, q_rope, blocks and rows have strides of their own",
    "ragged contexts, odd sizes, few heads",
    "large scores, rising and falling from tile to tile",
    "each head has its own maximum",
    "scores far below 0",
    "each number of the pool is loaded once",
    "float16 pools: sums are float32",
    "a block more than 2^31 numbers away is found",
    "a context of 0 tokens gives zeros",
    "compiles for a GPU",
)
LARGE_SCORES = (
    Latents((64,), heads=1, page=16, sharp=60.0),
    Latents((128,), heads=1, page=16, sharp=60.0, loud=0.1),
    Latents((128,), heads=1, page=16, sharp=60.0, loud=9.0),
)
FAR_BELOW = Latents((64,), heads=1, page=16, sharp=900.0, below=True)
UNLIKE_HEADS = (Latents((64,), heads=2, page=16, sharp=60.0), Latents((128,), heads=2, page=16, sharp=60.0, loud=0.1))
STEPS = (Latents((64,), page=16, apart=True), Latents((64, 128), page=16, apart=True))
HALVES = (
    Latents((128,), heads=2, page=16, half=True),
    Latents((1024,), heads=1, page=16, keys=100.0, sharp=0.0, half=True),
)
LOAD = "latent = tl.load(pool_ptr + at + c, mask=live[:, None] & (c < DC), other=0.0)"
ROPE_LOAD = "rope = tl.load(pool_ptr + at + DC + r, mask=live[:, None] & (r < DR), other=0.0)"
PAGE = "page = tl.load(table_ptr + row * table_stride + n // PAGE, mask=live, other=0).to(tl.int64)"
SUM = 'tl.dot(weights.to(latent.dtype), latent, input_precision="ieee")'
TOP = "new_top = tl.maximum(top, tl.max(s, 1))"
PRODUCT = 's = tl.dot(q_latent, tl.trans(latent), input_precision="ieee")'
ROPE_SCORE = '        s += tl.dot(q_rope, tl.trans(rope), input_precision="ieee")\n'


def _instead(*changes: tuple[str, str]) -> Any:
    return planted(latent_decode, *changes)


MLA = Exercise(
    id="11.mla",
    title="Load it once, use it twice",
    reference=paged_mla_decode,
    seconds=60.0,
    properties=[
        Property(LATENT, attends_to_latents(Latents((64,), page=16, still=True), Latents((128,), page=16, loud=0.5, still=True))),
        Property(ROPE, attends_to_latents(Latents((64,), page=16, rope=16), Latents((64,), page=16))),
        Property(SEVERAL, attends_to_latents(Latents((64, 128), page=16))),
        Property(APART, attends_to_latents(*STEPS)),
        Property(RAGGED, attends_to_latents(Latents((1,), heads=1), Latents((5, 66), heads=5), Latents((7,), heads=12, page=1, latent=20, rope=6))),
        Property(LARGE, attends_to_latents(*LARGE_SCORES)),
        Property(UNLIKE, attends_to_latents(*UNLIKE_HEADS)),
        Property(BELOW, attends_to_latents(FAR_BELOW)),
        Property(ONCE, reads_latents_once(Latents((64,), page=16), Latents((5, 70), heads=8, latent=20, rope=6))),
        Property(HALF, attends_to_latents(*HALVES)),
        Property(FAR, finds_far_latents),
        Property(EMPTY, attends_to_latents(Latents((0,), heads=1), Latents((0, 3)))),
        Property(COMPILES, compiles_latents),
    ],
    mutants=[
        Mutant("a scale from the latent's size", _instead(("s * scale_log2", "s * (1.4426950408889634 * (DC + DR) ** -0.5)")), LATENT, "The scale belongs to the query before absorption: 1 / sqrt(Dn + Dr)."),
        Mutant("a scale in base e", _instead(("scale * math.log2(math.e)", "scale")), LATENT, "exp2 wants scores in base 2."),
        Mutant("the values do not shrink", _instead(("out * shrink[:, None] +", "out +")), LATENT, "What was summed is relative to the old maximum."),
        Mutant("the sum does not shrink", _instead(("total * shrink +", "total +")), LATENT, "What was summed is relative to the old maximum."),
        Mutant("no offset", _instead((" + n % PAGE * stride_p", "")), LATENT, "That is the first slot of the block."),
        Mutant("rows side by side", _instead(("n % PAGE * stride_p", "n % PAGE * (DC + DR)")), APART, "In this pool's memory, something else lies between two rows."),
        Mutant("blocks side by side", _instead(("page * stride_n", "page * PAGE * stride_p")), APART, "Something else lies between two blocks."),
        Mutant("one stride from sequence to sequence", _instead(("row * qr_stride_b", "row * ql_stride_b")), APART, "q_latent and q_rope are two tensors."),
        Mutant("one stride from head to head", _instead(("h * qr_stride_h", "h * ql_stride_h")), APART, "q_latent and q_rope are two tensors."),
        Mutant("no maximum", _instead((TOP, "new_top = tl.zeros([BLOCK_H], tl.float32)")), LARGE, "2 to the 200 is more than a float32 holds."),
        Mutant("the maximum starts at 0", _instead(('tl.full([BLOCK_H], float("-inf"), tl.float32)', "tl.zeros([BLOCK_H], tl.float32)")), BELOW, "If all scores are far below, all weights vanish."),
        Mutant("one maximum for all heads", _instead((TOP, "new_top = tl.maximum(top, tl.max(tl.max(s, 1), 0))")), UNLIKE, "Beside a head with large scores, those of another vanish."),
        Mutant("weights as they are", _instead(("weights.to(latent.dtype)", "weights")), HALF, "tl.dot wants two tiles of one type."),
        Mutant("the sum in float16", _instead(("        top = new_top\n", "        top = new_top\n        out = out.to(latent.dtype).to(tl.float32)\n")), HALF, "A float16 ends at 65,504, and keeps 11 bits."),
        Mutant("the scale into the query", _instead((PRODUCT, PRODUCT.replace("q_latent", "q_latent * scale_log2")), (ROPE_SCORE, ROPE_SCORE.replace("q_rope", "q_rope * scale_log2")), ("s * scale_log2, float", "s, float")), COMPILES, "q times a float32 is a float32, and the latent is a float16."),
        Mutant("the rope part is forgotten", _instead((ROPE_SCORE, "")), ROPE, "Without it, no score knows a position."),
        Mutant("the rope key from the row's start", _instead((ROPE_LOAD, ROPE_LOAD.replace("at + DC + r", "at + r"))), ROPE, "The rope key stands behind the latent."),
        Mutant("the rope part is not scaled", _instead((ROPE_SCORE, ""), ("s * scale_log2", "s * scale_log2 + tl.dot(q_rope, tl.trans(rope), input_precision=\"ieee\")")), ROPE, "One score, one scale."),
        Mutant("one rope query for all heads", _instead(("row * qr_stride_b + h * qr_stride_h + r", "row * qr_stride_b + h * 0 + r")), ROPE, "The rope key is shared, the queries are not."),
        Mutant("the first table for all", _instead((PAGE, PAGE.replace("row * table_stride + ", ""))), SEVERAL, "Each sequence has a row of its own."),
        Mutant("the first length for all", _instead(("tl.load(length_ptr + row)", "tl.load(length_ptr)")), SEVERAL, "Contexts are ragged."),
        Mutant("rope queries side by side", _instead(("row * qr_stride_b", "row * H * DR")), SEVERAL, "q_rope is a view: its rows do not touch."),
        Mutant("padded heads are stored", _instead(("out, mask=heads", "out, mask=(h < BLOCK_H) & (c < DC)")), RAGGED, "Rows from H on are no heads: there the next sequence lies."),
        Mutant("padded heads are loaded", _instead(("h * ql_stride_h + c, mask=heads", "h * ql_stride_h + c, mask=(h < BLOCK_H) & (c < DC)")), RAGGED, "Behind the last head lies something else."),
        Mutant("0 times NaN", _instead((LOAD, LOAD.replace("live[:, None] &", "(n >= 0)[:, None] &"))), RAGGED, "A weight of 0 does not hide a NaN."),
        Mutant("reads the table's tail", _instead((PAGE, PAGE.replace(", mask=live, other=0", ""))), RAGGED, "Behind the table lies something else."),
        Mutant("whole tiles only", _instead(("range(0, length, BLOCK_N)", "range(0, length - BLOCK_N + 1, BLOCK_N)")), RAGGED, "The last tokens count too."),
        Mutant("loaded again for the values", _instead((SUM, SUM.replace(" latent,", " tl.load(pool_ptr + at + c, mask=live[:, None] & (c < DC), other=0.0),"))), ONCE, "The tile that was the key is the value. A second load moves 17/9 of the bytes in DeepSeek-V2's shape."),
        Mutant("the rope key in the latent's tile as well", _instead((LOAD, LOAD.replace("(c < DC)", "(c < DC + DR)"))), ONCE, "Lanes behind the latent must be off: what they hold is loaded for the rope part."),
        Mutant("32-bit offsets", _instead((PAGE, PAGE.replace(".to(tl.int64)", ""))), FAR, "Block times stride overflows, and points before the pool."),
        Mutant("divides by nothing", _instead(("tl.where(total == 0.0, 1.0, total)", "total")), EMPTY, "0 / 0 is NaN."),
    ],
    alternatives=[latent_decode, rows_as_tiles],
)  # fmt: skip
