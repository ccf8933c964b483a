"""Lesson 01, the cache itself: what a right `KVCache` satisfies."""

from __future__ import annotations

import tracemalloc

import numpy as np

from mini_engine.course.exercise import Exercise, Mutant, Property
from mini_engine.course.exercises import answers01_kv_cache as answers
from mini_engine.course.exercises.cache_cases import appended, refused
from mini_engine.course.expect import expect, expect_close, expect_equal

Array = np.ndarray


def _tokens(first: int, count: int) -> tuple[Array, Array]:
    """K and V of `count` tokens from number `first` on, one head of size 1: token i has K = i + 1 and V = -(i + 1)."""
    numbers = np.arange(first + 1.0, first + count + 1.0).reshape(count, 1, 1)
    return numbers.copy(), -numbers


def _append_and_compare(cache: answers.KVCache, layer: int, new: tuple[Array, Array], held: int, case: str) -> None:
    """Append, then expect exactly tokens 0..held-1 back."""
    got, want = appended(cache, layer, new, case), _tokens(0, held)
    for name, array, expected in zip(("k_all", "v_all"), got, want):
        expect_close(array, expected, f"{case}: {name}", rtol=0.0)


def _returns_all(candidate: type) -> None:
    for pieces in ([1], [1, 1], [3], [3, 1, 1], [9, 1, 1], [30, 1]):
        cache, held = candidate(1, sum(pieces) + 1, 1, 1), 0
        for count in pieces:
            held += count
            case = f"tokens appended {' + '.join(map(str, pieces))}; after {held}"
            _append_and_compare(cache, 0, _tokens(held - count, count), held, case)


def _layers_apart(candidate: type) -> None:
    cache = candidate(2, 4, 1, 1)
    _append_and_compare(cache, 0, _tokens(0, 2), 2, "2 tokens in layer 0")
    _append_and_compare(cache, 1, _tokens(0, 2), 2, "2 tokens in layer 0, then 2 in layer 1")
    k, v = _tokens(2, 1)
    appended(cache, 1, (k + 5, v - 5), "a third token in layer 1")
    _append_and_compare(cache, 0, (k, v), 3, "2 tokens in layer 0, 3 in layer 1, then a third in layer 0")
    cache = candidate(5, 4, 1, 1)
    for layer in range(5):
        case = f"5 layers: 1 token in each; layer {layer}"
        for name, array, sign in zip(("k_all", "v_all"), appended(cache, layer, _tokens(layer, 1), case), (1, -1)):
            expect_close(array, np.full((1, 1, 1), sign * (layer + 1.0)), f"{case}: {name}", rtol=0.0)
    for layer in range(5):
        case = f"5 layers: a second token in each; layer {layer}"
        got = appended(cache, layer, _tokens(layer + 5, 1), case)
        for name, array, sign in zip(("k_all", "v_all"), got, (1, -1)):
            want = sign * np.array([layer + 1.0, layer + 6.0]).reshape(2, 1, 1)
            expect_close(array, want, f"{case}: {name}", rtol=0.0)
    ours, theirs = candidate(1, 4, 1, 1), candidate(1, 4, 1, 1)
    appended(ours, 0, _tokens(0, 1), "two caches, 1 token in the first")
    _append_and_compare(theirs, 0, _tokens(0, 2), 2, "two caches, 1 token in the first, then 2 in the second")
    k, v = _tokens(1, 1)
    _append_and_compare(ours, 0, (k, v), 2, "two caches, 1 and 2 tokens, then a second one in the first")


def _heads_and_sizes(candidate: type) -> None:
    for heads, size in ((2, 3), (5, 2)):
        cache, rng = candidate(1, 5, heads, size), np.random.default_rng(0)
        k, v = rng.normal(size=(2, 4, heads, size))
        case = f"{heads} heads of size {size}; 3 tokens, then 1"
        appended(cache, 0, (k[:3], v[:3]), case)
        for name, got, expected in zip(("k_all", "v_all"), appended(cache, 0, (k[3:], v[3:]), case), (k, v)):
            expect_close(got, expected, f"{case}: {name}", rtol=1e-6, same_dtype=False)
            expect(
                got.dtype == np.float64 and bool((got == expected).all()),
                f"{case}: {name} is right to six digits, and not beyond. Is it kept in float32?",
                expected="every digit of float64",
                got=f"{got.dtype}, off by {np.abs(got - expected).max():.1e}",
            )


def _keeps_values(candidate: type) -> None:
    cache, (k, v) = candidate(1, 4, 1, 1), _tokens(0, 1)
    appended(cache, 0, (k, v), "1 token")
    k[:], v[:] = 99.0, 99.0
    _append_and_compare(cache, 0, _tokens(1, 1), 2, "the caller wrote 99 into its own arrays, then appended token 1")


def _full(candidate: type) -> None:
    _append_and_compare(candidate(1, 2, 1, 1), 0, _tokens(0, 2), 2, "capacity 2, 2 tokens at once")
    case = "capacity 5, 3 tokens held, 4 more appended (7 in all)"
    cache = candidate(1, 5, 1, 1)
    appended(cache, 0, _tokens(0, 3), "capacity 5, 3 tokens")
    refused(cache, 0, _tokens(3, 4), 5, case)
    _append_and_compare(cache, 0, _tokens(3, 2), 5, f"{case} (refused), then 2 tokens that fit")
    refused(cache, 0, _tokens(5, 1), 5, "capacity 5, 5 tokens held, 1 more appended")
    refused(candidate(1, 4, 1, 1), 0, _tokens(0, 6), 4, "capacity 4, none held, 6 appended at once")
    _full_in_one_layer(candidate)


def _full_in_one_layer(candidate: type) -> None:
    cache = candidate(3, 4, 1, 1)
    for layer in (0, 1, 2):
        case = f"3 layers, capacity 4 in each; layer {layer}"
        _append_and_compare(cache, layer, _tokens(0, 3), 3, f"{case}, 3 tokens")
    for layer in (0, 1, 2):
        case = f"3 layers, capacity 4, 3 tokens held in each; 2 more appended to layer {layer}"
        refused(cache, layer, _tokens(3, 2), 4, case)
    for layer in (0, 1, 2):
        case = f"3 layers, capacity 4, 3 tokens held in each; 2 more refused by each, then 1 that fits in layer {layer}"
        _append_and_compare(cache, layer, _tokens(3, 1), 4, case)


def _num_tokens(candidate: type) -> None:
    cache = candidate(2, 4, 1, 1)
    expect_equal(cache.num_tokens, 0, "a new cache: num_tokens")
    appended(cache, 0, _tokens(0, 2), "2 tokens in layer 0 of 2")
    expect_equal(cache.num_tokens, 0, "2 tokens in layer 0, none in layer 1 yet: num_tokens")
    appended(cache, 1, _tokens(0, 2), "2 tokens in layer 1")
    expect_equal(cache.num_tokens, 2, "2 tokens in both layers: num_tokens")
    cache, held = candidate(3, 8, 1, 1), [0, 0, 0]
    for layer, count in ((2, 4), (0, 5), (1, 3), (2, 1), (1, 3)):
        appended(cache, layer, _tokens(held[layer], count), f"{count} tokens in layer {layer} of 3")
        held[layer] += count
        expect_equal(cache.num_tokens, min(held), f"{held} tokens in layers 0, 1 and 2: num_tokens")


def _nbytes(candidate: type) -> None:
    for shape in ((1, 1, 1, 1), (2, 3, 1, 4), (4, 16, 2, 32)):
        numbers = 2 * shape[0] * shape[1] * shape[2] * shape[3]
        expect_equal(candidate(*shape).nbytes, 8 * numbers, f"KVCache{shape}, 8 bytes a number: nbytes")
    was_tracing = tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        cache = candidate(4, 1000, 2, 32)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        if not was_tracing:
            tracemalloc.stop()
    case = "KVCache(4, 1000, 2, 32), before the first token: the memory that it has taken"
    expect(taken >= cache.nbytes, case, expected=f"at least its nbytes, {cache.nbytes:,}", got=f"{taken:,} bytes")


ORDER, LAYERS, UNCHANGED, VALUES, FULL, COUNT, BYTES = (
    "append returns all K and V so far, in order",
    "layers are kept apart",
    "heads, sizes and digits come back unchanged",
    "it keeps values, not the caller's arrays",
    "a full cache raises and stays as it was",
    "num_tokens counts what every layer holds",
    "nbytes is what is reserved",
)

KV_CACHE = Exercise(
    id="01.kv_cache",
    title="A KV cache",
    reference=answers.KVCache,
    properties=[
        Property(ORDER, _returns_all),
        Property(LAYERS, _layers_apart),
        Property(UNCHANGED, _heads_and_sizes),
        Property(VALUES, _keeps_values),
        Property(FULL, _full),
        Property(COUNT, _num_tokens),
        Property(BYTES, _nbytes),
    ],
    mutants=[
        Mutant("always writes from row 0", answers.AlwaysFromZero, ORDER, "Each token overwrites the one before it."),
        Mutant("returns the whole reservation", answers.WholeCapacity, ORDER, "The unused rows are zeros. A zero key scores 0, which is not minus infinity: softmax gives it weight."),
        Mutant("returns the new rows only", answers.NewOnly, ORDER, "Attention then sees one token, and the text falls apart."),
        Mutant("keys in both arrays", answers.KeysTwice, ORDER, "A copied line with one letter unchanged."),
        Mutant("one counter for all layers", answers.OneCounter, LAYERS, "Layers append one after another in the same pass. If layer 0 moves the counter, layer 1 leaves a gap."),
        Mutant("float32 inside", answers.HalfPrecision, UNCHANGED, "Rounded to 24 bits on the way in. Fine in production, wrong for an oracle."),
        Mutant("keeps the caller's arrays", answers.KeepsReferences, VALUES, "The model may reuse its buffers; the cache then changes behind your back."),
        Mutant("refuses the last slot", answers.LastSlotUnused, FULL, "`>=` for `>`: a cache of n holds n tokens."),
        Mutant("no check", answers.NoCheck, FULL, "NumPy then complains about shapes, and nobody learns that the cache is full."),
        Mutant("raises ValueError", answers.RaisesValueError, FULL, "Callers wait for MemoryError, to make room and try again."),
        Mutant("grows without limit", answers.GrowsSilently, FULL, "The reservation was a promise to the rest of the machine."),
        Mutant("counts before it checks", answers.CountsBeforeItChecks, FULL, "After the error the length is wrong for good."),
        Mutant("counts the first layer", answers.CountsTheFirstLayer, COUNT, "Halfway through a pass, layer 0 is one token ahead."),
        Mutant("the last eight tokens", answers.LastEight, ORDER, "A window keeps memory small, and the model forgets how the text began."),
        Mutant("one cache for all", answers.SharedByAll, LAYERS, "A list or an array in the class body belongs to every instance: two requests then write into one cache."),
        Mutant("two layers only", answers.TwoLayersOnly, LAYERS, "Right for a test with two layers."),
        Mutant("heads turned round", answers.HeadsReversed, UNCHANGED, "One or two heads can hide an order that is wrong."),
        Mutant("checks layer 0 only", answers.ChecksLayerZero, FULL, "Every layer has its own length, so every layer can be full."),
        Mutant("silent when full", answers.SilentWhenFull, FULL, "A token that is dropped without a word spoils the text without a trace."),
        Mutant("cuts the first append", answers.CutsTheFirst, FULL, "Part of a prompt is not the prompt."),
        Mutant("one capacity for all layers", answers.CapacityOfAllLayers, LAYERS, "`capacity` counts tokens, and a token is in every layer."),
        Mutant("forgets the other layers", answers.ForgetsTheOthers, FULL, "Refused means that nothing has changed, anywhere."),
        Mutant("names the tokens, not the capacity", answers.NamesTheTokens, FULL, "Whoever reads the message wants to know how large the cache is."),
        Mutant("counts the last layer", answers.CountsTheLastLayer, COUNT, "It is the last one in a pass, and nothing says that only whole passes are counted."),
        Mutant("keeps the pieces", answers.Lists, BYTES, "It names a reservation that it never made: the memory may be gone when a token comes."),
        Mutant("forgets V", answers.HalfTheBytes, BYTES, "The factor 2 is for K and V."),
    ],
    alternatives=[answers.Engines, answers.NamedPair, answers.ListOfTwo],
)  # fmt: skip
