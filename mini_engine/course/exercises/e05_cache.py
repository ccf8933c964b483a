"""Lesson 05, a cache that keeps int8: what a right one satisfies, and the wrong ones that people write."""

from __future__ import annotations

from typing import Any

import numpy as np

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers05_cache as answers
from mini_engine.course.exercises.answers05_cache import Int8KVCache
from mini_engine.course.exercises.answers05_quantize import Array
from mini_engine.course.exercises.cache_cases import appended, refused
from mini_engine.course.expect import expect, expect_close, expect_equal, fail


def tokens(count: int, heads: int = 1, size: int = 4, seed: int = 0) -> tuple[Array, Array]:
    """K and V of `count` tokens; every second token is ten times as loud as its neighbours, and V half as loud as K."""
    rng = np.random.default_rng(seed)
    loud = np.where(np.arange(count) % 2, 10.0, 1.0)[:, None, None]
    k, v = rng.normal(size=(2, count, heads, size)) * loud
    return k, 0.5 * v


def append(cache: Any, layer: int, new: tuple[Array, Array], case: str) -> tuple[Array, Array]:
    k_all, v_all = appended(cache, layer, new, case)
    for name, array in (("k_all", k_all), ("v_all", v_all)):
        floats = type(array) is np.ndarray and array.dtype.kind == "f"
        expect(floats, f"{case}: {name} is an array of floats, which attention can read", got=array)
    return k_all, v_all


def _close(got: Array, given: Array, case: str) -> None:
    """Within half a scale of what was given, where a token's head has one scale."""
    expect(got.shape == given.shape, f"{case}: shape", expected=given.shape, got=got.shape)
    step = np.abs(given).max(axis=-1, keepdims=True) / 127
    bad = ~(np.abs(got - given) <= 0.51 * step)
    if bad.any():
        t, h, d = (int(i) for i in np.argwhere(bad)[0])
        fail(
            f"{case}: token {t}, head {h}, number {d}",
            expected=f"{given[t, h, d]:.4f}, give or take half a scale of that token's head, {0.5 * step[t, h, 0]:.4f}",
            got=f"{got[t, h, d]:.4f}, off by {abs(got[t, h, d] - given[t, h, d]):.4f}",
        )


def _returns_all(candidate: type) -> None:
    for pieces in ([1], [1, 1], [3], [3, 1, 1], [5, 2]):
        for heads, size in ((1, 4), (2, 8)):
            cache, held = candidate(1, 8, heads, size), 0
            k, v = tokens(sum(pieces), heads, size)
            for count in pieces:
                new, held = (k[held : held + count], v[held : held + count]), held + count
                case = f"{heads} head{'s' * (heads > 1)}; tokens appended {' + '.join(map(str, pieces))}; after {held}"
                for name, got, given in zip(("k_all", "v_all"), append(cache, 0, new, case), (k, v)):
                    _close(got, given[:held], f"{case}: {name}")


def _layers_apart(candidate: type) -> None:
    cache = candidate(3, 4, 1, 4)
    given = [tokens(3, seed=layer) for layer in range(3)]
    for part in (slice(0, 2), slice(2, 3)):
        for layer, (k, v) in enumerate(given):
            case = f"3 layers; tokens {part.start} to {part.stop - 1} appended to layer {layer}"
            for name, got, whole in zip(("k_all", "v_all"), append(cache, layer, (k[part], v[part]), case), (k, v)):
                _close(got, whole[: part.stop], f"{case}: {name}")
    ours, theirs = candidate(1, 4, 1, 4), candidate(1, 4, 1, 4)
    append(ours, 0, (given[0][0][:1], given[0][1][:1]), "two caches, 1 token in the first")
    case = "two caches, 1 token in the first, then 2 others in the second"
    for name, got, whole in zip(
        ("k_all", "v_all"), append(theirs, 0, (given[1][0][:2], given[1][1][:2]), case), given[1]
    ):
        _close(got, whole[:2], f"{case}: {name}")
    case = "two caches, 1 and 2 tokens, then a second one in the first"
    for name, got, whole in zip(
        ("k_all", "v_all"), append(ours, 0, (given[0][0][1:2], given[0][1][1:2]), case), given[0]
    ):
        _close(got, whole[:2], f"{case}: {name}")


def _once(candidate: type) -> None:
    """A token comes back the same however loud the tokens after it are, and the first time as every time."""
    cache = candidate(1, 64, 1, 4)
    k, v = tokens(24)
    before: list[Array] = []
    k[3:], v[3:] = 50 * k[3:], 50 * v[3:]
    for t in range(24):
        new = k[t : t + 1], v[t : t + 1]
        got = [x.copy() for x in append(cache, 0, new, f"token {t} appended")]
        for name, now, earlier in zip(("k_all", "v_all"), got, before):
            case = f"token {t} appended: {name} of tokens 0 to {t - 1} is what it was one append earlier"
            expect_close(now[:t], earlier, case, rtol=0.0, same_dtype=False)
        before = got


def held_bytes(cache: Any) -> int:
    """Bytes of every distinct array that the cache's attributes reach."""
    found: dict[int, int] = {}

    def visit(value: Any) -> None:
        if isinstance(value, np.ndarray):
            while isinstance(value.base, np.ndarray):
                value = value.base
            found[id(value)] = value.nbytes
        elif isinstance(value, dict):
            for item in value.values():
                visit(item)
        elif isinstance(value, list | tuple):
            for item in value:
                visit(item)

    visit(vars(cache))
    return sum(found.values())


def _nbytes(candidate: type) -> None:
    for shape in ((1, 1, 1, 4), (2, 3, 2, 8), (4, 256, 2, 32)):
        layers, capacity, heads, size = shape
        numbers = 2 * layers * capacity * heads
        cache, want = candidate(*shape), numbers * (size + 2)
        expect_equal(cache.nbytes, want, f"Int8KVCache{shape}: nbytes, of 1 byte a number and 2 a scale")
    k, v = tokens(200, 2, 32)
    for layer in range(4):
        append(cache, layer, (k, v), f"200 tokens of 2 heads of 32 in layer {layer} of 4")
    expect_equal(cache.nbytes, want, "Int8KVCache(4, 256, 2, 32) with 200 tokens: nbytes")
    held = held_bytes(cache)
    case = "Int8KVCache(4, 256, 2, 32) with 200 tokens in each layer: bytes of the arrays that its attributes hold"
    expect(held <= want + 4096, case, expected=f"about {want:,}, as nbytes says", got=f"{held:,}")
    expect(held >= want * 200 // 256, case, expected=f"about {want:,}, as nbytes says", got=f"{held:,}")


def _counts(candidate: type) -> None:
    cache, held = candidate(3, 8, 1, 4), [0, 0, 0]
    expect_equal(int(cache.num_tokens), 0, "a new cache: num_tokens")
    for layer, count in ((2, 4), (0, 5), (1, 3), (2, 1), (1, 3)):
        append(cache, layer, tokens(count), f"{count} tokens in layer {layer} of 3")
        held[layer] += count
        expect_equal(int(cache.num_tokens), min(held), f"{held} tokens in layers 0, 1 and 2: num_tokens")


def _full(candidate: type) -> None:
    cache = candidate(1, 5, 1, 4)
    k, v = tokens(5)
    append(cache, 0, (k[:3], v[:3]), "capacity 5, 3 tokens")
    case = "capacity 5, 3 tokens held, 4 more appended (7 in all)"
    refused(cache, 0, tokens(4), 5, case)
    got = append(cache, 0, (k[3:], v[3:]), f"{case} (refused), then 2 that fit")
    for name, array, given in zip(("k_all", "v_all"), got, (k, v)):
        _close(array, given, f"{case} (refused), then 2 tokens that fit: {name}")


ALL = "append returns every token, within half a scale"
LAYERS = "layers, and caches, are kept apart"
ONCE = "what comes back for a token never changes"
BYTES = "it holds 1 byte a number and 2 a scale, as nbytes says"
COUNTS = "num_tokens counts what every layer holds"
FULL = "a full cache raises and stays as it was"

INT8_CACHE = Exercise(
    id="05.int8_cache",
    title="A cache that keeps int8",
    reference=Int8KVCache,
    budget=4_000_000,
    properties=[
        Property(ALL, _returns_all),
        Property(LAYERS, _layers_apart),
        Property(ONCE, _once),
        Property(BYTES, _nbytes),
        Property(COUNTS, _counts),
        Property(FULL, _full),
    ],
    mutants=[
        Mutant("returns the codes", answers.ReturnsCodes, ALL, "Attention would read whole numbers without their scales."),
        Mutant("keys in both", answers.KeysTwice, ALL, "A copied line with one letter unchanged."),
        Mutant("values with the keys' scales", answers.ScalesOfKeys, ALL, "V is half as loud as K here, and has scales of its own."),
        Mutant("one scale a layer", answers.OneScaleALayer, ALL, "The newest token's scale is not that of the others."),
        Mutant("new tokens only", answers.NewOnly, ALL, "Attention then sees one token."),
        Mutant("one layer for all", answers.OneLayer, LAYERS, "Every layer has its own K and V."),
        Mutant("one cache for all", answers.OneForAll, LAYERS, "A list or an array in the class body belongs to every instance."),
        Mutant("quantizes again", answers.QuantizesAgain, ALL, "Rounding twice is harmless only with exactly the same scale. Here the scale drifts, and the numbers with it."),
        Mutant("rescales with the loudest", answers.Rescales, ALL, "A later loud token spoils all earlier ones."),
        Mutant("the newest unrounded", answers.NewestExact, ONCE, "Today's query reads a better key than tomorrow's. KIVI does so on purpose, and counts its bytes."),
        Mutant("keeps the floats too", answers.KeepsFloats, BYTES, "It works perfectly and saves nothing."),
        Mutant("a copy for reading", answers.KeepsDecoded, BYTES, "The decoded copy is as large as the cache that it was to replace."),
        Mutant("scales not counted", answers.ScalesNotCounted, BYTES, "A sixteenth more here, with heads of 32."),
        Mutant("scales in float64", answers.WideScales, BYTES, "8 bytes for each scale in place of 2."),
        Mutant("counts the first layer", answers.CountsTheFirst, COUNTS, "Halfway through a pass, layer 0 is ahead."),
        Mutant("no check", answers.NoCheck, FULL, "NumPy then complains about shapes."),
        Mutant("counts before it checks", answers.CountsBeforeItChecks, FULL, "After the error the length is wrong for good."),
    ],
    alternatives=[answers.JoinsPieces, answers.OneArray],
)  # fmt: skip
