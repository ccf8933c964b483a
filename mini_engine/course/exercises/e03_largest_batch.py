"""Lesson 03, batching with K/V: the largest batch whose step is quick enough and whose cache fits."""

from __future__ import annotations

from collections.abc import Callable

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers03_largest_batch as answers
from mini_engine.course.exercises.answers03_largest_batch import by_trying, largest_batch
from mini_engine.course.expect import expect_equal
from mini_engine.course.gpu_share import GPUShare, half_70b

Largest = Callable[[GPUShare, int, float], int]


def toy(budget: int, peak: int, weights: int = 64, per_score: int = 1) -> GPUShare:
    """Round numbers: 4 bytes of K/V a token, 32 FLOPs a token, 16 bytes/s."""
    return GPUShare("a toy GPU", weights, 4, 32, per_score, budget, peak, 16)


# share, tokens per sequence, seconds. Every clock comes out exact in binary, and no batch is above a few hundred.
ROOM, QUICK = 4000, 10**6  # a budget and a peak that do not get in the way
SLOW_READS = [(toy(ROOM, QUICK), 4, 10.5), (toy(ROOM, QUICK, weights=16), 4, 2.5), (toy(ROOM, QUICK), 16, 64.5)]
SMALL_BUDGET = [(toy(70, QUICK), 4, 1000.0), (toy(95, QUICK), 4, 1000.0), (toy(804, QUICK), 2, 1000.0)]
SLOW_COMPUTE = [(toy(ROOM, 16), 4, 16.5), (toy(ROOM, 16, per_score=4), 8, 65.0)]
# Nothing fits; the weights alone take too long, by a little and by several sequences' reads; one sequence computes too long.
NOTHING = [
    (toy(15, QUICK), 4, 100.0),
    (toy(ROOM, QUICK), 4, 4.0),
    (toy(ROOM, QUICK), 4, 3.5),
    (toy(ROOM, QUICK, weights=640), 4, 4.0),
    (toy(ROOM, 1), 4, 30.0),
    (toy(0, QUICK), 1, 9.0),
]
EXACT = [(toy(160, QUICK), 4, 100.0), (toy(ROOM, QUICK), 4, 6.0), (toy(ROOM, 16), 4, 9.0)]
PUBLISHED = [(half_70b(), 1024, 0.0272), (half_70b(), 8192, 0.0277), (half_70b(), 100, 0.030)]


def _agrees(cases: list[tuple[GPUShare, int, float]]) -> Callable[[Largest], None]:
    def run(candidate: Largest) -> None:
        for gpu, S, seconds in cases:
            words = (
                f"S={S}, at most {seconds:g} s; weights {gpu.weight_bytes:,} B, K/V {gpu.kv_bytes_per_token:,} B a token, "
                f"budget {gpu.kv_budget:,} B,\n{gpu.flops_per_token:,} FLOPs a token, {gpu.flops_per_score:,} a score, "
                f"peak {gpu.peak:.4g} FLOP/s, bandwidth {gpu.bandwidth:.4g} B/s"
            )
            expect_equal(candidate(gpu, S, seconds), by_trying(gpu, S, seconds), words)

    return run


READS, FITS, COMPUTES = (
    "a batch whose reads take too long is refused",
    "a batch that does not fit is refused",
    "a batch that computes too long is refused",
)
NONE, LIMITS, REAL = (
    "0 when not even one will do",
    "the limits themselves are allowed",
    "half of a 70B model on an H100",
)

LARGEST_BATCH = Exercise(
    id="03.largest_batch",
    title="The largest batch within a time and a budget",
    reference=largest_batch,
    properties=[
        Property(READS, _agrees(SLOW_READS)),
        Property(FITS, _agrees(SMALL_BUDGET)),
        Property(COMPUTES, _agrees(SLOW_COMPUTE)),
        Property(NONE, _agrees(NOTHING)),
        Property(LIMITS, _agrees(EXACT)),
        Property(REAL, _agrees(PUBLISHED)),
    ],
    mutants=[
        Mutant("weights only", answers.no_kv_reads, READS, "Every sequence's K/V is read in every step."),
        Mutant("K/V only", lambda g, S, t: largest_batch(answers.changed(g, weight_bytes=0), S, t), READS, "The weights are read too."),
        Mutant("no budget", lambda g, S, t: largest_batch(answers.changed(g, kv_budget=10**15), S, t), FITS, "The cache of the whole batch has to fit."),
        Mutant("budget in tokens", lambda g, S, t: min(largest_batch(answers.changed(g, kv_budget=10**15), S, t), g.kv_budget // g.kv_bytes_per_token), FITS, "Each sequence holds S tokens."),
        Mutant("no computing", lambda g, S, t: largest_batch(answers.changed(g, peak=10**15), S, t), COMPUTES, "From some batch on computing takes longer than reading."),
        Mutant("no scores", lambda g, S, t: largest_batch(answers.changed(g, flops_per_score=0), S, t), COMPUTES, "Attention computes with every cached token."),
        Mutant("clocks added", answers.adds_clocks, COMPUTES, "Reading and computing overlap."),
        Mutant("at least one", answers.at_least_one, NONE, "Sometimes nothing fits, or nothing is quick enough."),
        Mutant("a negative batch", answers.negative, NONE, "Where the weights alone take too long, no batch will do: that is 0, not below."),
        Mutant("never none", lambda g, S, t: abs(answers.negative(g, S, t)), NONE, "A step that reads too long is not made shorter by more sequences."),
        Mutant("strictly below", answers.strictly_below, LIMITS, "At most means that the limit itself is allowed."),
        Mutant("one too many", lambda g, S, t: largest_batch(g, S, t) + 1, READS, "That one takes too long, or does not fit."),
        Mutant("gives up at 256", lambda g, S, t: min(256, largest_batch(g, S, t)), REAL, "256 is a habit, not a limit: short contexts allow more."),
    ],
    alternatives=[by_trying, answers.doubling, answers.keeps_the_best, answers.counts_down, answers.largest_of_all, answers.up_to_ten_thousand],
    budget=10_000_000,  # somebody may try 10,000 batches for each case
)  # fmt: skip
