"""Lesson 01, the cache itself: what a right `KVCache` satisfies, and the wrong ones that people write."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from mini_engine.backends.contiguous import ContiguousKVCache
from mini_engine.course.exercise import Exercise, Mutant, Prediction, Property
from mini_engine.course.expect import expect, expect_close, expect_equal, fail

Array = np.ndarray


class KVCache:
    """K and V of one sequence, reserved up front: arrays [L, capacity, K, D] of float64.

    `append(layer, k[T,K,D], v[T,K,D])` stores T new tokens in one layer and returns everything that layer holds,
    (k_all[S,K,D], v_all[S,K,D]). A token too many raises MemoryError and changes nothing.
    """

    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        self.capacity = capacity
        self.k = np.zeros((num_layers, capacity, num_kv_heads, head_dim))
        self.v = np.zeros((num_layers, capacity, num_kv_heads, head_dim))
        self.lengths = [0] * num_layers

    @property
    def num_tokens(self) -> int:
        """Tokens whose K and V every layer holds."""
        return min(self.lengths)

    @property
    def nbytes(self) -> int:
        """Bytes reserved, used or not."""
        return self.k.nbytes + self.v.nbytes

    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        start, end = self.lengths[layer], self.lengths[layer] + len(k)
        if end > self.capacity:
            raise MemoryError(f"{end} tokens do not fit: the capacity is {self.capacity}. Make a larger cache.")
        self.k[layer, start:end] = k
        self.v[layer, start:end] = v
        self.lengths[layer] = end
        return self.k[layer, :end], self.v[layer, :end]


def _tokens(first: int, count: int) -> tuple[Array, Array]:
    """K and V of `count` tokens from number `first` on, one head of size 1: token i has K = i + 1 and V = -(i + 1)."""
    numbers = np.arange(first + 1.0, first + count + 1.0).reshape(count, 1, 1)
    return numbers.copy(), -numbers


def _append(cache: KVCache, layer: int, tokens: tuple[Array, Array], case: str) -> tuple[Array, Array]:
    try:
        got = cache.append(layer, *tokens)
    except MemoryError as error:
        fail(f"{case}: there is room for it", expected="no error", got=f"{type(error).__name__}: {error}")
    try:
        k_all, v_all = got
    except (TypeError, ValueError):
        fail(f"{case}: append returns a pair of arrays (k_all, v_all)", got=got)
    return k_all, v_all


def _append_and_compare(cache: KVCache, layer: int, new: tuple[Array, Array], held: int, case: str) -> None:
    """Append, then expect exactly tokens 0..held-1 back."""
    got, want = _append(cache, layer, new, case), _tokens(0, held)
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
    _append(cache, 1, (k + 5, v - 5), "a third token in layer 1")
    _append_and_compare(cache, 0, (k, v), 3, "2 tokens in layer 0, 3 in layer 1, then a third in layer 0")
    cache = candidate(5, 4, 1, 1)
    for layer in range(5):
        case = f"5 layers: 1 token in each; layer {layer}"
        for name, array, sign in zip(("k_all", "v_all"), _append(cache, layer, _tokens(layer, 1), case), (1, -1)):
            expect_close(array, np.full((1, 1, 1), sign * (layer + 1.0)), f"{case}: {name}", rtol=0.0)
    for layer in range(5):
        case = f"5 layers: a second token in each; layer {layer}"
        got = _append(cache, layer, _tokens(layer + 5, 1), case)
        for name, array, sign in zip(("k_all", "v_all"), got, (1, -1)):
            want = sign * np.array([layer + 1.0, layer + 6.0]).reshape(2, 1, 1)
            expect_close(array, want, f"{case}: {name}", rtol=0.0)
    ours, theirs = candidate(1, 4, 1, 1), candidate(1, 4, 1, 1)
    _append(ours, 0, _tokens(0, 1), "two caches, 1 token in the first")
    _append_and_compare(theirs, 0, _tokens(0, 2), 2, "two caches, 1 token in the first, then 2 in the second")
    k, v = _tokens(1, 1)
    _append_and_compare(ours, 0, (k, v), 2, "two caches, 1 and 2 tokens, then a second one in the first")


def _heads_and_sizes(candidate: type) -> None:
    for heads, size in ((2, 3), (5, 2)):
        cache, rng = candidate(1, 5, heads, size), np.random.default_rng(0)
        k, v = rng.normal(size=(2, 4, heads, size))
        case = f"{heads} heads of size {size}; 3 tokens, then 1"
        _append(cache, 0, (k[:3], v[:3]), case)
        for name, got, expected in zip(("k_all", "v_all"), _append(cache, 0, (k[3:], v[3:]), case), (k, v)):
            expect_close(got, expected, f"{case}: {name}", rtol=1e-6, same_dtype=False)
            expect(
                got.dtype == np.float64 and bool((got == expected).all()),
                f"{case}: {name} is right to six digits, and not beyond. Is it kept in float32?",
                expected="every digit of float64",
                got=f"{got.dtype}, off by {np.abs(got - expected).max():.1e}",
            )


def _keeps_values(candidate: type) -> None:
    cache, (k, v) = candidate(1, 4, 1, 1), _tokens(0, 1)
    _append(cache, 0, (k, v), "1 token")
    k[:], v[:] = 99.0, 99.0
    _append_and_compare(cache, 0, _tokens(1, 1), 2, "the caller wrote 99 into its own arrays, then appended token 1")


def _refused(cache: KVCache, layer: int, tokens: tuple[Array, Array], capacity: int, case: str) -> None:
    """Append what does not fit. `capacity` is no other number of the case, so a message that holds it names it."""
    wanted = "MemoryError, and a message that names the capacity"
    try:
        cache.append(layer, *tokens)
    except MemoryError as error:
        named = str(capacity) in re.findall(r"\d+", str(error))
        expect(named, f"{case}: the message names the capacity, {capacity}", got=str(error))
        return
    except (NotImplementedError, AttributeError, NameError):
        raise  # a stub or a slip, not an answer to a full cache
    except Exception as error:
        fail(f"{case}: it does not fit", expected=wanted, got=f"{type(error).__name__}: {error}")
    fail(f"{case}: it does not fit", expected=wanted, got="no error")
    raise AssertionError  # for type checkers: fail() always raises


def _full(candidate: type) -> None:
    _append_and_compare(candidate(1, 2, 1, 1), 0, _tokens(0, 2), 2, "capacity 2, 2 tokens at once")
    case = "capacity 5, 3 tokens held, 4 more appended (7 in all)"
    cache = candidate(1, 5, 1, 1)
    _append(cache, 0, _tokens(0, 3), "capacity 5, 3 tokens")
    _refused(cache, 0, _tokens(3, 4), 5, case)
    _append_and_compare(cache, 0, _tokens(3, 2), 5, f"{case} (refused), then 2 tokens that fit")
    _refused(cache, 0, _tokens(5, 1), 5, "capacity 5, 5 tokens held, 1 more appended")
    _refused(candidate(1, 4, 1, 1), 0, _tokens(0, 6), 4, "capacity 4, none held, 6 appended at once")
    _full_in_one_layer(candidate)


def _full_in_one_layer(candidate: type) -> None:
    cache = candidate(3, 4, 1, 1)
    for layer in (0, 1, 2):
        case = f"3 layers, capacity 4 in each; layer {layer}"
        _append_and_compare(cache, layer, _tokens(0, 3), 3, f"{case}, 3 tokens")
    for layer in (0, 1, 2):
        case = f"3 layers, capacity 4, 3 tokens held in each; 2 more appended to layer {layer}"
        _refused(cache, layer, _tokens(3, 2), 4, case)
    for layer in (0, 1, 2):
        case = f"3 layers, capacity 4, 3 tokens held in each; 2 more refused by each, then 1 that fits in layer {layer}"
        _append_and_compare(cache, layer, _tokens(3, 1), 4, case)


def _num_tokens(candidate: type) -> None:
    cache = candidate(2, 4, 1, 1)
    expect_equal(cache.num_tokens, 0, "a new cache: num_tokens")
    _append(cache, 0, _tokens(0, 2), "2 tokens in layer 0 of 2")
    expect_equal(cache.num_tokens, 0, "2 tokens in layer 0, none in layer 1 yet: num_tokens")
    _append(cache, 1, _tokens(0, 2), "2 tokens in layer 1")
    expect_equal(cache.num_tokens, 2, "2 tokens in both layers: num_tokens")
    cache, held = candidate(3, 8, 1, 1), [0, 0, 0]
    for layer, count in ((2, 4), (0, 5), (1, 3), (2, 1), (1, 3)):
        _append(cache, layer, _tokens(held[layer], count), f"{count} tokens in layer {layer} of 3")
        held[layer] += count
        expect_equal(cache.num_tokens, min(held), f"{held} tokens in layers 0, 1 and 2: num_tokens")


def _nbytes(candidate: type) -> None:
    for shape in ((1, 1, 1, 1), (2, 3, 1, 4), (4, 16, 2, 32)):
        numbers = 2 * shape[0] * shape[1] * shape[2] * shape[3]
        expect_equal(candidate(*shape).nbytes, 8 * numbers, f"KVCache{shape}, 8 bytes a number: nbytes")


class _Lists(KVCache):
    """Another right answer: keep the pieces, join them when asked."""

    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        self.shape = (num_layers, capacity, num_kv_heads, head_dim)
        self.pieces: list[list[tuple[Array, Array]]] = [[] for _ in range(num_layers)]

    @property
    def num_tokens(self) -> int:
        return min(sum(len(k) for k, _ in layer) for layer in self.pieces)

    @property
    def nbytes(self) -> int:
        layers, capacity, heads, size = self.shape
        return 16 * layers * capacity * heads * size

    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        kept = [*self.pieces[layer], (np.array(k), np.array(v))]
        if sum(len(piece) for piece, _ in kept) > self.shape[1]:
            raise MemoryError(f"more than {self.shape[1]} tokens")
        self.pieces[layer] = kept
        return np.concatenate([k for k, _ in kept]), np.concatenate([v for _, v in kept])


class _Engines(ContiguousKVCache):
    """The engine's own cache, made from four numbers instead of a ModelSpec."""

    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        spec = SimpleNamespace(
            num_hidden_layers=num_layers, num_key_value_heads=num_kv_heads, head_dim=head_dim, is_mla=False
        )
        super().__init__(spec, capacity)  # type: ignore[arg-type]


class _Pair(NamedTuple):
    keys: Array
    values: Array


class _NamedPair(KVCache):
    """Two arrays are two arrays, whatever holds them."""

    def append(self, layer: int, k: Array, v: Array) -> _Pair:
        return _Pair(*super().append(layer, k, v))


class _ListOfTwo(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> list[Array]:  # type: ignore[override]
        return list(super().append(layer, k, v))


class _AlwaysFromZero(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        self.lengths[layer] = 0
        return super().append(layer, k, v)


class _WholeCapacity(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        super().append(layer, k, v)
        return self.k[layer], self.v[layer]


class _KeysTwice(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        return super().append(layer, k, k)


class _NewOnly(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        k_all, v_all = super().append(layer, k, v)
        return k_all[-len(k) :], v_all[-len(v) :]


class _OneCounter(KVCache):
    """The length is shared by all layers, so layer 1 writes behind layer 0."""

    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        self.lengths[layer] = max(self.lengths)
        return super().append(layer, k, v)


class _HalfPrecision(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        return super().append(layer, k.astype(np.float32), v.astype(np.float32))


class _KeepsReferences(_Lists):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        super().append(layer, k, v)
        self.pieces[layer][-1] = (k, v)
        return np.concatenate([x for x, _ in self.pieces[layer]]), np.concatenate([x for _, x in self.pieces[layer]])


class _LastSlotUnused(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        if self.lengths[layer] + len(k) >= self.capacity:
            raise MemoryError(f"the capacity is {self.capacity}")
        return super().append(layer, k, v)


class _NoCheck(KVCache):
    """Leaves it to NumPy, whose ValueError speaks of shapes."""

    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        start, end = self.lengths[layer], self.lengths[layer] + len(k)
        self.k[layer, start:end], self.v[layer, start:end] = k, v
        self.lengths[layer] = end
        return self.k[layer, :end], self.v[layer, :end]


class _RaisesValueError(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        if self.lengths[layer] + len(k) > self.capacity:
            raise ValueError(f"more than {self.capacity} tokens")
        return super().append(layer, k, v)


class _GrowsSilently(_Lists):
    """No limit at all."""

    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        super().__init__(num_layers, 10**6 * capacity, num_kv_heads, head_dim)


class _CountsBeforeItChecks(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        try:
            return super().append(layer, k, v)
        except MemoryError:
            self.lengths[layer] += len(k)
            raise


class _CountsTheFirstLayer(KVCache):
    @property
    def num_tokens(self) -> int:
        return self.lengths[0]


class _HalfTheBytes(KVCache):
    @property
    def nbytes(self) -> int:
        return self.k.nbytes


class _SharedByAll(KVCache):
    """`lengths`, `k` and `v` are attributes of the class."""

    def __init__(self, num_layers: int, capacity: int, num_kv_heads: int, head_dim: int) -> None:
        super().__init__(num_layers, capacity, num_kv_heads, head_dim)
        for name in ("k", "v", "lengths"):
            setattr(type(self), name, self.__dict__.pop(name))


class _ChecksLayerZero(_Lists):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        if layer == 0:
            return super().append(layer, k, v)
        self.pieces[layer].append((np.array(k), np.array(v)))
        return np.concatenate([x for x, _ in self.pieces[layer]]), np.concatenate([x for _, x in self.pieces[layer]])


class _SilentWhenFull(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        if self.lengths[layer] == self.capacity:
            return self.k[layer], self.v[layer]
        return super().append(layer, k, v)


class _CutsTheFirst(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        if self.lengths[layer] == 0:
            k, v = k[: self.capacity], v[: self.capacity]
        return super().append(layer, k, v)


class _CapacityOfAllLayers(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        if sum(self.lengths) + len(k) > self.capacity:
            raise MemoryError(f"the capacity is {self.capacity}")
        return super().append(layer, k, v)


class _ForgetsTheOthers(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        try:
            return super().append(layer, k, v)
        except MemoryError:
            self.lengths = [n if i == layer else 0 for i, n in enumerate(self.lengths)]
            raise


class _NamesTheTokens(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        try:
            return super().append(layer, k, v)
        except MemoryError:
            raise MemoryError(f"{len(k)} tokens more make {self.lengths[layer] + len(k)}, too many") from None


class _TwoLayersOnly(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        return super().append(layer % 2, k, v)


class _HeadsReversed(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        k_all, v_all = super().append(layer, k, v)
        return (k_all, v_all) if k.shape[1] <= 2 else (k_all[:, ::-1], v_all[:, ::-1])


class _LastEight(KVCache):
    def append(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        k_all, v_all = super().append(layer, k, v)
        return k_all[-8:], v_all[-8:]


class _CountsTheLastLayer(KVCache):
    @property
    def num_tokens(self) -> int:
        return self.lengths[-1]


KV_CACHE = Exercise(
    id="01.kv_cache",
    title="A KV cache",
    reference=KVCache,
    properties=[
        Property("append returns all K and V so far, in order", _returns_all),
        Property("layers are kept apart", _layers_apart),
        Property("heads, sizes and digits come back unchanged", _heads_and_sizes),
        Property("it keeps values, not the caller's arrays", _keeps_values),
        Property("a full cache raises and stays as it was", _full),
        Property("num_tokens counts what every layer holds", _num_tokens),
        Property("nbytes is what is reserved", _nbytes),
    ],
    mutants=[
        Mutant(
            "always writes from row 0",
            _AlwaysFromZero,
            "append returns all K and V so far, in order",
            "Each token overwrites the one before it.",
        ),
        Mutant(
            "returns the whole reservation",
            _WholeCapacity,
            "append returns all K and V so far, in order",
            "The unused rows are zeros. A zero key scores 0, which is not minus infinity: softmax gives it weight.",
        ),
        Mutant(
            "returns the new rows only",
            _NewOnly,
            "append returns all K and V so far, in order",
            "Attention then sees one token, and the text falls apart.",
        ),
        Mutant(
            "keys in both arrays",
            _KeysTwice,
            "append returns all K and V so far, in order",
            "A copied line with one letter unchanged.",
        ),
        Mutant(
            "one counter for all layers",
            _OneCounter,
            "layers are kept apart",
            "Layers append one after another in the same pass. If layer 0 moves the counter, layer 1 leaves a gap.",
        ),
        Mutant(
            "float32 inside",
            _HalfPrecision,
            "heads, sizes and digits come back unchanged",
            "Rounded to 24 bits on the way in. Fine in production, wrong for an oracle.",
        ),
        Mutant(
            "keeps the caller's arrays",
            _KeepsReferences,
            "it keeps values, not the caller's arrays",
            "The model may reuse its buffers; the cache then changes behind your back.",
        ),
        Mutant(
            "refuses the last slot",
            _LastSlotUnused,
            "a full cache raises and stays as it was",
            "`>=` for `>`: a cache of n holds n tokens.",
        ),
        Mutant(
            "no check",
            _NoCheck,
            "a full cache raises and stays as it was",
            "NumPy then complains about shapes, and nobody learns that the cache is full.",
        ),
        Mutant(
            "raises ValueError",
            _RaisesValueError,
            "a full cache raises and stays as it was",
            "Callers wait for MemoryError, to make room and try again.",
        ),
        Mutant(
            "grows without limit",
            _GrowsSilently,
            "a full cache raises and stays as it was",
            "The reservation was a promise to the rest of the machine.",
        ),
        Mutant(
            "counts before it checks",
            _CountsBeforeItChecks,
            "a full cache raises and stays as it was",
            "After the error the length is wrong for good.",
        ),
        Mutant(
            "counts the first layer",
            _CountsTheFirstLayer,
            "num_tokens counts what every layer holds",
            "Halfway through a pass, layer 0 is one token ahead.",
        ),
        Mutant(
            "the last eight tokens",
            _LastEight,
            "append returns all K and V so far, in order",
            "A window keeps memory small, and the model forgets how the text began.",
        ),
        Mutant(
            "one cache for all",
            _SharedByAll,
            "layers are kept apart",
            "A list or an array in the class body belongs to every instance: two requests then write into one cache.",
        ),
        Mutant(
            "two layers only",
            _TwoLayersOnly,
            "layers are kept apart",
            "Right for a test with two layers.",
        ),
        Mutant(
            "heads turned round",
            _HeadsReversed,
            "heads, sizes and digits come back unchanged",
            "One or two heads can hide an order that is wrong.",
        ),
        Mutant(
            "checks layer 0 only",
            _ChecksLayerZero,
            "a full cache raises and stays as it was",
            "Every layer has its own length, so every layer can be full.",
        ),
        Mutant(
            "silent when full",
            _SilentWhenFull,
            "a full cache raises and stays as it was",
            "A token that is dropped without a word spoils the text without a trace.",
        ),
        Mutant(
            "cuts the first append",
            _CutsTheFirst,
            "a full cache raises and stays as it was",
            "Part of a prompt is not the prompt.",
        ),
        Mutant(
            "one capacity for all layers",
            _CapacityOfAllLayers,
            "layers are kept apart",
            "`capacity` counts tokens, and a token is in every layer.",
        ),
        Mutant(
            "forgets the other layers",
            _ForgetsTheOthers,
            "a full cache raises and stays as it was",
            "Refused means that nothing has changed, anywhere.",
        ),
        Mutant(
            "names the tokens, not the capacity",
            _NamesTheTokens,
            "a full cache raises and stays as it was",
            "Whoever reads the message wants to know how large the cache is.",
        ),
        Mutant(
            "counts the last layer",
            _CountsTheLastLayer,
            "num_tokens counts what every layer holds",
            "It is the last one in a pass, and nothing says that only whole passes are counted.",
        ),
        Mutant("forgets V", _HalfTheBytes, "nbytes is what is reserved", "The factor 2 is for K and V."),
    ],
    alternatives=[_Lists, _Engines, _NamedPair, _ListOfTwo],
)

BYTES_PER_TOKEN = Prediction(
    "01.bytes_per_token",
    "SmolLM2-135M: 30 layers, 9 query heads, 3 K/V heads of size 64, 2 bytes a number. Cache bytes for one token?",
    2 * 30 * 3 * 64 * 2,
    "B",
    mistakes=[
        (30 * 3 * 64 * 2, "Half of it. There are two factors of 2: K and V are both kept, and a number takes 2 bytes."),
        (2 * 30 * 9 * 64 * 2, "Queries are not kept. Only the 3 K/V heads count, not the 9 query heads."),
        (30 * 9 * 64 * 2, "Only the 3 K/V heads count, not the 9 query heads. And V is kept as well as K."),
        (2 * 3 * 64 * 2, "That is one layer. Each of the 30 layers keeps its own K and V."),
        (2 * 30 * 64 * 2, "That is one K/V head. There are 3 in each layer."),
        (2 * 30 * 3 * 64 * 8, "That is float64, 8 bytes a number, as in this notebook. The question says 2 bytes."),
        (2 * 30 * 3 * 64 * 4, "That is 4 bytes a number. The question says 2."),
    ],
    because="2 (K and V) x 30 layers x 3 heads x 64 numbers x 2 bytes = 23,040 B = 22.5 KiB.",
    rtol=0,
)

ONE_TOKEN_ANSWER = Prediction(
    "01.one_token",
    "A prompt of 500 tokens, an answer of one token. How many token-forwards does the cache save?",
    0,
    "token-forwards",
    mistakes=[
        (500, "Prompt tokens run once in both cases."),
        (499, "There is one pass in both cases, and it is the same pass."),
        (1, "The one new token is returned and never run, with or without a cache."),
    ],
    because="One pass, 500 tokens, either way. The cache costs memory and saves nothing.",
    rtol=0,
)

TOKENS_IN_A_GIB = Prediction(
    "01.tokens_in_a_gib",
    "At 23,040 B a token, how many tokens of SmolLM2 fit into 1 GiB of cache?",
    2**30 // 23040,
    "tokens",
    mistakes=[
        (10**9 // 23040, "That is 1 GB, 1,000,000,000 bytes. 1 GiB is 1,073,741,824 bytes."),
        (2**30 // 11520, "That is K or V alone. The 23,040 bytes hold both."),
        (2**20 // 23040, "That is 1 MiB. A GiB has 1,024 of them."),
    ],
    because="1,073,741,824 // 23,040 = 46,603. Two answers of 23,000 tokens, or many short ones.",
    rtol=0.0002,
)
