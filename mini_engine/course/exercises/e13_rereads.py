"""Lesson 13, exercise 3: how many tokens of the prefix are read again."""

from __future__ import annotations

from collections.abc import Callable

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers13_rereads as answers
from mini_engine.course.expect import expect_equal

Rereads = Callable[[int, int], int]


def _counts(cases: list[tuple[int, int]], want: Callable[[int, int], int]) -> Callable[[Rereads], None]:
    def run(candidate: Rereads) -> None:
        for num_tokens, chunk in cases:
            starts = ", ".join(map(str, range(0, min(num_tokens, 6 * chunk), chunk)))
            starts += ", ..." if num_tokens > 6 * chunk else ""
            if num_tokens > 10**6:
                starts = "0, chunk, 2 chunk, ..."
            case = f"num_tokens={num_tokens:,}, chunk={chunk:,}: tokens read again; chunks start at {starts}"
            expect_equal(candidate(num_tokens, chunk), want(num_tokens, chunk), case)

    return run


ONE = [(1, 1), (1, 8), (7, 8), (8, 8), (2048, 32768)]
FULL = [(2, 1), (3, 1), (8, 4), (12, 4), (16, 4), (32768, 2048), (8192, 512)]
REST = [(9, 4), (10, 4), (11, 4), (13, 4), (17, 4), (32769, 2048), (33000, 512)]
HUGE = [
    (5 * 10**6, 1),
    (10**17, 10**16 - 1),
    (10**17 + 1, 10**15 + 7),
    (10**17 + 1, 10**15),  # 101 chunks; as a float it is 100.0
]  # few enough for sum(range(...)), too many for a loop
ALONE, EQUAL, ODD, LARGE = (
    "one chunk reads nothing again",
    "chunks that come out even",
    "a last chunk that is shorter",
    "exact and fast for large numbers",
)


def exact(num_tokens: int, chunk: int) -> int:
    """The starts are an arithmetic series."""
    last = (num_tokens - 1) // chunk
    return chunk * (last * (last + 1) // 2)


REREADS = Exercise(
    id="13.rereads",
    title="What chunks read again",
    reference=answers.reread_tokens,
    properties=[
        Property(ALONE, _counts(ONE, answers.slow)),
        Property(EQUAL, _counts(FULL, answers.slow)),
        Property(ODD, _counts(REST, answers.slow)),
        Property(LARGE, _counts(HUGE, exact)),
    ],
    mutants=[
        Mutant("counts first reads", answers.first_reads, ALONE, "A chunk's own tokens are read for the first time."),
        Mutant("a chunk too many", answers.one_chunk_more, ALONE, "8 tokens in chunks of 8 are one chunk."),
        Mutant("a float", answers.a_float, ALONE, "A count is an int."),
        Mutant("nothing", answers.nothing, EQUAL, "The FLOPs are the same, the reads are not."),
        Mutant("each token once", answers.once_each, EQUAL, "The first chunk is read by every later one, not by one."),
        Mutant("twice as many", answers.twice, EQUAL, "0 + 1 + ... + (n - 1) is n (n - 1) / 2."),
        Mutant("full chunks only", answers.whole_chunks, ODD, "The last, shorter chunk reads all before it too."),
        Mutant("a smooth curve", answers.smooth, ALONE, "Chunks are whole: round their number up first."),
        Mutant("a loop", answers.loop, LARGE, "It is right, and takes a step for each chunk."),
        Mutant("math.ceil", answers.ceil_of_a_float, LARGE, "The quotient is a float already, and rounding it up comes too late."),
        Mutant("floats", answers.floats, LARGE, "A float keeps 53 bits. Use // and integers."),
    ],
    alternatives=[answers.by_divmod, answers.by_the_middle, answers.slow],
)  # fmt: skip
