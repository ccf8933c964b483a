"""Lesson 04, expand or absorb: count the FLOPs of both, for one token and for a whole prompt."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mini_engine.course.exercise import Exercise, Mutant, Prediction, Property
from mini_engine.course.exercises.whole_numbers import expect_whole
from mini_engine.roofline import mla_decode_intensity

Flops = Callable[..., Any]
Sizes = tuple[int, int, int, int, int]
"""H, Dn, Dr, Dv, Dc"""


def mla_flops(T: int, S: int, H: int, Dn: int, Dr: int, Dv: int, Dc: int, absorbed: bool) -> int:
    """FLOPs of one layer's latent attention for the last T of S tokens; a multiply and an add are two."""
    pairs = T * (S - T) + T * (T + 1) // 2
    size, moved = (2 * Dc + Dr, T) if absorbed else (Dn + Dr + Dv, S)
    return 2 * H * (moved * Dc * (Dn + Dv) + pairs * size)


def count_by_loops(T: int, S: int, H: int, Dn: int, Dr: int, Dv: int, Dc: int, absorbed: bool) -> int:
    """The same by walking over every product that is made: the oracle."""
    flops = 0
    for _ in range(H):
        for _ in range(T if absorbed else S):
            flops += 2 * Dn * Dc  # one token's query, or key, times W_UK
            flops += 2 * Dv * Dc  # one token's sum of latents, or one latent, times W_UV
        for t in range(T):
            for _ in range(S - T + t + 1):
                flops += 2 * (Dc + Dr if absorbed else Dn + Dr)  # the score
                flops += 2 * (Dc if absorbed else Dv)  # the weighted sum
    return flops


SHAPES: tuple[Sizes, ...] = ((1, 2, 3, 5, 7), (2, 3, 2, 4, 5), (8, 32, 16, 32, 64))
DEEPSEEK = (128, 128, 64, 128, 512)


def _case(candidate: Flops, T: int, S: int, shape: Sizes, absorbed: bool) -> None:
    names = ("H", "Dn", "Dr", "Dv", "Dc")
    words = f"T={T}, S={S}, " + ", ".join(f"{n}={x}" for n, x in zip(names, shape)) + f", absorbed={absorbed}"
    expect_whole(candidate(T, S, *shape, absorbed), count_by_loops(T, S, *shape, absorbed), words)


def _one_token(candidate: Flops, absorbed: bool) -> None:
    for shape in ((1, 1, 1, 1, 1), *SHAPES):
        _case(candidate, 1, 1, shape, absorbed)


def _one_row(candidate: Flops, absorbed: bool) -> None:
    for S in (2, 3, 10):
        for shape in SHAPES[:2]:
            _case(candidate, 1, S, shape, absorbed)


def _prompt(candidate: Flops) -> None:
    for T in (2, 3, 7):
        for absorbed in (False, True):
            _case(candidate, T, T, SHAPES[0], absorbed)


def _chunk(candidate: Flops) -> None:
    for T, S in ((2, 3), (3, 10), (5, 6)):
        for absorbed in (False, True):
            _case(candidate, T, S, SHAPES[1], absorbed)


def _exact(candidate: Flops) -> None:
    T, S = 131_071, 163_840
    pairs = T * (S - T) + T * (T + 1) // 2
    want = 2 * 128 * (S * 512 * 256 + pairs * 320)
    words = f"T={T:,}, S={S:,}, the sizes of DeepSeek-V2, absorbed=False"
    expect_whole(candidate(T, S, *DEEPSEEK, False), want, words)
    big = 10**9
    pairs = big * (big + 1) // 2
    want = 2 * 128 * (big * 512 * 256 + pairs * 1088)
    expect_whole(candidate(big, big, *DEEPSEEK, True), want, f"T={big:,}, S={big:,}, sizes as before, absorbed=True")


EXPANDED_ONE = "one token, expanded"
ABSORBED_ONE = "one token, absorbed"
EXPANDED_ROW = "one new token after others, expanded: all S tokens get keys and values"
ABSORBED_ROW = "one new token after others, absorbed: only the new token meets W_UK and W_UV"
PROMPT = "a whole prompt: row t meets the tokens 0 to t, and no later one"
CHUNK = "the last T of S tokens"
EXACT = "exact, however large"


def _wrong(T: int, S: int, H: int, Dn: int, Dr: int, Dv: int, Dc: int, absorbed: bool, *, slip: str) -> Any:
    """A wrong answer, by the name of its slip."""
    pairs = T * (S - T) + T * (T + 1) // 2
    if slip == "no causal mask":
        pairs = T * S
    if slip == "a square for every chunk":
        pairs = T * S - T * T // 2
    key, value = (Dc + Dr, Dc) if absorbed else (Dn + Dr, Dv)
    if slip == "no rope part":
        key -= Dr
    if slip == "the latent once" and absorbed:
        value = 0
    if slip == "values of the latent with rope" and absorbed:
        value = Dc + Dr
    moved = T if absorbed else S
    if slip == "expands the new ones only":
        moved = T
    if slip == "absorbs every token":
        moved = S
    width = Dn if slip == "keys only" else Dn + Dv
    if slip == "no W_UV" and absorbed:
        width = Dn
    total = H * (moved * Dc * width + pairs * (key + value)) * (1 if slip == "one for two" else 2)
    if slip == "one head":
        return total // H
    return float(total) / 1.0 if slip == "float" else total


def _mutant(slip: str, caught_by: str, why: str) -> Mutant:
    return Mutant(slip, partial(_wrong, slip=slip), caught_by, why)


def _whole_prompt(T: int, S: int, *sizes: Any) -> int:
    return mla_flops(S, S, *sizes)


def _chunk_alone(T: int, S: int, *sizes: Any) -> int:
    return mla_flops(T, T, *sizes) if T > 1 else mla_flops(T, S, *sizes)


def _in_64_bits(*sizes: Any) -> int:
    return (mla_flops(*sizes) + 2**63) % 2**64 - 2**63


def _in_steps(T, S, H, Dn, Dr, Dv, Dc, absorbed):
    pairs = sum(range(S - T + 1, S + 1)) if T < 10**5 else T * (2 * S - T + 1) // 2
    if absorbed:
        query, output = 2 * T * H * Dn * Dc, 2 * T * H * Dv * Dc
        return query + output + 2 * H * pairs * (Dc + Dr) + 2 * H * pairs * Dc
    keys, values = 2 * S * H * Dn * Dc, 2 * S * H * Dv * Dc
    return keys + values + 2 * H * pairs * (Dn + Dr) + 2 * H * pairs * Dv


MLA_FLOPS = Exercise(
    id="04.mla_flops",
    title="Expand or absorb: count",
    reference=mla_flops,
    properties=[
        Property(EXPANDED_ONE, partial(_one_token, absorbed=False)),
        Property(ABSORBED_ONE, partial(_one_token, absorbed=True)),
        Property(EXPANDED_ROW, partial(_one_row, absorbed=False)),
        Property(ABSORBED_ROW, partial(_one_row, absorbed=True)),
        Property(PROMPT, _prompt),
        Property(CHUNK, _chunk),
        Property(EXACT, _exact),
    ],
    mutants=[
        _mutant("one for two", EXPANDED_ONE, "A multiply and an add are two FLOPs."),
        _mutant("one head", EXPANDED_ONE, "Every head makes its own keys and scores."),
        _mutant("no rope part", EXPANDED_ONE, "The score's sum goes over Dr numbers too."),
        _mutant("keys only", EXPANDED_ONE, "Values are made from the latent as well."),
        _mutant("the latent once", ABSORBED_ONE, "The latent is used twice: for the score, and in the weighted sum."),
        _mutant("values of the latent with rope", ABSORBED_ONE, "The rope key says where a token stands. It is no part of its value."),
        _mutant("no W_UV", ABSORBED_ONE, "The summed latent still has to become a value."),
        _mutant("expands the new ones only", EXPANDED_ROW, "The cache holds latents: every one of the S tokens is expanded again."),
        _mutant("absorbs every token", ABSORBED_ROW, "Nothing is made of cached tokens: only queries and results meet the matrices."),
        _mutant("no causal mask", PROMPT, "Half of the square is hidden."),
        _mutant("a square for every chunk", PROMPT, "1 + 2 + ... + T is T (T + 1) / 2: the diagonal counts."),
        Mutant("always a whole prompt", _whole_prompt, EXPANDED_ROW, "Only the last T tokens ask."),
        Mutant("the chunk alone", _chunk_alone, CHUNK, "The chunk's rows see the S - T tokens before it too."),
        Mutant("int64", _in_64_bits, EXACT, "A machine integer of 64 bits starts again below zero. Python's does not."),
        _mutant("float", EXPANDED_ONE, "A float holds whole numbers exactly only up to 2 to the power of 53."),
    ],
    alternatives=[_in_steps],
)  # fmt: skip

INTENSITY = Prediction(
    "04.intensity",
    "DeepSeek-V2, decode: 128 heads read a latent of 512 and a rope key of 64, 2 bytes a number. FLOPs per byte read?",
    float(mla_decode_intensity(128, 512, 64)),
    "FLOP/B",
    mistakes=[
        (256, "Close. That is 2 x 128: it lets every number serve a score and a sum. The 64 of the rope key serve the score only."),
        (128, "Each number of the latent is used twice by each head: in the score, and in the weighted sum."),
        (float(mla_decode_intensity(128, 512, 64, b=1)), "That is at one byte a number, or with FLOPs per number. Here a number takes 2 bytes."),
        (120.9, "Half of it. A multiply and an add are two FLOPs."),
        (1, "That is multi-head attention. Here all 128 heads share one reading."),
        (64, "That is a group of 64 query heads on one K/V head. Here there are 128."),
    ],
    because="2 x 128 x (576 + 512) FLOPs over 2 x 576 bytes = 2176/9 = 241.8.",
    rtol=0.003,
)  # fmt: skip
