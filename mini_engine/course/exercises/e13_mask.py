"""Lesson 13, exercise 1: what the tokens of a chunk see."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers13_mask as answers
from mini_engine.course.expect import expect_equal, fail
from mini_engine.course.own_chunks import Mask, chunked_logits

PROMPT = [7, 300, 41, 9, 1200, 5, 88, 640, 3, 77, 15, 901, 60, 2, 450, 33, 18, 707, 4, 92, 11, 256, 8]


@cache
def model() -> Any:
    from mini_engine.models import load_model

    return load_model("tiny-gqa", backend="numpy").model


def _rows(cases: tuple[tuple[int, int], ...]) -> Callable[[Mask], None]:
    def run(candidate: Mask) -> None:
        for done, num_new in cases:
            got, want = candidate(done, num_new), answers.slow(done, num_new)
            case = f"done={done}, num_new={num_new}: the mask"
            if type(got) is not np.ndarray or got.dtype != bool:
                kind = str(got.dtype) if type(got) is np.ndarray else type(got).__name__
                fail(case, expected="a NumPy array of bool", got=kind)
            if got.shape != want.shape:
                fail(case, expected=f"shape {want.shape}", got=f"shape {got.shape}")
            expect_equal(got.astype(int).tolist(), want.astype(int).tolist(), f"{case}, 1 where a row sees a key")

    return run


def _logits(candidate: Mask) -> None:
    want = chunked_logits(model(), PROMPT, (), answers.slow)
    for cuts in ((1,), (16,), (13,), (22,), (5, 6, 20), tuple(range(1, len(PROMPT)))):
        got = chunked_logits(model(), PROMPT, cuts, candidate)
        wrong = np.flatnonzero(np.abs(got - want).max(axis=1) > 1e-9 * np.abs(want).max())
        if len(wrong):
            where = f"cut before token {', '.join(map(str, cuts))}"
            case = f"tiny-gqa, a prompt of {len(PROMPT)} tokens {where}: the largest logit behind token {wrong[0]}"
            fail(
                case,
                expected=f"{want[wrong[0]].max():.6f}",
                got=f"{got[wrong[0]].max():.6f}",
                wrong_rows=f"{len(wrong)} of {len(PROMPT)}",
            )


WHOLE, LATER, LOGITS = (
    "a prompt in one piece: the triangle",
    "a later chunk sees all before it, and itself up to its own row",
    "logits are those of the whole prompt, wherever it is cut",
)

MASK = Exercise(
    id="13.mask",
    title="What the tokens of a chunk see",
    reference=answers.chunk_mask,
    properties=[
        Property(WHOLE, _rows(((0, 1), (0, 2), (0, 3)))),
        Property(LATER, _rows(((1, 1), (2, 2), (3, 2), (2, 3), (5, 1), (17, 5)))),
        Property(LOGITS, _logits),
    ],
    mutants=[
        Mutant("all ones", answers.sees_all, WHOLE, "A token may not see what comes after it."),
        Mutant("not itself", answers.not_itself, WHOLE, "A token sees itself too: the diagonal is 1."),
        Mutant("upside down", answers.the_future, WHOLE, "True means that a row sees a key."),
        Mutant("zeros and ones", answers.of_floats, WHOLE, "np.where asks for bool: numbers other than 0 are all True, and floats are not a mask."),
        Mutant("chunk only", answers.chunk_alone, LATER, "The keys of the prefix are columns too, and every row sees them."),
        Mutant("forgets the offset", answers.no_offset, LATER, "Row t is token done + t of the prompt, and sees as far as that."),
        Mutant("blind to the prefix", answers.prefix_hidden, LATER, "Attention inside the chunk alone raises no error, and the text may look fluent."),
        Mutant("one short", answers.one_short, LATER, "Row t sees done + t + 1 keys: all before the chunk, and up to itself."),
        Mutant("no decodes", answers.no_decodes, LATER, "A chunk may have one token: a decode."),
        Mutant("small prompts only", answers.up_to_eight, LOGITS, "Short tests do not see long chunks."),
        Mutant("stops inside blocks", answers.whole_blocks, LOGITS, "A chunk may end anywhere, also inside a block."),
    ],
    alternatives=[answers.by_tri, answers.last_rows, answers.slow],
)  # fmt: skip
